"""Records as data frames of pandas: by round, by run, by client, by cohort, and until a target is reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from equifl._numerics.checks import require
from equifl.experiment.measures import Row, chosen_measures, expected_accuracy, more_measures, with_test_classes
from equifl.experiment.table import final_rows
from equifl.experiment.task_table import ACCURACY, Score, is_evaluated
from equifl.extras import needed_by
from equifl.statistics import interval

if TYPE_CHECKING:
    import pandas as pd

_PARTICIPATION = {f"participation.{name}": name for name in ("gini", "never", "longest_wait")}  # measures within it

Parameters = Mapping[str, Mapping[str, Any]]  # of a sweep, by selector
Runs = dict[tuple[str, int], list[Row]]  # records by selector and seed, in their order


def by_round(rows: Iterable[Row], parameters: Parameters) -> pd.DataFrame:
    """A row a record, a column a number; those within another have dotted names (`participation.gini`)."""
    return _frame([_flat(row) for row in rows], parameters)


def by_run(rows: Iterable[Row], parameters: Parameters, score: Score = ACCURACY) -> pd.DataFrame:
    """The last evaluated record of each run, with all measures that follow from it, each by its name."""
    last = [row for found in final_rows(rows).values() for row in found.values()]
    return _frame([_flat(row) | _further(row, score) for row in last], parameters).rename(columns=_PARTICIPATION)


def _further(row: Row, score: Score) -> dict[str, float]:
    """What a record does not hold by itself, as far as it is known."""
    inside = row.keys() | row.get("participation", {}).keys()
    found = {measure.name: measure.read(row) for measure in more_measures(score) if measure.name not in inside}
    return {name: value for name, value in found.items() if value is not None}


def by_client(rows: Iterable[Row], parameters: Parameters, score: Score = ACCURACY) -> pd.DataFrame:
    """A row a client and run: score at the last evaluation, times selected, longest and present wait in rounds.

    Where they are known also its accuracy without sampling noise, and its training loss.
    """
    found = []
    for (selector, seed), records in runs_of(with_test_classes(rows)).items():
        last = next((row for row in reversed(records) if score.of_clients in row), {})
        scores: Sequence[float | None] = last.get(score.of_clients, [])
        more = {"expected_accuracy": expected_accuracy(last), "loss": last.get("client_loss")}
        chosen: dict[int, list[int]] = {client: [] for client in range(len(scores))}
        for row in records:
            for client in row.get("cohort", ()):
                chosen.setdefault(client, []).append(row["round"])
        played = records[-1]["round"] + 1
        for client in sorted(chosen):
            turns = [-1, *chosen[client], played]
            waits = [later - earlier - 1 for earlier, later in pairwise(turns)]
            known = scores[client] if client < len(scores) else None
            about = {"selector": selector, "seed": seed, "client": client, score.key: known}
            about |= {name: values[client] for name, values in more.items() if values is not None}
            found.append(about | {"times_selected": len(turns) - 2, "longest_wait": max(waits), "waits": waits[-1]})
    return _frame(found, parameters)


def by_cohort(rows: Iterable[Row], parameters: Parameters) -> pd.DataFrame:
    """A row a selection: round, selector, seed and client, in the order of picking."""
    return _frame(
        [
            {"round": row["round"], "selector": row["selector"], "seed": row["seed"], "pick": pick, "client": client}
            for row in rows
            for pick, client in enumerate(row.get("cohort", ()))
        ],
        parameters,
    )


def until_target(
    rows: Iterable[Row], parameters: Parameters, targets: Mapping[str, float], score: Score = ACCURACY
) -> pd.DataFrame:
    """A row a selector: the share of seeds that reach a target, and what that takes those: rounds, bytes, seconds.

    A run has reached it at its first evaluation that is as good as the target, or better.
    """
    allowed = f"one measure, as in to_target({score.key}={90 if score.percent else 0.5})"
    require("to_target", dict(targets), len(targets) == 1, allowed)
    ((name, target),) = targets.items()
    try:
        (measure,) = chosen_measures([name], score)
    except ValueError as error:
        raise ValueError(str(error).replace("measures:", "to_target:", 1)) from None
    require(name, target, isinstance(target, int | float) and math.isfinite(target), "a number")
    if name == "accuracy" and 0 < target <= 1:
        raise ValueError(f"accuracy: {target} is a fraction; accuracy is in percent: did you mean {100 * target:g}?")
    sign = 1 if measure.more_is_better else -1
    reached: dict[str, list[dict[str, float]]] = {}
    seeds: dict[str, int] = {}
    for (selector, _), records in runs_of(with_test_classes(rows)).items():
        seeds[selector] = seeds.get(selector, 0) + 1
        found = reached.setdefault(selector, [])
        for place, row in enumerate(records):
            value = measure.read(row) if is_evaluated(row) else None
            if value is not None and sign * value >= sign * target:
                until = records[: place + 1]
                total = sum(r.get("bytes_down", 0) + r.get("bytes_up", 0) for r in until)
                took = [r["seconds"] for r in until if "seconds" in r]
                found.append({"rounds": row["round"] + 1, "bytes": total} | ({"seconds": sum(took)} if took else {}))
                break
    table = []
    for selector, found in reached.items():
        line: dict[str, Any] = {"selector": selector, "seeds": seeds[selector]}
        line["reached"] = len(found) / seeds[selector]
        for what in ("rounds", "bytes", "seconds"):
            known = [one[what] for one in found if what in one]
            line[what], line[f"{what}_half_width"] = interval(known) if known else (math.nan, math.nan)
        table.append(line)
    if not any("seconds" in one for found in reached.values() for one in found):
        table = [{key: line[key] for key in line if not key.startswith("seconds")} for line in table]
    return _frame(table, parameters)


def runs_of(rows: Iterable[Row]) -> Runs:
    """Records by selector and seed."""
    found: Runs = {}
    for row in rows:
        found.setdefault((row["selector"], row["seed"]), []).append(row)
    return found


def _flat(row: Row) -> dict[str, Any]:
    """The numbers and names of a record; lists have frames of their own."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):  # as records have it; to ask for any mapping takes three times as long
            for part, number in value.items():
                flat[f"{key}.{part}"] = number
        elif not isinstance(value, list):
            flat[key] = value
    return flat


def _frame(rows: list[dict[str, Any]], parameters: Parameters) -> pd.DataFrame:
    """The rows, with parameters of a sweep in columns behind the selector's name."""
    with needed_by("a data frame"):
        import pandas as pd
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        columns[name] = _column([row.get(name) for row in rows])
        if name == "selector":
            for one in dict.fromkeys(one for given in parameters.values() for one in given):
                columns[one] = _column([parameters.get(row[name], {}).get(one) for row in rows])
    return pd.DataFrame(columns)


def _column(values: list[Any]) -> Any:
    """Numbers as an array, None as nan; everything else as it is."""
    if set(map(type, values)) <= {float, type(None)}:
        return np.array(values, np.float64)
    return values
