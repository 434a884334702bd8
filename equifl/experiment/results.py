"""Results of an experiment: its records, as tables, data frames, figures and a report."""

from __future__ import annotations

import html
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from equifl._numerics.checks import require
from equifl.experiment import frames
from equifl.experiment.endpoint import cycle
from equifl.experiment.names import display_name, listed, notes_on
from equifl.experiment.run_folder import SWEEP, RunFolder
from equifl.experiment.sweep import baseline_of, parameters_of, sweep_folders, with_parameters
from equifl.experiment.table import Table, make_table
from equifl.experiment.task_table import Score, is_evaluated, score_of

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("equifl")

Records = list[dict[str, Any]]  # a JSON object a round, selector and seed, in the order of playing


@dataclass(frozen=True, eq=False)
class Results:
    """The records of an experiment, finished or not. It shows its table, in a terminal and in a notebook.

    Args:
        config: the configuration, as plain values.
        made_with: versions, commit and machine.
        records: one a round, selector and seed.
        folder: where they are kept; None = in memory alone, or joined from several folders.
        parts: the results that were joined, by name, each in its whole rounds.
        left_out: what is damaged in the folder, and therefore not among the records; "" if nothing is.
    """

    config: Mapping[str, Any]
    made_with: Mapping[str, Any]
    records: Records = field(repr=False)
    folder: Path | None = None
    parts: Mapping[str, Results] = field(default_factory=dict, repr=False)
    left_out: str = ""

    @cached_property
    def whole_rounds(self) -> Records:
        """The records of rounds that every selector and seed has played; one that goes on may be writing the next."""
        if self.parts:
            return self.records
        played = Counter(record["round"] for record in self.records)
        runs = len(self.config["selectors"]) * len(self.config["seeds"])
        return [record for record in self.records if played[record["round"]] == runs]

    @property
    def rounds_played(self) -> int:
        """How many rounds every selector and seed has played."""
        if self.parts:
            return min(part.rounds_played for part in self.parts.values())
        return len({record["round"] for record in self.whole_rounds})

    @property
    def finished(self) -> bool:
        """Whether nothing is left to play; a live federation has no number of rounds, and is never finished."""
        if self.parts:
            return all(part.finished for part in self.parts.values())
        return self.rounds_played == self.config["rounds"]

    @cached_property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """The swept parameters of each selector: those in brackets in its name.

        `subtrunc[lam=0.5]` is a selector `subtrunc` with a column `lam` of 0.5.
        """
        found = {name: parameters_of(name) for name in self.config["selectors"]}
        return {name: parameters for name, parameters in found.items() if parameters}

    @property
    def score(self) -> Score:
        """What evaluation reports: accuracy in percent, or another task's score, as the configuration says."""
        return score_of(self.config)

    def table(
        self,
        *,
        baseline: str | None = "uniform",
        measures: Iterable[str] | None = None,
        correction: Literal["holm"] | None = "holm",
        at: Literal["last", "late", "matched"] = "last",
    ) -> Table:
        """Every selector: mean and 95 % interval over seeds, and its difference to a baseline, in pairs by seed.

        Args:
            baseline: the selector that the others are compared with, as it is called here or shown; None = nobody is.
            measures: the columns, such as `["accuracy", "worst10", "std"]`; None = the usual five.
            correction: "holm" corrects the p-values for the number of comparisons in the table; None does not.
            at: "last" = the last evaluation; "late" = the mean over the last N / k evaluations, of the second half of
                them at most, which is less noisy (`evaluate_last` has more of them); "matched" = where each run first
                has the highest accuracy that all of them reach, since accuracy and evenness move together.
        """
        known = list(self.config["selectors"])
        names = [*known, *(name.partition("[")[0] for name in known)]  # also without swept parameters
        baseline = next((name for name in names if baseline in (name, display_name(name))), baseline)
        fits = baseline in ("uniform", None) or any(baseline_of(name, str(baseline), known) for name in known)
        require("baseline", baseline, fits, ", ".join(known) + ", or None")
        require("at", at, at in ("last", "late", "matched"), '"last", "late" or "matched"')
        made = make_table(
            self.whole_rounds,
            baseline=baseline,
            measures=measures,
            correction=correction,
            last=cycle(self.config) if at == "late" else 1,
            matched=at == "matched",
            parameters=self.parameters,
            score=self.score,
        )
        more = [*notes_on(self.config), *([f"{self.left_out}."] if self.left_out else [])]
        return replace(made, notes=(*made.notes, *more))

    def to_pandas(self) -> pd.DataFrame:
        """A row a round and run; lists are left out, and have frames of their own: `clients`, `cohorts`."""
        return frames.by_round(self.whole_rounds, self.parameters)

    def final(self) -> pd.DataFrame:
        """A row a run: its last evaluation."""
        return frames.by_run(self.whole_rounds, self.parameters, self.score)

    def clients(self) -> pd.DataFrame:
        """A row a client and run: its score at the last evaluation, how often it was selected, how long it waited.

        `longest_wait` and `waits` are rounds: the most in a row without selection, and those since the last one.
        """
        return frames.by_client(self.whole_rounds, self.parameters, self.score)

    def cohorts(self) -> pd.DataFrame:
        """A row a selected client, round and run."""
        return frames.by_cohort(self.whole_rounds, self.parameters)

    def to_target(self, **measure: float) -> pd.DataFrame:
        """What it takes to reach a target, such as `to_target(accuracy=90)`, `to_target(score=0.5)`: a row a selector.

        `reached` is the share of seeds that reach it; rounds and bytes (and seconds, where records have them) are the
        mean over those seeds, each with the half-width of its 95 % interval.
        """
        return frames.until_target(self.whole_rounds, self.parameters, measure, self.score)

    def plot(self, kind: str, path: Path | str | None = None) -> Any:
        """A figure of the report as a figure of plotly.

        Args:
            kind: accuracy (of another task score), dissimilarity, worst10, plane, clients, map, counts, scatter, terms
                or bytes.
            path: also write it there: .html, or .svg, .pdf or .png, which needs kaleido.
        """
        return import_module("equifl.report.plot").plot(self, kind, path)  # plotly, which only a figure needs

    def report(self, output: Path | str | None = None) -> Path:
        """Write one HTML page, which opens offline; returns where it is (default: report.html in the folder)."""
        page = import_module("equifl.report.page")  # plotly and jinja2, which only a report needs
        path: Path = page.write_report(self, output)
        return path

    def _about(self) -> str:
        return f"{self.config['data']['name']}, {self.rounds_played} of {self.config['rounds']} rounds"

    def _evaluated(self) -> bool:
        return any(map(is_evaluated, self.whole_rounds))

    def __repr__(self) -> str:
        return f"Results({self._about()})" + (f"\n{self.table()}" if self._evaluated() else "")

    def _repr_html_(self) -> str:
        table = self.table()._repr_html_() if self._evaluated() else "no evaluated round yet"
        return f"<p>{html.escape(self._about())}</p>{table}"


def load_results(*folders: Path | str) -> Results:
    """The results in a run folder, finished or not; of several folders, joined.

    Where two folders have a selector of the same name with the same seed, or with other parameters, or their
    experiments differ in anything else, the folder's name is put before that of the selector: `first/rota`.
    """
    require("folders", list(folders), len(folders) > 0, "at least one run folder")
    form = "paths, one after the other: load_results(*folders)"
    for folder in folders:
        require("folders", folder, isinstance(folder, str | Path), form)
    found = [_read(Path(folder)) for folder in folders]
    return found[0] if len(found) == 1 else join(found)


def join(found: Sequence[Results]) -> Results:
    """Results of several folders as one."""
    names = _told_apart([str(one.folder) for one in found])
    parts = dict(zip(names, found, strict=True))
    if _alike(found) and not _clash(found):
        return _joined(parts, lambda name, key: key)
    return _joined(parts, lambda name, key: f"{name}/{key}")


def join_sweep(found: Mapping[str, Results], folder: Path | None) -> Results:
    """Results of the experiments of a sweep as one: their parameters are those of the selectors."""
    return replace(_joined(found, lambda name, key: with_parameters(key, name)), folder=folder)


def _read(folder: Path) -> Results:
    """The results in a run folder or a sweep's; of a damaged one what can be shown, and a warning."""
    if (folder / SWEEP).is_file():
        return _read_sweep(folder)
    found = RunFolder(folder)
    records, damage = found.readable()
    left_out = "" if damage is None else f"{damage.found}; this record and all later ones are left out"
    results = Results(found.config, found.made_with, records, found.path, left_out=left_out)
    if damage is not None and not any(map(is_evaluated, results.whole_rounds)):
        raise damage
    if left_out:
        log.warning(left_out)
    return results


def _read_sweep(folder: Path) -> Results:
    """Of the experiments that have begun."""
    begun = {name: folder / place for name, place in sweep_folders(folder).items() if (folder / place).is_dir()}
    require(str(folder), list(begun), len(begun) > 0, "a sweep of which an experiment has begun")
    return join_sweep({name: _read(place) for name, place in begun.items()}, folder)


def _joined(parts: Mapping[str, Results], rename: Callable[[str, str], str]) -> Results:
    selectors: dict[str, Any] = {}
    records: Records = []
    for name, one in parts.items():
        selectors |= {rename(name, key): options for key, options in one.config["selectors"].items()}
        records += [record | {"selector": rename(name, record["selector"])} for record in one.whole_rounds]
    found = list(parts.values())
    scores = dict.fromkeys(one.score for one in found)
    if len(scores) > 1:
        raise ValueError(
            f"folders: their scores differ ({listed([one.title for one in scores])}); join those of one task"
        )
    config = dict(found[0].config) | {"selectors": selectors}
    config["seeds"] = sorted({seed for one in found for seed in one.config["seeds"]})
    for key in ("rounds", "clients"):
        config[key] = max((one.config[key] or 0) for one in found) or None
    data = dict.fromkeys(one.config["data"]["name"] for one in found)
    config["data"] = {**config["data"], "name": " and ".join(data)}
    left_out = "; ".join(filter(None, (one.left_out for one in found)))
    return Results(config, found[0].made_with, records, None, parts, left_out)


def _alike(found: Sequence[Results]) -> bool:
    """Whether the experiments differ in selectors, seeds and rounds alone."""
    settings = [{k: v for k, v in one.config.items() if k not in ("selectors", "seeds", "rounds")} for one in found]
    return all(setting == settings[0] for setting in settings)


def _clash(found: Sequence[Results]) -> bool:
    """Whether two results have the same run, or one name for two selectors."""
    tables: dict[str, Any] = {}
    runs: set[tuple[str, int]] = set()
    for one in found:
        here = {(name, seed) for name in one.config["selectors"] for seed in one.config["seeds"]}
        same = all(tables.get(name, options) == options for name, options in one.config["selectors"].items())
        if here & runs or not same:
            return True
        runs |= here
        tables |= one.config["selectors"]
    return False


def _told_apart(paths: Sequence[str]) -> list[str]:
    """The shortest ends of paths that differ.

    >>> _told_apart(["runs/a/first", "runs/b/first", "runs/second"])
    ['a/first', 'b/first', 'second']
    """
    parts = [Path(path).absolute().parts for path in paths]

    def end(place: int) -> str:
        for length in range(1, len(parts[place]) + 1):
            own = parts[place][-length:]
            if sum(other[-length:] == own for other in parts) == 1:
                return "/".join(own)
        return f"{parts[place][-1]} ({place + 1})"  # the same folder twice

    return [end(place) for place in range(len(parts))]
