"""FedLab's standalone pipeline: its serial trainer and synchronous server, in one process with PyTorch's threads.

It takes whatever iterates over batches as a data loader: here slices of the client's tensors, which cost less than
PyTorch's own loader. Its data sets import torchvision, of which there may be no build beside this PyTorch; none of it
is used here, so an empty module takes its place where it is missing.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch

from equifl.sim.models.zoo import lenet
from race.course import BATCH, CLIENTS, COHORT, RATE, Course, Stopwatch, batches, loss_of


def without_torchvision() -> bool:
    """Whether an empty module had to be put in its place."""
    missing = importlib.util.find_spec("torchvision") is None
    if missing:
        for name in ("torchvision", "torchvision.transforms", "torchvision.datasets"):
            sys.modules[name] = ModuleType(name)
        for name in ("transforms", "datasets"):
            setattr(sys.modules["torchvision"], name, sys.modules[f"torchvision.{name}"])
    return missing


def run(course: Course) -> dict[str, Any]:
    empty = without_torchvision()
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler
    from fedlab.core.standalone import StandalonePipeline

    arrays = course.data()
    x, y = map(torch.from_numpy, arrays)
    rng, watch = np.random.default_rng(0), Stopwatch()

    class Clients:
        def get_dataloader(self, client: int, batch_size: int) -> Any:
            return batches(x[client], y[client], course.taken, rng)

    class Pipeline(StandalonePipeline):  # type: ignore[misc]
        def evaluate(self) -> None:
            watch.lap()

    quiet: Any = logging.getLogger("fedlab")
    module = lenet(x.shape[2:], 10)
    server = SyncServerHandler(module, 1 + course.rounds, COHORT / CLIENTS, logger=quiet)
    trainer = SGDSerialClientTrainer(module, CLIENTS, logger=quiet)
    trainer.setup_dataset(Clients())
    trainer.setup_optim(epochs=1, batch_size=BATCH, lr=RATE)
    Pipeline(server, trainer).main()
    losses = loss_of(module, *arrays), loss_of(server.model, *arrays)
    return course.report(watch.ends, watch.steps, losses, empty_torchvision=empty)
