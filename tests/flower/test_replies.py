import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg

from equifl import PowerOfChoice, Rota, SubTrunc, Uniform
from tests.flower.federation import initial_arrays
from tests.flower.pretend_grid import (
    PretendGrid,
    failing,
    fair,
    grid_of,
    play,
    rows,
    saying,
    silent,
    twice,
    weighing,
    without,
)

pytestmark = pytest.mark.usefixtures("inside_a_run")


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


def grid_of_others() -> PretendGrid:
    def renamed(question: Message, reply: Message) -> list[Message]:
        if reply.content.array_records:
            reply.content["arrays"] = ArrayRecord({"tree": reply.content["arrays"]["0"]})
        return [reply]

    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, renamed)
    return grid


def test_who_needs_nothing_looks_at_nothing() -> None:
    def other(question: Message, reply: Message) -> list[Message]:
        if reply.content.array_records:
            reply.content["arrays"] = ArrayRecord([np.frombuffer(b"a tree", np.uint8)])
        return [reply]

    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, other)
    untested = FedAvg(fraction_evaluate=0.0)  # nobody can evaluate a tree here
    assert play(fair(Uniform(), untested), grid, 1).train_metrics_clientapp
    with pytest.raises(ValueError, match="it returned none of the floating-point arrays that were sent"):
        play(fair(Rota()), grid_of_others(), 1)


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
    assert "none of 3 nodes sent a usable reply; the model is unchanged" in caplog.text
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


def test_after_a_resume_a_missing_loss_is_set_aside_too(tmp_path: Path) -> None:
    play(fair(SubTrunc(), folder=tmp_path), grid_of(), 3)
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, without("train_loss"))
    resumed = fair(SubTrunc(), folder=tmp_path, resume=True)
    play(resumed, grid, 1, resumed.arrays)
    assert resumed.rounds_played == 4
