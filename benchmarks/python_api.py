"""The Python API: `simulate` beside `equifl run`, and a data frame of many runs.

    make bench-python             # or: python benchmarks/python_api.py [--quick] [--repeats 5]

The experiment: the digits, six selectors, five seeds, with its folder and its report, by `equifl run` and by a script
that calls `simulate`, each in a process of its own, in turns. Shown are the medians of the seconds and of the CPU
seconds (of a machine that others use as well, the second are the ones to compare), and the quotients of the medians.
The data frame: 1,000 runs of 100 rounds, the records of one real run under other names; `to_pandas` and `final`, each
the median of the repeats, in this process. The table of docs/performance.md is written from the results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drawing import fill_in

from equifl import Results, simulate

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "python_api.json"
SCRIPT = "import sys; from equifl import simulate; simulate(rounds=int(sys.argv[1]), out=sys.argv[2]).report()"
SELECTORS, SEEDS, ROUNDS = 20, 50, 100
Found = dict[str, Any]


def commands(rounds: int, folder: Path) -> dict[str, list[str]]:
    run = [sys.executable, "-m", "equifl", "run", "--quiet", "--set", f"rounds={rounds}", "--out", str(folder / "run")]
    return {"equifl run": run, "simulate": [sys.executable, "-c", SCRIPT, str(rounds), str(folder / "simulate")]}


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds, and CPU seconds, of a process and its children."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before, start = used(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return time.perf_counter() - start, used() - before


def in_turns(rounds: int, repeats: int) -> Found:
    """Median seconds and CPU seconds of each way; the first turn, which fills caches, does not count."""
    found: dict[str, list[tuple[float, float]]] = {}
    for turn in range(repeats + 1):
        with tempfile.TemporaryDirectory() as folder:
            for name, command in commands(rounds, Path(folder)).items():
                took = timed(command)
                if turn:
                    found.setdefault(name, []).append(took)
            ways = [Path(folder) / name / "rounds.jsonl" for name in ("run", "simulate")]
            assert ways[0].read_bytes() == ways[1].read_bytes(), "not the same experiment"
    return medians(found)


def many_runs(rounds: int) -> Results:
    """Results of 1,000 runs: the records of one, under other names."""
    one = simulate(selectors=["rota"], seeds=1, rounds=rounds, model="logistic", progress=False)
    names = [f"rota_{i}" for i in range(SELECTORS)]
    records = [
        record | {"selector": name, "seed": seed} for record in one.records for name in names for seed in range(SEEDS)
    ]
    config = dict(one.config) | {"selectors": {name: {} for name in names}, "seeds": list(range(SEEDS))}
    return Results(config, one.made_with, records)


def frames(rounds: int, repeats: int) -> Found:
    """Median seconds until a data frame is there; a new object each time, which keeps nothing of the last."""
    found: dict[str, list[tuple[float, float]]] = {}
    results = many_runs(rounds)
    for _ in range(repeats):
        methods: dict[str, Callable[[Results], Any]] = {"to_pandas": Results.to_pandas, "final": Results.final}
        for name, method in methods.items():
            fresh = Results(results.config, results.made_with, results.records)
            start, used = time.perf_counter(), time.process_time()
            method(fresh)
            found.setdefault(name, []).append((time.perf_counter() - start, time.process_time() - used))
    return medians(found) | {"rows": len(results.records)}


def medians(found: dict[str, list[tuple[float, float]]]) -> Found:
    return {
        name: {"seconds": statistics.median(s for s, _ in took), "cpu_seconds": statistics.median(c for _, c in took)}
        for name, took in found.items()
    }


def table(found: Found) -> str:
    """As docs/performance.md shows it."""
    ways, shown = found["digits"], found["frames"]
    lines = ["| | seconds | CPU seconds |", "|---|---|---|"]
    lines += [f"| `{name}` | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} |" for name, row in ways.items()]
    quotients = [ways["simulate"][key] / ways["equifl run"][key] for key in ("seconds", "cpu_seconds")]
    lines.append(f"| `simulate` / `equifl run` | {quotients[0]:.2f} | {quotients[1]:.2f} |")
    for name in ("to_pandas", "final"):
        row = shown[name]
        lines.append(f"| `{name}()` of {shown['rows']:,} records | {row['seconds']:.2f} | {row['cpu_seconds']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="5 rounds and one repeat; nothing is written")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rounds, repeats = (5, 1) if options.quick else (60, options.repeats)
    found: Found = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "repeats": repeats}
    found |= {"digits": in_turns(rounds, repeats), "rounds": 10 if options.quick else ROUNDS}
    found["frames"] = frames(found["rounds"], repeats)
    print(table(found))
    if not options.quick:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        fill_in(ROOT / "docs" / "performance.md", {"python": table(found)})


if __name__ == "__main__":
    main()
