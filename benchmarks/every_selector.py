"""How long each selector takes to choose from 10,000 clients with 256 numbers each, every one in a process of its own.

    make bench-selectors
    python benchmarks/every_selector.py [--clients 10000] [--repeats 3] [--out FILE] [--only NAME ...]

Clients are of ten kinds, all signals are known, and each selector has its defaults. Timed is `select` alone, after one
call on a few clients; memory is the peak above what the process held before. FedGS is cubic in the number of clients,
and gets 1,000. The table of docs/performance.md is written from it; times that need a matrix of all pairs are in it,
too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from drawing import fill_in
from selection import Peak, versions

ROOT = Path(__file__).resolve().parent.parent
FEWER = {"fedgs": 1_000}  # clients, for what is slower than quadratic
LENGTH, COHORTS = 256, (10, 100)


def signals(n: int) -> Any:
    from equifl import Signals

    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(10, LENGTH))
    return Signals(
        updates=(kinds[rng.integers(10, size=n)] + rng.normal(size=(n, LENGTH))).astype(np.float32),
        losses=rng.exponential(size=n),
        sizes=rng.integers(10, 200, n).astype(float),
        durations=rng.lognormal(size=n),
        label_counts=rng.integers(0, 20, (n, 10)).astype(float),
        bias_updates=rng.normal(size=(n, 10)),
        times_selected=rng.integers(0, 5, n),
        last_selected=rng.integers(0, 40, n),
        round=50,
    )


def child(name: str, n: int, k: int) -> None:
    from equifl.selectors import SELECTORS

    warnings.simplefilter("ignore")
    selector, given = SELECTORS[name](), signals(n)
    selector.select(signals(50), 3, rng=0)
    peak = Peak()
    peak.start()
    start = time.perf_counter()
    selector.select(given, k, rng=0)
    seconds = time.perf_counter() - start
    peak.over.set()
    peak.join()
    print(json.dumps({"seconds": seconds, "bytes": peak.peak - peak.before}))


def measure(name: str, n: int, k: int, repeats: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", name, str(n), str(k)]
    runs = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(repeats)
    ]
    seconds = [run["seconds"] for run in runs]
    row = {"name": name, "n": n, "k": k, "seconds": statistics.median(seconds), "slowest": max(seconds)}
    return row | {"bytes": max(run["bytes"] for run in runs)}


def table(rows: list[dict[str, Any]]) -> str:
    """For docs/performance.md: a line a selector, both cohorts beside each other."""
    lines = ["| selector | clients | 10 of them | 100 of them | memory |", "|---|---:|---:|---:|---:|"]
    for name in dict.fromkeys(row["name"] for row in rows):
        few, many = (next(row for row in rows if (row["name"], row["k"]) == (name, k)) for k in COHORTS)
        memory = max(few["bytes"], many["bytes"]) / 2**20
        times = f"{few['seconds']:.3f} s | {many['seconds']:.3f} s"
        lines.append(f"| `{name}` | {few['n']:,} | {times} | {memory:.0f} MiB |")
    return "\n".join(lines)


def main() -> None:
    from equifl.selectors import SELECTORS

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "selectors.json")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", choices=list(SELECTORS), help="measure these, and keep the others' rows")
    options = parser.parse_args()
    if options.child:
        name, n, k = options.child
        child(name, int(n), int(k))
        return
    rows = []
    if options.only:
        rows = [row for row in json.loads(options.out.read_text())["rows"] if row["name"] not in options.only]
    for name in options.only or SELECTORS:
        for k in COHORTS:
            n = min(options.clients, FEWER.get(name, options.clients))
            rows.append(row := measure(name, n, k, options.repeats))
            print(f"{name:20} {n:,} k = {k:3}: {row['seconds']:.3f} s, {row['bytes'] / 2**20:.0f} MiB", flush=True)
    rows.sort(key=lambda row: list(SELECTORS).index(row["name"]))
    result = {"command": "make bench-selectors", "versions": versions(), "cores": os.cpu_count(), "rows": rows}
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    fill_in(ROOT / "docs" / "performance.md", {"selectors": table(rows)})


if __name__ == "__main__":
    main()
