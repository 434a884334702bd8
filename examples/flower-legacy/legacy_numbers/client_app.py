"""A client of the older API: softmax regression on three of ten classes. It knows nothing of equifl."""

from __future__ import annotations

import numpy as np
from flwr.client import Client, ClientApp, NumPyClient
from flwr.common import Context, NDArrays, Scalar

CLASSES, FEATURES = 10, 20


def data_of(partition: int) -> tuple[np.ndarray, np.ndarray]:
    centres = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    rng = np.random.default_rng([1, partition])
    labels = rng.choice((partition + np.array([0, 3, 5])) % CLASSES, 60)
    return (centres[labels] + 0.8 * rng.normal(size=(60, FEATURES))).astype(np.float32), labels


def probabilities(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    scores = np.exp(x @ weights - (x @ weights).max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


class Numbers(NumPyClient):
    """Fits and evaluates; the one metric that equifl likes to have is an identity."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.x, self.y = data_of(partition)

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        (weights,) = parameters
        loss = 0.0
        for _ in range(5):
            likely = probabilities(weights, self.x)
            loss = float(-np.log(likely[np.arange(len(self.y)), self.y] + 1e-9).mean())
            weights = weights - 0.5 * self.x.T @ (likely - np.eye(CLASSES)[self.y]) / len(self.y)
        metrics: dict[str, Scalar] = {"train_loss": loss, "partition-id": self.partition}
        return [weights.astype(np.float32)], len(self.y), metrics

    def evaluate(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[float, int, dict[str, Scalar]]:
        likely = probabilities(parameters[0], self.x)
        loss = float(-np.log(likely[np.arange(len(self.y)), self.y] + 1e-9).mean())
        accuracy = float((likely.argmax(axis=1) == self.y).mean())
        return loss, len(self.y), {"accuracy": accuracy, "partition-id": self.partition}


def client_fn(context: Context) -> Client:
    return Numbers(int(context.node_config["partition-id"])).to_client()


app = ClientApp(client_fn=client_fn)
