from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Message
from flwr.serverapp import strategy as flower

from equifl import DivFL, Rota, Selector, Uniform, UnionFL
from equifl.flower import FairSelection
from tests.flower.pretend_grid import (
    ALL,
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
