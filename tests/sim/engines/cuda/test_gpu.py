"""What only a GPU can show; without one these tests are skipped."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool2d, relu

from equifl.experiment.config import Config
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.base import Job
from equifl.sim.engines.cuda.recorded_step import RecordedStep
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.engines.torch import stacked_model as stacked
from equifl.sim.engines.torch.engine import TorchEngine
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.engines.torch.transfers import to_host
from equifl.sim.loop import client_memory as memory
from equifl.sim.loop import pairwise_distances
from equifl.sim.loop.federation import Federation
from equifl.sim.models.zoo import lenet

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

SHAPES = [(1, 28, 28), (3, 32, 32), (1, 8, 8)]


def made_up(shape: tuple[int, ...], examples: int = 600) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((examples + 100, *shape), dtype=np.float32)
    y = np.arange(examples + 100) % 10
    return Dataset("made up", x[:examples], y[:examples], x[examples:], y[examples:], 10)


def engine_of(shape: tuple[int, ...]) -> TorchEngine:
    return TorchEngine(Job(StackedModel.of(lenet(shape, 10), shape), made_up(shape), "cuda"))


def weights_for(engine: TorchEngine, count: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(0)
    return 0.05 * torch.randn(count, engine.model.parameters, device="cuda", generator=generator)


@pytest.mark.parametrize("shape", SHAPES)
def test_our_kernel_and_patches_agree(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(shape)
    weights, examples = weights_for(engine, 7), np.random.default_rng(1).integers(0, 600, (7, 50))
    examples[2, 20:] = -1
    losses, gradients = engine.gradients(weights, examples)
    monkeypatch.setattr(stacked, "_fusible", lambda *_: False)
    by_patches, gradients_by_patches = engine.gradients(weights, examples)
    torch.testing.assert_close(losses, by_patches, rtol=1e-5, atol=1e-6)
    difference = torch.linalg.norm(gradients - gradients_by_patches)
    assert difference < 1e-5 * torch.linalg.norm(gradients_by_patches)


@pytest.mark.parametrize(
    "sgd", [LocalTraining(lr=0.1, steps=4), LocalTraining(lr=0.1, steps=4, momentum=0.9, weight_decay=0.1)]
)
@pytest.mark.parametrize("ragged", [False, True])
def test_a_recorded_step_is_the_step(sgd: LocalTraining, ragged: bool) -> None:
    engine = engine_of((1, 28, 28))
    weights, examples = weights_for(engine, 6), np.random.default_rng(1).integers(0, 600, (6, 4, 32))
    if ragged:
        examples[1, 2:] = -1
    first, second, third = (engine.train(weights, examples, sgd) for _ in range(3))  # recorded at the second
    assert any(isinstance(step, RecordedStep) for step in engine._steps.values())
    for again in (second, third):
        for part in ("weights", "last_loss", "steps"):
            assert torch.equal(getattr(again, part), getattr(first, part))


@pytest.mark.parametrize("options", [{}, {"prox": 1.0}], ids=["plain", "prox"])
def test_a_recorded_step_takes_the_learning_rate_and_the_models_of_its_round(options: dict[str, float]) -> None:
    engine, examples = engine_of((1, 28, 28)), np.random.default_rng(1).integers(0, 600, (6, 4, 32))
    for round in range(4):
        sgd = LocalTraining(lr=0.1 / (1 + round), steps=4, **options)  # type: ignore[arg-type]
        weights = (1 + round) * weights_for(engine, 6)
        expected = engine_of((1, 28, 28)).train(weights, examples, sgd)  # which has recorded nothing yet
        assert torch.equal(engine.train(weights, examples, sgd).weights, expected.weights)
    recorded = [isinstance(step, RecordedStep) for step in engine._steps.values()]
    assert recorded == ([] if options else [True])


def test_a_run_stays_within_its_memory() -> None:
    overrides = ["rounds=3", "clients=60", "per_round=20", "evaluate_every=1", "seeds=[0,1,2,3]"]
    overrides += ["train={lr=0.05, batch_size=100}"]
    config = Config.load(None, [*overrides, "data={partition='iid'}", "selectors={rota={}, subtrunc={}, uniform={}}"])
    dataset = made_up((1, 28, 28), 6000)
    limit, records, peaks = 2**30, [], []
    for bounded in (config, replace(config, memory_limit=limit)):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        federation = Federation(bounded, dataset, device="cuda")
        records.append([federation.play() for _ in range(3)])
        peaks.append(torch.cuda.max_memory_allocated())
        del federation
    assert peaks[1] < limit < peaks[0]
    accuracies = [[row["accuracy"] for rows in run for row in rows] for run in records]
    np.testing.assert_allclose(accuracies[0], accuracies[1], atol=2.0)
    with pytest.raises(ValueError, match="memory_limit: 1000 is not allowed"):
        Federation(replace(config, memory_limit=1000), dataset, device="cuda")


@pytest.mark.parametrize("selector", ["uniform", "rota"])
def test_a_gpu_plays_the_rounds_of_a_cpu(selector: str) -> None:
    overrides = ["rounds=4", "clients=20", "evaluate_every=2", "seeds=[3]", f"selectors={{{selector}={{}}}}"]
    config = Config.load(None, [*overrides, "data={partition='iid'}"])
    runs = [Federation(config, made_up((1, 28, 28)), device=device, engine="torch") for device in ("cpu", "cuda")]
    for _ in range(4):
        on_cpu, on_gpu = (run.play()[0] for run in runs)
        assert on_cpu["cohort"] == on_gpu["cohort"]
        assert on_cpu["local_loss"] == pytest.approx(on_gpu["local_loss"], rel=1e-4)
    off = torch.linalg.norm(runs[0].models - runs[1].models.cpu()) / torch.linalg.norm(runs[0].models)
    assert off < 0.01  # a number that is largest by a rounding error sends its gradient elsewhere


class Net(nn.Module):
    """As in PyTorch's tutorials: a chain of plain layers, unless there is a `twist`."""

    def __init__(self, twist: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.twist = nn.Linear(256, 84), nn.Linear(84, 10), twist

    def forward(self, x: Tensor) -> Tensor:
        x = max_pool2d(relu(self.conv1(x)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2).flatten(1)
        hidden = self.fc1(x)
        logits: Tensor = self.fc2(relu(hidden) + 0.1 * hidden if self.twist else relu(hidden))
        return logits


@pytest.mark.parametrize("twist", [False, True])
def test_a_users_module_is_trained_as_by_itself(twist: bool) -> None:
    torch.backends.cudnn.allow_tf32 = True  # PyTorch's default, which the engine turns off
    module, dataset = Net(twist).cuda(), made_up((1, 28, 28))
    engine = TorchEngine(Job(StackedModel.of(module, (1, 28, 28)), dataset, "cuda"))
    start = nn.utils.parameters_to_vector(module.parameters()).detach()
    examples = np.random.default_rng(1).integers(0, 600, (5, 3, 32))
    trained = engine.train(start.repeat(5, 1), examples, LocalTraining(lr=0.05, steps=3)).weights
    for batches, found in zip(examples, trained, strict=True):
        alone = deepcopy(module)
        optimiser = torch.optim.SGD(alone.parameters(), lr=0.05)
        for batch in batches:
            optimiser.zero_grad()
            x, y = torch.from_numpy(dataset.x_train[batch]).cuda(), torch.from_numpy(dataset.y_train[batch]).cuda()
            cross_entropy(alone(x), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        expected = nn.utils.parameters_to_vector(alone.parameters()).detach()
        assert torch.linalg.norm(found - expected) < 1e-3 * torch.linalg.norm(expected - start)


@pytest.mark.parametrize("twist", [False, True])
def test_training_may_have_tf32_and_nothing_else_has_it(twist: bool) -> None:
    """In a chain of plain layers, whose step is recorded, and in a module of one's own."""
    torch.manual_seed(0)
    module = Net(twist)
    engine = TorchEngine(Job(StackedModel.of(module, (1, 28, 28)), made_up((1, 28, 28)), "cuda"))
    weights = nn.utils.parameters_to_vector(module.parameters()).detach().cuda().repeat(5, 1)
    examples = np.random.default_rng(1).integers(0, 600, (5, 3, 32))
    plain, rough = LocalTraining(lr=0.05, steps=3), LocalTraining(lr=0.05, steps=3, tf32=True)
    found = [[engine.train(weights, examples, sgd).weights for _ in range(3)] for sgd in (plain, rough, plain)]
    change = torch.linalg.norm(found[0][0] - weights)
    first, other, again = ([float(torch.linalg.norm(w - found[0][0]) / change) for w in each] for each in found)
    assert max(first + again) < 1e-5  # the order of PyTorch's sums differs
    assert min(other) > 1e-3
    assert max(other) < 0.05
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


def test_a_configuration_may_ask_for_tf32() -> None:
    overrides = ["rounds=2", "clients=20", "seeds=[3]", "selectors={rota={}}", "data={partition='iid'}"]
    runs = [
        Federation(Config.load(None, [*overrides, *also]), made_up((1, 28, 28)), device="cuda")
        for also in ([], ["train.tf32=true"])
    ]
    plain, rough = ([run.play()[0]["local_loss"] for _ in range(2)] for run in runs)
    assert plain != rough
    assert plain == pytest.approx(rough, rel=0.02)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize(
    "settings",
    [
        ["selectors={uniform={}, subtrunc={}, rota={}}"],
        ["selectors={rota={}, power_of_choice={}}", "sketch=64"],
        ["selectors={divfl={}}", "availability.dropout=0.3", "train={lr=0.05, epochs=1}"],
        ["selectors={unionfl={}}", "server.aggregate=loss"],
        ["selectors={subtrunc={}}", "signal=gradient", "server.aggregate=size"],
    ],
)
def test_a_round_waits_for_the_device_where_the_cohort_is_chosen_and_nowhere_else(
    settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = ["rounds=9", "clients=20", "evaluate_every=9", "seeds=[0,1]", "data={partition='iid'}", *settings]
    federation = Federation(Config.load(None, overrides), made_up((1, 28, 28)), device="cuda")
    federation.engine._evaluated = 20_000  # type: ignore[attr-defined]  # so that losses go in several parts
    for _ in range(5):  # steps are recorded, kernels compiled
        federation.play()
    waits = 0

    def counted(*tensors: Tensor) -> list[np.ndarray]:
        nonlocal waits
        waits += 1
        torch.cuda.set_sync_debug_mode("default")
        arrays = to_host(*tensors)
        torch.cuda.set_sync_debug_mode("error")
        return arrays

    monkeypatch.setattr(memory, "to_host", counted)
    torch.cuda.set_sync_debug_mode("error")  # whatever else waits is an error
    try:
        for _ in range(3):
            federation.play()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert waits == (6 if "signal=gradient" in settings else 3)


@pytest.mark.parametrize(("room", "left"), [(5, 12 - 5), (20, 0)])
def test_without_waiting_it_returns_how_many_distances_lack_digits(
    room: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = torch.randn(2, 6, 300, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    updates[0, 1:4] = updates[0, 0] + 1e-3 * updates[0, 1:4]  # 4 x 3 distances of hardly anything
    monkeypatch.setattr(pairwise_distances, "_DIRECT", room * 300)
    found, exact = (torch.full((2, 6, 6), torch.nan, device="cuda") for _ in range(2))
    everyone = [np.arange(6)] * 2
    assert pairwise_distances.renew(found, updates, range(2), everyone, wait=False) == left
    assert pairwise_distances.renew(exact, updates, range(2), everyone) == 0
    assert torch.equal(found, exact) == (left == 0)
    torch.testing.assert_close(exact[0, 0, 1], torch.linalg.norm(updates[0, 0] - updates[0, 1]))
