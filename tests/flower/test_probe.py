import logging
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord

from equifl import PowerOfChoice, Rota, SubTrunc
from tests.flower.pretend_grid import failing, fair, grid_of, play, rows

pytestmark = pytest.mark.usefixtures("inside_a_run")


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
    assert "is set aside: it reports an error: out of memory" in caplog.text
    assert result.arrays is not None


@pytest.mark.parametrize(
    "answer",
    [
        {"metrics": MetricRecord({"loss": [1.0], "num-examples": 60})},
        {"metrics": MetricRecord({"loss": 10**400, "num-examples": 60})},
        {"metrics": MetricRecord({"loss": 1.0, "num-examples": 60, "sketch": [1.0] * 255})},
        {"metrics": MetricRecord({"loss": 1.0, "num-examples": 60, "sketch": [10**400] * 256})},
        {"metrics": MetricRecord({"loss": 1.0, "num-examples": 60, "sketch": [float("nan")] * 256})},
        {"metrics": MetricRecord({"partition-id": 10**5000})},
        {"metrics": ConfigRecord({"loss": b"1", "num-examples": "60"})},
    ],
    ids=["a list", "no float", "a short sketch", "a huge sketch", "a nan sketch", "a huge identity", "no metrics"],
)
def test_one_answer_ends_nothing(answer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fault(question: Message, reply: Message) -> list[Message]:
        if question.metadata.message_type.startswith("query"):
            del reply.content["metrics"]
            reply.content.update(answer)
        return [reply]

    grid, strategy = grid_of(), fair(SubTrunc(), probe="everyone", folder=tmp_path)
    node = next(node for node, partition in grid.partitions.items() if partition == 5)
    grid.faults[node] = fault
    with caplog.at_level(logging.WARNING, "flwr"):
        play(strategy, grid, 1)
    assert f"the answer to a probe of node {node}" in caplog.text
    assert rows(tmp_path)[0]["set_aside"] == strategy.clients.of([node]).tolist()
    assert strategy.clients.signals(1, []).knows_update.sum() == 7


def test_nodes_without_any_identity_can_be_asked() -> None:
    grid, strategy = grid_of(), fair(PowerOfChoice(), probe="newcomers", identity=None)
    play(strategy, grid, 1)
    assert strategy.clients.signals(1, []).knows_loss.all()
