"""Rounds a second: our simulator beside a plain PyTorch loop over clients, on the same work, in one run.

    make bench-simulation                        # or: python benchmarks/simulation.py [--quick] [--repeats 5]

The work: 100 clients x 600 examples of MNIST's shape, LeNet 28x28, 10 clients a round, 10 steps of batch 32, plain
mean. Each contender runs in a process of its own, in turns, on all cores it is given: the loop with PyTorch's threads,
ours with its own. Printed: the median over processes of rounds a second (each the median of its rounds), seconds from
the start of the process to the end of its first round, and the peak of its memory.
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
import time
from pathlib import Path
from typing import Any

CLIENTS, EXAMPLES, COHORT, STEPS, BATCH = 100, 600, 10, 10, 32
CONTENDERS = ["equifl", "plain loop"]


def made_up() -> Any:
    import numpy as np

    from equifl.sim.data import Dataset

    rng = np.random.default_rng(0)
    n = CLIENTS * EXAMPLES
    x = rng.standard_normal((n + 10_000, 1, 28, 28), dtype=np.float32)
    y = rng.integers(0, 10, n + 10_000)
    return Dataset("made up", x[:n], y[:n], x[n:], y[n:], 10)


def equifl_rounds(rounds: int) -> list[float]:
    from equifl.config import Config
    from equifl.sim.federation import Federation

    never = 10**6  # evaluated: the loop is not either
    shape = [f"rounds={never}", f"clients={CLIENTS}", f"per_round={COHORT}", "seeds=[0]", f"evaluate_every={never}"]
    work = [
        f"train={{steps={STEPS}, batch_size={BATCH}, lr=0.01}}",
        "data={partition='iid'}",
        "selectors={uniform={}}",
    ]
    federation = Federation(Config.load(None, shape + work), made_up(), device="cpu")
    return [timed(federation.play) for _ in range(rounds)]


def loop_rounds(rounds: int) -> list[float]:
    import numpy as np
    import torch

    from equifl.sim.engine import Sgd
    from equifl.sim.models import lenet
    from equifl.sim.reference import Reference

    loop = Reference(lenet((1, 28, 28), 10), made_up())
    sgd = Sgd(lr=0.01, batch_size=BATCH, steps=STEPS)
    rng = np.random.default_rng(0)
    model = torch.nn.utils.parameters_to_vector(loop.module.parameters()).detach()

    def play() -> None:
        nonlocal model
        cohort = rng.choice(CLIENTS, COHORT, replace=False)
        trained = [loop.train(model, sgd.batches(EXAMPLES, rng) + EXAMPLES * client, sgd)[0] for client in cohort]
        model = torch.stack(trained).mean(dim=0)

    return [timed(play) for _ in range(rounds)]


def timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def child(name: str, rounds: int, started: float) -> None:
    seconds = equifl_rounds(rounds) if name == "equifl" else loop_rounds(rounds)
    spent = time.time() - started
    result = {
        "rounds_per_second": 1 / statistics.median(seconds[1:]),
        "first_round_after": spent - sum(seconds[1:]),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "simulation.json")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], int(options.child[1]), float(options.child[2]))
        return
    repeats, rounds = (2, 10) if options.quick else (options.repeats, 20)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(repeats):
        for name in CONTENDERS:
            command = [sys.executable, __file__, "--child", name, str(rounds), str(time.time())]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs[name].append(json.loads(done.stdout.splitlines()[-1]))
    rows = {}
    print(f"{'':12} {'rounds/s':>9} {'(spread)':>16} {'first round after':>18} {'peak memory':>12}")
    for name, found in runs.items():
        rates = [run["rounds_per_second"] for run in found]
        middle = {key: statistics.median(run[key] for run in found) for key in found[0]}
        rows[name] = middle | {"slowest": min(rates), "fastest": max(rates)}
        spread = f"({min(rates):.2f} - {max(rates):.2f})"
        print(
            f"{name:12} {middle['rounds_per_second']:9.2f} {spread:>16} {middle['first_round_after']:16.1f} s"
            f" {middle['peak_bytes'] / 2**20:8.0f} MiB"
        )
    ratio = rows["equifl"]["rounds_per_second"] / rows["plain loop"]["rounds_per_second"]
    print(f"equifl is {ratio:.2f} times as fast as the plain loop")
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}
    result = {"command": "make bench-simulation", "machine": machine, "rows": rows, "times_faster": ratio}
    if not options.quick:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        print(f"written to {options.out}")


if __name__ == "__main__":
    main()
