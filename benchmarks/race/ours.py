"""equifl: the compiled engine and the torch one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn
from torch.nn.utils import vector_to_parameters

from equifl.experiment.config import Config
from equifl.sim.data.dataset import Dataset
from equifl.sim.loop.federation import Federation
from equifl.sim.models.zoo import lenet
from race.course import BATCH, CLIENTS, COHORT, EXAMPLES, JUDGED, RATE, Course, loss_of


def all_clients(course: Course, gradients: Callable[[], Any], losses: Callable[[], Any]) -> dict[str, float]:
    """Seconds of both passes over all clients, the better of two; the same in both works, so in one of them only."""

    def seconds(work: Callable[[], Any]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    works = {"gradients": gradients, "losses_only": losses} if course.work == "A" else {}
    return {name: min(seconds(work) for _ in range(2)) for name, work in works.items()}


def run(course: Course) -> dict[str, Any]:
    """The variant is the engine."""
    name = course.variant
    x, y = course.data()
    flat = x.reshape(-1, *x.shape[2:])
    never = 10**6  # evaluated
    much = "steps=10" if course.work == "A" else "epochs=1"
    settings = [f"rounds={never}", f"evaluate_every={never}", f"clients={CLIENTS}", f"per_round={COHORT}", "seeds=[0]"]
    settings += [f"train={{{much}, batch_size={BATCH}, lr={RATE}, model='lenet'}}", "data={partition='iid'}"]
    settings += ["selectors={uniform={}}", f"engine={name}"]
    dataset = Dataset("made up", flat, y.ravel(), flat[:JUDGED], y.ravel()[:JUDGED], 10)
    federation = Federation(Config.load(None, settings), dataset, device="cpu")
    engine: Any = federation.engine
    steps, ends = 0, []
    assert engine.name == name
    train = engine.train

    def counted(*args: Any) -> Any:
        nonlocal steps
        trained = train(*args)
        steps += int(trained.steps.sum())
        return trained

    engine.train = counted

    def judge() -> float:
        module: nn.Module = lenet(x.shape[2:], 10)
        vector_to_parameters(federation.models[0], module.parameters())
        return loss_of(module, x, y)

    before = judge()
    for _ in range(1 + course.rounds):
        federation.play()
        ends.append(time.time())
    everyone = np.arange(CLIENTS * EXAMPLES).reshape(CLIENTS, EXAMPLES)
    model = federation.models[0].expand(CLIENTS, -1)
    passes = all_clients(course, lambda: engine.gradients(model, everyone), lambda: engine.losses(model, everyone))
    return course.report(ends, steps, (before, judge()), **passes)
