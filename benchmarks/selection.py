"""Facility location, ours against apricot-select, submodlib-py and kmedoids, in one run.

    make bench-selection                          # makes an environment of its own for the peers
    python benchmarks/selection.py [--quick] [--repeats 3] [--out FILE]

Everyone gets the same clients and maximises the same objective, each in a process of its own, in turns.
"matrix": the distances are given, to each in the number type it works in (apricot float64, the others float32),
as similarities max(D) - D where it wants those. "vectors": 512 numbers a client are given. Only ours takes
those for Euclidean facility location; the peers get the distances from scikit-learn within their time. Not timed:
imports, a first call on a few clients (which compiles what is compiled), reading the input. Ours is timed
through its front door, `DivFL().select(Signals(...), k)`, with all its checks. Printed: the median time,
the peak of memory above what the process held before, the sum of distances to the nearest chosen
client beside naive greedy's, and the ratio to the fastest peer. The table of docs/performance.md is written from it.
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
import threading
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from drawing import fill_in

ROOT = Path(__file__).resolve().parent.parent
OURS = ["equifl", "equifl streaming"]
PEERS = ["apricot lazy", "apricot two-stage", "submodlib", "kmedoids"]
SLOW = {("kmedoids", 10_000, 100)}  # a minute each: once is enough
Choice = Callable[[Any, int], Any]


def equifl(given: str, memory_limit: int) -> Choice:
    from equifl import DivFL, Signals

    field = "distances" if given == "matrix" else "updates"
    rng = np.random.default_rng(0)
    return lambda data, k: DivFL(memory_limit=memory_limit).select(Signals(**{field: data}), k, rng=rng)


def peer(name: str) -> tuple[Choice, Callable[[Any], Any]]:
    """What chooses, and what turns distances into what it wants."""
    if name.startswith("apricot"):
        from apricot import FacilityLocationSelection

        def apricot(similarities: Any, k: int) -> Any:
            optimizer = name.split()[1]
            return FacilityLocationSelection(k, metric="precomputed", optimizer=optimizer).fit(similarities).ranking

        return apricot, lambda distances: (distances.max() - distances).astype(np.float64)
    if name == "submodlib":
        from submodlib import FacilityLocationFunction

        def submodlib(similarities: Any, k: int) -> Any:
            n = len(similarities)
            function = FacilityLocationFunction(n=n, mode="dense", sijs=similarities, separate_rep=False)
            return [i for i, _ in function.maximize(budget=k, optimizer="LazyGreedy", show_progress=False)]

        return submodlib, lambda distances: distances.max() - distances
    import kmedoids

    return lambda distances, k: kmedoids.pam_build(distances, k).medoids, lambda distances: distances


def contender(name: str, given: str) -> tuple[Choice, Callable[[Any], Any]]:
    if name == "equifl":
        return equifl(given, 2**30), lambda distances: distances
    if name == "equifl streaming":
        return equifl(given, 2**26), lambda distances: distances
    choose, prepare = peer(name)
    if given == "matrix":
        return choose, prepare
    from sklearn.metrics import pairwise_distances

    return lambda vectors, k: choose(prepare(pairwise_distances(vectors)), k), lambda vectors: vectors


class Peak(threading.Thread):
    """The most memory the process holds while this runs, above what it held before."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.peak = self.now()
        self.over = threading.Event()

    @staticmethod
    def now() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def run(self) -> None:
        while not self.over.wait(0.005):
            self.peak = max(self.peak, self.now())


def child(name: str, given: str, k: int, folder: Path) -> None:
    choose, prepare = contender(name, given)
    few = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    few_distances = np.linalg.norm(few[:, None] - few, axis=2)
    choose(prepare(few_distances if given == "matrix" else few), 3)
    data = prepare(np.load(folder / f"{given}.npy"))
    peak = Peak()
    peak.start()
    start = time.perf_counter()
    chosen = choose(data, k)
    seconds = time.perf_counter() - start
    peak.over.set()
    peak.join()
    print(json.dumps({"seconds": seconds, "bytes": peak.peak - peak.before, "chosen": [int(i) for i in chosen]}))


def measure(names: list[str], given: str, n: int, k: int, repeats: int, folder: Path) -> list[dict[str, Any]]:
    distances = np.load(folder / "matrix.npy", mmap_mode="r")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for repeat in range(repeats):
        for name in names:
            if repeat and (name, n, k) in SLOW:
                continue
            command = [sys.executable, __file__, "--child", name, given, str(k), str(folder)]
            run = subprocess.run(
                command, capture_output=True, text=True, env=os.environ | {"PYTHONWARNINGS": "ignore"}
            )
            if run.returncode:
                results[name].append({"error": run.stderr.strip().splitlines()[-1]})
            else:
                results[name].append(json.loads(run.stdout.strip().splitlines()[-1]))
    rows = []
    for name, runs in results.items():
        row: dict[str, Any] = {"given": given, "n": n, "k": k, "name": name}
        if "error" in runs[0]:
            rows.append(row | {"error": runs[0]["error"]})
            continue
        seconds = [run["seconds"] for run in runs]
        objective = float(distances[runs[0]["chosen"]].min(axis=0).sum(dtype=np.float64))
        row |= {"seconds": statistics.median(seconds), "fastest": min(seconds), "slowest": max(seconds)}
        rows.append(row | {"bytes": max(run["bytes"] for run in runs), "objective": objective})
    return rows


def inputs(n: int, folder: Path, ks: list[int]) -> dict[int, float]:
    """Writes vectors and distances; the sum of distances that naive greedy reaches for each k."""
    from equifl import Signals
    from equifl._numerics.distances import UpdateDistances
    from equifl.maximizers import greedy
    from equifl.objectives import FacilityLocation

    rng = np.random.default_rng(n)
    centres = rng.normal(size=(10, 512))  # ten kinds of client, much noise
    vectors = (centres[rng.integers(10, size=n)] + rng.normal(size=(n, 512))).astype(np.float32)
    distances = UpdateDistances(vectors).matrix()
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "matrix.npy", distances)
    chosen = greedy(FacilityLocation(Signals(distances=distances)), max(ks))
    return {k: float(distances[chosen[:k]].min(axis=0).sum(dtype=np.float64)) for k in ks}


def show(rows: list[dict[str, Any]], naive: float) -> None:
    times = [row["seconds"] for row in rows if row["name"] in PEERS and "seconds" in row]
    first = rows[0]
    print(f"\nN = {first['n']:,}, k = {first['k']}, {first['given']} given   (naive greedy reaches {naive:,.3f})")
    for row in rows:
        if "error" in row:
            print(f"  {row['name']:20} failed: {row['error']}")
            continue
        row["naive"] = naive
        row["times_faster_than_fastest_peer"] = min(times) / row["seconds"] if times else None
        ratio = f"{row['times_faster_than_fastest_peer']:6.1f} x" if row["name"] in OURS and times else " " * 8
        spread = f"{row['fastest']:.3f} to {row['slowest']:.3f}"
        print(
            f"  {row['name']:20} {row['seconds']:8.3f} s ({spread:>16}) {row['bytes'] / 2**20:8.0f} MiB"
            f"  {row['objective']:14,.3f} {ratio}",
            flush=True,
        )


def table(rows: list[dict[str, Any]]) -> str:
    """For docs/performance.md: ours beside the fastest peer in each setting."""
    head = "clients | given | k | equifl | its memory | fastest of the others | its memory | speed-up"
    lines = [f"| {head} |", "|---:|---|---:|---:|---:|---|---:|---:|"]
    for mine in (row for row in rows if row["name"] == "equifl"):
        setting = {key: mine[key] for key in ("n", "given", "k")}
        others = [r for r in rows if r["name"] in PEERS and "seconds" in r and r.items() >= setting.items()]
        if not others:
            continue
        best = min(others, key=lambda row: row["seconds"])
        given = {"matrix": "distances", "vectors": "vectors of length 512"}[mine["given"]]
        lines.append(
            f"| {mine['n']:,} | {given} | {mine['k']} | {mine['seconds']:.3f} s | {mine['bytes'] / 2**20:.0f} MiB "
            f"| {best['seconds']:.3f} s ({best['name']}) | {best['bytes'] / 2**20:.0f} MiB "
            f"| {mine['times_faster_than_fastest_peer']:.1f} x |"
        )
    return "\n".join(lines)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("equifl", "numpy", "apricot-select", "submodlib-py", "kmedoids", "scikit-learn", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="N = 1,000 only; printed only")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "selection.json")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, given, k, folder = options.child
        child(name, given, int(k), Path(folder))
        return
    rows = []
    ks = [10, 100]
    for n in [1_000] if options.quick else [1_000, 10_000]:
        with tempfile.TemporaryDirectory() as folder:
            naive = inputs(n, Path(folder), ks)
            for given in ("matrix", "vectors"):
                for k in ks:
                    names = [name for name in OURS + PEERS if given == "vectors" or name != "equifl streaming"]
                    rows += (new := measure(names, given, n, k, options.repeats, Path(folder)))
                    show(new, naive[k])
    if options.quick:
        return
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = {"command": "make bench-selection", "versions": versions(), "machine": machine, "rows": rows}
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    fill_in(ROOT / "docs" / "performance.md", {"selection": table(rows)})
    print(f"\nwritten to {options.out} and docs/performance.md")


if __name__ == "__main__":
    main()
