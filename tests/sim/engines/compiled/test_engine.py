"""The compiled engine gives the reference's numbers, for any network it takes, and refuses arrays that do not fit."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.engines.reference import Reference
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.models.zoo import Shape, make_module
from tests.sim.engines.torch.test_engine import EQUAL, SHAPES, UNEQUAL, client_batches, made_up

pytest.importorskip("numba", reason="the compiled engine needs numba: pip install 'equifl[fast]'")

from llvmlite import binding

from equifl.sim.engines.base import Job
from equifl.sim.engines.compiled.engine import CompiledEngine
from equifl.sim.engines.compiled.llvm import AVX512

NETWORKS = {name: shape for name, shape in SHAPES.items() if ":" not in name}


def weights_of(module: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def both(name: str) -> tuple[CompiledEngine, Reference, torch.Tensor]:
    """The engine, the reference in float64, and weights for seven models."""
    dataset = made_up(NETWORKS[name])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        modules = [make_module(name.split()[0], NETWORKS[name], 10, {}) for _ in range(7)]
    engine = CompiledEngine(Job(StackedModel.of(modules[0], NETWORKS[name]), dataset))
    return engine, Reference(copy.deepcopy(modules[0]).double(), dataset), torch.stack(list(map(weights_of, modules)))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("sizes", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize(
    "sgd",
    [
        LocalTraining(lr=0.05, batch_size=8, steps=4),
        LocalTraining(lr=0.05, batch_size=20, epochs=2),
        LocalTraining(lr=0.02, batch_size=16, epochs=2, momentum=0.9, weight_decay=0.01),
        LocalTraining(lr=0.05, batch_size=16, epochs=2, momentum=0.5, prox=2.0),
    ],
    ids=["steps", "epochs", "momentum and decay", "prox"],
)
def test_training_is_the_reference(name: str, sizes: list[int], sgd: LocalTraining) -> None:
    engine, reference, weights = both(name)
    before, examples = weights.clone(), client_batches(sgd, sizes)
    trained = engine.train(weights, examples, sgd)
    assert torch.equal(weights, before)
    for row in range(7):
        expected, last_loss, steps = reference.train(weights[row], examples[row], sgd)
        error = (trained.weights[row] - expected).norm() / (expected - weights[row]).norm()
        assert error < 1e-4
        assert float(trained.last_loss[row]) == pytest.approx(last_loss, rel=1e-3, abs=1e-5)
        assert int(trained.steps[row]) == steps


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_gradients_and_evaluation_are_the_reference(name: str) -> None:
    engine, reference, weights = both(name)
    examples = client_batches(LocalTraining(lr=1.0, batch_size=30, epochs=1), UNEQUAL)[:, 0]
    losses, gradients = engine.gradients(weights, examples)
    assert torch.equal(engine.losses(weights, examples), losses)
    for row in range(7):
        loss, gradient = reference.gradient(weights[row], examples[row])
        assert float(losses[row]) == pytest.approx(loss, rel=1e-5)
        assert (gradients[row] - gradient).norm() / gradient.norm() < 5e-6
    assert engine.scores(weights).tolist() == [reference.scores(row).tolist() for row in weights]


@st.composite
def networks(draw: st.DrawFn) -> tuple[Shape, list[nn.Module]]:
    """Any sequence of up to two convolutions, pooled or not, padded or not, and one or two linear layers."""
    small = st.integers(1, 3)
    shape = draw(st.tuples(small, st.integers(5, 9), st.integers(5, 9)))
    channels, layers = shape[0], list[nn.Module]()
    windows = st.sampled_from([(1, 1), (2, 2), (2, 1), (4, 1), (1, 4)])
    if draw(st.booleans()):
        layers.append(nn.MaxPool2d(draw(windows), 1))
    for _ in range(draw(st.integers(0, 2))):
        kernel = (draw(small), draw(small))
        padding = (draw(st.integers(0, 1)), draw(st.integers(0, 1)))
        layers.append(
            nn.Conv2d(channels, channels := draw(st.integers(1, 14)), kernel, draw(st.integers(1, 2)), padding)
        )
        if draw(st.booleans()):
            layers.append(nn.ReLU())
        for _ in range(draw(st.integers(0, 2))):
            layers.append(nn.MaxPool2d(draw(windows), draw(small)))
    layers.append(nn.Flatten())
    try:
        width = nn.Sequential(*layers)(torch.zeros(1, *shape)).shape[1]
    except RuntimeError:  # nothing is left of the image
        layers, width = [nn.Flatten()], int(np.prod(shape))
    if draw(st.booleans()):
        layers += [nn.Linear(width, width := draw(st.integers(1, 20))), nn.ReLU()]
    return shape, [*layers, nn.Linear(width, 4)]


@settings(deadline=None, max_examples=60)
@given(networks(), st.integers(1, 40), st.integers(0, 2**16))
def test_any_network_and_number_of_examples(network: tuple[Shape, list[nn.Module]], count: int, seed: int) -> None:
    shape, layers = network
    rng = np.random.default_rng(seed)
    # So few digits that nothing is rounded forward: where two in a window are equal, they are so in either precision.
    x, y = (rng.integers(-4, 5, size=(count, *shape)) / 4).astype(np.float32), rng.integers(0, 4, count)
    dataset = Dataset("made up", x, y, x, y, 4)
    module = nn.Sequential(*layers)
    values = torch.from_numpy(rng.integers(-4, 5, len(weights_of(module))).astype(np.float32)) / 8
    reference = Reference(copy.deepcopy(module).double(), dataset)
    engine = CompiledEngine(Job(StackedModel.of(module, shape), dataset))
    examples = np.where(rng.random(count) < 0.8, np.arange(count), -1)
    examples[0] = 0
    loss, gradient = reference.gradient(values, examples)
    losses, gradients = engine.gradients(values[None], examples[None])
    assert float(losses[0]) == pytest.approx(loss, rel=1e-4, abs=1e-5)
    # A sure and right answer has a gradient of p - 1, of which float32 keeps few digits.
    assert (gradients[0] - gradient).norm() <= 1e-5 * gradient.norm() + 1e-5


def test_the_same_bytes_for_any_number_of_threads_and_any_company(monkeypatch: pytest.MonkeyPatch) -> None:
    sgd = LocalTraining(lr=0.05, batch_size=8, steps=3)
    examples, results = client_batches(sgd, UNEQUAL), []
    for cores in (1, 2, 5):
        monkeypatch.setattr("equifl.sim.engines.compiled.engine.cores", lambda cores=cores: cores)
        engine, _, weights = both("lenet 28")
        results.append(engine.train(weights, examples, sgd).weights)
    alone = torch.cat([engine.train(weights[i, None], examples[i, None], sgd).weights for i in range(7)])
    assert all(torch.equal(results[0], other) for other in [*results, alone])


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_no_number_does_not_get_lost(name: str, number: float) -> None:
    """The federation stops at it and says whose it is."""
    engine, _, weights = both(name)
    weights[2, 0] = number
    examples = client_batches(LocalTraining(lr=1.0, batch_size=30, epochs=1), UNEQUAL)[:, 0]
    losses = engine.losses(weights, examples)
    trained = engine.train(weights, examples[:, None], LocalTraining(lr=0.1, batch_size=30, steps=1))
    finite = torch.isfinite(trained.last_loss + trained.weights.sum(dim=1))
    assert finite.tolist() == [row != 2 for row in range(7)]
    assert torch.isfinite(losses[[0, 1, 3, 4, 5, 6]]).all()


def test_the_loops_for_shorter_registers_are_the_reference_too() -> None:
    """A machine with AVX-512 has loops of its own, so that it would not test those of a machine without."""
    if not AVX512:
        pytest.skip("without AVX-512 these are the loops of all other tests")
    there = binding.get_host_cpu_features().items()
    features = ",".join(f"{'+' if has and not name.startswith('avx512') else '-'}{name}" for name, has in there)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = os.environ | {"NUMBA_CPU_FEATURES": features, "PYTEST_ADDOPTS": ""}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 skipped" in run.stdout  # this one, there


def test_data_that_must_not_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    _, reference, weights = both("mlp")
    dataset: Any = made_up(NETWORKS["mlp"])
    for array in (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test):
        array.flags.writeable = False
    engine = CompiledEngine(Job(StackedModel.of(make_module("mlp", (1, 8, 8), 10, {}), (1, 8, 8)), dataset))
    assert engine.scores(weights).tolist() == [reference.scores(row).tolist() for row in weights]


CALLS: dict[str, Callable[[CompiledEngine, torch.Tensor, Ints], Any]] = {
    "train": lambda engine, weights, examples: engine.train(weights, examples[:, None], LocalTraining(lr=0.1)),
    "losses": lambda engine, weights, examples: engine.losses(weights, examples),
    "gradients": lambda engine, weights, examples: engine.gradients(weights, examples),
    "scores": lambda engine, weights, examples: engine.scores(weights),
}
WRONG_WEIGHTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "too short": lambda weights: weights[:, :-1].contiguous(),
    "too long": lambda weights: torch.cat([weights, weights[:, :1]], dim=1),
    "of float64": lambda weights: weights.double(),
    "one row, not a matrix": lambda weights: weights[0],
}
WRONG_EXAMPLES: dict[str, tuple[Callable[[Ints], Any], str]] = {
    "out of range": (
        lambda examples: np.where(examples == 5, 90, examples),
        "position 90 is out of range, .* 90 train",
    ),
    "of int32": (lambda examples: examples.astype(np.int32), "got int32 of shape .*, expected int64"),
    "of fewer models": (lambda examples: examples[:-1], r"got int64 of shape \(6, .* for 7 models"),
    "without a row a model": (lambda examples: examples.ravel(), "got int64 of shape .*, expected int64 of shape"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("wrong", WRONG_WEIGHTS)
def test_weights_that_do_not_fit_are_refused(wrong: str, call: str) -> None:
    """Compiled code would read and write memory that belongs to others."""
    engine, _, weights = both("mlp")
    expected = (
        rf"weights: got torch.float\d\d of shape .*, expected torch.float32 of shape \(models, {weights.shape[1]}\)"
    )
    with pytest.raises(ValueError, match=expected):
        CALLS[call](engine, WRONG_WEIGHTS[wrong](weights), np.arange(70).reshape(7, 10))


@pytest.mark.parametrize("call", ["train", "losses", "gradients"])
@pytest.mark.parametrize("wrong", WRONG_EXAMPLES)
def test_examples_that_do_not_fit_are_refused(wrong: str, call: str) -> None:
    engine, _, weights = both("mlp")
    change, expected = WRONG_EXAMPLES[wrong]
    with pytest.raises(ValueError, match=f"examples: {expected}"):
        CALLS[call](engine, weights, change(np.arange(70).reshape(7, 10)))


def test_arrays_with_gaps_never_reach_the_compiled_code() -> None:
    engine, _, weights = both("mlp")
    examples = np.zeros((7, 4), np.int64)
    for models, ids in ((weights.T.contiguous().T, examples), (weights, np.zeros((7, 8), np.int64)[:, ::2])):
        with pytest.raises(ValueError, match=r"(weights|examples): got .* and strides .*, expected .*, without gaps"):
            engine.losses(models, ids)


def test_a_negative_label_is_refused() -> None:
    dataset = made_up(NETWORKS["mlp"])
    dataset.y_test[3] = -1
    with pytest.raises(ValueError, match="data: label -1 is not allowed; allowed: labels of 0 or more"):
        CompiledEngine(Job(StackedModel.of(make_module("mlp", NETWORKS["mlp"], 10, {}), NETWORKS["mlp"]), dataset))


def test_a_model_that_does_not_fit_the_data_is_refused() -> None:
    shape = NETWORKS["mlp"]
    with pytest.raises(
        ValueError, match="model: it has 4 outputs, but the data has label 9; give a model of at least 10"
    ):
        CompiledEngine(Job(StackedModel.of(make_module("mlp", shape, 4, {}), shape), made_up(shape)))
    model = StackedModel.of(make_module("mlp", shape, 10, {}), shape)
    with pytest.raises(
        ValueError, match=rf"model: it has 7 weights, but its layers need {model.parameters} for examples"
    ):
        CompiledEngine(Job(replace(model, parameters=7), made_up(shape)))


def test_the_default_type_of_pytorch_changes_nothing() -> None:
    engine, _, weights = both("mlp")
    examples = np.arange(70).reshape(7, 10)
    expected = engine.gradients(weights, examples)[1]
    model = StackedModel.of(make_module("mlp", NETWORKS["mlp"], 10, {}), NETWORKS["mlp"])
    torch.set_default_dtype(torch.float64)
    try:
        dataset = made_up(NETWORKS["mlp"])
        found = CompiledEngine(Job(model, dataset)).gradients(weights, examples)[1]
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)
