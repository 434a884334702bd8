"""Time and memory of a selection against the number of clients, from a thousand to ten million, and on workers.

    python benchmarks/scale.py [--only TEXT] [--disturbed SHARE] [--peers PYTHON] [--out FILE]   # 45 minutes

Every point is a process of its own. "selection": N clients have sketches of 256 numbers (ten kinds of client, much
noise) in a memory-mapped file that has just been written; timed is `store.signals(...)` with all its checks and
`selector.select(...)` of k; memory is the most that the process ever held, the pages of the file among it. "line" is
what a straight line in N through the point at 10,000 gives. The peers get the same sketches in memory, compute
distances with scikit-learn and maximise exact facility location, as `DivFL()` does; they may take 16 GiB and three
minutes, and their imports and compilation are not counted. "sketch": one update to 256 numbers. "checksums": what
`store.observe` of k clients takes with and without the checksums of a memory-mapped file, by turns, and what opening
such a file takes. "simulation": seconds a round of logistic regression with k = 100 and stale signals, without
selection. "cluster": the selection alone, on this machine and then by `ClusterSelector` with 1, 2 and 4 Ray workers on
it, started but empty; the most memory of each, and all messages as they are pickled. "balance": how near to
everybody's mean the cohorts of Rota are. `--only` measures the points whose name contains the text, again; the others
stay as they are in the file. When all are there, docs/scale.md is filled in from it. "others" is the share of the
machine's time that other processes took meanwhile; `--disturbed 0.05` measures again the points where it was above
that, and those that are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from drawing import fill_in
from scale_points import PEERS, busy_seconds, others
from scale_tables import (
    checksum_words,
    cluster_figure,
    cluster_table,
    figure,
    paper_table,
    plan_words,
    small_tables,
    table,
    with_lines,
)

ROOT = Path(__file__).resolve().parent.parent
PEER_SECONDS = 180


def points() -> Iterator[dict[str, Any]]:
    """What is measured, from the quickest to the slowest."""
    for numbers in (61_706, 1_000_000):
        yield {"part": "sketch", "name": "CountSketch", "n": numbers}
    for n in (10**3, 10**4, 10**5):
        for name in ("Uniform", "Rota"):
            yield {"part": "simulation", "name": name, "n": n}
    for k in (100, 1000, 10**4):
        yield {"part": "checksums", "name": "observe", "n": 10**6, "k": k, "dtype": "float32"}
    yield {"part": "checksums", "name": "open", "n": 10**6, "dtype": "float32"}
    for n in (10**3, 10**4, 10**5, 10**6):
        for name in ("SubTrunc, sample 10", "UnionFL, sample 10", "Rota"):
            yield {"part": "selection", "name": name, "n": n, "k": 100, "dtype": "float32"}
    yield {"part": "selection", "name": "SubTrunc, sample 10", "n": 10**6, "k": 100, "dtype": "float16"}
    for n in (10**3, 10**4, 3 * 10**4, 10**5):
        for name in ("DivFL, exact", *PEERS):
            yield {"part": "selection", "name": name, "n": n, "k": 100, "dtype": "float32"}
    for n in (10**4, 10**5, 10**6):
        for name in ("SubTrunc, sample 10", "UnionFL, sample 10", "Rota"):
            yield {"part": "cluster", "name": name, "n": n, "k": 100, "dtype": "float32"}
    for name in ("SubTrunc, sample 10", "Rota"):
        yield {"part": "cluster", "name": name, "n": 10**6, "k": 100, "dtype": "float16"}
    for n in (10**4, 3 * 10**4):
        yield {"part": "cluster", "name": "DivFL, exact", "n": n, "k": 100, "dtype": "float32"}
    yield {"part": "cluster", "name": "Rota", "n": 10**6, "k": 1000, "dtype": "float32"}
    for k in (100, 1000):
        yield {"part": "balance", "name": "Rota", "n": 10**5, "k": k, "dtype": "float32"}
    for k in (100, 1000):
        yield {"part": "selection", "name": "Rota", "n": 10**7, "k": k, "dtype": "float16"}
    yield {"part": "selection", "name": "SubTrunc, sample 10", "n": 10**7, "k": 100, "dtype": "float16"}


def label(point: dict[str, Any]) -> str:
    return " ".join(str(point[key]) for key in ("part", "name", "n", "k", "dtype") if key in point)


def measure(point: dict[str, Any], path: Path, python: str) -> dict[str, Any]:
    command = [python, str(ROOT / "benchmarks" / "scale_points.py"), json.dumps(point), str(path)]
    limit = PEER_SECONDS if point.get("name") in PEERS else None
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "PYTHONPATH": str(ROOT)}
    try:
        run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {limit} s"}
    if run.returncode < 0:
        return {"error": f"killed by signal {-run.returncode}"}
    if run.returncode:
        return {"error": run.stderr.strip().splitlines()[-1].split(": ", 1)[-1].split(" for ")[0]}
    return dict(json.loads(run.stdout.strip().splitlines()[-1]))


def measured(point: dict[str, Any], path: Path, python: str) -> dict[str, Any]:
    """`measure`, and how much other processes did meanwhile, unless the point says so itself."""
    start, busy, mine = time.perf_counter(), busy_seconds(), os.times()
    found = measure(point, path, python)
    wall, after = time.perf_counter() - start, os.times()
    ours = after.children_user + after.children_system - mine.children_user - mine.children_system
    return {"others": others(busy_seconds() - busy, ours, wall)} | found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="points whose name contains this")
    parser.add_argument(
        "--disturbed", type=float, help="points that were measured with more than this share of others"
    )
    parser.add_argument("--peers", default=sys.executable, help="a Python that has apricot-select and submodlib-py")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "scale.json")
    given = parser.parse_args()
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for point in points():
        shares = [row.get("others", 1.0) for row in rows if label(row) == label(point)]
        quiet = given.disturbed is not None and any(share <= given.disturbed for share in shares)
        if quiet or given.only not in label(point):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sketches.npy"
            if point["part"] in ("selection", "cluster", "balance", "checksums"):
                made = measure({"part": "make", "n": point["n"], "dtype": point["dtype"]}, path, sys.executable)
                assert made == {}, made
            python = given.peers if point["name"] in PEERS else sys.executable
            row = point | measured(point, path, python)
        order = [label(other) for other in points()]
        rows = [other for other in rows if label(other) != label(point)] + [row]
        rows = with_lines(sorted(rows, key=lambda row: order.index(label(row))))
        print(label(point), {key: value for key, value in row.items() if key not in point}, flush=True)
        result = {"command": "python benchmarks/scale.py", "machine": machine, "versions": versions, "rows": rows}
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    if len(rows) == len(list(points())):
        write_docs(rows)


def write_docs(rows: list[dict[str, Any]]) -> None:
    """When nothing is missing."""
    figures, page = ROOT / "docs" / "figures", ROOT / "docs" / "scale.md"
    (figures / "scale.svg").write_text(figure(rows))
    (figures / "cluster.svg").write_text(cluster_figure(rows))
    tables = {"selection": table(rows), "sketch and simulation": small_tables(rows), "checksums": checksum_words(rows)}
    on_workers = {"plan": plan_words(rows), "cluster": cluster_table(rows), "on paper": paper_table(rows)}
    fill_in(page, tables | on_workers)


if __name__ == "__main__":
    main()
