import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg

from equifl import DivFL, PowerOfChoice, Rota, Selector, SubTrunc, Uniform, UnionFL
from equifl.flower import FairSelection
from equifl.flower.roster import Roster
from equifl.report.page import write_report
from tests.flower.federation import initial_arrays
from tests.flower.pretend_grid import PretendGrid, failing, play, saying, silent, twice, weighing, without

pytestmark = pytest.mark.usefixtures("inside_a_run")

ALL = [Uniform(), PowerOfChoice(), DivFL(), SubTrunc(), UnionFL(), Rota()]


def grid_of(clients: int = 8, *, first: int = 1000) -> PretendGrid:
    return PretendGrid({first + 37 * i % 101: i for i in range(clients)})


def fair(selector: Selector, inner: Any = None, **options: Any) -> FairSelection:
    wanted: dict[str, Any] = {"k": 3, "identity": "partition-id", "patience": 0.5}
    return FairSelection(inner or FedAvg(), selector, **wanted | options)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def cohorts(folder: Path) -> list[list[int]]:
    return [row["cohort"] for row in rows(folder)]


@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_the_strategy_trains_with_the_chosen_and_nobody_else(selector: Selector, tmp_path: Path) -> None:
    grid = grid_of()
    result = play(fair(selector, folder=tmp_path), grid, 4)
    asked = grid.asked_to("train")
    assert [grid.partitions[node] for node in asked] == list(chain(*cohorts(tmp_path)))
    assert all(len(set(cohort)) == 3 for cohort in cohorts(tmp_path))
    assert result.evaluate_metrics_clientapp[4]["eval_acc"] > result.evaluate_metrics_clientapp[1]["eval_acc"]


INNER = [
    flower.FedAvg(),
    flower.FedAdam(),
    flower.FedAdagrad(),
    flower.FedYogi(),
    flower.FedAvgM(),
    flower.FedProx(proximal_mu=0.1),
    flower.FedMedian(),
    flower.FedTrimmedAvg(),
    flower.QFedAvg(client_learning_rate=0.5),
    flower.Krum(num_malicious_nodes=0),
    flower.DifferentialPrivacyServerSideFixedClipping(flower.FedAvg(), 0.01, 5.0, num_sampled_clients=3),
    flower.DifferentialPrivacyServerSideAdaptiveClipping(flower.FedAvg(), 0.01, num_sampled_clients=3),
]


@pytest.mark.parametrize("inner", INNER, ids=lambda inner: type(inner).__name__)
def test_any_strategy_can_be_wrapped(inner: Any, tmp_path: Path) -> None:
    result = play(fair(Rota(), inner, folder=tmp_path), grid_of(), 3)
    assert len({client for cohort in cohorts(tmp_path) for client in cohort}) == 8, (
        "9 seats, and nobody sits twice before all did"
    )
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())


def test_what_is_recorded_is_what_flower_gets(tmp_path: Path) -> None:
    result = play(fair(Rota(), folder=tmp_path), grid_of(), 3)
    told, row = result.evaluate_metrics_clientapp[3], rows(tmp_path)[-1]
    assert told["dissimilarity"] == row["dissimilarity"]
    assert told["worst10"] == pytest.approx(min(row["client_accuracy"]), abs=1e-4)
    assert told["std"] == row["std"]
    assert told["participation-gini"] == row["participation"]["gini"]
    assert "partition-id" not in told, "a mean of identities says nothing"
    assert row["accuracy"] == pytest.approx(100 * told["eval_acc"])
    assert row["bytes_up"] == 3 * 4 * 210
    assert write_report(tmp_path).stat().st_size > 1e6


def test_updates_heard_are_those_sent_and_kept_short() -> None:
    grid, strategy = grid_of(), fair(Rota(), k=8)
    play(strategy, grid, 1)
    sketches = strategy.clients.signals(1, []).updates
    assert sketches is not None
    assert sketches.shape == (8, 256)
    after = initial_arrays()
    from tests.flower.federation import data_of, loss_and_gradient

    weights = [array.numpy() for array in after.values()]
    x, y = data_of(5)
    for _ in range(5):
        weights = [
            (w - 0.5 * g).astype(np.float32) for w, g in zip(weights, loss_and_gradient(weights, x, y)[1], strict=True)
        ]
    np.testing.assert_allclose(sketches[5], strategy.sketch([-w for w in weights]), rtol=1e-5, atol=1e-6)


def test_losses_are_read_from_the_metric_named() -> None:
    strategy = fair(PowerOfChoice(), k=8)
    play(strategy, grid_of(), 1)
    assert (strategy.clients.signals(1, []).losses > 0).all()


def test_a_missing_loss_is_named_with_what_is_there() -> None:
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, without("train_loss"))
    with pytest.raises(ValueError, match=r"no metric `train_loss` \(there: `num-examples`, `partition-id`\)"):
        play(fair(SubTrunc()), grid, 1)
    play(fair(Rota()), grid, 1)  # and who needs no loss does not ask for one


def test_a_loss_that_is_missing_later_is_set_aside() -> None:
    grid, strategy = grid_of(), fair(SubTrunc())
    play(strategy, grid, 3)
    grid.faults = dict.fromkeys(grid.partitions, without("train_loss"))
    play(strategy, grid, 1, strategy.arrays)
    assert strategy.rounds_played == 4


@pytest.mark.parametrize("loss", [[0.5, 0.4], -3.0], ids=["a list", "below 0"])
def test_a_loss_that_is_not_needed_may_be_anything(loss: Any, tmp_path: Path) -> None:
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, saying(train_loss=loss))
    inner = FedAvg(train_metrics_aggr_fn=lambda records, key: MetricRecord())
    assert play(fair(Rota(), inner, folder=tmp_path), grid, 2).arrays is not None


def test_who_trains_a_part_of_the_model_has_an_update_too() -> None:
    def head_only(question: Message, reply: Message) -> list[Message]:
        for record in reply.content.array_records.values():
            del record["0"]
        return [reply]

    class KeepsTheRest(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            _, metrics = super().aggregate_train(server_round, replies)
            return None, metrics

    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, head_only)
    strategy = fair(Rota(), KeepsTheRest(), k=8)
    play(strategy, grid, 1)
    assert strategy.clients.signals(1, []).knows_update.all()


def test_who_needs_nothing_looks_at_nothing() -> None:
    def other(question: Message, reply: Message) -> list[Message]:
        if reply.content.array_records:
            reply.content["arrays"] = ArrayRecord([np.frombuffer(b"a tree", np.uint8)])
        return [reply]

    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, other)
    untested = FedAvg(fraction_evaluate=0.0)  # nobody can evaluate a tree here
    assert play(fair(Uniform(), untested), grid, 1).train_metrics_clientapp
    with pytest.raises(ValueError, match="none of the arrays of real numbers that were sent came back"):
        play(fair(Rota()), grid_of_others(), 1)


def grid_of_others() -> PretendGrid:
    def renamed(question: Message, reply: Message) -> list[Message]:
        if reply.content.array_records:
            reply.content["arrays"] = ArrayRecord({"tree": reply.content["arrays"]["0"]})
        return [reply]

    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, renamed)
    return grid


# Identity


def by_key(partition: int) -> bytes:
    return f"-----BEGIN PUBLIC KEY-----\n{partition}".encode()


@pytest.mark.parametrize(
    "about", [{"public_key": by_key}, {"name": lambda partition: f"clinic {partition}"}], ids=["key", "name"]
)
def test_a_key_or_a_name_outlives_the_node_id(about: dict[str, Any]) -> None:
    strategy = fair(Rota(), identity=None)
    grid = PretendGrid({100 + i: i for i in range(6)}, **about)
    play(strategy, grid, 3)
    before = strategy.clients.signals(3, [])
    grid.partitions = {200 + (5 * i) % 6: i for i in range(6)}  # all restart, and come back in another order
    play(strategy, grid, 1)
    after = strategy.clients.signals(4, [])
    assert after.n == 6
    assert (after.times_selected - before.times_selected).sum() == 3
    assert grid.asked_to("train")[-3:] == [
        node
        for client in strategy._row["cohort"]
        for node, partition in grid.partitions.items()
        if partition == client
    ]


def test_a_metric_outlives_the_node_id_once_it_is_heard() -> None:
    strategy, grid = fair(Rota()), grid_of(6)
    play(strategy, grid, 2)
    node = next(node for node, partition in grid.partitions.items() if partition == 4)
    before = strategy.clients.signals(2, [])
    del grid.partitions[node]
    grid.partitions[9999] = 4
    play(strategy, grid, 1)
    after = strategy.clients.signals(3, [])
    assert strategy.clients.of([9999]).tolist() == [4]
    assert after.times_selected[4] >= before.times_selected[4]
    assert after.n == 7, "a number was lent until it was known who it is"
    assert after.times_selected[6] == 0, "and is free again"


def test_who_drops_out_and_returns_is_still_the_same(tmp_path: Path) -> None:
    grid = grid_of(10)
    flaky = next(iter(grid.partitions))

    class Evaluates(FedAvg):
        def configure_evaluate(self, *args: Any) -> Any:
            grid.offline = {flaky}
            try:
                return super().configure_evaluate(*args)
            finally:
                grid.offline = set()

    strategy = fair(Rota(), Evaluates(), folder=tmp_path)
    play(strategy, grid, 20)
    counts = Counter(chain(*cohorts(tmp_path)))
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(("value", "written"), [(1000001.0, "1000001"), (0.25, "0.25"), (-3, "-3"), ("a", "a")])
def test_an_identity_is_written_whole(value: Any, written: str) -> None:
    assert Roster("id").value({"id": value}) == written


@pytest.mark.parametrize("value", [float("nan"), [1, 2], None])
def test_what_is_no_identity(value: Any) -> None:
    assert Roster("id").value({"id": value}) is None


def test_two_nodes_cannot_be_one_client(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = fair(Rota(), k=6), grid_of(6)
    play(strategy, grid, 1)
    grid.partitions[9999] = 4
    with caplog.at_level(logging.WARNING, "flwr"):
        play(strategy, grid, 1)
    assert "node 9999 says it is partition-id:4, which another node is" in caplog.text
    assert strategy.clients.of([9999]).tolist() == [6]


def test_without_anything_stable_there_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flwr"):
        play(fair(Rota(), identity=None), grid_of(), 3)
    assert caplog.text.count("a node that restarts is a stranger") == 1


def test_ids_do_not_matter_only_the_seed(tmp_path: Path) -> None:
    for name, first, seed in (("a", 1000, 0), ("b", 5000, 0), ("c", 1000, 1)):
        play(fair(DivFL(), folder=tmp_path / name, seed=seed), grid_of(first=first), 4)
    assert cohorts(tmp_path / "a") == cohorts(tmp_path / "b")
    assert cohorts(tmp_path / "a") != cohorts(tmp_path / "c")


# A federation as it is


def test_nobody_online_is_waited_for_and_not_for_ever() -> None:
    grid = PretendGrid({})
    result = play(fair(Rota()), grid, 2)
    assert not grid.asked
    assert result.train_metrics_clientapp == {}


def test_who_never_comes_is_waited_for_once() -> None:
    started = time.monotonic()
    play(fair(Rota(), k=6, patience=2), grid_of(5), 4)
    assert time.monotonic() - started < 7, "once 2 s, not in every round"


def test_without_patience_there_is_still_training() -> None:
    grid = grid_of()
    play(fair(Rota(), patience=0), grid, 2)
    assert len(grid.asked_to("train")) == 6


def test_a_strategy_that_fails_can_be_started_again(tmp_path: Path) -> None:
    class Fails(FedAvg):
        fails = True

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            if server_round == 3 and self.fails:
                raise RuntimeError("no")
            return super().aggregate_train(server_round, replies)

    inner = Fails()
    strategy, grid = fair(Rota(), inner, folder=tmp_path), grid_of()
    with pytest.raises(RuntimeError):
        play(strategy, grid, 4)
    inner.fails = False
    play(strategy, grid, 2, strategy.arrays)
    assert [row["round"] for row in rows(tmp_path)] == [0, 1, 2, 3]


def test_fewer_than_k_take_part_and_fewer_than_the_strategy_wants_do_not(caplog: pytest.LogCaptureFixture) -> None:
    grid = grid_of(2)
    play(fair(Rota()), grid, 1)
    assert len(grid.asked_to("train")) == 2
    grid = grid_of(1)
    with caplog.at_level(logging.WARNING, "flwr"):
        play(fair(Rota()), grid, 1)
    assert grid.asked == []
    assert "no train, because FedAvg wants 2 nodes and 1 are there" in caplog.text


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (saying(train_loss=float("nan")), "train_loss is nan"),
        (saying(train_loss=float("inf")), "train_loss is inf"),
        (weighing(float("nan")), "its weights are not finite"),
        (saying(**{"num-examples": 0}), "num-examples is 0"),
    ],
    ids=["nan loss", "inf loss", "nan weights", "no examples"],
)
def test_what_is_no_number_is_set_aside_and_named(fault: Any, word: str, caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = grid_of(), fair(SubTrunc(), k=8)
    play(strategy, grid, 1)
    before = strategy.clients.signals(1, [])
    node = next(node for node, partition in grid.partitions.items() if partition == 5)
    grid.faults[node] = fault
    with caplog.at_level(logging.WARNING, "flwr"):
        result = play(strategy, grid, 1, strategy.arrays)
    after = strategy.clients.signals(2, [])
    assert f"node {node} (partition-id:5) is set aside: {word}" in caplog.text
    assert after.losses[5] == before.losses[5]
    assert before.updates is not None
    assert after.updates is not None
    assert after.losses[4] != before.losses[4]
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())


@pytest.mark.parametrize("size", [float("inf"), 0.0, -5.0])
def test_an_evaluation_by_no_examples_does_not_count(size: float, tmp_path: Path) -> None:
    def fault(question: Message, reply: Message) -> list[Message]:
        return list(saying(**{"num-examples": size})(question, reply)) if not reply.content.array_records else [reply]

    grid = grid_of()
    grid.faults[next(iter(grid.partitions))] = fault
    play(fair(Rota(), FedAvg(evaluate_metrics_aggr_fn=lambda records, key: MetricRecord()), folder=tmp_path), grid, 1)
    assert rows(tmp_path)[0]["client_accuracy"][0] is None


@pytest.mark.parametrize("weight", [1e36, 1e20])
@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_absurd_weights_stop_neither_the_run_nor_the_others(selector: Selector, weight: float, tmp_path: Path) -> None:
    """A client that is unlike all others may be chosen often; but distances between these must go on to count."""

    def picked(weight: float) -> Counter[int]:
        grid, folder = grid_of(10), tmp_path / f"{weight:g}"
        grid.faults[next(node for node, partition in grid.partitions.items() if partition == 7)] = weighing(weight)
        play(fair(selector, flower.FedMedian(), folder=folder), grid, 24)
        return Counter(chain(*cohorts(folder)))

    absurd, odd = picked(weight), picked(0.5)
    assert absurd[7] <= odd[7] + 1
    assert len(absurd) == 10


def test_silent_failing_and_doubled_replies(caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = grid_of(), fair(Rota(), k=8)
    nodes = sorted(grid.partitions, key=grid.partitions.__getitem__)
    grid.faults = {nodes[0]: silent, nodes[1]: failing, nodes[2]: twice}
    with caplog.at_level(logging.WARNING, "flwr"):
        result = play(strategy, grid, 2)
    signals = strategy.clients.signals(2, [])
    assert signals.knows_update.tolist() == [False, False] + [True] * 6
    assert signals.times_selected.tolist() == [2] * 8, "who was asked was selected, whatever came back"
    assert f"a reply of node {nodes[2]} came late or twice" in caplog.text
    assert result.arrays is not None


def test_when_none_replies_the_model_stays(caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = grid_of(), fair(Rota())
    grid.faults = dict.fromkeys(grid.partitions, silent)
    with caplog.at_level(logging.WARNING, "flwr"):
        result = play(strategy, grid, 1)
    assert result.train_metrics_clientapp == {}
    assert "of 3 nodes none replied usably; the model stays" in caplog.text
    grid.faults = {}
    assert play(strategy, grid, 1).train_metrics_clientapp != {}


def test_other_arrays_than_those_sent_are_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    def short(question: Any, reply: Any) -> list[Any]:
        if reply.content.array_records:
            reply.content["arrays"] = ArrayRecord([np.zeros(3, np.float32), np.zeros(10, np.float32)])
        return [reply]

    grid = grid_of()
    grid.faults[next(iter(grid.partitions))] = short
    with caplog.at_level(logging.WARNING, "flwr"):
        result = play(fair(Rota(), k=8), grid, 1)
    assert "its array 0 has shape (3,), not (20, 10)" in caplog.text
    assert result.arrays is not None


@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_an_absurd_loss_wins_no_seat(selector: Selector, tmp_path: Path) -> None:
    def picked(name: str, loss_of_7: Callable[[FairSelection], float | None]) -> Counter[int]:
        grid, strategy = grid_of(10), fair(selector, folder=tmp_path / name)
        suspect = next(node for node, partition in grid.partitions.items() if partition == 7)

        def fault(question: Message, reply: Message) -> list[Message]:
            loss = loss_of_7(strategy)
            return [reply] if loss is None else list(saying(train_loss=loss)(question, reply))

        grid.faults[suspect] = fault
        play(strategy, grid, 30)
        return Counter(chain(*cohorts(tmp_path / name)))

    lying = picked("lying", lambda strategy: 1e9)
    if isinstance(selector, Uniform | DivFL | UnionFL | Rota):
        assert lying == picked("honest", lambda strategy: None), "the loss is not even looked at"
    else:
        assert lying[7] <= picked("highest", highest_of_others)[7]


def highest_of_others(strategy: FairSelection) -> float | None:
    losses = strategy.clients.signals(None, []).losses[[0, 1, 2, 3, 4, 5, 6, 8, 9]]
    return None if np.isnan(losses).all() else float(np.nanmax(losses))


# Asking


def test_newcomers_are_asked_who_they_are_once() -> None:
    grid, strategy = grid_of(), fair(Rota(), probe="newcomers")
    play(strategy, grid, 2)
    assert sorted(grid.asked_to("query.equifl")) == sorted(grid.partitions)
    assert strategy.clients.of(sorted(grid.partitions, key=grid.partitions.__getitem__)).tolist() == list(range(8))


def test_everyone_is_asked_for_fresh_signals_before_every_round() -> None:
    grid, strategy = grid_of(), fair(SubTrunc(), probe="everyone")
    play(strategy, grid, 2)
    assert len(grid.asked_to("query.equifl")) == 16
    signals = strategy.clients.signals(2, [])
    assert signals.knows_update.all()
    assert signals.knows_loss.all()


def test_a_client_that_cannot_be_asked_is_none_the_worse(caplog: pytest.LogCaptureFixture) -> None:
    grid = grid_of()
    for node in grid.partitions:
        grid.faults[node] = lambda question, reply: (
            failing(question, reply) if question.metadata.message_type.startswith("query") else [reply]
        )
    with caplog.at_level(logging.WARNING, "flwr"):
        result = play(fair(Rota(), probe="newcomers"), grid, 1)
    assert "did not answer the probe: out of memory" in caplog.text
    assert result.arrays is not None


# Stopping and going on


@pytest.mark.filterwarnings("ignore:no client has sent")  # in the first round nobody has
@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_a_resumed_run_chooses_as_an_unbroken_one(selector: Selector, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    unbroken = play(fair(selector, folder=whole, probe="newcomers"), grid_of(), 6)
    first = fair(selector, folder=parts, probe="newcomers")
    play(first, grid_of(first=1000), 3)
    second = FairSelection.resume(
        parts, FedAvg(), selector, k=3, identity="partition-id", patience=0.5, probe="newcomers"
    )
    assert second.rounds_played == 3
    result = play(second, grid_of(first=7000), 3, second.arrays)
    assert cohorts(parts) == cohorts(whole)
    assert [row["round"] for row in rows(parts)] == list(range(6))
    for ours, theirs in zip(result.arrays.values(), unbroken.arrays.values(), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


def test_a_folder_is_neither_overwritten_nor_resumed_with_other_settings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no finished round; start with FairSelection"):
        FairSelection.resume(tmp_path / "new", FedAvg(), Rota(), k=3)
    assert not (tmp_path / "new").exists()
    fair(Rota(), folder=tmp_path / "may", resume=True)._journal.close()  # there may be something, and there is not
    first = fair(Rota(), folder=tmp_path / "run")
    play(first, grid_of(), 1)
    with pytest.raises(ValueError, match="holds a run; resume=True continues it"):
        fair(Rota(), folder=tmp_path / "run")
    with pytest.raises(ValueError, match="per_round: 3 there, 4 here"):
        FairSelection.resume(tmp_path / "run", FedAvg(), Rota(), k=4, identity="partition-id")


def halved(losses: Any) -> Any:
    return 0.5 * losses


def test_a_function_has_the_same_name_in_every_process(tmp_path: Path) -> None:
    play(fair(SubTrunc(phi=halved), folder=tmp_path), grid_of(), 1)
    config = json.loads((tmp_path / "config.json").read_text())["config"]
    assert config["selectors"]["subtrunc"]["phi"] == "tests.flower.test_selection:halved"


def test_a_row_without_its_checkpoint_is_played_again(tmp_path: Path) -> None:
    first = fair(Rota(), folder=tmp_path)
    play(first, grid_of(), 2)
    with (tmp_path / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(rows(tmp_path)[-1] | {"round": 2}) + "\n")
    second = FairSelection.resume(tmp_path, FedAvg(), Rota(), k=3, identity="partition-id", patience=0.5)
    play(second, grid_of(), 1, second.arrays)
    assert [row["round"] for row in rows(tmp_path)] == [0, 1, 2]


# Bad settings


@pytest.mark.parametrize(
    ("inner", "options", "words"),
    [
        (FedAvg(fraction_train=0.1), {}, "FedAvg.fraction_train: 0.1 is not allowed; allowed: 1.0"),
        (FedAvg(min_available_nodes=20), {}, "FedAvg.min_available_nodes: 20 is not allowed; allowed: at most k = 3"),
        (FedAvg(min_train_nodes=5), {}, "FedAvg.min_train_nodes: 5 is not allowed"),
        (
            flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_train=0.5), 1.0, 1.0, 3),
            {},
            "FedAvg.fraction_train: 0.5",
        ),
        (
            flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 5),
            {},
            "num_sampled_clients: 5 is not allowed; allowed: k = 3",
        ),
        (FedAvg(), {"k": 0}, "k: 0 is not allowed"),
        (None, {"strategy": "fedavg"}, "strategy: 'fedavg' is not allowed"),
        (FedAvg(), {"probe": "sometimes"}, "probe: 'sometimes' is not allowed"),
        (FedAvg(), {"patience": -1}, "patience: -1 is not allowed"),
    ],
)
def test_bad_settings_are_refused_at_once(inner: Any, options: dict[str, Any], words: str) -> None:
    inner = options.pop("strategy", inner)
    with pytest.raises(ValueError) as caught:
        fair(Rota(), inner, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize("selector", [Rota, "rota", None])
def test_a_selector_is_an_object_that_selects(selector: Any) -> None:
    with pytest.raises(ValueError, match=r"selector: .* is not allowed; allowed: an object with a `select`"):
        fair(selector)


def test_after_a_resume_a_missing_loss_is_set_aside_too(tmp_path: Path) -> None:
    play(fair(SubTrunc(), folder=tmp_path), grid_of(), 3)
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, without("train_loss"))
    resumed = fair(SubTrunc(), folder=tmp_path, resume=True)
    play(resumed, grid, 1, resumed.arrays)
    assert resumed.rounds_played == 4


def test_a_run_is_not_resumed_without_its_guard(tmp_path: Path) -> None:
    play(fair(Rota(), folder=tmp_path), grid_of(), 1)
    with pytest.raises(ValueError, match=r"flower\.guard: true there, false here"):
        fair(Rota(), folder=tmp_path, resume=True, guard=False)


def test_distances_take_less_memory_than_by_default() -> None:
    def limit(selector: Any) -> int:
        chosen: Any = FairSelection(FedAvg(), selector, k=2).selector
        return int(getattr(chosen, "inner", chosen).memory_limit)

    assert limit(SubTrunc()) == limit(UnionFL()) == 2**27
    assert limit(DivFL(memory_limit=2**31)) == 2**31
    assert FairSelection(FedAvg(), SubTrunc(), k=2)._options["memory_limit"] == 2**30  # as it was given
