"""Many copies of a model at once are what each is alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu
from torch.utils.checkpoint import checkpoint

from equifl.sim.engines.base import Job
from equifl.sim.engines.choose import choose_engine
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.engines.reference import Reference
from equifl.sim.engines.torch.equivalence import difference
from equifl.sim.engines.torch.stacked_model import StackedModel, _convolve_patches, _layered, mapped
from equifl.sim.models.zoo import lenet, make_module
from tests.sim.engines.torch.test_engine import made_up

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
    for forward in (_layered(list(module)), mapped(module), StackedModel.of(module, shape).forward):
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
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.GELU()),
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(2)),
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh()).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
    ],
)
def test_layers_that_we_do_not_stack_go_through_vmap(layer: nn.Module) -> None:
    shape = (2, 6, 6) if not isinstance(layer, nn.Linear) else (4,)
    model = StackedModel.of(layer, shape)
    weights, inputs = torch.randn(3, model.parameters), torch.randn(3, 5, *shape)
    for row, x, found in zip(weights, inputs, model.forward(weights, inputs), strict=True):
        nn.utils.vector_to_parameters(row.clone(), layer.parameters())
        torch.testing.assert_close(found, layer(x), rtol=1e-4, atol=1e-5)


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
    twice, rectify = nn.Linear(4, 4), nn.ReLU()
    return nn.Sequential(twice, rectify, twice, rectify, nn.Linear(4, 3))


@pytest.mark.parametrize("module", [tied(), repeated()], ids=["tied", "repeated"])
def test_weights_may_serve_at_two_places(module: nn.Sequential) -> None:
    model = StackedModel.of(module, (4,))
    weights, inputs = torch.randn(2, model.parameters), torch.randn(2, 5, 4)
    found = model.forward(weights, inputs)
    for row, x, y in zip(weights, inputs, found, strict=True):
        w, b, last, c = row[:16].view(4, 4), row[16:20], row[20:32].view(3, 4), row[32:]
        torch.testing.assert_close(y, ((x @ w.T + b).relu() @ w.T + b).relu() @ last.T + c)


def test_a_layer_without_weights_may_serve_everywhere() -> None:
    rectify = nn.ReLU()
    module = nn.Sequential(nn.Linear(4, 4), rectify, nn.Linear(4, 4), rectify, nn.Linear(4, 3))
    model = StackedModel.of(module, (4,))
    assert len(model.layers) == 5


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's word for its map of weight_norm
def test_a_weight_that_is_made_of_others_is_made_for_each_copy() -> None:
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    module = nn.Sequential(normed, nn.ReLU(), nn.Linear(3, 2))
    model, x = StackedModel.of(module, (4,)), torch.randn(2, 5, 4)
    weights = nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(model.forward(weights.repeat(2, 1), x), module(x))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_the_old_weight_norm_which_cannot_be_copied_is_refused() -> None:
    with pytest.raises(ValueError, match=r"train.model: .* the model fails .*weight_norm"):
        StackedModel.of(nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3))), (4,))


def test_copies_are_compared_on_real_examples_too() -> None:
    """A large number shows what small ones do not, and large ones hide nothing of the small."""
    module, large = nn.Linear(4, 3), torch.full((6, 4), 1e4) + torch.arange(6.0)[:, None]

    def clipped(weights: Tensor, inputs: Tensor, most: float = 100.0) -> Tensor:
        return mapped(module)(weights, inputs.clamp(max=most))

    def coarse(weights: Tensor, inputs: Tensor) -> Tensor:
        return mapped(module)(weights, inputs.round())

    assert difference(module, mapped(module), (4,), large) == ""
    assert difference(module, clipped, (4,)) == ""
    assert difference(module, clipped, (4,), large) != ""
    assert difference(module, coarse, (4,), large) != ""


class Rematerialised(nn.Module):
    """Part of it is computed again in the backward pass, with the weights that are in the module then."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = checkpoint(lambda x: torch.tanh(self.first(x)), x, use_reentrant=False)
        logits: Tensor = self.last(hidden)
        return logits


def test_a_module_whose_gradients_depend_on_weights_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match=r"train.model: .* the model gives other gradients"):
        StackedModel.of(Rematerialised(), (4,))


class Looks(nn.Module):
    """It asks a number of what it computes, which PyTorch's map cannot do."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(x) * (2.0 if float(x.sum()) > 1e9 else 1.0)
        return logits


def test_what_cannot_be_mapped_goes_one_after_another() -> None:
    module, inputs = Looks(), torch.randn(2, 5, 4)
    weights = nn.utils.parameters_to_vector(module.parameters()).detach().repeat(2, 1)
    found = StackedModel.of(module, (4,)).forward(weights, inputs)
    torch.testing.assert_close(found, torch.stack([module(x) for x in inputs]))


IMAGE = (1, 8, 8)


class Net(nn.Module):
    """A chain of layers, but for what `twist` does to their values or gradients where no graph of it shows."""

    def __init__(self, twist: Callable[[Tensor], Tensor] = lambda x: x) -> None:
        super().__init__()
        self.conv, self.fc1, self.fc2, self.twist = nn.Conv2d(1, 3, 3), nn.Linear(27, 8), nn.Linear(8, 10), twist

    def forward(self, x: Tensor) -> Tensor:
        x = self.twist(max_pool2d(relu(self.conv(x)), 2)).flatten(1)
        logits: Tensor = self.fc2(relu(self.fc1(x)))
        return logits


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.relu()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]


class Detached(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = max_pool2d(relu(self.conv(x)), 2).flatten(1)
        logits: Tensor = self.fc2(relu(self.fc1(x)))
        return logits


class InTokens(nn.Module):
    """A view that makes more examples of them, and one that undoes it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 4), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.b(relu(self.a(x.view(-1, 8))).view(-1, 32))
        return logits


def hooked() -> nn.Module:
    module = Net()
    module.fc1.register_forward_hook(lambda *given: 2 * given[2])
    return module


def overridden() -> nn.Module:
    module, layer = Net(), nn.Linear(27, 8)
    module.fc1 = layer
    layer.forward = lambda x: nn.functional.linear(x, 3 * layer.weight)  # type: ignore[method-assign, assignment]
    return module


class Changing(Net):
    def forward(self, x: Tensor) -> Tensor:
        x -= 0.3
        return super().forward(x)


ODD: dict[str, Callable[[], nn.Module]] = {
    "a chain": Net,
    "hook": hooked,
    "no_grad": Detached,
    "gradients of its own": lambda: Net(lambda x: Reversed.apply(x)),  # type: ignore[no-untyped-call]
    "asks what it gets": lambda: Net(lambda x: 2 * x if torch.is_tensor(x) else x),
    "examples within examples": InTokens,
    "linear over rows": lambda: nn.Sequential(nn.Linear(8, 4), nn.Flatten(), nn.Linear(32, 10)),
    "flat, then rectified": lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(64, 10)),
    "in place from the start": lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 10)),
    "changes its input": Changing,
    "lists as sizes": lambda: nn.Sequential(nn.MaxPool2d([2, 2], padding=[0, 0]), nn.Flatten(), nn.Linear(16, 10)),  # type: ignore[arg-type]
    "one size in a list": lambda: nn.Sequential(nn.MaxPool2d([2]), nn.Flatten(), nn.Linear(16, 10)),  # type: ignore[arg-type]
    "no stride": lambda: nn.Sequential(nn.MaxPool2d(2, []), nn.Flatten(), nn.Linear(16, 10)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("wanted", ["auto", "torch"])
def test_whatever_engine_is_chosen_does_what_the_module_does(name: str, wanted: str) -> None:
    module, dataset = ODD[name](), made_up(IMAGE)
    weights = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    examples = np.random.default_rng(0).integers(0, len(dataset.x_train), (2, 3, 8))
    before = dataset.x_train.copy(), dataset.x_test.copy()
    engine, _ = choose_engine(Job(StackedModel.of(module, IMAGE), dataset), wanted)
    trained = engine.train(weights.repeat(2, 1), examples, LocalTraining(lr=0.1, steps=3)).weights
    right = engine.scores(weights[None])[0]
    np.testing.assert_array_equal(dataset.x_train, before[0])
    np.testing.assert_array_equal(dataset.x_test, before[1])
    reference = Reference(module, dataset)
    np.testing.assert_array_equal(right, reference.scores(weights))
    for mine, found in zip(examples, trained, strict=True):
        expected = reference.train(weights, mine, LocalTraining(lr=0.1, steps=3))[0]
        assert torch.linalg.norm(found - expected) < 1e-4 * torch.linalg.norm(expected - weights)


def test_frozen_weights_and_buffers_are_where_the_examples_are() -> None:
    """The module is compared on the CPU and then used on another device, here one that computes shapes alone."""
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2).requires_grad_(False))
    module.register_buffer("shift", torch.ones(4))
    stacked = StackedModel.of(module, (4,))
    weights, inputs = torch.randn(2, stacked.parameters), torch.randn(2, 5, 4)
    before = stacked.forward(weights, inputs)
    assert stacked.forward(weights.to("meta"), inputs.to("meta")).device.type == "meta"
    assert torch.equal(stacked.forward(weights, inputs), before)


def test_a_chain_stays_one() -> None:
    assert len(StackedModel.of(Net(), IMAGE).layers) == 7
    assert not StackedModel.of(hooked(), IMAGE).layers
    assert not StackedModel.of(overridden(), IMAGE).layers
