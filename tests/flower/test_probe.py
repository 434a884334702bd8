import logging

import pytest

from equifl import Rota, SubTrunc
from tests.flower.pretend_grid import failing, fair, grid_of, play

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
    assert "did not answer the probe: out of memory" in caplog.text
    assert result.arrays is not None
