from typing import Any

import pytest
import torch

from equifl.sim.models.zoo import lenet, make_module


@pytest.mark.parametrize(("shape", "count"), [((1, 28, 28), 44_426), ((3, 32, 32), 62_006), ((1, 8, 8), 19_754)])
def test_lenet_has_the_weights_it_should(shape: tuple[int, ...], count: int) -> None:
    module = lenet(shape, 10)
    # 8x8: 6*9+6 + 16*6*9+16 + 120*64+120 + 84*120+84 + 10*84+10 = 60 + 880 + 7800 + 10164 + 850
    assert sum(p.numel() for p in module.parameters()) == count
    assert module(torch.zeros(2, *shape)).shape == (2, 10)


OURS = "tests.sim.example_modules"


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        ("lenet", {}, (13,), r"train.model: 'lenet' .* mlp or logistic for data of shape \(13,\)"),
        ("lenet", {}, (1, 2, 2), r"mlp or logistic for images of 2x2"),
        ("lennet", {}, (1, 8, 8), r"train.model: 'lennet' is not allowed; allowed: lenet, mlp, logistic or package"),
        ("mlp", {"hiden": 3}, (1, 8, 8), r"train.model: 'mlp' with {'hiden': 3} cannot be made"),
        ("no.such.module:Net", {}, (1, 8, 8), r"cannot be made \(No module named 'no'\)"),
        ("mlp", {"hidden": -1}, (1, 8, 8), r"train.model: 'mlp' with {'hidden': -1} cannot be made"),
        (f"{OURS}:Nothing", {}, (1, 8, 8), r"cannot be made"),
    ],
)
def test_rejects_models_that_cannot_be_made(name: str, options: Any, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_module(name, shape, 10, options)


def test_takes_a_module_of_ones_own_with_options() -> None:
    module = make_module(f"{OURS}:Residual", (1, 8, 8), 10, {"width": 6})
    assert module(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
