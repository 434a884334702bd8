"""A site: softmax regression on the digits it has. It knows NVFlare's Client API and nothing of equifl."""

from __future__ import annotations

import re

import numpy as np
import nvflare.client as flare
from numpy.typing import NDArray
from sklearn.datasets import load_digits

STEPS, LEARNING_RATE = 20, 0.5
Floats = NDArray[np.float32]


def examples_of(site: str) -> tuple[Floats, NDArray[np.int64]]:
    """The digits of a site: three of the ten kinds, which its number decides."""
    number = int(re.findall(r"\d+", site)[-1])
    images, labels = load_digits(return_X_y=True)
    mine = np.flatnonzero(np.isin(labels, (number + np.array([0, 3, 5])) % 10))
    mine = np.random.default_rng(number).choice(mine, 150, replace=False)
    return (images[mine] / 16).astype(np.float32), labels[mine]


def probabilities(model: dict[str, Floats], x: Floats) -> Floats:
    scores = x @ model["weights"] + model["bias"]
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    return likely / likely.sum(axis=1, keepdims=True)


def accuracy(model: dict[str, Floats], x: Floats, y: NDArray[np.int64]) -> float:
    return float((probabilities(model, x).argmax(axis=1) == y).mean())


def train(model: dict[str, Floats], x: Floats, y: NDArray[np.int64]) -> float:
    """Some steps of gradient descent, in place; returns the loss before the last."""
    loss = 0.0
    for _ in range(STEPS):
        likely = probabilities(model, x)
        loss = float(-np.log(likely[np.arange(len(y)), y] + 1e-9).mean())
        gradient = (likely - np.eye(10, dtype=np.float32)[y]) / len(y)
        model["weights"] -= LEARNING_RATE * x.T @ gradient
        model["bias"] -= LEARNING_RATE * gradient.sum(axis=0)
    return loss


def main() -> None:
    flare.init()
    x, y = examples_of(flare.get_site_name())
    x_train, y_train, x_test, y_test = x[:120], y[:120], x[120:], y[120:]
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        model = {name: np.array(array, np.float32) for name, array in received.params.items()}
        if flare.is_evaluate():
            flare.send(flare.FLModel(metrics={"accuracy": accuracy(model, x_test, y_test)}))
            continue
        loss = train(model, x_train, y_train)
        meta = {"NUM_STEPS_CURRENT_ROUND": len(y_train)}
        flare.send(flare.FLModel(params=model, metrics={"train_loss": loss}, meta=meta))


if __name__ == "__main__":
    main()
