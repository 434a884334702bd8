"""LocalTraining: the parameters of local training, the same for every engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equifl.signals import Ints


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """SGD for `steps` batches, or for `epochs` passes over the client's data.

    Args:
        lr: the learning rate.
        batch_size: examples a step.
        steps: how many batches; None = as `epochs` says.
        epochs: how many passes over the data.
        momentum: of the velocity v = momentum * v + gradient.
        weight_decay: added to the gradient, times the weights.
        prox: mu of FedProx's term mu/2 |w - w_k|^2, with w_k the weights that training begins from.
        tf32: allow TF32 matrix products on a GPU.

    >>> LocalTraining(lr=0.1, batch_size=4, epochs=1).batches(6, np.random.default_rng(0)).shape
    (2, 4)
    """

    lr: float
    batch_size: int = 32
    steps: int | None = None
    epochs: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    tf32: bool = False

    def batches(self, examples: int, rng: np.random.Generator) -> Ints:
        """(steps, batch_size) positions among a client's examples, each pass in a new order; -1 = no example."""
        size = min(self.batch_size, examples)
        if self.epochs is not None:  # the last batch of a pass may be smaller
            order = np.full((self.epochs, -(-examples // size) * size), -1)
            order[:, :examples] = [rng.permutation(examples) for _ in range(self.epochs)]
        else:  # or is left out, so that no batch has an example twice
            steps, whole = self.steps or 1, examples // size * size
            passes = [rng.permutation(examples)[:whole] for _ in range(-(-steps * size // whole))]
            order = np.concatenate(passes)[: steps * size]
        batches = np.full((order.size // size, self.batch_size), -1)
        batches[:, :size] = order.reshape(-1, size)
        return batches
