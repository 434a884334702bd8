"""What one process of `benchmarks/scale.py` measures: one point, given as JSON; the result is printed as JSON.

python benchmarks/scale_points.py POINT FILE
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SEED, LENGTH = 0, 256
SELECTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "SubTrunc, sample 10": ("SubTrunc", {"sample": 10}),
    "UnionFL, sample 10": ("UnionFL", {"sample": 10}),
    "Rota": ("Rota", {}),
    "DivFL, exact": ("DivFL", {"memory_limit": 2**28}),
}
PEERS = ("apricot, exact", "submodlib, exact")
PEER_BYTES = 2**34
REPEATS = 100


def make_sketches(path: Path, n: int, dtype: str) -> None:
    from equifl.sketch import CountSketch
    from equifl.sketch_file import open_sketches

    rng = np.random.default_rng(SEED)
    sketches = open_sketches(path, n, CountSketch(length=LENGTH, seed=SEED), np.dtype(dtype).type)
    kinds = rng.normal(size=(10, LENGTH)).astype(np.float32)
    for start in range(0, n, 2**16):
        ids = np.arange(start, min(start + 2**16, n))
        noise = rng.standard_normal((len(ids), LENGTH), dtype=np.float32)
        sketches.write(ids, kinds[rng.integers(10, size=len(ids))] + noise)


def peak_bytes(process: int | str = "self") -> int:
    """Of this process alone; what `getrusage` says may be the parent's."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def busy_seconds() -> float:
    """What the machine's processors have done, for whomever."""
    fields = Path("/proc/stat").read_text().split()[1:9]  # user, nice, system, idle, waiting, interrupts
    return sum(int(fields[at]) for at in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def others(busy: float, ours: float, wall: float) -> float:
    """The share of the machine's time that other processes took."""
    return max(0.0, (busy - ours) / wall / (os.cpu_count() or 1))


def prepared(point: dict[str, Any], path: Path) -> tuple[Any, Any]:
    """A store of N clients with the sketches of the file, and the selector."""
    import equifl
    from equifl.sketch import CountSketch

    n, rng = point["n"], np.random.default_rng(SEED)
    kind, options = SELECTORS[point["name"]]
    if n > 10**6 and kind != "Rota":
        options = options | {"memory_limit": 2**32}
    if kind == "UnionFL":
        options = {"inner": equifl.DivFL(**options)}
    sketch = CountSketch(length=LENGTH, seed=SEED)
    store = equifl.SignalStore(n, sketch=sketch, dtype=point["dtype"], memory_map=path)
    times = rng.integers(0, 3, size=n)
    news = {"losses": rng.exponential(size=n), "times_selected": times}
    store.load_state_dict(store.state_dict() | news | {"last_selected": np.where(times > 0, 5, -1)})
    return store, getattr(equifl, kind)(**options)


def select(point: dict[str, Any], path: Path) -> dict[str, Any]:
    store, selector = prepared(point, path)
    before = peak_bytes()
    start = time.perf_counter()
    signals = store.signals(10)
    checked = time.perf_counter() - start
    chosen = selector.select(signals, point["k"], rng=np.random.default_rng(SEED))
    seconds = time.perf_counter() - start
    assert len(set(chosen.tolist())) == point["k"]
    found = {"seconds": seconds, "of which signals": checked, "bytes": peak_bytes(), "bytes before": before}
    return found | {"memory_limit": getattr(getattr(selector, "inner", selector), "memory_limit", None)}


def balance(point: dict[str, Any], path: Path) -> dict[str, Any]:
    """How far a cohort's mean is from everybody's, in units of a random cohort's: by Rota, and by Rota on shards.

    Shards that plan for themselves give k / shards of their own clients a seat.
    """
    from equifl import Rota, Signals

    updates, k = np.load(path), point["k"]
    mean = updates.mean(axis=0, dtype=np.float64)

    def cohort(parts: list[Any], rng: np.random.Generator) -> Any:
        seats = k // len(parts)
        return np.concatenate(
            [part[Rota().select_around(mean, Signals(updates=updates[part]), seats, rng=rng)] for part in parts]
        )

    def distance(cohorts: list[Any]) -> float:
        return float(np.sqrt(np.mean([np.sum((updates[cohort].mean(axis=0) - mean) ** 2) for cohort in cohorts])))

    rng = np.random.default_rng(SEED)
    unit = distance([rng.permutation(point["n"])[:k] for _ in range(100)])
    found = {}
    for shards in (1, 2, 4):
        parts = np.array_split(np.arange(point["n"]), shards)
        found[str(shards)] = distance([cohort(parts, np.random.default_rng(seed)) for seed in range(8)]) / unit
    return {"distance with shards": found}


def observe(point: dict[str, Any], path: Path) -> dict[str, Any]:
    """Processor time of cohorts' reports, by turns with checksums and without; then of late news, without a round."""
    import equifl
    from equifl.sketch import CountSketch
    from equifl.sketch_file import SketchFile

    def unchecked(self: SketchFile, ids: Any, sketches: Any) -> None:
        self.rows[ids] = sketches

    n, k, rng, checked = point["n"], point["k"], np.random.default_rng(SEED), SketchFile.write
    sketch = CountSketch(length=LENGTH, seed=SEED)
    store = equifl.SignalStore(n, sketch=sketch, dtype=point["dtype"], memory_map=path)
    store.signals(0)
    times: dict[Any, list[float]] = {(write, late): [] for write in (checked, unchecked) for late in (False, True)}
    for turn in range(4 * REPEATS):
        late = turn >= 2 * REPEATS
        for second, write in enumerate((checked, unchecked) if turn % 2 else (unchecked, checked)):
            ids, losses = rng.choice(n, k, replace=False), rng.exponential(size=k)
            updates = rng.standard_normal((k, LENGTH), dtype=np.float32)
            SketchFile.write = write  # type: ignore[method-assign]
            start = time.process_time()
            store.observe(ids, losses=losses, updates=updates, round=None if late else 2 * turn + second)
            times[write, late].append(time.process_time() - start)
    with_checks, without, late_with, late_without = (
        statistics.median(times[write, late]) for late in (False, True) for write in (checked, unchecked)
    )
    found = {"seconds": with_checks, "without checksums": without, "late news": late_with}
    return found | {"late news without checksums": late_without}


def open_again(point: dict[str, Any], path: Path) -> dict[str, Any]:
    """Opening a file that the system holds in memory, and beside it the checks of `signals`, which read as much."""
    import equifl
    from equifl.sketch import CountSketch

    opening, reading = [], []
    for _ in range(5):
        start = time.perf_counter()
        sketch = CountSketch(length=LENGTH, seed=SEED)
        store = equifl.SignalStore(point["n"], sketch=sketch, dtype=point["dtype"], memory_map=path)
        opened = time.perf_counter()
        store.signals(0)
        opening.append(opened - start)
        reading.append(time.perf_counter() - opened)
    return {"seconds": statistics.median(opening), "signals": statistics.median(reading), "bytes": peak_bytes()}


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
    from equifl.experiment.config import Config
    from equifl.sim.loop.federation import Federation
    from equifl.sim.simulation import load_data

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
    if point["part"] == "balance":
        return balance(point, path)
    if point["part"] == "checksums":
        return observe(point, path) if point["name"] == "observe" else open_again(point, path)
    if point["part"] == "cluster":
        from scale_cluster import select_on_cluster

        return select_on_cluster(point, path)
    return peer(point, path) if point["name"] in PEERS else select(point, path)


if __name__ == "__main__":
    print(json.dumps(child(json.loads(sys.argv[1]), Path(sys.argv[2]))))
