"""Modules with our loops in them do what they do without."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

pytest.importorskip("numba", reason="our loops need numba: pip install 'equifl[fast]'")

from equifl.sim.engine import Engine, Sgd
from equifl.sim.engines import choose_engine
from equifl.sim.hybrid import _steps, hybrid
from equifl.sim.intercepted import FEW, OurLoops
from equifl.sim.models import lenet
from equifl.sim.operations import Operation
from equifl.sim.reference import Reference
from equifl.sim.stacked import StackedModel, mapped
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
        self.one, self.last = nn.Conv2d(1, 1000, 3), nn.Linear(1000, 10)

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
    "many channels": (lambda: Net(wide=FEW), "hybrid"),
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
            nn.Conv2d(1, FEW, 1, dilation=2), nn.GELU(), nn.Conv2d(FEW, 1, 8), nn.Flatten(), nn.Linear(1, 10)
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
    for module, together in ((Net(), True), (Net(wide=FEW), False), (Looks(), False), (Wide(), False)):
        model, _ = hybrid(StackedModel.of(module, IMAGE), IMAGE)
        assert model is not None
        maps.clear()
        weights = nn.utils.parameters_to_vector(module.parameters()).detach().repeat(3, 1)
        model.forward(weights, torch.zeros(3, 2, *IMAGE))
        assert bool(maps) == together


CONVOLVED, POOLED = ("convolution",), ("convolution", "pooling")


class Written(nn.Module):
    """A convolution, and what is `written` after it; then a linear layer."""

    def __init__(self, written: Callable[[nn.Conv2d, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.last, self.written = nn.Conv2d(1, 4, 3), nn.LazyLinear(10), written
        self(torch.zeros(1, *IMAGE))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = torch.tanh(self.last(self.written(self.conv, x).flatten(1)))
        return logits


def in_one_line(conv: nn.Conv2d, x: Tensor) -> Tensor:
    return functional.max_pool2d(functional.relu(conv(x)), 2)


def line_by_line(conv: nn.Conv2d, x: Tensor) -> Tensor:
    x = conv(x)
    x = x.relu()
    x = torch.max_pool2d(x, 2)
    return x  # noqa: RET504


def the_other_way_round(conv: nn.Conv2d, x: Tensor) -> Tensor:
    return torch.relu(functional.max_pool2d(conv(x), 2))


def in_place(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = conv(x)
    functional.relu(y, inplace=True)
    return functional.max_pool2d(y, 2)


def in_place_by_method(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = conv(x)
    y.relu_()
    return functional.max_pool2d(y, 2)


def in_place_by_function(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = functional.max_pool2d(conv(x), 2)
    torch.relu_(y)
    return y


def as_modules(conv: nn.Conv2d, x: Tensor) -> Tensor:
    found: Tensor = nn.Sequential(conv, nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.ReLU())(x)
    return found


def without_pooling(conv: nn.Conv2d, x: Tensor) -> Tensor:
    return functional.relu(conv(x))


def wanted_again(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = conv(x)
    z = torch.relu(y)
    return functional.max_pool2d(z, 2) + functional.avg_pool2d(y, 2)


def wanted_later(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = torch.relu(conv(x))
    z = functional.max_pool2d(y, 2)
    if not torch.is_grad_enabled():  # else PyTorch refuses to change what slopes need
        x.zero_()
    return z + functional.avg_pool2d(y, 2)


def kept_aside(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = conv(x)
    z = functional.max_pool2d(torch.relu(y), 2)
    return z + functional.avg_pool2d(y, 2)


def changed_after(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = conv(x)
    z = functional.max_pool2d(y, 2)
    z.relu_()
    return z + functional.avg_pool2d(y, 2)


def looked_at(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = conv(x)
    size = y.shape[2] // 3
    return functional.max_pool2d(torch.relu(y), size)


def without_slopes(conv: nn.Conv2d, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = conv(x)
    return functional.max_pool2d(torch.relu(y), 2) + conv(x)[..., :3, :3]


def changed(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = conv(x)
    y += 1
    y[:, 0] = 0
    return functional.max_pool2d(y, 2)


def hooked(conv: nn.Conv2d, x: Tensor) -> Tensor:
    hook = conv.register_forward_hook(lambda module, given, y: 2 * y)
    y = functional.max_pool2d(conv(x).relu(), 2)
    hook.remove()
    return y


def twice_pooled(conv: nn.Conv2d, x: Tensor) -> Tensor:
    return functional.max_pool2d(functional.max_pool2d(conv(x), 2, 1), 2)


def by_another_way(conv: nn.Conv2d, x: Tensor) -> Tensor:
    return (
        functional.max_pool2d(conv(x), 2, return_indices=True)[0]
        + functional.max_pool2d(conv(x), 3, padding=1)[:, :, 1:, 1:].mean()
    )


WRITTEN: dict[Callable[[nn.Conv2d, Tensor], Tensor], list[tuple[str, ...]]] = {  # and what our loops do of it
    in_one_line: [(*POOLED, "relu")],
    line_by_line: [(*POOLED, "relu")],
    the_other_way_round: [(*POOLED, "relu")],
    in_place: [(*POOLED, "relu")],
    in_place_by_method: [(*POOLED, "relu")],
    in_place_by_function: [(*POOLED, "relu")],
    as_modules: [(*POOLED, "relu")],
    without_pooling: [(*CONVOLVED, "relu")],
    wanted_again: [CONVOLVED, ("pooling",)],
    wanted_later: [(*CONVOLVED, "relu"), ("pooling",)],
    kept_aside: [CONVOLVED, ("pooling",)],
    changed_after: [CONVOLVED, ("pooling",)],
    looked_at: [CONVOLVED, ("pooling",)],
    without_slopes: [CONVOLVED, ("pooling",), CONVOLVED],
    changed: [CONVOLVED, ("pooling",)],
    hooked: [CONVOLVED, ("pooling",)],
    twice_pooled: [POOLED, ("pooling",)],
    by_another_way: [CONVOLVED, CONVOLVED],
}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_pooling_and_relu_become_part_of_a_convolution_if_nobody_can_tell(
    written: Callable[[nn.Conv2d, Tensor], Tensor], together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    module = Written(written)
    done: list[tuple[str, ...]] = []
    run = Operation.run

    def noted(operation: Operation, x: Tensor, weights: Tensor, *, keep: bool) -> tuple[Tensor, Tensor]:
        parts = {"convolution": operation.kernel, "pooling": operation.window, "relu": operation.relu}
        done.append(tuple(name for name, part in parts.items() if part))
        return run(operation, x, weights, keep=keep)

    monkeypatch.setattr(Operation, "run", noted)
    ours = mapped(module, together=together, within=lambda: OurLoops(together=together, seen=set()))
    weights = nn.utils.parameters_to_vector(module.parameters()).detach().repeat(2, 1).requires_grad_(True)
    inputs = torch.randn(2, 5, *IMAGE)
    found = ours(weights, inputs)
    assert done == WRITTEN[written] * (1 if together else 2)
    (slopes,) = torch.autograd.grad(found.square().sum(), weights)
    for x, logits, slope in zip(inputs, found, slopes, strict=True):
        expected = module(x.clone())
        torch.testing.assert_close(logits, expected)
        grads = torch.autograd.grad(expected.square().sum(), list(module.parameters()))
        torch.testing.assert_close(slope, torch.cat([part.flatten() for part in grads]), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(ours(weights, inputs), found)


def test_relu_becomes_part_of_a_convolution_of_a_chain_too() -> None:
    steps = _steps([nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()])
    assert [getattr(step, "relu", None) for step in steps] == [True, True, None]


def clipped(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = conv(x)
    z = functional.max_pool2d(torch.relu(y), 2)
    if y.requires_grad:
        y.register_hook(lambda slope: slope.clamp(-0.2, 0.2))  # of y, when there is something after it
    return z


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * slope


def squared(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y: Tensor = Squared.apply(conv(x))  # type: ignore[no-untyped-call]
    return y


def looked_at_elsewhere(conv: nn.Conv2d, x: Tensor) -> Tensor:
    y = conv(x)
    with torch.inference_mode():
        x.mean()
    return torch.relu(y)


@pytest.mark.parametrize("written", [clipped, squared, looked_at_elsewhere])
def test_what_cannot_wait_does_not(written: Callable[[nn.Conv2d, Tensor], Tensor]) -> None:
    """PyTorch does not say when it begins a function of somebody's own, or turns slopes off for inference."""
    torch.manual_seed(0)
    module = Written(written)
    model, _ = hybrid(StackedModel.of(module, IMAGE), IMAGE)
    assert model is not None
    weights = nn.utils.parameters_to_vector(module.parameters()).detach()[None].requires_grad_(True)
    x = 5 * torch.randn(17, *IMAGE)
    expected, found = module(x), model.forward(weights, x[None])[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    (slopes,) = torch.autograd.grad(found.square().sum(), weights)
    grads = torch.autograd.grad(expected.square().sum(), list(module.parameters()))
    torch.testing.assert_close(slopes[0], torch.cat([part.flatten() for part in grads]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("written", [squared, looked_at_elsewhere])
def test_where_it_has_waited_too_long_that_is_an_error(written: Callable[[nn.Conv2d, Tensor], Tensor]) -> None:
    """And not other slopes, should a module do so only now and then."""
    module = Written(written)
    forward = mapped(module, together=False, within=lambda: OurLoops(together=False, seen=set()))
    weights = nn.utils.parameters_to_vector(module.parameters()).detach()[None].requires_grad_(True)
    with pytest.raises(RuntimeError, match="where there are no slopes"):
        forward(weights, torch.zeros(1, 4, *IMAGE))


def test_what_a_module_keeps_is_of_the_weights_it_had_then() -> None:
    conv, x, kept = nn.Conv2d(1, 2, 3), torch.randn(2, *IMAGE), []
    with torch.no_grad():
        with OurLoops(together=False, seen=set()):
            kept.append(conv(x))
        expected = conv(x)
        conv.weight.mul_(2)
        torch.testing.assert_close(kept[0] + 0, expected)


def test_what_pytorch_refuses_it_still_refuses() -> None:
    module = Net()
    model, _ = hybrid(StackedModel.of(module, IMAGE), IMAGE)
    assert model is not None
    weights = nn.utils.parameters_to_vector(module.parameters()).detach()[None]
    with pytest.raises(RuntimeError, match="Kernel size"):
        model.forward(weights, torch.zeros(1, 2, 1, 2, 2))
    for size in (0, -1, (2, 2, 2)):
        with (
            OurLoops(together=False, seen=set()),
            pytest.raises(RuntimeError, match=r"max_pool2d|kernel_size|greater"),
        ):
            functional.max_pool2d(torch.zeros(1, 1, 8, 8), size, 1)
        with OurLoops(together=False, seen=set()), pytest.raises(RuntimeError, match="stride"):
            functional.conv2d(torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 3, 3), stride=size)
    weight = torch.zeros(2, 1, 3, 3)
    for channels, biases in ((2, 2), (1, 1)):
        with OurLoops(together=False, seen=set()), pytest.raises(RuntimeError, match=r"channels|bias"):
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
