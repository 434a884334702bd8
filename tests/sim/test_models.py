from typing import Any

import pytest
import torch
from torch import nn

from equifl.sim.models import StackedModel, _convolve_patches, _layered, _mapped, lenet, make_module


@pytest.mark.parametrize(("shape", "count"), [((1, 28, 28), 44_426), ((3, 32, 32), 62_006), ((1, 8, 8), 19_754)])
def test_lenet_has_the_weights_it_should(shape: tuple[int, ...], count: int) -> None:
    module = lenet(shape, 10)
    # 8x8: 6*9+6 + 16*6*9+16 + 120*64+120 + 84*120+84 + 10*84+10 = 60 + 880 + 7800 + 10164 + 850
    assert sum(p.numel() for p in module.parameters()) == count
    assert module(torch.zeros(2, *shape)).shape == (2, 10)


STACKS: list[Any] = [
    lenet((1, 28, 28), 10),
    lenet((3, 32, 32), 10),
    lenet((1, 8, 8), 10),
    make_module("mlp", (1, 8, 8), 10, {}),
    make_module("logistic", (60,), 10, {}),
    nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=(1, 0)), nn.MaxPool2d(2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)
    ),
]


@pytest.mark.parametrize("module", STACKS)
def test_layer_by_layer_is_what_vmap_does_is_what_each_does_alone(module: nn.Sequential) -> None:
    shape = {0: (1, 28, 28), 1: (3, 32, 32), 2: (1, 8, 8), 3: (1, 8, 8), 4: (60,), 5: (1, 10, 10)}[
        STACKS.index(module)
    ]
    d = sum(p.numel() for p in module.parameters())
    weights, inputs = 0.1 * torch.randn(3, d), torch.randn(3, 4, *shape)
    alone = []
    for row, x in zip(weights, inputs, strict=True):
        nn.utils.vector_to_parameters(row.clone(), module.parameters())
        alone.append(module(x))
    expected = torch.stack(alone).detach()
    for forward in (_layered(list(module)), _mapped(module), StackedModel.of(module).forward):
        torch.testing.assert_close(forward(weights, inputs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 4, 3, groups=2),
        nn.Conv2d(2, 4, 3, dilation=2),
        nn.Conv2d(2, 4, 3, padding="same"),
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(2, 4, 3, bias=False),
        nn.Linear(4, 2, bias=False),
        nn.GELU(),
        nn.Flatten(2),
    ],
)
def test_layers_that_we_do_not_stack_go_through_vmap(layer: nn.Module) -> None:
    shape = (2, 6, 6) if not isinstance(layer, nn.Linear) else (4,)
    model = StackedModel.of(layer)
    weights, inputs = torch.randn(3, model.parameters), torch.randn(3, 5, *shape)
    for row, x, found in zip(weights, inputs, model.forward(weights, inputs), strict=True):
        if model.parameters:
            nn.utils.vector_to_parameters(row.clone(), layer.parameters())
        torch.testing.assert_close(found, layer(x), rtol=1e-4, atol=1e-5)


OURS = "tests.sim.models_of_ours"


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        ("lenet", {}, (13,), r"train.model: 'lenet' .* mlp or logistic for data of shape \(13,\)"),
        ("lenet", {}, (1, 2, 2), r"mlp or logistic for images of 2x2"),
        ("lennet", {}, (1, 8, 8), r"train.model: 'lennet' is not allowed; allowed: lenet, mlp, logistic or package"),
        ("mlp", {"hiden": 3}, (1, 8, 8), r"train.model: 'mlp' with {'hiden': 3} cannot be made"),
        ("no.such.module:Net", {}, (1, 8, 8), r"cannot be made \(No module named 'no'\)"),
        ("mlp", {"hidden": -1}, (1, 8, 8), r"train.model: 'mlp' with {'hidden': -1} cannot be made"),
        (f"{OURS}:Residual", {}, (1, 9, 9), r"does not take inputs of shape \(1, 9, 9\)"),
        ("torch.nn:Flatten", {}, (1, 8, 8), r"a module with parameters"),
        (
            "torch.nn:Linear",
            {"in_features": 8, "out_features": 3},
            (8,),
            r"\(examples, 10\) as its output, not \(2, 3\)",
        ),
        (f"{OURS}:Nothing", {}, (1, 8, 8), r"cannot be made"),
        (f"{OURS}:not_a_module", {}, (1, 8, 8), r"a torch.nn.Module"),
        (f"{OURS}:WithStatistics", {}, (1, 8, 8), r"norm \(BatchNorm1d\) keeps running statistics"),
        (f"{OURS}:WithDropout", {}, (1, 8, 8), r"drop \(Dropout\) draws numbers of its own"),
    ],
)
def test_refuses_models_that_cannot_work(name: str, options: Any, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_module(name, shape, 10, options)


def test_takes_a_module_of_ones_own_with_options() -> None:
    module = make_module(f"{OURS}:Residual", (1, 8, 8), 10, {"width": 6})
    assert module(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 2))])
def test_convolution_by_patches_is_convolution(layer: nn.Conv2d) -> None:
    """The way it is done on a GPU, here on any device."""
    x, weight, bias = torch.randn(5, 2, 3, 9, 8), torch.randn(5, *layer.weight.shape), torch.randn(5, 4)
    found = _convolve_patches(x, weight, bias, layer)
    for copy in range(5):
        alone = nn.functional.conv2d(x[copy], weight[copy], bias[copy], layer.stride, layer.padding)
        torch.testing.assert_close(found[copy], alone, rtol=1e-4, atol=1e-5)


def tied() -> nn.Sequential:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight, second.bias = first.weight, first.bias
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(4, 3))


def repeated() -> nn.Sequential:
    twice, relu = nn.Linear(4, 4), nn.ReLU()
    return nn.Sequential(twice, relu, twice, relu, nn.Linear(4, 3))


@pytest.mark.parametrize("module", [tied(), repeated()], ids=["tied", "repeated"])
def test_weights_may_serve_at_two_places(module: nn.Sequential) -> None:
    model = StackedModel.of(module)
    weights, inputs = torch.randn(2, model.parameters), torch.randn(2, 5, 4)
    found = model.forward(weights, inputs)
    for row, x, y in zip(weights, inputs, found, strict=True):
        w, b, last, c = row[:16].view(4, 4), row[16:20], row[20:32].view(3, 4), row[32:]
        torch.testing.assert_close(y, ((x @ w.T + b).relu() @ w.T + b).relu() @ last.T + c)


def test_a_layer_without_weights_may_serve_everywhere() -> None:
    relu = nn.ReLU()
    model = StackedModel.of(nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 3)))
    assert len(model.layers) == 5


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's word for its map of weight_norm
def test_a_weight_that_is_made_of_others_is_made_for_each_copy() -> None:
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    module = nn.Sequential(normed, nn.ReLU(), nn.Linear(3, 2))
    model, x = StackedModel.of(module), torch.randn(2, 5, 4)
    weights = nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(model.forward(weights.repeat(2, 1), x), module(x))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_the_old_weight_norm_which_cannot_be_copied_is_not_taken_for_a_plain_layer() -> None:
    model = StackedModel.of(nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3))))
    with pytest.raises(RuntimeError, match="weight_norm"):
        model.forward(torch.zeros(2, 18), torch.zeros(2, 5, 4))
