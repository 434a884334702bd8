"""The round loop against Algorithm 1 written out, on data so small that every number can be had another way."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from equifl.experiment.config import Config
from equifl.objectives import FacilityLocation
from equifl.selectors import DivFL, Uniform
from equifl.signals import Ints, Signals
from equifl.sim.data.catalogue import load
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.engines.reference import Reference
from equifl.sim.loop import federation as federation_module
from equifl.sim.loop.environment import data_options, partition_options, resolved
from equifl.sim.loop.federation import Federation
from equifl.sim.models.zoo import make_module
from equifl.sim.players import cohorts_of
from equifl.sketch import CountSketch

N, K = 6, 2


class Scripted:
    """Selects what the round says."""

    needs: tuple[str, ...] = ("losses", "updates")
    seen: list[Signals]

    def __init__(self) -> None:
        type(self).seen = []

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        type(self).seen.append(signals)
        assert signals.knows_update.shape == (N,)  # now: later the store may have changed the updates
        return np.array([(signals.round + i) % N for i in range(k)])


def dataset() -> Dataset:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(110, 5)).astype(np.float32), rng.integers(0, 3, 110)
    owners = np.repeat(np.arange(N), [5, 10, 15, 20, 20, 10])  # clients of unequal size
    return Dataset("made up", x[:80], y[:80], x[80:], y[80:], 3, owners, np.arange(30) % N)


def config(*overrides: str, selectors: dict[str, Any] | None = None) -> Config:
    chosen = selectors or {"scripted": {"class": "tests.sim.loop.test_federation:Scripted"}}
    base = [
        "introduce=true",
        "rounds=4",
        f"clients={N}",
        f"per_round={K}",
        "seeds=[3]",
        "evaluate_every=2",
        "train.model=logistic",
    ]
    data = ["data={name='digits',partition='natural'}", "train.steps=3", "train.batch_size=4", "train.lr=0.1"]
    lines = [f"selectors={json_to_toml(chosen)}"]
    return Config.load(None, [*base, *data, *lines, *overrides])


def json_to_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {json_to_toml(inner)}" for name, inner in value.items()) + "}"
    return json.dumps(value)


def make(*overrides: str, selectors: dict[str, Any] | None = None) -> Federation:
    return Federation(config(*overrides, selectors=selectors), dataset(), device="cpu")


def reference() -> Reference:
    return Reference(make_module("logistic", (5,), 3, {}).double(), dataset())


def local_updates(federation: Federation, weights: torch.Tensor, clients: list[int], round: int) -> torch.Tensor:
    environment, slow, local = federation.runs[0].environment, reference(), federation.local
    rows = [slow.train(weights, environment.batches(local, round, client), local)[0] for client in clients]
    return weights.double() - torch.stack(rows)


AGGREGATES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "mean": lambda sizes, losses: np.ones(len(sizes)),
    "size": lambda sizes, losses: sizes,
    "loss": lambda sizes, losses: losses**2.0,
}


@pytest.mark.parametrize("kind", AGGREGATES)
def test_rounds_are_algorithm_1(kind: str) -> None:
    options = ["server.aggregate.q=2.0"] if kind == "loss" else []
    federation = make(f"server.aggregate={kind}", *options, "server.lr=0.5")
    weights = federation.models[0].clone().double()
    slow, world = reference(), federation.runs[0].environment
    for round in range(4):
        clients = [(round + i) % N for i in range(K)]
        record = federation.play()[0]
        losses = np.array([slow.gradient(weights, world.partition.train[c])[0] for c in clients])
        share = AGGREGATES[kind](world.sizes[clients], losses)
        updates = local_updates(federation, weights, clients, round)
        weights = weights - 0.5 * torch.from_numpy(share / share.sum()) @ updates
        assert record["cohort"] == clients
        torch.testing.assert_close(federation.models[0].double(), weights, rtol=1e-4, atol=1e-5)


def test_epochs_of_clients_of_unequal_size() -> None:
    federation = make("train={model='logistic', epochs=2, batch_size=4, lr=0.1}")
    weights = federation.models[0].clone().double()
    federation.play()
    updates = local_updates(federation, weights, [0, 1], 0)
    torch.testing.assert_close(federation.models[0].double(), weights - updates.mean(dim=0), rtol=1e-4, atol=1e-5)


def test_the_learning_rate_and_the_proximal_term_are_those_of_the_round() -> None:
    options = ["train.lr_schedule=steps", "train.lr_rounds=[1, 3]", "train.lr_factor=0.5", "train.prox=3.0"]
    for engine in ("torch", "compiled"):
        federation = make(*options, f"engine={engine}")
        weights = federation.models[0].clone().double()
        slow, world = reference(), federation.runs[0].environment
        for round, lr in enumerate((0.1, 0.05, 0.05, 0.025)):
            local = LocalTraining(lr=lr, batch_size=4, steps=3, prox=3.0)
            clients = [(round + i) % N for i in range(K)]
            rows = [slow.train(weights, world.batches(local, round, client), local)[0] for client in clients]
            federation.play()
            updates = weights - torch.stack(rows)
            kept = federation.memory.updates[0][clients].double()  # as a signal: divided by steps times learning rate
            torch.testing.assert_close(kept, updates / (3 * lr), rtol=1e-3, atol=1e-4)
            weights = torch.stack(rows).mean(dim=0)
            torch.testing.assert_close(federation.models[0].double(), weights, rtol=1e-4, atol=1e-5)


DROPS = "train.model=tests.sim.loop.test_federation:drops"


def drops() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def test_dropout_is_that_of_the_seed_the_round_and_the_client() -> None:
    federation = make(DROPS)
    slow = Reference(make_module(DROPS.partition("=")[2], (5,), 3, {}).double(), dataset())
    world, local = federation.runs[0].environment, federation.local
    for round in range(2):
        weights, clients = federation.models[0].clone(), [round, round + 1]
        each = [(world.batches(local, round, c), world.layer_seed(round, c)) for c in clients]
        rows = [slow.train(weights, batches, local, seed)[0] for batches, seed in each]
        federation.play()
        torch.testing.assert_close(federation.models[0].double(), torch.stack(rows).mean(dim=0), rtol=1e-4, atol=1e-5)
    assert federation.engine.name == "torch"
    assert "the model has dropout" in federation.note


def test_dropout_gives_the_same_bytes_alone_in_company_and_resumed() -> None:
    scripted = {"class": "tests.sim.loop.test_federation:Scripted"}
    alone = make(DROPS)
    records = [alone.play()[0] for _ in range(4)]
    company = make(DROPS, "seeds=[1, 3]", selectors={"uniform": {}, "scripted": scripted})
    together = [record for _ in range(4) for record in company.play()]
    assert [r for r in together if (r["selector"], r["seed"]) == ("scripted", 3)] == records
    begun = make(DROPS)
    first = [begun.play()[0] for _ in range(2)]
    resumed = make(DROPS)
    resumed.load_state(begun.state(), cohorts_of(first))
    assert [*first, *(resumed.play()[0] for _ in range(2))] == records


def half_frozen() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 3))


@pytest.mark.parametrize("signal", ["update", "gradient"])
def test_frozen_weights_are_neither_trained_nor_sent_nor_kept(signal: str) -> None:
    federation = make("train.model=tests.sim.loop.test_federation:half_frozen", f"signal={signal}")
    first, frozen = federation.models.clone(), federation.model.module[0].weight.detach().clone()  # type: ignore
    record = federation.play()[0]
    assert federation.models.shape == (1, 15)  # of 39 weights
    assert federation.memory.updates.shape == (1, N, 15)
    assert not torch.isclose(federation.models, first).any()
    assert torch.equal(federation.model.module[0].weight, frozen)  # type: ignore[index]
    assert record["bytes_down"] == {"update": (2 + 6) * 60, "gradient": 6 * 60}[signal]
    assert "the model has frozen weights" in federation.note


def test_frozen_weights_are_those_of_the_module_that_is_given() -> None:
    pretrained = half_frozen()
    federation = Federation(config(), dataset(), device="cpu", model=lambda: copy.deepcopy(pretrained))
    federation.play()
    assert torch.equal(federation.model.module[0].weight, pretrained[0].weight)  # type: ignore[index]
    expected = nn.functional.linear(torch.from_numpy(dataset().x_test), pretrained[0].weight, pretrained[0].bias)  # type: ignore[index]
    hidden = expected.tanh() @ federation.models[0][:12].view(3, 4).T + federation.models[0][12:]
    right = hidden.argmax(dim=1).numpy() == dataset().y_test
    assert (federation.engine.scores(federation.models)[0] == right).all()


def test_stale_signals_are_those_of_who_took_part_last() -> None:
    federation = make()
    first = federation.models[0].clone()
    expected = local_updates(federation, first, list(range(N)), -1) / (3 * 0.1)  # everyone reports once before
    for round in range(3):
        model = federation.models[0].clone()
        before = distances_of(expected)
        federation.play()
        seen: Any = Scripted.seen[-1].distances
        np.testing.assert_allclose(seen, before, rtol=1e-3, atol=1e-4)
        clients = [round % N, (round + 1) % N]
        expected[clients] = local_updates(federation, model, clients, round) / (3 * 0.1)
        torch.testing.assert_close(federation.memory.updates[0].double(), expected, rtol=1e-3, atol=1e-4)


def test_stale_losses_are_those_at_the_model_received() -> None:
    federation = make()
    slow, world = reference(), federation.runs[0].environment
    expected = np.array([slow.gradient(federation.models[0], world.partition.train[c])[0] for c in range(N)])
    for round in range(3):
        model = federation.models[0].clone()
        federation.play()
        np.testing.assert_allclose(Scripted.seen[-1].losses, expected, rtol=1e-4)
        for client in (round % N, (round + 1) % N):
            expected[client] = slow.gradient(model, world.partition.train[client])[0]


@pytest.mark.parametrize("sketch", [[], ["sketch=7"]])
def test_without_an_introduction_only_those_who_took_part_are_known(sketch: list[str]) -> None:
    cold, introduced = (make(f"introduce={said}", *sketch) for said in ("false", "true"))
    took_part: set[int] = set()
    for round in range(4):
        (record,) = cold.play()
        signals = Scripted.seen[-1]
        assert set(np.flatnonzero(signals.knows_loss).tolist()) == took_part
        assert set(np.flatnonzero(signals.knows_update).tolist()) == took_part
        assert (record["bytes_down"], record["bytes_up"]) == (2 * 72, 2 * 72 + 2 * 4)
        introduced.play()
        torch.testing.assert_close(cold.models, introduced.models, rtol=0, atol=0)  # the cohorts are the same
        took_part |= {round % N, (round + 1) % N}


def test_by_default_everybody_is_selected_once_before_anybody_is_selected_twice() -> None:
    chosen: dict[str, Any] = {"divfl": {}, "subtrunc": {}, "power_of_choice": {}, "rota": {}}
    federation = make(f"introduce={str(Config().introduce).lower()}", selectors=chosen)
    for _ in range(N // K):
        federation.play()
    for run in federation.runs:
        assert run.store.times_selected.tolist() == [1] * N, run.name


@pytest.mark.parametrize("examples", [None, 4])
def test_fresh_signals_are_everyones_at_the_current_model(examples: int | None) -> None:
    federation = make("signal=gradient", *([f"signal_examples={examples}"] if examples else []))
    slow, world = reference(), federation.runs[0].environment
    for _ in range(3):
        asked = [world.signal_examples(client) for client in range(N)]
        reported = [slow.gradient(federation.models[0], ids) for ids in asked]
        federation.play()
        np.testing.assert_allclose(Scripted.seen[-1].losses, [loss for loss, _ in reported], rtol=1e-4)
        gradients = torch.stack([gradient for _, gradient in reported])
        torch.testing.assert_close(federation.memory.updates[0].double(), gradients, rtol=1e-3, atol=1e-5)
        assert examples is None or all(len(ids) == examples for ids in asked)


def distances_of(updates: torch.Tensor) -> np.ndarray:
    return torch.cdist(updates, updates, compute_mode="donot_use_mm_for_euclid_dist").numpy()


def test_everyone_in_a_world_sees_the_same_but_for_the_selection() -> None:
    scripted = {"class": "tests.sim.loop.test_federation:Scripted"}
    federation = make("seeds=[3, 4]", "availability.dropout=0.3", selectors={"one": scripted, "other": scripted})
    for _ in range(4):
        federation.play()
    one, another_seed, other, _ = federation.models  # one-3, one-4, other-3, other-4
    assert torch.equal(one, other)
    assert not torch.equal(one, another_seed)


def test_who_is_offline_is_not_selected() -> None:
    federation = make("availability.online=0.5", "rounds=30", "evaluate_every=30", selectors={"uniform": {}})
    world = federation.runs[0].environment
    sizes = []
    for round in range(30):
        cohort = federation.play()[0]["cohort"]
        assert world.available(round)[cohort].all()
        assert len(cohort) == min(K, world.available(round).sum())
        sizes.append(int(world.available(round).sum()))
    assert 1 < np.mean(sizes) < 5


def test_without_anybody_the_model_stays() -> None:
    federation = make("availability.online=1e-9")
    before = federation.models.clone()
    record = federation.play()[0]
    assert record["cohort"] == []
    assert record["local_loss"] is None
    assert torch.equal(federation.models, before)


def test_a_trace_says_who_is_online(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("1,1,0,0,0,0\n0,0,1,1,0,0\n0,0,0,0,1,1\n")
    federation = make(f"availability.trace={trace}", selectors={"uniform": {}})
    cohorts = [sorted(federation.play()[0]["cohort"]) for _ in range(4)]
    assert cohorts == [[0, 1], [2, 3], [4, 5], [0, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "the path of a CSV file"),
        ("1,0\n", "6 columns, not 2"),
        ("1,0,1,0,2,0\n", "0 and 1 only"),
        ("a,b\n", "cannot be"),
    ],
)
def test_a_wrong_trace_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    if text is not None:
        trace.write_text(text)
    with pytest.raises(ValueError, match=f"availability.trace.*{message}"):
        make(f"availability.trace={trace}")


@pytest.mark.parametrize("path", ["/dev/zero", "x" * 100_000], ids=["endless", "long"])
def test_a_trace_that_is_no_file_is_not_read(path: str) -> None:
    with pytest.raises(
        ValueError, match=r"availability.trace: .* is not allowed; allowed: the path of a CSV file"
    ) as error:
        make(f"availability.trace={path}")
    assert len(str(error.value)) < 300


def test_who_drops_out_was_selected_but_does_not_reply() -> None:
    federation = make("availability.dropout=0.5", "rounds=8")
    world = federation.runs[0].environment
    for round in range(8):
        model, reported = federation.models[0].clone(), federation.memory.updates[0].clone()
        if round == 0:
            reported = (local_updates(federation, model, list(range(N)), -1) / 0.3).float()
        federation.play()
        cohort = [(round + i) % N for i in range(K)]
        stayed = [client for client in cohort if not world.drops_out(round)[client]]
        changed = ~torch.isclose(federation.memory.updates[0], reported, rtol=1e-3, atol=1e-4).all(dim=1)
        assert set(torch.nonzero(changed).flatten().tolist()) <= set(stayed)
        expected = model.double()
        if stayed:
            expected = expected - local_updates(federation, model, stayed, round).mean(dim=0)
        torch.testing.assert_close(federation.models[0].double(), expected, rtol=1e-4, atol=1e-5)
    assert federation.runs[0].store.signals(8).times_selected.sum() == 8 * K


def test_the_evaluated_model_is_the_mean_of_the_last() -> None:
    federation = make("server.average_last=3", "evaluate_every=1", "rounds=5")
    models = [federation.models[0].clone()]
    slow = reference()
    for _ in range(5):
        record = federation.play()[0]
        models.append(federation.models[0].clone())
        mean = torch.stack(models[-3:]).double().mean(dim=0)
        correct = slow.scores(mean)
        tests = federation.runs[0].environment.partition.test
        assert record["client_accuracy"] == [round(100 * float(correct[ids].mean()), 4) for ids in tests]
        assert record["accuracy"] == pytest.approx(100 * correct.mean())


def test_a_record_says_what_the_objective_was_worth() -> None:
    federation = make(selectors={"subtrunc": {"lam": 1e6, "b": 0.5}, "uniform": {}})
    records = federation.play()
    selector: Any = federation.runs[0].selector
    assert set(records[0]["objective"]) == {"G", "H"}
    assert records[0]["objective"]["H"] == pytest.approx(1e6 * 0.5)
    assert records[0]["saturated_at"] == 1  # the loss of three classes at the start is ln 3: ln(1 + 1.1) = 0.74
    assert "objective" not in records[1]
    federation = make(selectors={"divfl": {}, "unionfl": {"inner": {"class": "subtrunc", "lam": 0.0}}})
    records = federation.play()
    assert set(records[0]["objective"]) == {"G"}
    assert set(records[1]["objective"]) == {"G", "H", "g"}
    assert records[1]["saturated_at"] is None
    assert isinstance(selector.objective(Signals(losses=np.ones(2), updates=np.eye(2))).parts[0], FacilityLocation)


@pytest.mark.parametrize(
    ("signal", "first", "later"),
    [
        # P = 18 weights, 4 bytes each. First round: all report before it (6 models down; 6 updates and 6 losses up).
        ("update", ((2 + 6) * 72, (2 + 6) * 72 + (2 + 6) * 4), (2 * 72, 2 * 72 + 2 * 4)),
        # Everyone is asked every round; the cohort has the model already.
        ("gradient", (6 * 72, 2 * 72 + 6 * 72 + 6 * 4), (6 * 72, 2 * 72 + 6 * 72 + 6 * 4)),
    ],
)
def test_bytes_count_what_the_signals_cost(signal: str, first: tuple[int, int], later: tuple[int, int]) -> None:
    federation = make(f"signal={signal}", selectors={"subtrunc": {}, "uniform": {}})
    for expected in (first, later, later):
        fair, uniform = federation.play()
        assert (fair["bytes_down"], fair["bytes_up"]) == expected
        assert (uniform["bytes_down"], uniform["bytes_up"]) == (2 * 72, 2 * 72)


@pytest.mark.parametrize("signal", ["update", "gradient"])
def test_selectors_may_see_sketches_instead_of_updates(signal: str) -> None:
    whole, short = make(f"signal={signal}"), make(f"signal={signal}", "sketch=7")
    sketch = CountSketch(length=7, seed=3)
    for _ in range(3):
        whole.play()
        short.play()
        seen = Scripted.seen[-1]
        assert seen.distances is None
        np.testing.assert_allclose(short.models, whole.models, atol=1e-6)
    assert short.memory.updates.numel() == 0
    reported = short.runs[0].store.signals(9).updates
    assert reported is not None
    np.testing.assert_allclose(reported, sketch.rows(whole.memory.updates[0].numpy()), atol=1e-5)


def test_sketches_are_what_fresh_signals_cost() -> None:
    record = make("signal=gradient", "sketch=7").play()[0]
    assert record["bytes_up"] == 2 * 72 + 6 * 7 * 4 + 6 * 4


@pytest.mark.parametrize("options", [("signal=update",), ("signal=gradient",), ("signal=update", "sketch=7")])
def test_everyone_may_be_asked_in_small_parts(options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, in_parts = make(*options), make(*options)
    expected = [at_once.play()[0] for _ in range(2)]
    monkeypatch.setattr(federation_module, "AT_A_TIME", 1)
    found = [in_parts.play()[0] for _ in range(2)]
    np.testing.assert_allclose(in_parts.memory.updates, at_once.memory.updates, atol=1e-6)
    np.testing.assert_allclose(in_parts.models, at_once.models, atol=1e-6)
    assert found[1]["global_loss"] == pytest.approx(expected[1]["global_loss"], rel=1e-6)


@pytest.mark.parametrize(
    ("signal", "sketch"), [("update", None), ("gradient", None), ("update", "sketch=5"), ("gradient", "sketch=5")]
)
def test_a_run_goes_on_to_the_same_bytes(signal: str, sketch: str | None) -> None:
    options = (
        f"signal={signal}",
        *filter(None, [sketch]),
        "seeds=[0,1]",
        "rounds=6",
        "server.average_last=2",
        "availability.online=0.8",
    )
    six: dict[str, Any] = {name: {} for name in ("uniform", "power_of_choice", "divfl", "subtrunc", "unionfl", "rota")}
    unbroken = make(*options, selectors=six)
    expected = [json.dumps(record) for _ in range(6) for record in unbroken.play()]
    found: list[str] = []
    state = None
    for _ in range(6):  # a new federation every round
        federation = make(*options, selectors=six)
        if state is not None:
            federation.load_state(state, cohorts_of([json.loads(line) for line in found]))
        found += [json.dumps(record) for record in federation.play()]
        state = {name: array.copy() for name, array in federation.state().items()}
    assert found == expected


def test_selectors_of_ones_own_need_not_say_what_they_need() -> None:
    class Plain:
        def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
            return Uniform().select(signals, k, rng=rng)

    federation = make()
    federation.runs[0].selector = Plain()
    assert federation.runs[0].needs == {"losses", "updates"}
    assert len(federation.play()[0]["cohort"]) == K


@pytest.mark.parametrize("signal", ["update", "gradient"])
def test_training_that_runs_away_is_stopped_and_says_whose_it_was(signal: str) -> None:
    federation = make(f"signal={signal}", "train.lr=1e38", selectors={"uniform": {}, "divfl": {}})
    message = r"round \d, \w+, seed 3: the losses or weights of clients \d.* not finite; try a smaller"
    with pytest.raises(ValueError, match=message):
        [federation.play() for _ in range(4)]


def test_a_partition_that_cannot_be_is_refused_by_its_section() -> None:
    with pytest.raises(ValueError, match="data: natural option: 'alpha' is not known"):
        make("data.partition.alpha=0.5")


def test_the_number_of_natural_clients_follows_from_the_data() -> None:
    free = Config.load(None, ["data={name='digits',partition='natural'}", "per_round=2"])
    assert free.clients is None
    assert resolved(free, dataset()).clients == N
    assert resolved(config(), dataset()) == config()
    with pytest.raises(ValueError, match=r"per_round: 7 is not allowed; allowed: at most clients, which is 6"):
        resolved(replace(free, per_round=7), dataset())
    with pytest.raises(
        ValueError, match=r"data: clients: 5 is not allowed; allowed: 6, the natural clients of made up"
    ):
        make("clients=5")


def test_clients_with_few_test_examples_are_counted_once_for_all_seeds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "equifl"):
        make("seeds=[0,1,2]")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("6 of 6 clients have fewer than 10 test examples")


def test_dropped_clients_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    alone = replace(dataset(), owners_test=np.arange(30) % 4)
    chosen = config("clients=4", "data.partition.drop_incomplete=true")
    with caplog.at_level("INFO", "equifl"):
        federation = Federation(chosen, alone, device="cpu")
    assert "2 of 6 clients dropped: no training or no test examples" in caplog.messages
    assert len(federation.runs[0].environment.sizes) == 4
    with pytest.raises(ValueError, match="data: owners: 2 of 6 clients are in one split only: 4, 5;"):
        Federation(config("clients=4"), alone, device="cpu")


def test_the_options_of_data_set_and_partition_are_separate() -> None:
    def options(text: str) -> tuple[dict[str, object], dict[str, object]]:
        found = Config.load(None, [f"data={text}"])
        return data_options(found), partition_options(found)

    natural = options("{name='synthetic',partition='natural',alpha=0.1}")
    assert natural == ({"alpha": 0.1, "clients": 30}, {})
    assert options("{name='synthetic',alpha=2.0,partition={kind='dirichlet',alpha=0.1,least=3}}") == (
        {"alpha": 2.0, "clients": 30},
        {"alpha": 0.1, "least": 3},
    )
    assert options("{name='digits',partition={kind='dirichlet',alpha=0.1}}") == ({}, {"alpha": 0.1})
    with pytest.raises(ValueError, match=r"^data: digits option: 'beta' is not known; allowed: none"):
        options("{name='digits',beta=0.1}")


class Greedy:
    """Selects everybody, whatever k is."""

    def select(self, signals: Signals, k: int, *, rng: np.random.Generator) -> Ints:
        return np.arange(signals.n)


def test_a_selector_that_breaks_the_contract_is_named() -> None:
    federation = make(selectors={"grabby": {"class": "tests.sim.loop.test_federation:Greedy"}})
    with pytest.raises(ValueError, match=r"selectors.grabby: chose \[0, 1, 2, 3, 4, 5\]; allowed: 2 different ids"):
        federation.play()


def test_bytes_of_those_who_need_only_losses_or_weigh_by_them() -> None:
    federation = make("server.aggregate=loss", selectors={"power_of_choice": {}, "uniform": {}})
    by_loss, uniform = federation.play()
    assert (by_loss["bytes_down"], by_loss["bytes_up"]) == ((2 + 6) * 72, 2 * 72 + (2 + 6) * 4)
    assert (uniform["bytes_down"], uniform["bytes_up"]) == (2 * 72, 2 * 72 + 2 * 4)


def test_terms_of_the_same_name_add_up() -> None:
    inner = {"class": "unionfl", "mu": 3.0}
    federation = make("rounds=3", selectors={"unionfl": {"mu": 2.0, "inner": inner}})
    records = [federation.play()[0] for _ in range(3)]
    last = set(records[0]["cohort"]) | set(records[1]["cohort"])
    assert records[2]["objective"]["g"] == pytest.approx(-5.0 * len(last & set(records[2]["cohort"])))


@pytest.mark.parametrize("sketch", [None, 8])
def test_a_guard_limits_what_selectors_see_and_a_resumed_run_goes_on_the_same(sketch: int | None) -> None:
    options = ("server.guard=true", "seeds=[0]", "rounds=6", *([] if sketch is None else [f"sketch={sketch}"]))
    seen: list[Signals] = []

    class Watched(DivFL):
        def select(self, signals: Signals, k: int, *, rng: Any) -> Ints:
            seen.append(signals)
            return super().select(signals, k, rng=rng)

    def federation() -> Federation:
        made = make(*options, selectors={"divfl": {}, "power_of_choice": {}})
        made.runs[0].selector = Watched()
        return made

    unbroken, found, state = federation(), list[dict[str, Any]](), None
    expected = [record["cohort"] for _ in range(6) for record in unbroken.play()]
    del seen[:]
    for _ in range(6):
        one = federation()
        if state is not None:
            one.load_state(state, cohorts_of(found))
        found += one.play()
        state = {name: array.copy() for name, array in one.state().items()}
    assert [record["cohort"] for record in found] == expected
    late = seen[-1]
    reported = late.norms
    assert reported is not None
    assert np.nanmax(reported) <= 2 * np.nanmedian(reported)
    assert not any(run.store.guard for run in make().runs)


@pytest.mark.parametrize("engine", ["general", "auto"])
def test_on_a_cpu_tf32_changes_nothing(engine: str) -> None:
    plain, rough = (make(f"engine={engine}", f"train.tf32={asked}") for asked in ("false", "true"))
    assert rough.local.tf32
    for _ in range(4):
        assert plain.play() == rough.play()
    assert torch.equal(plain.models, rough.models)


def test_a_list_of_cohort_sizes_is_one_a_round() -> None:
    federation = make("per_round=[3, 1, 2]", "rounds=5")
    assert [len(record["cohort"]) for _ in range(5) for record in federation.play()] == [3, 1, 2, 2, 2]


def test_a_window_of_offsets_goes_on_from_a_checkpoint() -> None:
    selectors = {"unionfl": {"mu": 100.0, "window": [1, 3]}}
    straight = make("rounds=6", selectors=selectors)
    records = [record for _ in range(6) for record in straight.play()]
    cohorts = [set(record["cohort"]) for record in records]
    assert not any(cohorts[t] & cohorts[t - 1] for t in range(1, 6))
    halfway = make("rounds=6", selectors=selectors)
    before = [record for _ in range(3) for record in halfway.play()]
    resumed = make("rounds=6", selectors=selectors)
    resumed.load_state(halfway.state(), cohorts_of(before))
    assert [record for _ in range(3) for record in resumed.play()] == records[3:]


@pytest.mark.slow
def test_newcomers_with_other_classes_do_not_take_over(tmp_path: Path) -> None:
    """Twenty clients of the digits 0 to 7; after 60 rounds five more, of 8 and 9.

    By lifetime counts these five would be the only ones to train for ten rounds, and the model would forget the rest.
    """
    digits = load("digits")

    def owners(labels: Ints) -> Ints:
        old = labels < 8
        whose = np.empty(len(labels), np.int64)
        whose[old], whose[~old] = np.arange(old.sum()) % 20, 20 + np.arange((~old).sum()) % 5
        return whose

    arrays = (digits.x_train, digits.y_train, digits.x_test, digits.y_test)
    there = Dataset("digits", *arrays, 10, owners(digits.y_train), owners(digits.y_test))
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join([",".join(["1"] * 20 + ["0"] * 5)] * 60 + [",".join(["1"] * 25)] * 10))
    settings = ["rounds=70", "clients=25", "per_round=4", "seeds=[0, 1]", "train.steps=10", "train.lr=0.05"]
    settings += ["data={name='digits',partition='natural'}", "evaluate_every=70", "train.model=mlp"]
    settings += [f"availability.trace={str(trace)!r}", "selectors={uniform={}, rota={}}"]
    federation = Federation(Config.load(None, settings), there, device="cpu")
    for _ in range(70):
        records = federation.play()
    old = {
        name: np.mean([record["client_accuracy"][:20] for record in records if record["selector"] == name])
        for name in ("uniform", "rota")
    }
    assert old["uniform"] > 85
    assert old["rota"] >= old["uniform"] - 2
    seats = [cohort for run in federation.runs if run.name == "rota" for cohort in run.cohorts[60:]]
    assert (np.concatenate(seats) < 20).mean() >= 0.4


class Curious(Scripted):
    """Asks for everything there is."""

    needs = ("losses", "updates", "durations", "label_counts", "lengths", "bias_updates")


CURIOUS = {"curious": {"class": "tests.sim.loop.test_federation:Curious"}, "uniform": {}}
CLOCK = ["speed.step_seconds=2.0", "speed.sigma=1.0", "speed.jitter=0.1", "speed.reply_seconds=0.5"]


@pytest.mark.parametrize("more", [[], ["sketch=4"], ["signal=gradient"]])
def test_who_needs_more_gets_lengths_and_biases_of_the_updates_that_were_sent(more: list[str]) -> None:
    """The output layer of a logistic model is all of it: the last three of an update are its bias."""
    federation = make("introduce=false", *more, selectors=CURIOUS)
    for _ in range(3):
        federation.play()
    signals, run = Curious.seen[-1], federation.runs[0]
    known = np.arange(N) if more == ["signal=gradient"] else [0, 1, 2]  # of rounds 0 and 1
    assert np.flatnonzero(signals.knows("lengths")).tolist() == list(known)
    assert np.flatnonzero(signals.knows("bias_updates")).tolist() == list(known)
    assert signals.label_counts is not None
    assert signals.label_counts.sum(axis=1).tolist() == run.environment.sizes.tolist()
    first = run.environment.partition.train[0]
    assert signals.label_counts[0].tolist() == np.bincount(dataset().y_train[first], minlength=3).tolist()
    assert federation.runs[1].store.signals(3).lengths is None  # whom nobody asked
    if not more:
        updates = federation.memory.updates[0].numpy()
        mine = federation.runs[0].store.signals(3)
        assert mine.lengths is not None
        assert mine.bias_updates is not None
        np.testing.assert_allclose(mine.lengths, np.linalg.norm(updates, axis=1), rtol=1e-5)
        np.testing.assert_allclose(mine.bias_updates, updates[:, -3:], rtol=1e-6)


def test_a_clock_says_how_long_clients_and_rounds_take() -> None:
    federation = make("introduce=false", *CLOCK, "availability.dropout=0.3", selectors=CURIOUS)
    expected = np.full(N, np.nan)
    for round in range(4):
        seconds = federation.runs[0].environment.durations(round)
        assert seconds is not None
        assert (seconds > 0.5).all()
        records = federation.play()
        for record, run in zip(records, federation.runs, strict=True):
            cohort = np.array(record["cohort"])
            replied = cohort[~run.environment.drops_out(round)[cohort]]
            assert record["seconds"] == (seconds[replied].max() if len(replied) else 0.0)
        cohort = np.array(records[0]["cohort"])
        replied = cohort[~federation.runs[0].environment.drops_out(round)[cohort]]
        expected[replied] = seconds[replied]
        np.testing.assert_equal(federation.runs[0].store.signals(round + 1).durations, expected)
    assert "seconds" not in make(selectors=CURIOUS).play()[0]


@pytest.mark.parametrize("more", [[], ["sketch=4"]])
def test_what_more_is_known_is_in_the_checkpoint(more: list[str]) -> None:
    whole, first = (make("introduce=false", *CLOCK, *more, selectors=CURIOUS) for _ in range(2))
    records = [whole.play() for _ in range(4)]
    played = [first.play() for _ in range(2)]
    again = make("introduce=false", *CLOCK, *more, selectors=CURIOUS)
    again.load_state(first.state(), cohorts_of([record for rows in played for record in rows]))
    for name in ("durations", "label_counts", "lengths", "bias_updates"):
        expected = getattr(first.runs[0].store.signals(2), name)
        np.testing.assert_equal(getattr(again.runs[0].store.signals(2), name), expected)
        assert getattr(again.runs[1].store.signals(2), name) is None
    assert [again.play() for _ in range(2)] == records[2:]


def test_what_more_is_sent_is_counted() -> None:
    """Once three label counts of each client; lengths and biases come with the updates of training."""
    records = [make("introduce=false", selectors=CURIOUS).play()[i]["bytes_up"] for i in (0, 1)]
    assert records[0] - records[1] == 4 * K + 4 * 3 * N  # losses, and label counts
