"""Time and memory of a selection against the number of clients, from a thousand to ten million, and of a simulation.

    python benchmarks/scale.py [--only TEXT] [--peers PYTHON] [--out FILE]   # half an hour

Every point is a process of its own. "selection": N clients have sketches of 256 numbers (ten kinds of client, much
noise) in a memory-mapped file that has just been written; timed is `store.signals(...)` with all its checks and
`selector.select(...)` of k; memory is the most that the process ever held, the pages of the file among it. "line" is
what a straight line in N through the point at 10,000 gives. The peers get the same sketches in memory, compute
distances with scikit-learn and maximise exact facility location, as `DivFL()` does; they may take 16 GiB and three
minutes, and their imports and compilation are not counted. "sketch": one update to 256 numbers. "simulation": seconds
a round of logistic regression with k = 100 and stale signals, the selection apart. `--only` measures the points whose
name contains the text, again; the others stay as they are in the file. The tables of docs/scale.md are written from
it. "load" is the machine's load average as the point began.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from drawing import COLOURS, Axis, Panel, fill_in, picture

ROOT = Path(__file__).resolve().parent.parent
SEED, LENGTH = 0, 256
SELECTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "SubTrunc, sample 10": ("SubTrunc", {"sample": 10}),
    "UnionFL, sample 10": ("UnionFL", {"sample": 10}),
    "Rota": ("Rota", {}),
    "DivFL, exact": ("DivFL", {"memory_limit": 2**28}),
}
PEERS = ("apricot, exact", "submodlib, exact")
PEER_BYTES, PEER_SECONDS = 2**34, 180


def points() -> Iterator[dict[str, Any]]:
    """What is measured, from the quickest to the slowest."""
    for numbers in (61_706, 1_000_000):
        yield {"part": "sketch", "name": "CountSketch", "n": numbers}
    for n in (10**3, 10**4, 10**5):
        for name in ("Uniform", "Rota"):
            yield {"part": "simulation", "name": name, "n": n}
    for n in (10**3, 10**4, 10**5, 10**6):
        for name in ("SubTrunc, sample 10", "UnionFL, sample 10", "Rota"):
            yield {"part": "selection", "name": name, "n": n, "k": 100, "dtype": "float32"}
    yield {"part": "selection", "name": "SubTrunc, sample 10", "n": 10**6, "k": 100, "dtype": "float16"}
    for n in (10**3, 10**4, 3 * 10**4, 10**5):
        for name in ("DivFL, exact", *PEERS):
            yield {"part": "selection", "name": name, "n": n, "k": 100, "dtype": "float32"}
    for k in (100, 1000):
        yield {"part": "selection", "name": "Rota", "n": 10**7, "k": k, "dtype": "float16"}
    yield {"part": "selection", "name": "SubTrunc, sample 10", "n": 10**7, "k": 100, "dtype": "float16"}


def label(point: dict[str, Any]) -> str:
    return " ".join(str(point[key]) for key in ("part", "name", "n", "k", "dtype") if key in point)


def make_sketches(path: Path, n: int, dtype: str) -> None:
    from equifl.sketch import CountSketch
    from equifl.sketch_file import open_sketches

    rng = np.random.default_rng(SEED)
    rows = open_sketches(path, n, CountSketch(length=LENGTH, seed=SEED), np.dtype(dtype).type)
    kinds = rng.normal(size=(10, LENGTH)).astype(np.float32)
    for start in range(0, n, 2**16):
        part = rows[start : start + 2**16]
        part[:] = kinds[rng.integers(10, size=len(part))] + rng.standard_normal(part.shape, dtype=np.float32)


def peak_bytes() -> int:
    """Of this process alone; what `getrusage` says may be the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def select(point: dict[str, Any], path: Path) -> dict[str, Any]:
    import equifl
    from equifl.sketch import CountSketch

    n, k, rng = point["n"], point["k"], np.random.default_rng(SEED)
    kind, options = SELECTORS[point["name"]]
    if n > 10**6 and kind != "Rota":
        options = options | {"memory_limit": 2**32}
    if kind == "UnionFL":
        options = {"inner": equifl.DivFL(**options)}
    selector = getattr(equifl, kind)(**options)
    sketch = CountSketch(length=LENGTH, seed=SEED)
    store = equifl.SignalStore(n, sketch=sketch, dtype=point["dtype"], memory_map=path)
    times = rng.integers(0, 3, size=n)
    news = {"losses": rng.exponential(size=n), "times_selected": times}
    store.load_state_dict(store.state_dict() | news | {"last_selected": np.where(times > 0, 5, -1)})
    before = peak_bytes()
    start = time.perf_counter()
    signals = store.signals(10)
    checked = time.perf_counter() - start
    chosen = selector.select(signals, k, rng=rng)
    seconds = time.perf_counter() - start
    assert len(set(chosen.tolist())) == k
    found = {"seconds": seconds, "of which signals": checked, "bytes": peak_bytes(), "bytes before": before}
    return found | {"memory_limit": getattr(getattr(selector, "inner", selector), "memory_limit", None)}


def peer(point: dict[str, Any], path: Path) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (PEER_BYTES, PEER_BYTES))
    from sklearn.metrics import pairwise_distances

    def choose(sketches: Any, k: int) -> None:
        distances = pairwise_distances(sketches)
        similarities = np.subtract(distances.max(), distances, out=distances)
        if point["name"].startswith("apricot"):
            from apricot import FacilityLocationSelection

            FacilityLocationSelection(k, metric="precomputed", optimizer="lazy").fit(similarities.astype(np.float64))
        else:
            from submodlib import FacilityLocationFunction

            function = FacilityLocationFunction(n=len(sketches), mode="dense", sijs=similarities, separate_rep=False)
            function.maximize(budget=k, optimizer="LazyGreedy", show_progress=False)

    sketches = np.load(path)
    choose(sketches[:50], 3)  # imports, and compiles what is compiled
    start = time.perf_counter()
    choose(sketches, point["k"])
    return {"seconds": time.perf_counter() - start, "bytes": peak_bytes()}


def sketch_one(point: dict[str, Any]) -> dict[str, Any]:
    from equifl.sketch import CountSketch

    update = np.random.default_rng(SEED).standard_normal(point["n"], dtype=np.float32)
    sketch, times = CountSketch(length=LENGTH, seed=SEED), []
    for _ in range(51):
        start = time.perf_counter()
        sketch(update)
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times), "first": times[0], "bytes": peak_bytes()}


def simulate(point: dict[str, Any]) -> dict[str, Any]:
    from equifl.config import Config
    from equifl.sim.federation import Federation
    from equifl.sim.run import load_data

    table = {"clients": point["n"], "per_round": 100, "rounds": 100, "seeds": [0], "sketch": LENGTH}
    data = {"name": "synthetic", "partition": "natural", "largest": 20}
    train = {"model": "logistic", "steps": 10, "batch_size": 10}
    settings = {"data": data, "train": train, "evaluate_every": 100, "selectors": {point["name"].lower(): {}}}
    config = Config.from_table(table | settings)
    dataset = load_data(config, None)
    data_bytes = peak_bytes()
    federation = Federation(config, dataset, device="cpu")
    select, selecting = federation._select, []

    def timed(round: int) -> Any:
        start = time.perf_counter()
        chosen = select(round)
        selecting.append(time.perf_counter() - start)
        return chosen

    federation._select = timed  # type: ignore[method-assign]
    rounds = []
    for _ in range(8):
        start = time.perf_counter()
        federation.play()
        rounds.append(time.perf_counter() - start)
    rest = statistics.median(whole - chosen for whole, chosen in zip(rounds[1:], selecting[1:], strict=True))
    found = {"seconds": statistics.median(rounds[1:]), "without selection": rest, "first round": rounds[0]}
    return found | {"bytes": peak_bytes(), "bytes of data": data_bytes}


def child(point: dict[str, Any], path: Path) -> dict[str, Any]:
    if point["part"] == "make":
        make_sketches(path, point["n"], point["dtype"])
        return {}
    if point["part"] == "sketch":
        return sketch_one(point)
    if point["part"] == "simulation":
        return simulate(point)
    return peer(point, path) if point["name"] in PEERS else select(point, path)


def measure(point: dict[str, Any], path: Path, python: str) -> dict[str, Any]:
    command = [python, __file__, "--child", json.dumps(point), str(path)]
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


def with_lines(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Beside every time the one of a straight line in N through the same method's at 10,000."""
    anchors = {row["name"]: row for row in rows if row["part"] == "selection" and row["n"] == 10**4 and "k" in row}
    for row in rows:
        anchor = anchors.get(row["name"], {})
        if row["part"] == "selection" and "seconds" in row and "seconds" in anchor:
            row["line"] = anchor["seconds"] * row["n"] / anchor["n"]
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| N | method | k | numbers | seconds | straight line | most memory |",
        "|---:|---|---:|---|---:|---:|---:|",
    ]
    for row in (row for row in rows if row["part"] == "selection"):
        start = f"| {row['n']:,} | {row['name']} | {row['k']:,} | {row['dtype']} |"
        if "error" in row:
            lines.append(f"{start} {row['error']} | | |")
        else:
            line = f"{row['line']:.2f}" if "line" in row else ""
            lines.append(f"{start} {row['seconds']:.2f} | {line} | {row['bytes'] / 2**30:.2f} GiB |")
    return "\n".join(lines)


def small_tables(rows: list[dict[str, Any]]) -> str:
    lines = ["| numbers in an update | to a sketch of 256 |", "|---:|---:|"]
    sketches = (row for row in rows if row["part"] == "sketch")
    lines += [f"| {row['n']:,} | {1000 * row['seconds']:.2f} ms |" for row in sketches]
    lines += ["", "| N | selector | a round | of which not selection | first round | data | most memory |"]
    lines.append("|---:|---|---:|---:|---:|---:|---:|")
    for row in (row for row in rows if row["part"] == "simulation"):
        times = f"{row['seconds']:.3f} s | {row['without selection']:.3f} s | {row['first round']:.1f} s"
        memory = f"{row['bytes of data'] / 2**30:.2f} GiB | {row['bytes'] / 2**30:.2f} GiB"
        lines.append(f"| {row['n']:,} | {row['name']} | {times} | {memory} |")
    return "\n".join(lines)


def figure(rows: list[dict[str, Any]]) -> str:
    """Time and memory against N, on logarithmic axes."""
    clients = Axis.powers(3, 7, "10^{}")
    time_of = Panel(60, "seconds to choose 100", clients, Axis.powers(-3, 3))
    memory_of = Panel(440, "most memory, GiB", clients, Axis.powers(-2, 2))
    legend = list(zip([*SELECTORS, *PEERS], COLOURS, strict=True))
    for panel, key, unit in ((time_of, "seconds", 1.0), (memory_of, "bytes", 2.0**30)):
        for name, colour in legend:
            chosen = [r for r in rows if r["part"] == "selection" and r["name"] == name and key in r and r["k"] == 100]
            half = [r for r in chosen if r["n"] == 10**6 and r["dtype"] == "float16"]  # float32 is there too
            panel.line({r["n"]: r[key] / unit for r in chosen if r not in half}, colour)
    return picture([time_of, memory_of], legend, "Time and memory against the number of clients")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", default=sys.executable, help="a Python that has apricot-select and submodlib-py")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "scale.json")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(child(json.loads(given.child[0]), Path(given.child[1]))))
        return
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for point in points():
        if given.only not in label(point):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sketches.npy"
            if point["part"] == "selection":
                made = measure({"part": "make", "n": point["n"], "dtype": point["dtype"]}, path, sys.executable)
                assert made == {}, made
            python = given.peers if point["name"] in PEERS else sys.executable
            load = {"load": os.getloadavg()[0]}
            row = point | measure(point, path, python) | load
        order = [label(other) for other in points()]
        rows = [other for other in rows if label(other) != label(point)] + [row]
        rows = with_lines(sorted(rows, key=lambda row: order.index(label(row))))
        print(label(point), {key: value for key, value in row.items() if key not in point}, flush=True)
        result = {"command": "python benchmarks/scale.py", "machine": machine, "versions": versions, "rows": rows}
        given.out.write_text(json.dumps(result, indent=1) + "\n")
        (ROOT / "docs" / "figures" / "scale.svg").write_text(figure(rows))
        fill_in(ROOT / "docs" / "scale.md", {"selection": table(rows), "sketch and simulation": small_tables(rows)})


if __name__ == "__main__":
    main()
