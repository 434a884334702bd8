from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower

from equifl import DivFL, PowerOfChoice, Rota, Selector, SubTrunc, Uniform, UnionFL
from equifl.flower import FairSelection
from tests.flower.pretend_grid import (
    ALL,
    Fault,
    fair,
    grid_of,
    play,
    saying,
    weighing,
)

pytestmark = pytest.mark.usefixtures("inside_a_run")


@pytest.mark.parametrize("weight", [1e36, 1e20])
@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_absurd_weights_stop_neither_the_run_nor_the_others(selector: Selector, weight: float) -> None:
    """A client that is unlike all others may be chosen often; but distances between these must go on to count."""

    def picked(weight: float) -> Counter[int]:
        grid = grid_of(10)
        grid.faults[next(node for node, partition in grid.partitions.items() if partition == 7)] = weighing(weight)
        play(fair(selector, flower.FedMedian()), grid, 24)
        return Counter(map(grid.partitions.__getitem__, grid.asked_to("train")))

    absurd, odd = picked(weight), picked(0.5)
    assert absurd[7] <= max(odd[7] + 1, 24 * 3 / 10), "more than its share of the seats"
    assert len(absurd) == 10


def highest_of_others(strategy: FairSelection) -> float | None:
    losses = strategy.clients.signals(None, []).losses[[0, 1, 2, 3, 4, 5, 6, 8, 9]]
    return None if np.isnan(losses).all() else float(np.nanmax(losses))


@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_an_absurd_loss_wins_no_seat(selector: Selector) -> None:
    def picked(loss_of_7: Callable[[FairSelection], float | None]) -> Counter[int]:
        grid, strategy = grid_of(10), fair(selector)
        suspect = next(node for node, partition in grid.partitions.items() if partition == 7)

        def fault(question: Message, reply: Message) -> list[Message]:
            loss = loss_of_7(strategy)
            return [reply] if loss is None else list(saying(train_loss=loss)(question, reply))

        grid.faults[suspect] = fault
        play(strategy, grid, 30)
        return Counter(map(grid.partitions.__getitem__, grid.asked_to("train")))

    lying = picked(lambda strategy: 1e9)
    if isinstance(selector, Uniform | DivFL | UnionFL | Rota):
        assert lying == picked(lambda strategy: None), "the loss is not even looked at"
    else:
        assert lying[7] <= picked(highest_of_others)[7]


def exaggerating(factor: float) -> Fault:
    """A reply with the update, the loss and the number of examples times this."""

    def fault(question: Message, reply: Message) -> list[Message]:
        if not reply.content.array_records:
            return [reply]
        sent: Any = question.content["arrays"]
        own: Any = reply.content["arrays"]
        arrays = [
            old.numpy() + factor * (new.numpy() - old.numpy())
            for old, new in zip(sent.values(), own.values(), strict=True)
        ]
        metrics: Any = MetricRecord(dict(next(iter(reply.content.metric_records.values()))))
        for name in ("train_loss", "num-examples"):
            metrics[name] = type(metrics[name])(factor * metrics[name])
        return [Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=question)]

    return fault


@pytest.mark.slow
def test_a_client_that_exaggerates_everything_is_held_to_its_share_unless_the_guard_is_off() -> None:
    """10 nodes, 3 of them in each of 30 rounds: a share is 9 seats."""

    def seats(selector: Selector, *, guard: bool) -> Counter[int]:
        grid = grid_of(10)
        liar = next(node for node, partition in grid.partitions.items() if partition == 7)
        grid.faults[liar] = exaggerating(50)
        play(fair(selector, flower.FedMedian(), guard=guard), grid, 30)
        return Counter(map(grid.partitions.__getitem__, grid.asked_to("train")))

    for selector in (PowerOfChoice(), DivFL(), SubTrunc(), UnionFL()):
        assert seats(selector, guard=True)[7] <= 2 * 9, selector
    assert seats(PowerOfChoice(), guard=False)[7] > 2 * 9
    assert set(seats(Rota(), guard=True).values()) == {9}


def test_what_was_sent_is_aggregated_so_the_wrapped_strategy_must_bear_it() -> None:
    def largest(strategy: flower.FedAvg) -> float:
        grid = grid_of(10)
        liar = next(node for node, partition in grid.partitions.items() if partition == 7)
        grid.faults[liar] = exaggerating(1e6)
        found = fair(Rota(), strategy)
        play(found, grid, 4)  # everybody is selected once, the liar too
        assert found.arrays is not None
        return max(float(np.abs(array.numpy()).max()) for array in found.arrays.values())

    assert largest(flower.FedAvg()) > 1e3
    assert largest(flower.FedMedian()) < 1e3
