"""The paper's tables and claims by the runs of results/evidence: from a cold start, in both readings of SubTrunc.

The paper's b = 1.1 is a number in its equation and a "truncation factor" in its text. Both were run: `b = 1.1`, and
`b_factor = 1.1` with distances relative to their mean. Figures are those after the last round, as the paper has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from equifl.paper.claims import Claim, Values, Verdict, judge, trend
from equifl.paper.claims import claims as claims_of
from equifl.paper.tables import DATA, LAMBDAS, rows, titles
from equifl.signals import Floats
from equifl.statistics import holm, interval, p_value
from tools.evidence import FACTOR_LAMBDAS, FOLDER, house
from tools.evidence_tables import NAMES, Row, Runs, table


def paper_row(selector: str) -> Row:
    """Where the runs of a row of the paper's tables are."""
    if selector == "divfl":  # with 10 candidates a step
        return Row("paper", "divfl_r10")
    return Row("mean" if selector in house() else "paper", selector)


def by_factor(selector: str) -> str:
    """The same row with the truncation read as a factor, where there is one."""
    lam = selector.removeprefix("subtrunc_")
    return f"subtrunc_factor_{lam}" if lam in map(str, FACTOR_LAMBDAS) else selector


def paper_values(runs: Runs, seeds: Sequence[int], *, factor: bool = False) -> Values:
    """Figures after the last round, as the paper has them: accuracy and dissimilarity as observed, and local loss."""

    def values(selector: str, measure: str) -> Floats:
        row = paper_row(by_factor(selector) if factor else selector)
        found = runs.evidence.runs[row.group][row.selector]
        if measure == "local_loss":
            return np.array([found[seed][measure] for seed in seeds])
        return np.array([found[seed]["last"][measure][0] for seed in seeds])

    return values


def _paper_seeds(runs: Runs) -> list[int]:
    factors = [f"subtrunc_factor_{lam}" for lam in FACTOR_LAMBDAS]
    return runs.seeds(
        [*(paper_row(row.selector) for title in titles() for row in rows(title, runs.data)), *map(paper_row, factors)]
    )


def paper_tables(folder: Path = FOLDER) -> str:
    """The paper's four tables: its mean and deviation beside ours and its interval, in both readings of SubTrunc."""
    made = []
    for data in DATA:
        runs, lines = Runs(data, folder), []
        seeds = _paper_seeds(runs)
        literal, factor = paper_values(runs, seeds), paper_values(runs, seeds, factor=True)
        for title in titles():
            for row in rows(title, data):
                again = by_factor(row.selector) != row.selector and row.title not in ("ln(1+x)",)
                for values, words in ((literal, ""), (factor, ", as a factor"))[: 2 if again else 1]:
                    cells = [f"{title.removeprefix('table')}: {row.title}{words}"]
                    for measure, digits in (("accuracy", 1), ("dissimilarity", 1), ("local_loss", 2)):
                        printed = row.printed.get(measure)
                        ours = interval(values(row.selector, measure))
                        cells += [
                            f"{m:.{digits}f} ± {d:.{digits}f}" if d else "" for m, d in (printed or (0, 0), ours)
                        ]
                    lines.append(cells)
        head = [f"{NAMES[data]}, {len(seeds)} seeds; table, row"]
        made.append(table([*head, "acc. paper", "ours", "dissim. paper", "ours", "loss paper", "ours"], lines))
    return "\n\n".join(made)


def claims(folder: Path = FOLDER) -> str:
    """What the paper says in words, judged by the figures after the last round, in both readings of SubTrunc.

    A star says that p, corrected by Holm's method over the table, is below 5 %.
    """
    judged: dict[tuple[str, int], tuple[Verdict, float]] = {}  # by claim and column
    for column, data in enumerate(DATA):
        runs = Runs(data, folder)
        seeds = _paper_seeds(runs)
        literal, factor = paper_values(runs, seeds), paper_values(runs, seeds, factor=True)
        for claim in claims_of(data):
            judged[claim.text, 2 * column] = _judge(claim, literal)
            if claim.text.startswith("SubTrunc"):
                judged[claim.text, 2 * column + 1] = _judge(claim, factor)
            elif claim.table == "table2":
                within = [lam for lam in FACTOR_LAMBDAS if lam <= max(LAMBDAS)]
                for text, lambdas in ((claim.text, within), ("the same, lambda up to 5", FACTOR_LAMBDAS)):
                    slope = trend(text, "table2", "subtrunc_factor_{}", lambdas, "dissimilarity")
                    judged[text, 2 * column + 1] = _judge(slope, literal)
    stars = dict(zip(judged, holm([p for _, p in judged.values()]), strict=True))
    lines = []
    for text in dict.fromkeys(text for text, _ in judged):
        at = [(text, column) for column in range(2 * len(DATA))]
        lines.append([text, *(_verdict(judged[key][0], stars[key]) if key in judged else "" for key in at)])
    head = [f"{NAMES[data]}{words}" for data in DATA for words in ("", ", b as a factor")]
    return table(["claim", *head], lines)


def _judge(claim: Claim, values: Values) -> tuple[Verdict, float]:
    """The verdict, and the p that the claim's number is 0."""
    numbers = claim.number(values)
    return judge(claim, values), p_value(numbers, np.zeros(len(numbers)))


def _verdict(found: Verdict, p: float) -> str:
    figures = found.figures.removesuffix(", paper +nan")
    return f"{found.word}{' *' if p < 0.05 else ''} ({figures})"


def blocks(folder: Path = FOLDER) -> dict[str, str]:
    """Both tables, by the names of their blocks."""
    return {"the paper's tables": paper_tables(folder), "claims": claims(folder)}
