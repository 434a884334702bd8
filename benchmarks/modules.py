"""What the hybrid engine gains over the general one in modules that are no chain of layers: steps of SGD's gradient.

    python benchmarks/modules.py

Each module trains five copies on 32 images each, on one thread, and on two at once; milliseconds for one such step,
medians of repeats in turns. Writes results/modules.json and the table in docs/performance.md.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from drawing import fill_in
from torch import Tensor, nn
from torch.nn import functional

from equifl.sim.models import lenet
from equifl.sim.stacked import StackedModel

ROOT = Path(__file__).resolve().parents[1]
COPIES, BATCH, REPEATS, TIMES = 5, 32, 7, 4
Table = dict[str, dict[str, dict[str, float]]]  # module, engine, threads -> milliseconds a step


class Unseen(nn.Module):
    """Layers of which nobody can tell that they are a chain."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = 1.0 * self.inner(x)
        return logits


class Block(nn.Module):
    """Two convolutions, normalised, and a shortcut around them."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(ins, outs, 3, stride, 1), nn.Conv2d(outs, outs, 3, 1, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, outs), nn.GroupNorm(4, outs)])
        self.shortcut = nn.Conv2d(ins, outs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.one(x)))
        return torch.relu(self.norms[1](self.two(y)) + self.shortcut(x))


def convolved(*channels: int, size: int = 3, pool: bool = True) -> list[nn.Module]:
    """Convolutions with ReLU, from channels to channels, and pooling after each or after the last."""
    layers: list[nn.Module] = []
    for i, (ins, outs) in enumerate(itertools.pairwise(channels)):
        layers += [nn.Conv2d(ins, outs, size, padding=size // 2), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pool or i == len(channels) - 2 else []
    return layers


MODULES: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "LeNet 28x28": ((1, 28, 28), lambda: Unseen(lenet((1, 28, 28), 10))),
    "LeNet 32x32x3": ((3, 32, 32), lambda: Unseen(lenet((3, 32, 32), 10))),
    "8, 16, 32 channels": (
        (3, 32, 32),
        lambda: Unseen(*convolved(3, 8, 16, 32), nn.Flatten(), nn.Linear(512, 10)),
    ),
    "16, 16, 32, 32 channels": (
        (3, 32, 32),
        lambda: Unseen(
            *convolved(3, 16, 16, pool=False), *convolved(16, 32, 32, pool=False), nn.Flatten(), nn.Linear(2048, 10)
        ),
    ),
    "residual, 8, 16, 32 channels": (
        (3, 32, 32),
        lambda: Unseen(
            nn.Conv2d(3, 8, 3, padding=1),
            *(Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
        ),
    ),
    "32, 64 channels, 5x5": (
        (1, 28, 28),
        lambda: Unseen(
            *convolved(1, 32, 64, size=5), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10)
        ),
    ),
    "128, 128 channels of 8x8": (
        (3, 32, 32),
        lambda: Unseen(
            *(nn.Conv2d(3, 128, 4, 4), nn.GELU(), *convolved(128, 128, 128, pool=False)),
            *(nn.Flatten(), nn.Linear(2048, 10)),
        ),
    ),
}


def step(model: StackedModel, x: Tensor, y: Tensor) -> None:
    """Gradients of all copies."""
    row = torch.cat([weight.detach().flatten() for weight in model.module.parameters()])
    weights = row.repeat(COPIES, 1).requires_grad_(True)
    logits = model.forward(weights, x)
    torch.autograd.grad(functional.cross_entropy(logits.flatten(0, 1), y.flatten()), weights)


def measured() -> Table:
    """Every module by both engines."""
    from equifl.sim.hybrid import hybrid  # numba, which who only looks at the table need not have

    found: Table = {}
    for name, (shape, make) in MODULES.items():
        torch.manual_seed(0)
        general = StackedModel.of(make(), shape)
        ours, why = hybrid(general, shape)
        assert ours is not None, why
        x, y = torch.randn(COPIES, BATCH, *shape), torch.randint(0, 10, (COPIES, BATCH))
        times: dict[tuple[str, int], list[float]] = {}
        for _ in range(1 + REPEATS):  # the first is not counted
            for engine, model in (("general", general), ("hybrid", ours)):
                for threads in (1, 2):
                    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
                    start = time.perf_counter()
                    for done in [pool.submit(step, model, x, y) for _ in range(threads * TIMES)]:
                        done.result()
                    seconds = time.perf_counter() - start
                    times.setdefault((engine, threads), []).append(1e3 * seconds / (threads * TIMES))
                    pool.shutdown()
        found[name] = {"general": {}, "hybrid": {}}
        for (engine, threads), each in times.items():
            found[name][engine][str(threads)] = statistics.median(each[1:])
        print(table({name: found[name]}).splitlines()[-1], flush=True)
    return found


def table(found: Table) -> str:
    """As Markdown."""
    lines = [
        "| module | general, one thread | hybrid | gain | general, two threads | hybrid | gain |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in found.items():
        cells = [
            cell
            for threads in ("1", "2")
            for general, ours in [(row["general"][threads], row["hybrid"][threads])]
            for cell in (f"{general:.1f} ms", f"{ours:.1f} ms", f"{general / ours:.1f} x")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    found = measured()
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}
    result = {"command": "python benchmarks/modules.py", "machine": machine, "milliseconds": found}
    (ROOT / "benchmarks" / "results" / "modules.json").write_text(json.dumps(result, indent=1) + "\n")
    fill_in(ROOT / "docs" / "performance.md", {"modules": table(found)})


if __name__ == "__main__":
    main()
