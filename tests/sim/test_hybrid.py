"""Modules with our loops in them do what they do without."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

pytest.importorskip("numba", reason="our loops need numba: pip install 'equifl[fast]'")

from equifl.sim.engine import Engine, Sgd
from equifl.sim.engines import choose_engine
from equifl.sim.hybrid import _Ours, hybrid
from equifl.sim.models import lenet
from equifl.sim.reference import Reference
from equifl.sim.stacked import StackedModel
from tests.sim.test_engine import made_up

IMAGE = (1, 8, 8)


class Net(nn.Module):
    """Two convolutions with what `between` does between them, and pooling."""

    def __init__(self, between: Callable[[Tensor], Tensor] = functional.gelu, *, wide: int = 4) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, wide, 3), nn.Conv2d(wide, 5, 3, padding=1, bias=False)
        self.last, self.between = nn.Linear(45, 10), between

    def forward(self, x: Tensor) -> Tensor:
        x = self.two(self.between(self.one(x)))
        logits: Tensor = self.last(functional.max_pool2d(torch.tanh(x), 2).flatten(1))
        return logits


class Grouped(Net):
    """A convolution that is not ours stands beside others that are, and a shortcut around both."""

    def __init__(self) -> None:
        super().__init__()
        self.beside = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.across = nn.Conv1d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.one(x))
        x = x + self.beside(x) + self.across(x.flatten(2)).view_as(x)
        x = functional.max_pool2d(self.two(x), 2, padding=1)[..., :3, :3]
        logits: Tensor = self.last(torch.max_pool2d(x, [1], 1).flatten(1))
        return logits


class Looks(Net):
    """It asks a number of what it computes, which PyTorch's map cannot do."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (2.0 if float(self.one.bias.sum()) > 1e9 else 1.0)  # type: ignore[union-attr]


class Filtered(Net):
    """Its first kernel is no weight of its own, but fixed; one image at a time, and all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.blur = nn.Buffer(torch.full((1, 1, 3, 3), 1 / 9))

    def forward(self, x: Tensor) -> Tensor:
        first = functional.conv2d(x[0], self.blur, padding=1)
        rest = functional.conv2d(x[1:], self.blur, stride=1, padding="same")
        return super().forward(torch.cat([first[None], rest]))


class Wide(nn.Module):
    """What comes out of its convolution is large."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.last = nn.Conv2d(1, 250, 3), nn.Linear(250, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(functional.gelu(self.one(x)).mean((2, 3)))
        return logits


class Gated(Net):
    """Slopes come to its branches as parts of larger arrays, and are all 0 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(4, 2, 3, padding=1), nn.Conv2d(2, 2, 1, padding="valid")
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(functional.conv2d(weight=self.one.weight, input=x, bias=self.one.bias))
        x = x + self.gate * torch.cat([self.left(x), self.right(x[:, ::2])], dim=1)
        logits: Tensor = self.last(torch.max_pool2d(kernel_size=2, input=self.two(x)).flatten(1))
        return logits


class Sharpened(Net):
    """It takes a derivative of its own, so there would be second ones."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(self.one(x).square().sum(), x, create_graph=True)
        return super().forward(0.1 * slope)


MODULES: dict[str, tuple[Callable[[], nn.Module], str]] = {  # and hybrid, or why not
    "a chain": (lambda: lenet(IMAGE, 10), "hybrid"),
    "a chain with odd pooling": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3),
            nn.MaxPool2d(2, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(27, 10),
        ),
        "hybrid",
    ),
    "a chain that begins with pooling": (
        lambda: nn.Sequential(
            nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 10)
        ),
        "hybrid",
    ),
    "GELU and tanh": (Net, "hybrid"),
    "many channels": (lambda: Net(wide=16), "hybrid"),
    "rarer convolutions": (Grouped, "hybrid"),
    "channels last": (lambda: Net(lambda x: x.contiguous(memory_format=torch.channels_last)), "hybrid"),
    "no map of it": (Looks, "hybrid"),
    "a kernel that is fixed": (Filtered, "hybrid"),
    "a gate": (Gated, "hybrid"),
    "a derivative of its own": (Sharpened, "no second derivatives"),
    "no convolution": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.GELU(), nn.Linear(9, 10)),
        "has no plain",
    ),
    "many channels alone": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 1, groups=1, dilation=2), nn.GELU(), nn.Conv2d(8, 1, 8), nn.Flatten(), nn.Linear(1, 10)
        ),
        "has no plain",
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_the_same_training_losses_and_classes_as_the_module_alone(name: str) -> None:
    torch.manual_seed(0)
    make, verdict = MODULES[name]
    module, dataset = make(), made_up(IMAGE)
    model = StackedModel.of(module, IMAGE)
    if verdict != "hybrid":
        with pytest.raises(ValueError, match=f"engine: the hybrid one cannot run this here: .*{verdict}"):
            choose_engine(model, dataset, "cpu", "hybrid")
        assert choose_engine(model, dataset, "cpu", "auto").name == "general"
        return
    engine = choose_engine(model, dataset, "cpu", "hybrid")
    assert engine.name == "hybrid"
    weights = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    examples = np.random.default_rng(0).integers(0, len(dataset.x_train), (3, 4, 7))
    sgd, reference = Sgd(lr=0.1, steps=4, momentum=0.5), Reference(module, dataset)
    trained = engine.train(weights.repeat(3, 1), examples, sgd).weights
    losses, gradients = engine.gradients(weights.repeat(3, 1), examples[:, 0])
    torch.testing.assert_close(engine.losses(weights.repeat(3, 1), examples[:, 0]), losses)
    general = choose_engine(model, dataset, "cpu", "general")
    torch.testing.assert_close(gradients, general.gradients(weights.repeat(3, 1), examples[:, 0])[1])
    for mine, found in zip(examples, trained, strict=True):
        expected = reference.train(weights, mine, sgd)[0]
        assert torch.linalg.norm(found - expected) < 1e-4 * torch.linalg.norm(expected - weights)
    np.testing.assert_array_equal(engine.correct(weights[None])[0], reference.correct(weights))


def test_all_copies_go_together_where_every_convolution_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """And small; else PyTorch's map is slower than one after another."""
    maps: list[Callable[..., Tensor]] = []

    def noted(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        maps.append(function)
        return vmap(function)

    monkeypatch.setattr("equifl.sim.stacked.vmap", noted)
    for module, together in ((Net(), True), (Net(wide=16), False), (Looks(), False), (Wide(), False)):
        model, _ = hybrid(StackedModel.of(module, IMAGE), IMAGE)
        assert model is not None
        maps.clear()
        weights = nn.utils.parameters_to_vector(module.parameters()).detach().repeat(3, 1)
        model.forward(weights, torch.zeros(3, 2, *IMAGE))
        assert bool(maps) == together


def test_what_pytorch_refuses_it_still_refuses() -> None:
    module = Net()
    model, _ = hybrid(StackedModel.of(module, IMAGE), IMAGE)
    assert model is not None
    weights = nn.utils.parameters_to_vector(module.parameters()).detach()[None]
    with pytest.raises(RuntimeError, match="Kernel size"):
        model.forward(weights, torch.zeros(1, 2, 1, 2, 2))
    weight = torch.zeros(2, 1, 3, 3)
    for channels, biases in ((2, 2), (1, 1)):
        with _Ours(together=False, seen=set()), pytest.raises(RuntimeError, match=r"channels|bias"):
            functional.conv2d(torch.zeros(1, channels, 5, 5), weight, torch.zeros(biases))


@pytest.mark.parametrize("module", [Net(), Looks()], ids=["together", "one by one"])
def test_the_engine_does_not_depend_on_cores(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, (model, _) = made_up(IMAGE), hybrid(StackedModel.of(module, IMAGE), IMAGE)
    assert model is not None
    examples = np.random.default_rng(0).integers(0, len(dataset.x_train), (22, 3, 7))
    weights = nn.utils.parameters_to_vector(module.parameters()).detach().repeat(22, 1)
    found = []
    for cores in (1, 3):
        monkeypatch.setattr("equifl.sim.engine.cores", lambda cores=cores: cores)
        engine = Engine(model, dataset, "cpu", budget=1)  # so that there are five parts
        found.append(engine.train(weights, examples, Sgd(lr=0.1, steps=3)).weights)
    assert torch.equal(*found)


def test_it_is_chosen_where_the_fast_engine_cannot_run_and_says_why() -> None:
    engine = choose_engine(StackedModel.of(Net(), IMAGE), made_up(IMAGE), "cpu", "auto")
    assert isinstance(engine, Engine)
    assert engine.name == "hybrid"
    assert "no plain sequence" in engine.note
    assert choose_engine(StackedModel.of(Net(), IMAGE), made_up(IMAGE), "cpu", "hybrid").note == ""


def test_other_maps_of_ones_own_are_left_alone() -> None:
    """A module that maps something itself is not within our map twice, or goes another way."""

    class Mapped(Net):
        def forward(self, x: Tensor) -> Tensor:
            each = vmap(lambda image: functional.conv2d(image[None], self.one.weight, self.one.bias)[0])(x)
            logits: Tensor = self.last(functional.max_pool2d(torch.tanh(self.two(each)), 2).flatten(1))
            return logits

    module = Mapped()
    engine = choose_engine(StackedModel.of(module, IMAGE), made_up(IMAGE), "cpu", "auto")
    weights = nn.utils.parameters_to_vector(module.parameters()).detach().repeat(2, 1)
    inputs = torch.randn(2, 3, *IMAGE)
    torch.testing.assert_close(engine.model.forward(weights, inputs), torch.stack([module(x) for x in inputs]))
