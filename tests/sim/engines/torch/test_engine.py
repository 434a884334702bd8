import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.base import Job
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.engines.reference import Reference
from equifl.sim.engines.torch.engine import TorchEngine
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.models.trained_weights import as_row
from equifl.sim.models.validation import examples_of
from equifl.sim.models.zoo import make_module

SHAPES = {"lenet 28": (1, 28, 28), "lenet 32": (3, 32, 32), "lenet 8": (1, 8, 8), "mlp": (1, 8, 8), "logistic": (60,)}
OURS = "tests.sim.example_modules"
SHAPES |= {f"{OURS}:Residual": (1, 8, 8), f"{OURS}:Tokens": (4,), f"{OURS}:HalfFrozen": (1, 8, 8)}
SHAPES |= {f"{OURS}:Dropped": (1, 8, 8), f"{OURS}:DroppedTable": (60,)}
SEEDS = np.random.default_rng(2).integers(0, 2**62, 7)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def made_up(shape: tuple[int, ...], n: int = 90) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 12, (n + 40, 4)) if shape == (4,) else rng.normal(size=(n + 40, *shape)).astype(np.float32)
    y = rng.integers(0, 10, n + 40)
    return Dataset("made up", x[:n], y[:n], x[n:], y[n:], 10)


def both(name: str, device: str = "cpu", budget: int | None = None) -> tuple[TorchEngine, Reference, torch.Tensor]:
    """An engine, the reference in float64, and weights for seven models."""
    dataset = made_up(SHAPES[name])
    some = examples_of(dataset)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        modules = [make_module(name.split()[0], SHAPES[name], 10, {}, some) for _ in range(7)]
    weights = torch.stack(list(map(as_row, modules)))
    engine = TorchEngine(Job(StackedModel.of(modules[0], SHAPES[name], some), dataset, device), budget=budget)
    return engine, Reference(copy.deepcopy(modules[0]).double(), dataset), weights


def client_batches(sgd: LocalTraining, sizes: list[int]) -> Ints:
    """Batches of clients of these sizes, each with its own part of 90 examples, as one array."""
    rng = np.random.default_rng(1)
    starts = np.cumsum([0, *sizes])
    each = [sgd.batches(size, rng) for size in sizes]
    out = np.full((len(sizes), max(map(len, each)), sgd.batch_size), -1, np.int64)
    for row, batches, start in zip(out, each, starts, strict=False):
        row[: len(batches)] = np.where(batches >= 0, batches + start, -1)
    return out


EQUAL, UNEQUAL = [12] * 7, [3, 20, 7, 1, 30, 9, 16]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("sizes", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize(
    "sgd",
    [
        LocalTraining(lr=0.05, batch_size=8, steps=4),
        LocalTraining(lr=0.05, batch_size=8, epochs=2),
        LocalTraining(lr=0.02, batch_size=8, epochs=2, momentum=0.9, weight_decay=0.01),
        LocalTraining(lr=0.05, batch_size=8, epochs=2, momentum=0.5, prox=2.0),
    ],
    ids=["steps", "epochs", "momentum and decay", "prox"],
)
def test_training_is_the_reference(name: str, sizes: list[int], sgd: LocalTraining, device: str) -> None:
    engine, reference, weights = both(name, device)
    examples = client_batches(sgd, sizes)
    trained = engine.train(weights.to(device), examples, sgd, None, SEEDS)
    for row in range(7):
        expected, last_loss, steps = reference.train(weights[row], examples[row], sgd, int(SEEDS[row]))
        error = (trained.weights[row].cpu() - expected).norm() / (expected - weights[row]).norm()
        assert error < 1e-4
        assert float(trained.last_loss[row]) == pytest.approx(last_loss, rel=1e-3, abs=1e-5)
        assert int(trained.steps[row]) == steps


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SHAPES)
def test_losses_and_gradients_are_the_reference(name: str, device: str) -> None:
    engine, reference, weights = both(name, device, budget=2000)  # so little that examples come in several parts
    examples = client_batches(LocalTraining(lr=1.0, batch_size=30, epochs=1), UNEQUAL)[:, 0]
    losses, gradients = engine.gradients(weights.to(device), examples)
    torch.testing.assert_close(engine.losses(weights.to(device), examples), losses, rtol=1e-4, atol=1e-6)
    for row in range(7):
        loss, gradient = reference.gradient(weights[row], examples[row])
        assert float(losses[row]) == pytest.approx(loss, rel=1e-4)
        assert (gradients[row].cpu() - gradient).norm() / gradient.norm() < 1e-5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SHAPES)
def test_evaluation_is_the_reference(name: str, device: str) -> None:
    engine, reference, weights = both(name, device, budget=2000)
    found = engine.scores(weights.to(device))
    assert found.tolist() == [reference.scores(row).tolist() for row in weights]


def test_cpu_results_are_the_same_bytes_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    sgd = LocalTraining(lr=0.05, batch_size=8, steps=3)
    results = []
    for cores in (1, 2, 5):
        monkeypatch.setattr("equifl.sim.engines.torch.engine.cores", lambda cores=cores: cores)
        engine, _, weights = both("lenet 28", budget=8 * 784 * 2)
        results.append(engine.train(weights, client_batches(sgd, UNEQUAL), sgd).weights)
    assert all(torch.equal(results[0], other) for other in results)


@pytest.mark.slow
def test_threads_do_not_share_a_module() -> None:
    """A module of one's own, in many small parts at once, again and again."""
    engine, reference, weights = both(f"{OURS}:Residual", budget=1)
    many = weights.repeat(20, 1)
    expected = np.stack([reference.scores(row) for row in weights])
    for _ in range(5):
        assert (engine.scores(many) == np.tile(expected, (20, 1))).all()


def test_dropout_follows_from_the_seed_of_a_row() -> None:
    """Whatever the other rows are, and only in training."""
    engine, _, weights = both(f"{OURS}:Dropped")
    sgd = LocalTraining(lr=0.05, batch_size=8, steps=3)
    examples, runs = client_batches(sgd, EQUAL), np.arange(7)
    together = engine.train(weights, examples, sgd, runs, SEEDS).weights
    alone = torch.cat([engine.train(weights[[m]], examples[[m]], sgd, None, SEEDS[[m]]).weights for m in range(7)])
    assert torch.equal(together, alone)
    others = engine.train(weights, examples, sgd, runs, SEEDS + 1).weights
    assert (together != others).any(dim=1).all()
    losses = [engine.losses(weights, examples[:, 0]) for _ in range(2)]
    assert torch.equal(*losses)


def test_training_leaves_the_given_weights_alone() -> None:
    engine, _, weights = both("mlp")
    before = weights.clone()
    sgd = LocalTraining(lr=0.05, batch_size=8, steps=3)
    engine.train(weights, client_batches(sgd, EQUAL), sgd)
    assert torch.equal(weights, before)


@given(st.integers(1, 50), st.integers(1, 20), st.integers(1, 6), st.integers(0, 1000))
def test_batches(examples: int, batch_size: int, count: int, seed: int) -> None:
    steps = LocalTraining(lr=1.0, batch_size=batch_size, steps=count).batches(examples, np.random.default_rng(seed))
    assert steps.shape == (count, batch_size)
    size = min(batch_size, examples)
    assert ((steps >= 0).sum(axis=1) == size).all()
    assert steps.max() < examples
    assert all(len(set(batch[batch >= 0].tolist())) == size for batch in steps)
    passes = LocalTraining(lr=1.0, batch_size=batch_size, epochs=count).batches(examples, np.random.default_rng(seed))
    seen = passes[passes >= 0]
    assert np.bincount(seen, minlength=examples).tolist() == [count] * examples  # everyone once a pass
    assert (passes >= 0).any(axis=1).all()
