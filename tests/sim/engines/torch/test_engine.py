import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from equifl._numerics.distances import UpdateDistances
from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.reference import Reference
from equifl.sim.engines.torch.engine import Engine, Sgd
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.loop import pairwise_distances as apart
from equifl.sim.loop.pairwise_distances import distances, renew
from equifl.sim.models.validation import examples_of
from equifl.sim.models.zoo import make_module

SHAPES = {"lenet 28": (1, 28, 28), "lenet 32": (3, 32, 32), "lenet 8": (1, 8, 8), "mlp": (1, 8, 8), "logistic": (60,)}
SHAPES |= {"tests.sim.example_modules:Residual": (1, 8, 8), "tests.sim.example_modules:Tokens": (4,)}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def made_up(shape: tuple[int, ...], n: int = 90) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 12, (n + 40, 4)) if shape == (4,) else rng.normal(size=(n + 40, *shape)).astype(np.float32)
    y = rng.integers(0, 10, n + 40)
    return Dataset("made up", x[:n], y[:n], x[n:], y[n:], 10)


def both(name: str, device: str = "cpu", budget: int | None = None) -> tuple[Engine, Reference, torch.Tensor]:
    """An engine, the reference in float64, and weights for seven models."""
    dataset = made_up(SHAPES[name])
    some = examples_of(dataset)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        modules = [make_module(name.split()[0], SHAPES[name], 10, {}, some) for _ in range(7)]
    weights = torch.stack([torch.nn.utils.parameters_to_vector(m.parameters()).detach() for m in modules])
    engine = Engine(StackedModel.of(modules[0], SHAPES[name], some), dataset, device, budget=budget)
    return engine, Reference(copy.deepcopy(modules[0]).double(), dataset), weights


def client_batches(sgd: Sgd, sizes: list[int]) -> Ints:
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
        Sgd(lr=0.05, batch_size=8, steps=4),
        Sgd(lr=0.05, batch_size=8, epochs=2),
        Sgd(lr=0.02, batch_size=8, epochs=2, momentum=0.9, weight_decay=0.01),
    ],
    ids=["steps", "epochs", "momentum and decay"],
)
def test_training_is_the_reference(name: str, sizes: list[int], sgd: Sgd, device: str) -> None:
    engine, reference, weights = both(name, device)
    examples = client_batches(sgd, sizes)
    trained = engine.train(weights.to(device), examples, sgd)
    for row in range(7):
        expected, last_loss, steps = reference.train(weights[row], examples[row], sgd)
        error = (trained.weights[row].cpu() - expected).norm() / (expected - weights[row]).norm()
        assert error < 1e-4
        assert float(trained.last_loss[row]) == pytest.approx(last_loss, rel=1e-3, abs=1e-5)
        assert int(trained.steps[row]) == steps


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SHAPES)
def test_losses_and_gradients_are_the_reference(name: str, device: str) -> None:
    engine, reference, weights = both(name, device, budget=2000)  # so little that examples come in several parts
    examples = client_batches(Sgd(lr=1.0, batch_size=30, epochs=1), UNEQUAL)[:, 0]
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
    found = engine.correct(weights.to(device))
    assert found.tolist() == [reference.correct(row).tolist() for row in weights]


def test_cpu_results_are_the_same_bytes_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    sgd = Sgd(lr=0.05, batch_size=8, steps=3)
    results = []
    for cores in (1, 2, 5):
        monkeypatch.setattr("equifl.sim.engines.torch.engine.cores", lambda cores=cores: cores)
        engine, _, weights = both("lenet 28", budget=8 * 784 * 2)
        results.append(engine.train(weights, client_batches(sgd, UNEQUAL), sgd).weights)
    assert all(torch.equal(results[0], other) for other in results)


@pytest.mark.slow
def test_threads_do_not_share_a_module() -> None:
    """A module of one's own, in many small parts at once, again and again."""
    engine, reference, weights = both("tests.sim.example_modules:Residual", budget=1)
    many = weights.repeat(20, 1)
    expected = np.stack([reference.correct(row) for row in weights])
    for _ in range(5):
        assert (engine.correct(many) == np.tile(expected, (20, 1))).all()


def test_training_leaves_the_given_weights_alone() -> None:
    engine, _, weights = both("mlp")
    before = weights.clone()
    sgd = Sgd(lr=0.05, batch_size=8, steps=3)
    engine.train(weights, client_batches(sgd, EQUAL), sgd)
    assert torch.equal(weights, before)


@given(st.integers(1, 50), st.integers(1, 20), st.integers(1, 6), st.integers(0, 1000))
def test_batches(examples: int, batch_size: int, count: int, seed: int) -> None:
    steps = Sgd(lr=1.0, batch_size=batch_size, steps=count).batches(examples, np.random.default_rng(seed))
    assert steps.shape == (count, batch_size)
    size = min(batch_size, examples)
    assert ((steps >= 0).sum(axis=1) == size).all()
    assert steps.max() < examples
    assert all(len(set(batch[batch >= 0].tolist())) == size for batch in steps)
    passes = Sgd(lr=1.0, batch_size=batch_size, epochs=count).batches(examples, np.random.default_rng(seed))
    seen = passes[passes >= 0]
    assert np.bincount(seen, minlength=examples).tolist() == [count] * examples  # everyone once a pass
    assert (passes >= 0).any(axis=1).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("common", [0.0, 1e4])
def test_distances_on_the_device_are_those_of_the_library(common: float, device: str) -> None:
    rng = np.random.default_rng(0)
    updates = (common * rng.normal(size=50) + rng.normal(size=(3, 8, 50))).astype(np.float32)
    updates[0, 1] = updates[0, 0]
    updates[0, 2] = updates[0, 0] + np.float32(1e-3)
    found = distances(torch.from_numpy(updates).to(device)).cpu().numpy()
    for lane in range(3):
        np.testing.assert_allclose(found[lane], UpdateDistances(updates[lane]).matrix(), rtol=1e-3, atol=1e-4)
        assert (found[lane] == found[lane].T).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("heard", [[[1, 5], [0, 7]], [[3], []], [[2, 0, 6], [4]]])
def test_distances_of_those_who_were_heard_are_renewed(heard: list[list[int]], device: str) -> None:
    rng = np.random.default_rng(0)
    updates = torch.from_numpy((100 + rng.normal(size=(2, 8, 300))).astype(np.float32)).to(device)
    updates[1, 7] = torch.nan
    found = distances(updates)
    for lane, ids in enumerate(heard):
        updates[lane, ids] = torch.from_numpy((100 + rng.normal(size=(len(ids), 300))).astype(np.float32)).to(device)
    lanes = [lane for lane, ids in enumerate(heard) if ids]
    renew(found, updates, lanes, [np.array(heard[lane]) for lane in lanes])
    torch.testing.assert_close(found, distances(updates), rtol=1e-4, atol=1e-4, equal_nan=True)
    assert torch.equal(found.nan_to_num(-1), found.nan_to_num(-1).transpose(1, 2))


def test_lanes_together_are_lanes_one_by_one() -> None:
    rng = np.random.default_rng(0)
    updates = torch.from_numpy(rng.normal(size=(3, 9, 40)).astype(np.float32))
    updates[1, 4] = updates[1, 2]  # no distance at all: by direct difference
    who = np.array([[0, 8], [4, 2], [7, 1]])
    together, alone = (torch.full((3, 9, 9), torch.nan) for _ in range(2))
    apart._renew(together, updates, torch.from_numpy(who), wait=True)
    renew(alone, updates, range(3), list(who))
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert together[1, 4, 2] == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("room", [1, 4, 100])
def test_without_a_wait_the_first_distances_are_mended(
    room: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "_DIRECT", room * 40)
    generator = torch.Generator().manual_seed(0)
    updates, mine = (torch.randn(2, n, 40, generator=generator).to(device) for n in (9, 3))
    squared, lost = torch.zeros(2, 3, 9, device=device), torch.rand(2, 3, 9, generator=generator).to(device) < 0.3
    lost[-1, -1, -1] = True
    places = torch.nonzero(lost)
    expected = squared.clone()
    for lane, row, other in places[:room].tolist():
        expected[lane, row, other] = (mine[lane, row] - updates[lane, other]).square().sum()
    found, left = apart._mend_some(squared.clone(), lost, mine, updates)
    torch.testing.assert_close(found, expected)
    assert int(left) == max(0, len(places) - room)
    assert len(places) > 4
    none, left = apart._mend_some(squared.clone(), lost & False, mine, updates)
    assert torch.equal(none, squared)
    assert int(left) == 0


def test_distances_of_those_never_heard_are_nan() -> None:
    updates: Any = np.random.default_rng(0).normal(size=(1, 4, 3)).astype(np.float32)
    updates[0, 2] = np.nan
    found = distances(torch.from_numpy(updates))[0].numpy()
    expected = np.isnan(updates[0, :, 0])
    assert np.array_equal(np.isnan(found), expected[:, None] | expected)
