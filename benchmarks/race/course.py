"""What every contender runs, and what it reports.

100 clients of 600 examples, of which ten train in a round: from a new order of its examples each takes the first
`course.taken`, 32 at a time, one step of plain SGD a batch. Their plain mean is the next model. Nothing is evaluated.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CLIENTS, EXAMPLES, COHORT, BATCH, RATE = 100, 600, 10, 32, 0.05
STEPS = {"A": 10, "B": -(-EXAMPLES // BATCH)}  # B: one epoch, of which the last batch has 24
JUDGED = 2_000  # examples on which everyone's model is judged, before and after


def write_data(folder: Path, shape: tuple[int, ...]) -> None:
    """Noise with a pattern for each class, so that there is something to learn."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((CLIENTS, EXAMPLES, *shape), dtype=np.float32)
    y = rng.integers(0, 10, (CLIENTS, EXAMPLES))
    x += rng.standard_normal((10, *shape), dtype=np.float32)[y]
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)


@dataclass(frozen=True)
class Course:
    """One run of one contender."""

    work: str  # A or B
    rounds: int
    folder: str  # of the data
    started: float  # when the process was
    variant: str = ""  # of the contender

    @property
    def steps(self) -> int:
        """Of each client in a round."""
        return STEPS[self.work]

    @property
    def taken(self) -> int:
        """Examples of each client in a round."""
        return min(EXAMPLES, self.steps * BATCH)

    def data(self) -> tuple[Any, Any]:
        """Inputs (clients, examples, ...) and labels (clients, examples), in memory that processes share."""
        x, y = (np.load(Path(self.folder) / name, mmap_mode="c") for name in ("x.npy", "y.npy"))
        return x, y

    def report(self, ends: list[float], steps: int, losses: tuple[float, float], **more: Any) -> dict[str, Any]:
        """When rounds ended, how many steps the clients took in all of them, losses before and after; `time.time`."""
        expected = len(ends) * COHORT * self.steps
        if steps != expected or not losses[1] < losses[0]:
            raise SystemExit(f"not the same work: {steps} steps where {expected} are due, loss {losses}")
        found = {"first_round_after": ends[0] - self.started, "seconds": np.diff(ends).tolist()}
        return found | {"steps_a_round": steps // len(ends), "losses": losses} | more


class Stopwatch:
    """Takes the end of every round, and counts the local steps of PyTorch's optimisers in this process."""

    def __init__(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.ends: list[float] = []
        self.steps = 0
        register_optimizer_step_post_hook(self._step)

    def _step(self, optimizer: Any, *_: Any) -> None:
        self.steps += optimizer.param_groups[0]["lr"] == RATE  # a server's optimiser has another one

    def lap(self) -> None:
        self.ends.append(time.time())


def loss_of(module: Any, x: Any, y: Any) -> float:
    """Mean cross-entropy of a PyTorch module on the first examples."""
    import torch

    with torch.no_grad():
        inputs, labels = (torch.from_numpy(a.reshape(-1, *a.shape[2:])[:JUDGED]) for a in (x, y))
        return float(torch.nn.functional.cross_entropy(module(inputs), labels))


def batches(x: Any, y: Any, taken: int, rng: np.random.Generator) -> list[tuple[Any, Any]]:
    """A client's batches of a round, from its tensors, in the cheapest way there is: one gather, then views."""
    import torch

    order = torch.from_numpy(rng.permutation(EXAMPLES)[:taken])
    return list(zip(x[order].split(BATCH), y[order].split(BATCH), strict=True))
