"""The four tables of the paper: which runs they take, and the figures printed there (mean, deviation).

Source: Castillo, Kaya, Ye, Hashemi, "Submodular Maximization Approaches for Equitable Client Selection in Federated
Learning", section V, tables I to IV. Rota is no part of the paper and has no figures there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from equifl._numerics.checks import known
from equifl.experiment.config import Config

Figure: TypeAlias = tuple[float, float]  # mean and deviation, as printed

DATA = ("mnist", "cifar10")
MEASURES = ("local_loss", "accuracy", "dissimilarity")

# Settings that the paper leaves open were chosen so that Random alone lands on its row: see docs/design.md.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "mnist": {"rounds": 70, "train": {"model": "lenet", "steps": 20, "batch_size": 32, "lr": 0.005}},
    "cifar10": {"rounds": 100, "train": {"model": "lenet", "steps": 10, "batch_size": 32, "lr": 0.02}},
}
LAMBDAS = (0.01, 0.10, 0.25, 0.50, 0.75, 0.95)
WINDOWS = (2, 5, 10)
TABLE_1_LAMBDA = {"mnist": 0.95, "cifar10": 0.50}

# Beyond the paper: what changes, and nothing else.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "paper": {},
    "fresh": {"signal": "gradient"},
    "exact": {},  # greedy over every client instead of r = 10 candidates
    "dirichlet_0.1": {"partition": {"kind": "dirichlet", "alpha": 0.1}},
    "dirichlet_0.5": {"partition": {"kind": "dirichlet", "alpha": 0.5}},
    "unequal": {"partition": {"kind": "classes", "classes_per_client": 3, "sizes": "lognormal"}},
    "online_0.3": {"availability": {"online": 0.3}},
    "averaged": {"server": {"average_last": 10}},  # N / k
    "averaged_by_loss": {"server": {"average_last": 10, "aggregate": "loss"}},
    "long": {},  # five times the rounds
}


def subtrunc(lam: float, phi: str = "log1p") -> dict[str, Any]:
    """A section of the configuration, with the paper's b and r."""
    return {"class": "subtrunc", "lam": lam, "b": 1.1, "phi": phi, "sample": 10}


def unionfl(window: int) -> dict[str, Any]:
    """The same, with the paper's mu and r."""
    return {"class": "unionfl", "mu": 1.0, "window": window, "sample": 10}


SELECTORS: Mapping[str, Mapping[str, Any]] = {
    "divfl": {"sample": 10},
    **{f"subtrunc_{lam}": subtrunc(lam) for lam in LAMBDAS},
    **{f"subtrunc_{lam}_identity": subtrunc(lam, "identity") for lam in sorted(set(TABLE_1_LAMBDA.values()))},
    **{f"unionfl_{window}": unionfl(window) for window in WINDOWS},
    "uniform": {},
    "power_of_choice": {"candidates": 20},
    "rota": {},
}


@dataclass(frozen=True)
class Row:
    """A line of a table: what it is called, which runs it takes, and what the paper prints for each measure."""

    title: str
    selector: str
    printed: Mapping[str, Figure]


def rows(table: str, data: str) -> list[Row]:
    """The lines of one table for one data set."""
    known("table", [table], _TABLES)
    known("data", [data], DATA)
    measures = MEASURES if table == "table1" else MEASURES[1:]
    half = DATA.index(data) * len(measures)
    found = []
    for title, selector, figures in _TABLES[table]:
        printed = dict(zip(measures, figures[half : half + len(measures)], strict=True)) if figures else {}
        lam = TABLE_1_LAMBDA[data]
        found.append(Row(title, selector.format(lam=lam), printed))
    return found


def titles() -> list[str]:
    """table1 to table4."""
    return list(_TABLES)


def six(data: str) -> list[str]:
    """The selectors of table I."""
    return [row.selector for row in rows("table1", data)]


def configuration(data: str, selectors: Iterable[str], seeds: Iterable[int], variant: str = "paper") -> Config:
    """The paper's setting for these selectors and seeds, or one that differs from it in one thing."""
    known("variant", [variant], VARIANTS)
    table: dict[str, Any] = {
        "clients": 100,
        "per_round": 10,
        "evaluate_every": 10,
        "introduce": True,  # as all committed results have it
        "seeds": list(seeds),
        "selectors": {name: dict(SELECTORS[name]) for name in selectors},
        **SETTINGS[data],
    }
    changes = dict(VARIANTS[variant])
    partition = changes.pop("partition", {"kind": "classes", "classes_per_client": 3})
    table |= {"data": {"name": data, "partition": partition}, **changes}
    if variant == "long":
        table["rounds"] *= 5
    if variant == "exact":
        for options in table["selectors"].values():
            options.pop("sample", None)
    return Config.from_table(table)


_TABLES: Mapping[str, list[tuple[str, str, list[Figure]]]] = {
    "table1": [
        ("DivFL", "divfl", [(0.16, 0.02), (82.16, 0.91), (8.89, 0.59), (0.88, 0.03), (35.40, 1.28), (12.62, 0.95)]),
        (
            "SubTrunc",
            "subtrunc_{lam}",
            [(0.21, 0.01), (83.72, 0.81), (7.96, 0.62), (0.89, 0.03), (35.53, 1.33), (12.46, 0.94)],
        ),
        (
            "UnionFL",
            "unionfl_5",
            [(0.17, 0.01), (83.57, 0.34), (8.59, 0.34), (0.88, 0.03), (35.63, 1.09), (12.55, 0.79)],
        ),
        ("Random", "uniform", [(0.18, 0.02), (82.99, 0.99), (9.16, 0.18), (0.92, 0.01), (32.55, 0.94), (14.42, 0.18)]),
        (
            "Power-of-Choice",
            "power_of_choice",
            [(0.21, 0.01), (82.42, 1.97), (8.59, 0.38), (1.00, 0.01), (30.17, 0.65), (13.82, 0.19)],
        ),
        ("Rota", "rota", []),
    ],
    "table2": [
        ("lambda 0.01", "subtrunc_0.01", [(82.18, 0.99), (8.90, 0.63), (35.40, 1.28), (12.62, 0.95)]),
        ("lambda 0.10", "subtrunc_0.1", [(83.13, 1.04), (8.38, 0.56), (35.47, 1.33), (12.58, 0.92)]),
        ("lambda 0.25", "subtrunc_0.25", [(83.60, 0.78), (8.18, 0.55), (35.47, 1.29), (12.47, 0.96)]),
        ("lambda 0.50", "subtrunc_0.5", [(83.76, 0.42), (8.14, 0.34), (35.53, 1.33), (12.46, 0.94)]),
        ("lambda 0.75", "subtrunc_0.75", [(83.94, 0.33), (8.07, 0.41), (35.55, 1.32), (12.46, 1.08)]),
        ("lambda 0.95", "subtrunc_0.95", [(83.72, 0.81), (7.96, 0.62), (35.50, 1.33), (12.45, 1.05)]),
    ],
    "table3": [
        ("window 2", "unionfl_2", [(83.27, 0.54), (8.77, 0.35), (35.62, 0.99), (12.51, 0.68)]),
        ("window 5", "unionfl_5", [(83.57, 0.34), (8.59, 0.34), (35.63, 1.09), (12.55, 0.79)]),
        ("window 10", "unionfl_10", [(83.74, 0.36), (8.52, 0.18), (35.86, 1.06), (12.56, 0.88)]),
    ],
    "table4": [
        ("identity", "subtrunc_{lam}_identity", [(83.42, 0.12), (7.91, 0.35), (35.29, 0.98), (11.93, 0.70)]),
        ("ln(1+x)", "subtrunc_{lam}", [(83.72, 0.81), (7.96, 0.62), (35.53, 1.33), (12.46, 0.94)]),
    ],
}
