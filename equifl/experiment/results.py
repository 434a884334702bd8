"""Results of an experiment: its records, its table and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from equifl.experiment.run_folder import RunFolder
from equifl.experiment.table import Table, make_table

Records = list[dict[str, Any]]  # a JSON object a round, selector and seed, in the order of playing


@dataclass(frozen=True, eq=False)
class Results:
    """The records of an experiment, finished or not.

    Args:
        config: the configuration, as plain values.
        made_with: versions, commit and machine.
        records: one a round, selector and seed.
        folder: where they are kept; None = in memory alone.
    """

    config: Mapping[str, Any]
    made_with: Mapping[str, Any]
    records: Records = field(repr=False)
    folder: Path | None = None

    @classmethod
    def read(cls, folder: Path | str) -> Results:
        """The results in a run folder, also of a run that goes on."""
        found = RunFolder(folder)
        return cls(found.config, found.made_with, found.rows(), found.path)

    @cached_property
    def whole_rounds(self) -> Records:
        """The records of rounds that every selector and seed has played; one that goes on may be writing the next."""
        played = Counter(record["round"] for record in self.records)
        runs = len(self.config["selectors"]) * len(self.config["seeds"])
        return [record for record in self.records if played[record["round"]] == runs]

    @property
    def rounds_played(self) -> int:
        """How many rounds every selector and seed has played."""
        return len({record["round"] for record in self.whole_rounds})

    @property
    def finished(self) -> bool:
        """Whether nothing is left to play; a live federation has no number of rounds, and is never finished."""
        return self.rounds_played == self.config["rounds"]

    @cached_property
    def table(self) -> Table:
        """Every selector: mean and 95 % interval over seeds, and its difference to Random."""
        return make_table(self.whole_rounds)

    def report(self, output: Path | str | None = None) -> Path:
        """Write one HTML page, which opens offline; returns where it is (default: report.html in the folder)."""
        page = import_module("equifl.report.page")  # plotly and jinja2, which only a report needs
        path: Path = page.write_report(self, output)
        return path

    def __repr__(self) -> str:
        about = f"{self.config['data']['name']}, {self.rounds_played} of {self.config['rounds']} rounds"
        evaluated = any("accuracy" in record for record in self.whole_rounds)
        return f"Results({about})\n{self.table}" if evaluated else f"Results({about})"


def load_results(folder: Path | str) -> Results:
    """The results in a run folder, finished or not."""
    return Results.read(folder)
