"""The tables of docs/results.md and docs/results-introduced.md, so that neither page can drift from the numbers.

python -m tools.results_page         # from the root of the repository: marked blocks of both pages, and figures

A block begins with the line `<!-- table: NAME -->` and ends with `<!-- end -->`. Those of docs/results.md are made by
tools/evidence_tables.py, paper_evidence.py and same_accuracy.py, from results/evidence; the others here, from
results/paper. They take whatever files are there, and of each the seeds that all six selectors of table I have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from equifl._numerics.checks import integer, known
from equifl.experiment.config import Config
from equifl.experiment.selector_tables import make_selector
from equifl.metrics import round_bytes
from equifl.paper.claims import Verdict, values_of
from equifl.paper.runs import KEPT, PaperResults, verdicts
from equifl.paper.tables import DATA, MEASURES, VARIANTS, Row, configuration, rows, six, titles
from equifl.selectors.base import needs
from equifl.signals import Floats
from equifl.statistics import excludes_zero, interval, paired
from tools import evidence_figures, evidence_tables, paper_evidence, same_accuracy
from tools.evidence_tables import NAMES, table

RESULTS, PAGE = Path("results/paper"), Path("docs/results-introduced.md")
COLUMNS = ("Random", "Power-of-Choice", "DivFL", "SubTrunc", "UnionFL", "Rota")
SETTINGS: Mapping[str, str] = {
    "paper": "the paper's, stale",
    "fresh": "fresh signals",
    "exact": "exact greedy",
    "dirichlet_0.1": "Dirichlet 0.1",
    "dirichlet_0.5": "Dirichlet 0.5",
    "unequal": "unequal sizes",
    "online_0.3": "30 % online",
    "averaged": "mean of the last 10 models",
    "averaged_by_loss": "the same, weighted by loss",
    "long": "five times the rounds",
}
_BLOCK = re.compile(r"(<!-- table: ([^\n]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewrite(page: str, blocks: Mapping[str, str]) -> str:
    r"""The page with these blocks between its markers.

    >>> rewrite("a\n<!-- table: x -->\nold\n<!-- end -->\nb", {"x": "new"})
    'a\n<!-- table: x -->\n\nnew\n\n<!-- end -->\nb'
    """
    known("table", names(page), blocks)
    return _BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n\n{found[3]}", page)


def names(page: str) -> list[str]:
    """The blocks that a page has room for."""
    return [name for _, name, _ in _BLOCK.findall(page)]


def make_blocks(folder: Path = RESULTS) -> dict[str, str]:
    """Every block of docs/results-introduced.md, by its name."""
    first, *others = titles()
    return {
        "table I": paper_tables([first], folder),
        "training loss": training_loss(folder),
        "tables II to IV": paper_tables(others, folder),
        "claims": claims_table(folder),
        "same as DivFL": same_as_divfl(folder),
        **{f"beyond {data}": beyond(data, folder) for data in DATA},
        "stale and fresh": _each(
            stale_and_fresh, [data for data in DATA if Setting(data, "fresh", folder).seeds], folder
        ),
        "over rounds": _each(over_rounds, DATA, folder),
    }


@dataclass(frozen=True)
class Setting:
    """The runs of one data set in one setting.

    >>> Setting("mnist", "fresh", Path("an empty folder")).seeds
    []
    """

    data: str
    variant: str
    folder: Path

    @cached_property
    def results(self) -> PaperResults:
        return PaperResults.read(self.folder / f"{self.data}-{self.variant}.json")

    @cached_property
    def seeds(self) -> list[int]:
        """Those that every selector of table I has; none if nothing was run."""
        return sorted(set.intersection(*(set(self.results.runs.get(name, {})) for name in six(self.data))))

    def values(self, selector: str, measure: str, seeds: Sequence[int] | None = None) -> Floats:
        """Final figures, one a seed; of all seeds unless `seeds` says which."""
        return values_of(self.results.finals(), self.seeds if seeds is None else seeds)(selector, measure)

    def dissimilarity(self, selector: str, round: int) -> Floats:
        """After so many rounds, one a seed."""
        return np.array([self.results.runs[selector][seed]["rounds"][str(round)][1] for seed in self.seeds])


def paper_tables(wanted: Iterable[str], folder: Path = RESULTS) -> str:
    """Tables of the paper: its mean and deviation beside our mean and interval."""
    settings = [Setting(data, "paper", folder) for data in DATA]
    header = [""]
    for setting in settings:
        ours = f"ours ({len(setting.seeds)} seeds)"
        header += [f"{NAMES[setting.data]} acc. paper", ours, "dissim. paper", "ours"]
    lines = []
    for title in wanted:
        for both in zip(*(rows(title, data) for data in DATA), strict=True):
            halves = [_paper_cells(row, setting, MEASURES[1:]) for row, setting in zip(both, settings, strict=True)]
            lines.append([both[0].title, *chain.from_iterable(halves)])
    return table(header, lines)


def _paper_cells(row: Row, setting: Setting, measures: Iterable[str]) -> list[str]:
    cells = []
    for measure in measures:
        cells.append("{:.2f} ± {:.2f}".format(*row.printed[measure]) if row.printed else "")
        cells.append("{:.2f} ± {:.2f}".format(*interval(setting.values(row.selector, measure))))
    return cells


def training_loss(folder: Path = RESULTS) -> str:
    """The training loss of table I: the paper's mean and deviation beside our mean and interval."""
    settings = [Setting(data, "paper", folder) for data in DATA]
    header = [""]
    for setting in settings:
        header += [f"{NAMES[setting.data]} paper", f"ours ({len(setting.seeds)} seeds)"]
    lines = []
    for both in zip(*(rows("table1", data) for data in DATA), strict=True):
        halves = [_paper_cells(row, setting, ["local_loss"]) for row, setting in zip(both, settings, strict=True)]
        lines.append([both[0].title, *chain.from_iterable(halves)])
    return table(header, lines)


def claims_table(folder: Path = RESULTS) -> str:
    """What the paper says in words, judged."""
    judged = []
    for data in DATA:
        setting = Setting(data, "paper", folder)
        judged.append(verdicts(titles(), data, setting.results.finals(), setting.seeds))
    lines = [[both[0].claim.text, *map(_verdict, both)] for both in zip(*judged, strict=True)]
    return table(["claim", *(NAMES[data] for data in DATA)], lines)


def _verdict(verdict: Verdict) -> str:
    return f"{verdict.word} ({verdict.figures})"


def same_as_divfl(folder: Path = RESULTS) -> str:
    """Runs of SubTrunc that agree with DivFL's in every figure kept of every tenth round, bytes aside."""

    def learned(run: Mapping[str, Any]) -> tuple[Any, ...]:
        return run["rounds"], *(run["final"][name] for name in (*KEPT, "gini"))

    lines = []
    for data in DATA:
        setting = Setting(data, "paper", folder)
        runs = setting.results.runs
        same = [
            sum(learned(runs[row.selector][seed]) == learned(runs["divfl"][seed]) for seed in setting.seeds)
            for row in rows("table2", data)
        ]
        lines.append([NAMES[data], *(f"{count} of {len(setting.seeds)}" for count in same)])
    return table(["", *(row.title for row in rows("table2", DATA[0]))], lines)


def beyond(data: str, folder: Path = RESULTS) -> str:
    """Dissimilarity (accuracy) in every setting that was run; in bold what differs from Random, paired by seed."""
    settings = [Setting(data, variant, folder) for variant in VARIANTS]
    lines = [
        [SETTINGS[setting.variant], str(len(setting.seeds))]
        + [_beyond_cell(setting, selector) for selector in _columns(data).values()]
        for setting in settings
        if setting.seeds
    ]
    return table(["setting", "seeds", *COLUMNS], lines)


def _beyond_cell(setting: Setting, selector: str) -> str:
    even = "{:.1f} ± {:.1f}".format(*interval(setting.values(selector, "dissimilarity")))
    right = f"{setting.values(selector, 'accuracy').mean():.1f}"
    marks = ["**" if _unlike_random(setting, selector, name) else "" for name in ("dissimilarity", "accuracy")]
    return "{0}{2}{0} ({1}{3}{1})".format(*marks, even, right)


def _unlike_random(setting: Setting, selector: str, measure: str) -> bool:
    return excludes_zero(*paired(setting.values(selector, measure), setting.values("uniform", measure)))


def stale_and_fresh(data: str, folder: Path = RESULTS) -> str:
    """What asking everybody every round changes in the same seeds, and what all clients then send in a run."""
    stale, fresh = (Setting(data, variant, folder) for variant in ("paper", "fresh"))
    seeds = [seed for seed in fresh.seeds if seed in stale.seeds]
    lines = []
    for title, selector in _columns(data).items():
        line = [title]
        for measure in ("dissimilarity", "accuracy"):
            old, new = (setting.values(selector, measure, seeds) for setting in (stale, fresh))
            line += [f"{old.mean():.1f}", f"{new.mean():.1f}", _difference(new, old)]
        for variant in ("paper", "fresh"):
            sent = bytes_up(configuration(data, [selector], [0], variant), selector, _parameters(fresh))
            line.append(f"{sent / 2**20:.1f}")
        lines.append(line)
    header = [f"{NAMES[data]}, {len(seeds)} seeds"]
    header += ["dissim. stale", "fresh", "difference", "acc. stale", "fresh", "difference", "MiB up stale", "fresh"]
    return table(header, lines)


def bytes_up(config: Config, name: str, parameters: int) -> int:
    """What all clients send in a run without dropouts; with stale signals, including the reports before round 0."""
    count = partial(
        round_bytes,
        clients=integer("clients", config.clients, least=1),
        parameters=parameters,
        needs=needs(make_selector(name, config.selectors[name])),
    )
    fresh = config.signal == "gradient"
    _, training = count(cohort=config.cohort_size(0), fresh=fresh)
    _, introduction = count(cohort=0, fresh=True)
    return config.rounds * training + (0 if fresh else introduction)


def _parameters(setting: Setting) -> int:
    """Size of the model: to Random's cohort it is sent, and nothing else."""
    down = setting.values("uniform", "bytes_down")[0]
    return int(down) // (4 * configuration(setting.data, ["uniform"], [0]).cohort_size(0))


def over_rounds(data: str, folder: Path = RESULTS) -> str:
    """Dissimilarity as training goes on: within the rounds of table I, then up to five times as many."""
    short, long = Setting(data, "paper", folder), Setting(data, "long", folder)
    rounds = configuration(data, ["uniform"], [0]).rounds
    points = [(short, round) for round in (10, 20, 40, rounds)]
    points += [(long, times * rounds) for times in range(2, 6) if long.seeds]
    lines = [["seeds", *(str(len(setting.seeds)) for setting, _ in points)]]
    for title, selector in _columns(data).items():
        lines.append([title, *(f"{setting.dissimilarity(selector, round).mean():.1f}" for setting, round in points)])
    against = {"Rota less Random": "uniform", "Rota less DivFL": "divfl"}
    for title, other in against.items():
        pairs = [[setting.dissimilarity(name, round) for name in ("rota", other)] for setting, round in points]
        lines.append([title, *(_difference(*pair) for pair in pairs)])
    return table([f"{NAMES[data]}, after round", *(str(round) for _, round in points)], lines)


def _columns(data: str) -> dict[str, str]:
    """Selector by title, from Random to Rota."""
    selectors = {row.title: row.selector for row in rows("table1", data)}
    return {title: selectors[title] for title in COLUMNS}


def _each(make: Callable[[str, Path], str], names: Iterable[str], folder: Path) -> str:
    return "\n\n".join(make(data, folder) for data in names)


def _difference(values: Floats, baseline: Floats) -> str:
    return "{:+.2f} ± {:.2f}".format(*paired(values, baseline))


if __name__ == "__main__":
    for page, blocks in (
        (PAGE, make_blocks()),
        (evidence_tables.PAGE, evidence_tables.blocks() | paper_evidence.blocks() | same_accuracy.blocks()),
    ):
        page.write_text(rewrite(page.read_text(), blocks))
    evidence_figures.write()
