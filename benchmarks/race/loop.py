"""The plain PyTorch loop: one model, one client after another, PyTorch's own threads on all cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from equifl.sim.models.zoo import lenet
from race.course import CLIENTS, COHORT, RATE, Course, Stopwatch, batches, loss_of
from race.ours import all_clients


def run(course: Course) -> dict[str, Any]:
    arrays = course.data()
    x, y = map(torch.from_numpy, arrays)
    module, rng, watch = lenet(x.shape[2:], 10), np.random.default_rng(0), Stopwatch()
    before = loss_of(module, *arrays)
    model = parameters_to_vector(module.parameters()).detach()
    for _ in range(1 + course.rounds):
        trained = []
        for client in rng.choice(CLIENTS, COHORT, replace=False).tolist():
            vector_to_parameters(model.clone(), module.parameters())
            optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
            for inputs, labels in batches(x[client], y[client], course.taken, rng):
                optimizer.zero_grad()
                cross_entropy(module(inputs), labels).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            trained.append(parameters_to_vector(module.parameters()).detach().clone())
        model = torch.stack(trained).mean(dim=0)
        watch.lap()
    vector_to_parameters(model.clone(), module.parameters())

    def gradients() -> None:
        for inputs, labels in zip(x, y, strict=True):
            torch.autograd.grad(cross_entropy(module(inputs), labels), list(module.parameters()))

    @torch.no_grad()
    def losses() -> None:
        for inputs, labels in zip(x, y, strict=True):
            cross_entropy(module(inputs), labels)

    outcome = before, loss_of(module, *arrays)
    return course.report(watch.ends, watch.steps, outcome, **all_clients(course, gradients, losses))
