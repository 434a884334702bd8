import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg

from equifl import DivFL, Rota, SubTrunc, Uniform
from equifl.aggregators import ByLoss, BySelector, BySize, Mean, Memory
from equifl.experiment.checkpoint import read_checkpoint
from equifl.flower import FairSelection
from tests.flower.federation import initial_arrays
from tests.flower.pretend_grid import PretendGrid, cohorts, fair, grid_of, play, silent, without
from tests.own_selector import Mine

pytestmark = pytest.mark.usefixtures("inside_a_run")


def model_of(arrays: Any) -> Any:
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])


def differing(grid: PretendGrid) -> PretendGrid:
    """The same clients, who send differences."""

    def difference(question: Message, reply: Message) -> list[Message]:
        if reply.content.array_records:
            sent: Any = question.content["arrays"]
            arrays: Any = reply.content["arrays"]
            moved = {name: Array(array.numpy() - sent[name].numpy()) for name, array in arrays.items()}
            reply.content["arrays"] = ArrayRecord(moved)
        return [reply]

    grid.faults = dict.fromkeys(grid.partitions, difference)
    return grid


class Adds(FedAvg):
    """A strategy for clients that send differences."""

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        self.sent = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        moves, metrics = super().aggregate_train(server_round, replies)
        assert moves is not None
        return ArrayRecord({name: Array(self.sent[name] + moves[name].numpy()) for name in self.sent}), metrics


def test_the_rule_that_fedavg_is_changes_nothing(tmp_path: Path) -> None:
    alone = play(fair(Rota(), folder=tmp_path / "alone"), grid_of(), 3)
    with_rule = play(fair(Rota(), aggregator=BySize(), folder=tmp_path / "rule"), grid_of(), 3)
    np.testing.assert_allclose(model_of(with_rule.arrays), model_of(alone.arrays), rtol=1e-4, atol=1e-6)
    metrics = [dict(result.train_metrics_clientapp[3]) for result in (with_rule, alone)]
    assert metrics[0] == pytest.approx(metrics[1])
    assert cohorts(tmp_path / "rule") == cohorts(tmp_path / "alone")


def test_the_memory_of_silent_clients_counts_in_every_step() -> None:
    """FedVARP with all at first, then with one client alone: 1/8 of its change, and the last updates of all."""
    grid, strategy = grid_of(), fair(Uniform(), k=8, aggregator=Memory())
    first = play(strategy, grid, 1).arrays
    before = model_of(first)
    grid.faults = {node: silent for node, partition in grid.partitions.items() if partition != 5}
    after = model_of(play(strategy, grid, 1, first).arrays)
    alone = fair(Uniform(), k=8)
    moved = model_of(play(alone, grid, 1, first).arrays) - before  # FedAvg moves as client 5 does
    last = model_of(play(fair(Uniform(), k=8), only(5), 1).arrays)  # its update of the first round, from 0
    np.testing.assert_allclose(after - before, moved - last + before, rtol=1e-3, atol=1e-5)


def remembered(folder: Path) -> list[bool]:
    """Whether the checkpoint has an update in each row of the rule's memory."""
    state = read_checkpoint(folder / "checkpoint.npz")
    assert state is not None
    return np.any(state["rule.part.updates"], axis=1).tolist()


def test_the_update_of_a_number_that_is_free_again_is_forgotten(tmp_path: Path) -> None:
    """Who it is, is in evaluations alone: a node that restarts trains under a number that was lent to it."""

    def anonymous(question: Message, reply: Message) -> list[Message]:
        hidden = question.metadata.message_type == "train"
        return list(without("partition-id")(question, reply)) if hidden else [reply]

    grid, strategy = grid_of(4), fair(Uniform(), k=4, aggregator=Memory(), folder=tmp_path)
    grid.faults = dict.fromkeys(grid.partitions, anonymous)
    play(strategy, grid, 2)
    old = next(node for node, partition in grid.partitions.items() if partition == 3)
    grid.offline, grid.partitions[9999], grid.faults[9999] = {old}, 3, anonymous
    play(strategy, grid, 1, strategy.arrays)
    assert strategy.clients.of([9999]).tolist() == [3]
    assert remembered(tmp_path) == [True] * 4 + [False], "not what it sent as client 4"


def test_the_update_of_a_node_that_waited_beside_its_old_self_is_forgotten(tmp_path: Path) -> None:
    grid, strategy = grid_of(6), fair(Uniform(), k=7, aggregator=Memory(), folder=tmp_path)
    play(strategy, grid, 2)
    old = next(node for node, partition in grid.partitions.items() if partition == 4)
    grid.faults[old], grid.partitions[9999] = silent, 4  # Flower shows both for a while
    play(strategy, grid, 1, strategy.arrays)
    assert strategy.clients.of([9999]).tolist() == [6]
    assert remembered(tmp_path) == [True] * 7
    grid.offline = {old}
    play(strategy, grid, 1, strategy.arrays)
    assert strategy.clients.of([9999]).tolist() == [4]
    assert remembered(tmp_path) == [True] * 6 + [False]


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_a_number_that_is_free_is_no_client_of_a_rule(q: float) -> None:
    """A node restarts, and has a number of its own until it says which client it is: there are 6, before and after."""

    def after(*, restarts: bool) -> Any:
        grid, strategy = grid_of(6), fair(Mine(), aggregator=Memory(q=q), patience=0)
        arrays = play(strategy, grid, 2).arrays
        if restarts:
            grid.offline = {node for node, partition in grid.partitions.items() if partition == 4}
            grid.partitions[9999] = 4
            messages = strategy.configure_evaluate(1, arrays, ConfigRecord(), grid)
            strategy.clients.usable_evaluations(2, grid.send_and_receive(messages))
        assert (len(strategy.clients), strategy.clients.free) == ((7, 1) if restarts else (6, 0))
        return model_of(play(strategy, grid, 1, arrays).arrays)

    np.testing.assert_allclose(after(restarts=True), after(restarts=False), rtol=1e-5, atol=1e-7)


def only(partition: int) -> PretendGrid:
    grid = grid_of()
    grid.faults = {node: silent for node, mine in grid.partitions.items() if mine != partition}
    return grid


@pytest.mark.parametrize("rule", [Memory(), Memory(q=1.0, keep="float16"), BySelector()])
def test_a_resumed_run_makes_the_model_of_an_unbroken_one(rule: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"probe": "newcomers", "aggregator": rule}
    unbroken = play(fair(DivFL(), folder=tmp_path / "whole", **options), grid_of(), 6)
    play(fair(DivFL(), folder=tmp_path / "parts", **options), grid_of(), 3)
    second = FairSelection.resume(
        tmp_path / "parts", FedAvg(), DivFL(), k=3, identity="partition-id", patience=0.5, **options
    )
    result = play(second, grid_of(first=7000), 3, second.arrays)
    assert cohorts(tmp_path / "parts") == cohorts(tmp_path / "whole")
    np.testing.assert_array_equal(model_of(result.arrays), model_of(unbroken.arrays))


def test_weights_go_with_a_client_whose_reply_says_who_it_is(tmp_path: Path) -> None:
    """Nodes restart with other ids: until they reply, they are clients of their own."""
    strategy = fair(DivFL(), aggregator=BySelector(), folder=tmp_path)
    first = play(strategy, grid_of(), 4).arrays
    result = play(strategy, grid_of(first=7000), 4, first)
    assert max(client for cohort in cohorts(tmp_path)[4:] for client in cohort) < 8
    assert np.isfinite(model_of(result.arrays)).all()


def test_a_run_is_not_resumed_with_another_rule(tmp_path: Path) -> None:
    play(fair(Rota(), aggregator=Memory(), folder=tmp_path), grid_of(), 1)
    for other in (None, Memory(q=1.0)):
        with pytest.raises(ValueError, match=r"flower\.aggregator"):
            fair(Rota(), aggregator=other, folder=tmp_path, resume=True)


@pytest.mark.parametrize("inner", [flower.FedAvgM(), flower.FedAdam(), flower.FedYogi(), flower.FedProx()])
def test_strategies_of_the_mean_take_a_rule(inner: Any) -> None:
    result = play(fair(Rota(), inner, aggregator=Memory()), grid_of(), 3)
    assert np.isfinite(model_of(result.arrays)).all()
    assert result.evaluate_metrics_clientapp[3]["eval_acc"] > 0.2


@pytest.mark.parametrize(
    "inner",
    [
        flower.FedMedian(),
        flower.Krum(num_malicious_nodes=0),
        flower.QFedAvg(client_learning_rate=0.5),
        type("Mine", (flower.FedTrimmedAvg,), {})(),
        flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.01, 5.0, num_sampled_clients=3),
    ],
    ids=lambda inner: type(inner).__name__,
)
def test_strategies_of_another_kind_are_refused_with_a_rule(inner: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"strategy: '{type(inner).__name__}' is not allowed; allowed: FedAvg, FedProx"
    ):
        fair(Rota(), inner, aggregator=Memory())


def test_a_rule_that_needs_losses_sets_replies_without_aside(caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = grid_of(), fair(Uniform(), k=8, aggregator=ByLoss(q=1.0))
    play(strategy, grid, 1)
    node = next(node for node, partition in grid.partitions.items() if partition == 5)
    grid.faults[node] = without("train_loss")
    with caplog.at_level(logging.WARNING, "flwr"):
        result = play(strategy, grid, 1, strategy.arrays)
    assert "(partition-id:5) is set aside: no metric `train_loss`" in caplog.text
    assert np.isfinite(model_of(result.arrays)).all()


def test_differences_are_added_by_a_strategy_that_does_so() -> None:
    weights = fair(SubTrunc())
    play(weights, grid_of(), 3)
    strategy = fair(SubTrunc(), Adds(), replies="delta")
    result = play(strategy, differing(grid_of()), 3)
    assert weights.arrays is not None
    np.testing.assert_allclose(model_of(result.arrays), model_of(weights.arrays), rtol=1e-4, atol=1e-6)
    mine, theirs = strategy.clients.signals(3, []).updates, weights.clients.signals(3, []).updates
    assert mine is not None
    assert theirs is not None
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_differences_are_added_by_a_rule() -> None:
    weights = play(fair(Rota(), aggregator=Mean()), grid_of(), 3)
    result = play(fair(Rota(), aggregator=Mean(), replies="delta"), differing(grid_of()), 3)
    np.testing.assert_allclose(model_of(result.arrays), model_of(weights.arrays), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("inner", [FedAvg(), flower.FedMedian(), flower.Krum(num_malicious_nodes=0)])
def test_flowers_own_strategies_take_no_differences(inner: Any) -> None:
    with pytest.raises(
        ValueError, match=r"replies: 'delta' is not allowed; allowed: 'weights', because .* an aggregator"
    ):
        fair(Rota(), inner, replies="delta")


def test_differences_for_weights_are_noticed_and_weights_for_differences(tmp_path: Path) -> None:
    start = play(fair(Rota()), grid_of(), 8).arrays
    with pytest.raises(
        ValueError, match=r"all replies look like differences .* pass replies='delta' to FairSelection"
    ):
        play(fair(Rota(), Adds()), differing(grid_of()), 1, start)
    with pytest.raises(ValueError, match="all replies look like weights"):
        play(fair(Rota(), Adds(), replies="delta"), grid_of(), 1, start)


def test_what_is_no_part_of_an_update_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Clients that also have batch normalisation: the selector sees what it sees without."""

    def with_statistics(question: Message, reply: Message) -> list[Message]:
        if reply.content.array_records:
            more = {"bn.running_var": Array(np.full(3, 1e6, np.float32)), "steps": Array(np.array([5]))}
            reply.content["arrays"] = ArrayRecord({**reply.content["arrays"], **more})
        return [reply]

    sent = {**initial_arrays(), "bn.running_var": Array(np.ones(3, np.float32)), "steps": Array(np.array([4]))}
    grid, strategy, plain = grid_of(), fair(Rota(), FedAvg(fraction_evaluate=0.0), k=8), fair(Rota(), k=8)
    grid.faults = dict.fromkeys(grid.partitions, with_statistics)
    with caplog.at_level(logging.INFO, "flwr"):
        play(strategy, grid, 1, ArrayRecord(sent))
    play(plain, grid_of(), 1)
    assert "are not in the updates of selection: bn.running_var, steps" in caplog.text
    mine, theirs = strategy.clients.signals(1, []).updates, plain.clients.signals(1, []).updates
    assert mine is not None
    assert theirs is not None
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"replies": "gradients"}, "replies: 'gradients' is not allowed; allowed: 'weights' or 'delta'"),
        ({"leave_out": "("}, r"leave_out: '\(' is not a regular expression"),
        ({"aggregator": "memory"}, "aggregator: 'memory' is not allowed"),
    ],
)
def test_bad_settings_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fair(Rota(), **options)
