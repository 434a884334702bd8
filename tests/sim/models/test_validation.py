from typing import Any

import numpy as np
import pytest
import torch

from equifl.sim.data.dataset import Dataset
from equifl.sim.models.validation import examples_of
from equifl.sim.models.zoo import make_module

OURS = "tests.sim.example_modules"


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        (f"{OURS}:Residual", {}, (1, 9, 9), r"does not take inputs of shape \(1, 9, 9\)"),
        ("torch.nn:Flatten", {}, (1, 8, 8), r"a module with parameters"),
        (
            "torch.nn:Linear",
            {"in_features": 8, "out_features": 3},
            (8,),
            r"must return shape \(examples, 10\), but returned \(4, 3\) for 4 examples",
        ),
        (f"{OURS}:not_a_module", {}, (1, 8, 8), r"a torch.nn.Module"),
        (f"{OURS}:WithStatistics", {}, (1, 8, 8), r"keeps running statistics \(norm.running_mean\); try GroupNorm"),
        (f"{OURS}:WithStatistics", {"track_running_stats": False}, (1, 8, 8), r"mixes the examples of a batch"),
        (f"{OURS}:WithDropout", {}, (1, 8, 8), r"is random otherwise than by nn.Dropout, .*; use layers nn.Dropout"),
        (f"{OURS}:Frozen", {}, (1, 8, 8), r"has frozen weights only; set requires_grad = True"),
        (f"{OURS}:InFloat64", {}, (1, 8, 8), r"not float32 \(last.weight is torch.float64\); float\(\) makes them so"),
    ],
)
def test_rejects_models_that_cannot_work(name: str, options: Any, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_module(name, shape, 10, options)


def test_takes_numbers_that_are_not_trained() -> None:
    module = make_module(f"{OURS}:Standardised", (1, 8, 8), 10, {})
    assert dict(module.named_buffers())


def data(x: Any) -> Dataset:
    y = np.arange(len(x)) % 10
    return Dataset("made up", x, y, x, y, 10)


def test_models_are_tried_out_on_different_examples_the_most_varied_first() -> None:
    x = np.zeros((7, 5), np.float32)
    x[3] = 1.0
    x[5, :3] = [1.0, 2.0, 3.0]
    found = examples_of(data(x))
    assert found.dtype == torch.float32
    assert found.tolist() == x[[5, 0, 3, 5, 0, 3]].tolist()
    assert examples_of(data(np.zeros((2, 5)))).tolist() == [[0.0] * 5] * 6


def test_of_integers_those_with_the_least_and_the_most_are_tried_out() -> None:
    x = np.random.default_rng(0).integers(5, 9, (3000, 4))
    x[1001, 2], x[2003, 1] = 2, 40
    found = examples_of(data(x))
    assert found.dtype == torch.int64
    assert (int(found.min()), int(found.max())) == (2, 40)
    assert len(torch.unique(found, dim=0)) == 6


TOKENS = np.random.default_rng(0).integers(0, 12, (50, 4))


@pytest.mark.parametrize(
    ("name", "options", "x", "message"),
    [
        ("Tokens", {"vocabulary": 11}, TOKENS, r"\(index out of range.*\); the data are integers from 0 to 11"),
        ("Tokens", {}, TOKENS.astype(float), r"an embedding takes integers: save x_train and x_test as int64"),
        (
            "Tokens",
            {"classes": 3},
            TOKENS,
            r"must return shape \(examples, 10\), but returned \(6, 3\) for 6 examples",
        ),
        ("TokensOfOthers", {}, TOKENS, r"mixes the examples of a batch"),
        ("TokensAtRandom", {}, TOKENS, r"is random"),
    ],
)
def test_rejects_models_that_cannot_work_with_tokens(name: str, options: Any, x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_module(f"{OURS}:{name}", (4,), 10, options, examples_of(data(x)))


def test_a_model_for_numbers_is_not_given_integers() -> None:
    with pytest.raises(
        ValueError, match=r"'mlp' does not take .* save x_train and x_test as float32 if they are meas"
    ):
        make_module("mlp", (4,), 10, {}, examples_of(data(TOKENS)))


@pytest.mark.parametrize("name", ["WithStatistics", "WithDropout"])
def test_data_that_are_all_zero_hide_no_fault(name: str) -> None:
    options = {"track_running_stats": False} if name == "WithStatistics" else {}
    examples = examples_of(data(np.zeros((20, 1, 8, 8))))
    with pytest.raises(ValueError, match=r"mixes the examples of a batch|is random"):
        make_module(f"{OURS}:{name}", (1, 8, 8), 10, options, examples)


def test_real_examples_show_what_random_ones_do_not() -> None:
    with pytest.raises(ValueError, match=r"does not take inputs of shape \(4,\) \(too large\)"):
        make_module(f"{OURS}:UpToHundred", (4,), 10, {}, examples_of(data(np.full((20, 4), 200.0))))
