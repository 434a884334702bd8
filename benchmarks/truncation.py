"""When SubTrunc's loss term is full, and what it changes: lambda and scale="relative" on the same signals.

    python benchmarks/truncation.py [--data-dir DIR]  # 4 minutes on two cores

SubTrunc trains in the setting of table I, with the lambda of table I. In every round each of the paper's lambdas is
asked as well, with absolute and with relative distances, about the same signals and with the same random draws; so is
lambda = 0, which is DivFL. Only the first chooses who trains. A pick counts as changed if the client is not in the
other cohort. Writes results/truncation.json and the tables in docs/results-introduced.md.
"""

from __future__ import annotations

import argparse
import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from drawing import fill_in

from equifl import Signals, SubTrunc
from equifl._numerics.distances import Distances
from equifl.paper.tables import DATA, LAMBDAS, TABLE_1_LAMBDA, configuration
from equifl.selectors.explanation import explanation
from equifl.signals import Ints
from tools.evidence_tables import NAMES

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "truncation.json"
SEEDS = range(5)


@dataclass
class Watched:
    """Chooses as SubTrunc does, and writes down what other parameters would have chosen."""

    lam: float
    needs: ClassVar[tuple[str, ...]] = SubTrunc.needs
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        def chosen(**options: Any) -> Ints:
            return SubTrunc(b=1.1, sample=10, **options).select(signals, k, rng=copy.deepcopy(rng))

        without = chosen(lam=0.0)
        found = {}
        for lam in LAMBDAS:
            absolute, relative = chosen(lam=lam), chosen(lam=lam, scale="relative")
            found[str(lam)] = {"without": changed(absolute, without), "relative": changed(absolute, relative)}
        cohort = chosen(lam=self.lam)
        full = explanation(SubTrunc(lam=self.lam, b=1.1).objective(signals), cohort)["saturated_at"]
        self.rounds.append({"distance": Distances(signals).mean(), "full": full, "changed": found})
        return cohort


def changed(cohort: Ints, other: Ints) -> float:
    """The share of a cohort that is not in the other."""
    return 1 - len(np.intersect1d(cohort, other)) / len(cohort)


def measured(data: str, data_dir: Path | None, seeds: range = SEEDS, rounds: int | None = None) -> dict[str, Any]:
    """All rounds of one data set in a few numbers."""
    from equifl.sim.loop.federation import Federation  # needs torch, which the tables alone do not
    from equifl.sim.simulation import load_data

    lam = TABLE_1_LAMBDA[data]
    config = configuration(data, [f"subtrunc_{lam}"], seeds)
    federation = Federation(config, load_data(config, data_dir), device="cpu")
    watched = [Watched(lam) for _ in federation.runs]
    for run, selector in zip(federation.runs, watched, strict=True):
        run.selector = selector
    for _ in range(rounds or config.rounds):
        federation.play()
    seen = [row for selector in watched for row in selector.rounds]
    distances, full = np.array([row["distance"] for row in seen]), [row["full"] for row in seen]
    return {
        "rounds": len(seen),
        "distance": [float(f"{value:.4g}") for value in np.quantile(distances, [0, 0.5, 1])],
        "full after": {str(pick): full.count(pick) for pick in sorted(set(full), key=str)},  # 1 to 10, or None
        "changed": {
            lam: {other: float(f"{np.mean([row['changed'][lam][other] for row in seen]):.4g}") for other in pair}
            for lam, pair in seen[0]["changed"].items()
        },
    }


def tables(found: dict[str, Any]) -> str:
    """As Markdown."""
    lines = ["| | mean distance, median round | lowest | highest | full after pick 1 | 2 | 3 | 4 | later or never |"]
    lines.append("|---" * 9 + "|")
    for data, row in found.items():
        least, median, most = row["distance"]
        after = [row["full after"].get(pick, 0) / row["rounds"] for pick in "1234"]
        shares = " | ".join(f"{100 * share:.0f} %" for share in (*after, max(0.0, 1 - sum(after))))
        lines.append(f"| {NAMES[data]} | {median:.2f} | {least:.2f} | {most:.2f} | {shares} |")
    lines += ["", "| | " + " | ".join(f"lambda {lam:.2f}" for lam in LAMBDAS) + " |", "|---" * 7 + "|"]
    titles = {"without": "picks that are not DivFL's", "relative": 'picks that `scale="relative"` changes'}
    for data, row in found.items():
        for other, title in titles.items():
            shares = " | ".join(f"{100 * pair[other]:.1f} %" for pair in row["changed"].values())
            lines.append(f"| {NAMES[data]}: {title} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure when SubTrunc's loss term is full, and what it changes.")
    parser.add_argument("--data-dir", type=Path, help="where data sets are (else $EQUIFL_DATA, the cache)")
    given = parser.parse_args()
    found = {data: measured(data, given.data_dir) for data in DATA}
    print(tables(found))
    RESULT.write_text(json.dumps({"seeds": len(SEEDS), "data": found}, indent=1) + "\n")
    fill_in(ROOT / "docs" / "results-introduced.md", {"truncation": "\n" + tables(found) + "\n"})


if __name__ == "__main__":
    main()
