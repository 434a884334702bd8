from typing import Any

import pytest
import torch

from equifl.sim.models.zoo import MODELS, build_module, count_parameters, lenet, make_module


@pytest.mark.parametrize(("shape", "count"), [((1, 28, 28), 44_426), ((3, 32, 32), 62_006), ((1, 8, 8), 19_754)])
def test_lenet_has_the_weights_it_should(shape: tuple[int, ...], count: int) -> None:
    module = lenet(shape, 10)
    # 8x8: 6*9+6 + 16*6*9+16 + 120*64+120 + 84*120+84 + 10*84+10 = 60 + 880 + 7800 + 10164 + 850
    assert sum(p.numel() for p in module.parameters()) == count
    assert module(torch.zeros(2, *shape)).shape == (2, 10)


OURS = "tests.sim.example_modules"


@pytest.mark.parametrize("name", ["subprocess:Popen", "sys:exit", "os:system", "torch:os", "torch.nn:functional"])
def test_a_model_is_a_class_or_a_function_before_it_is_called(name: str) -> None:
    allowed = "which is not allowed|is not allowed; allowed: a torch.nn.Module class or a function"
    with pytest.raises(ValueError, match=rf"train.model: '{name}' .*({allowed})"):
        make_module(name, (1, 8, 8), 10, {"args": ["true"]})


def test_weights_are_counted_without_making_them() -> None:
    assert count_parameters("mlp", (1, 8, 8), 10, {"hidden": 10**15}) == (64 + 1 + 10) * 10**15 + 10
    assert count_parameters(f"{OURS}:Residual", (1, 8, 8), 10, {"width": 6}) == 65 * 6 + 7 * 6 + 12 + 70 + 6
    assert count_parameters(f"{OURS}:not_a_module", (1, 8, 8), 10, {}) == 0


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        ("lenet", {}, (13,), r"train.model: 'lenet' .* mlp or logistic for data of shape \(13,\)"),
        ("lenet", {}, (1, 2, 2), r"mlp or logistic for images of 2x2"),
        (
            "lennet",
            {},
            (1, 8, 8),
            rf"train.model: 'lennet' is not allowed; allowed: {', '.join(MODELS)} or",
        ),
        ("mlp", {"hiden": 3}, (1, 8, 8), r"train.model: 'mlp' with {'hiden': 3} cannot be made"),
        ("no.such.module:Net", {}, (1, 8, 8), r"cannot be found \(No module named 'no'\)"),
        ("mlp", {"hidden": -1}, (1, 8, 8), r"train.model_options.hidden: -1 is not allowed; allowed: an integer"),
        (f"{OURS}:Nothing", {}, (1, 8, 8), r"cannot be found"),
        (f"{OURS}:Residual", {"width": 5}, (1, 8, 8), r"with {'width': 5} cannot be made \(num_channels "),
    ],
)
def test_rejects_models_that_cannot_be_made(name: str, options: Any, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_module(name, shape, 10, options)


def test_a_transformer_looks_at_what_is_before_alone() -> None:
    module = build_module("transformer", (6,), 9, {"width": 8, "heads": 4, "layers": 2}).eval()
    x = torch.randint(0, 9, (5, 6), generator=torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[:, 4] = (x[:, 4] + 1) % 9
    with torch.no_grad():
        first, second = module(x), module(changed)
    assert first.shape == (5, 6, 9)
    torch.testing.assert_close(first[:, :4], second[:, :4])
    assert (first[:, 4:] != second[:, 4:]).any(dim=2).all()


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 8, 8), {}, r"lenet, mlp or logistic for data of shape \(1, 8, 8\); transformer is for sequences"),
        ((6,), {"heads": 3}, "train.model_options.heads: 3 is not allowed; allowed: a divisor of the width 32"),
        ((6,), {"layers": 0}, "train.model_options.layers: 0 is not allowed"),
        ((6,), {"dropout": 1.0}, "train.model_options.dropout: 1.0 is not allowed; allowed: from 0 to below 1"),
    ],
)
def test_a_transformer_that_cannot_be_is_refused(shape: tuple[int, ...], options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_module("transformer", shape, 9, options)


def test_takes_a_module_of_ones_own_with_options() -> None:
    module = make_module(f"{OURS}:Residual", (1, 8, 8), 10, {"width": 6})
    assert module(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
