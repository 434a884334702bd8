"""Local training in a round, and its learning rate: constant, in steps, or falling as a cosine."""

from __future__ import annotations

import math

from equifl.experiment.config import Train
from equifl.sim.engines.local_training import LocalTraining


def local_training(train: Train, round: int, rounds: int) -> LocalTraining:
    """What clients do in a round, as engines take it."""
    options = ("batch_size", "steps", "epochs", "momentum", "weight_decay")
    same = {name: getattr(train, name) for name in options}
    lr = learning_rate(train, round, rounds)
    return LocalTraining(**same, lr=lr, prox=train.prox or 0.0, tf32=bool(train.tf32))


def learning_rate(train: Train, round: int, rounds: int) -> float:
    """The clients' learning rate in a round, counted from 0; before the first round it is that of the first.

    Args:
        train: its `lr`, `lr_schedule`, `lr_rounds` and `lr_factor`.
        round: which one.
        rounds: how many there are, over which a cosine falls.

    >>> steps = Train(lr=1.0, lr_schedule="steps", lr_rounds=(2, 4), lr_factor=0.5)
    >>> [learning_rate(steps, round, 6) for round in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    >>> cosine = Train(lr=1.0, lr_schedule="cosine")
    >>> [round(learning_rate(cosine, t, 4), 3) for t in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    if train.lr_schedule == "steps":
        factor = 0.1 if train.lr_factor is None else train.lr_factor
        return train.lr * factor ** sum(at <= round for at in train.lr_rounds or ())
    if train.lr_schedule == "cosine":
        last = train.lr_factor or 0.0
        return train.lr * (last + (1 - last) * (1 + math.cos(math.pi * max(round, 0) / rounds)) / 2)
    return train.lr
