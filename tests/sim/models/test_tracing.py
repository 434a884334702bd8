"""A module with a `forward` of its own is the chain of its layers, or none."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from equifl.sim.engines.base import Job
from equifl.sim.engines.choose import choose_engine
from equifl.sim.engines.torch.stacked_model import StackedModel, mapped
from equifl.sim.models.tracing import chain_of
from tests.sim.engines.torch.test_engine import made_up

IMAGE = (1, 8, 8)


class Net(nn.Module):
    """As in PyTorch's tutorials; `middle` is what stands between the convolution and the linear layers."""

    def __init__(self, middle: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.fc1, self.fc2 = nn.Conv2d(1, 4, 3), nn.Linear(36, 12), nn.Linear(12, 10)
        self.middle = middle

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.fc1(self.middle(self.conv(x))))
        logits: Tensor = self.fc2(x)
        return logits


def flat(pooled: Tensor) -> Tensor:
    return torch.flatten(pooled, 1)


CHAINS: dict[str, Callable[[Tensor], Tensor]] = {
    "functions": lambda x: torch.flatten(functional.max_pool2d(functional.relu(x), 2), 1),
    "methods": lambda x: functional.max_pool2d(x.relu(), kernel_size=2, stride=2).flatten(start_dim=1),
    "torch's": lambda x: torch.reshape(torch.max_pool2d(torch.relu(x), 2), (-1, 36)),
    "view of size": lambda x: (y := functional.max_pool2d(functional.relu(x, inplace=True), (2, 2))).view(
        y.size(0), -1
    ),
    "size from before": lambda x: functional.max_pool2d(functional.relu(x), 2).view(x.size(0), 36),
    "shape": lambda x: functional.max_pool2d(functional.relu(x), 2).reshape(x.shape[0], -1),
    "part of size": lambda x: functional.max_pool2d(functional.relu(x), 2).view([x.size()[0], -1]),
}
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "skipped": lambda x: flat(functional.max_pool2d(functional.relu(x) + x, 2)),
    "scaled": lambda x: flat(functional.max_pool2d(2 * x, 2)),
    "a part": lambda x: flat(functional.max_pool2d(x[:, :, :6], 2)[:, :, :, :3]),
    "from further back": lambda x: (functional.relu(x), flat(functional.max_pool2d(x, 2)))[1],
    "turned": lambda x: functional.max_pool2d(x, 2).view(4, -1).t().reshape(-1, 36),
    "other size": lambda x: functional.max_pool2d(x, 2).view(x.size(1), -1),
    "pool as wide as the image": lambda x: flat(functional.max_pool2d(x, x.size(2) // 3)),
    "pool of its size": lambda x: flat(functional.max_pool2d(x, x.size()[2:])),
    "depends": lambda x: flat(functional.max_pool2d(x if x.sum() > 0 else -x, 2)),
    "raises": lambda x: flat(functional.max_pool2d(x, 2)) if float(x.shape[1]) > 0 else x,
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_found_and_does_the_same(name: str) -> None:
    module = Net(CHAINS[name])
    layers = chain_of(module)
    assert layers is not None
    assert [type(layer) for layer in layers] == [
        *(nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.Flatten),
        *(nn.Linear, nn.ReLU, nn.Linear),
    ]
    x = torch.randn(3, *IMAGE)
    torch.testing.assert_close(nn.Sequential(*layers)(x), module(x))


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_chain_is_none(name: str) -> None:
    assert chain_of(Net(OTHERS[name])) is None


def test_weights_in_another_order_or_unused_are_no_chain() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.second, self.first = nn.Linear(3, 2), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Any:
            return self.second(self.first(x))

    assert chain_of(Backwards()) is None
    net = Net(CHAINS["functions"])
    net.unused = nn.Parameter(torch.zeros(3))
    assert chain_of(net) is None


def test_sequences_in_sequences_and_a_lone_layer_are_chains() -> None:
    layers = nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)
    assert chain_of(nn.Sequential(layers[0], nn.Sequential(*layers[1:]))) == list(layers)
    assert chain_of(layers[0]) == [layers[0]]


@pytest.mark.compiled
def test_a_module_of_ones_own_runs_fast_and_right() -> None:
    pytest.importorskip("numba", reason="the fast engine needs numba: pip install 'equifl[fast]'")
    module, dataset = Net(CHAINS["view of size"]), made_up(IMAGE)
    weights = nn.utils.parameters_to_vector(module.parameters()).detach()[None]
    fast, _ = choose_engine(Job(StackedModel.of(module, IMAGE), dataset))
    general, _ = choose_engine(Job(StackedModel(mapped(module), module, weights.shape[1]), dataset), "torch")
    assert (fast.name, general.name) == ("compiled", "torch")
    examples = torch.arange(30).numpy()[None]
    torch.testing.assert_close(fast.gradients(weights, examples), general.gradients(weights, examples))
