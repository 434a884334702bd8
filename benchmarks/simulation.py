"""Rounds a second: our two engines beside a plain PyTorch loop over clients, on the same work, in one run.

    make bench-simulation                # or: python benchmarks/simulation.py [--quick] [--repeats 5] [--cifar]

The work: 100 clients x 600 examples of MNIST's shape, LeNet 28x28, 10 clients a round, 10 steps of batch 32, plain
mean. Each contender runs in a process of its own, in turns, on all cores it is given: the loop with PyTorch's threads,
ours with its own. Printed: the median over processes of rounds a second (each the median of its rounds), seconds from
the start of the process to the end of its first round, seconds for the losses and gradients of all 100 clients at one
model, and for the losses alone, and the peak of its memory. What the fast engine compiles is in its cache before.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

Work = Callable[[], Any]

CLIENTS, EXAMPLES, COHORT, STEPS, BATCH = 100, 600, 10, 10, 32
CONTENDERS = ["fast", "general", "plain loop"]
SHAPES = {False: (1, 28, 28), True: (3, 32, 32)}


def made_up(cifar: bool) -> Any:
    import numpy as np

    from equifl.sim.data import Dataset

    rng = np.random.default_rng(0)
    n = CLIENTS * EXAMPLES
    x = rng.standard_normal((n + 10_000, *SHAPES[cifar]), dtype=np.float32)
    y = rng.integers(0, 10, n + 10_000)
    return Dataset("made up", x[:n], y[:n], x[n:], y[n:], 10)


def ours(engine: str, cifar: bool) -> tuple[Work, Work, Work]:
    """A round; gradients of everyone; losses of everyone."""
    import numpy as np

    from equifl.config import Config
    from equifl.sim.federation import Federation

    never = 10**6  # evaluated: the loop is not either
    shape = [f"rounds={never}", f"clients={CLIENTS}", f"per_round={COHORT}", "seeds=[0]", f"evaluate_every={never}"]
    work = [
        f"train={{steps={STEPS}, batch_size={BATCH}, lr=0.01}}",
        "data={partition='iid'}",
        "selectors={uniform={}}",
        f"engine={engine}",
    ]
    federation = Federation(Config.load(None, shape + work), made_up(cifar), device="cpu")
    everyone = np.arange(CLIENTS * EXAMPLES).reshape(CLIENTS, EXAMPLES)
    model = federation.models[0].expand(CLIENTS, -1)
    engine_ = federation.engine
    return federation.play, lambda: engine_.gradients(model, everyone), lambda: engine_.losses(model, everyone)


def loop(cifar: bool) -> tuple[Work, Work, Work]:
    """The same, one client after another."""
    import numpy as np
    import torch
    from torch.nn.functional import cross_entropy

    from equifl.sim.engine import Sgd
    from equifl.sim.models import lenet
    from equifl.sim.reference import Reference

    loop = Reference(lenet(SHAPES[cifar], 10), made_up(cifar))
    sgd = Sgd(lr=0.01, batch_size=BATCH, steps=STEPS)
    rng = np.random.default_rng(0)
    model = torch.nn.utils.parameters_to_vector(loop.module.parameters()).detach()
    everyone = np.arange(CLIENTS * EXAMPLES).reshape(CLIENTS, EXAMPLES)

    def play() -> None:
        nonlocal model
        cohort = rng.choice(CLIENTS, COHORT, replace=False)
        trained = [loop.train(model, sgd.batches(EXAMPLES, rng) + EXAMPLES * client, sgd)[0] for client in cohort]
        model = torch.stack(trained).mean(dim=0)

    @torch.no_grad()
    def losses() -> list[float]:
        return [float(cross_entropy(loop.module(loop.x_train[mine]), loop.y_train[mine])) for mine in everyone]

    return play, lambda: [loop.gradient(model, mine) for mine in everyone], losses


def timed(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def child(name: str, rounds: int, cifar: bool, started: float) -> None:
    play, gradients, losses = loop(cifar) if name == "plain loop" else ours(name, cifar)
    play()
    first_after = time.time() - started
    seconds = [timed(play) for _ in range(rounds)]
    result = {
        "rounds_per_second": 1 / statistics.median(seconds),
        "first_round_after": first_after,
        "gradients": min(timed(gradients) for _ in range(2)),
        "losses": min(timed(losses) for _ in range(2)),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(result))


def run(name: str, rounds: int, cifar: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", name, str(rounds), str(time.time()), *["--cifar"] * cifar]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def print_rows(rows: dict[str, dict[str, float]]) -> None:
    head = f"{'':12}{'rounds/s':>9} {'(spread)':>15}{'first after':>13}{'gradients':>11}{'losses':>9}{'memory':>10}"
    print(head + "   times the plain loop's rounds, gradients, losses")
    loop = rows["plain loop"]
    for name, row in rows.items():
        spread = f"({row['slowest']:.2f} - {row['fastest']:.2f})"
        times = (
            row["rounds_per_second"] / loop["rounds_per_second"],
            *(loop[k] / row[k] for k in ("gradients", "losses")),
        )
        print(
            f"{name:12}{row['rounds_per_second']:9.2f} {spread:>15}{row['first_round_after']:11.1f} s"
            f"{row['gradients']:9.2f} s{row['losses']:7.2f} s{row['peak_bytes'] / 2**20:6.0f} MiB"
            f"   {'  '.join(f'{ratio:.2f}' for ratio in times)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "simulation.json")
    parser.add_argument("--cifar", action="store_true", help="LeNet on CIFAR-10's shape, printed only")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, rounds, started = options.child
        child(name, int(rounds), options.cifar, float(started))
        return
    run("fast", 1, options.cifar)  # so that it is compiled
    repeats, rounds = (2, 10) if options.quick else (options.repeats, 20)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(repeats):
        for name in CONTENDERS:
            runs[name].append(run(name, rounds, options.cifar))
    rows = {}
    for name, found in runs.items():
        rates = [run["rounds_per_second"] for run in found]
        rows[name] = {key: statistics.median(run[key] for run in found) for key in found[0]}
        rows[name] |= {"slowest": min(rates), "fastest": max(rates)}
    print_rows(rows)
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}
    if not (options.quick or options.cifar):
        result = {"command": "make bench-simulation", "machine": machine, "rows": rows}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        print(f"written to {options.out}")


if __name__ == "__main__":
    main()
