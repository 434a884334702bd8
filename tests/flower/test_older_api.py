from typing import Any

import numpy as np
import pytest
from flwr.common import ndarrays_to_parameters
from flwr.server.strategy import FedAvg

from equifl.flower.older_api import PartOfClients, arrays_of_parameters, is_number, message_of, node_of, require_open
from equifl.flower.replies import arrays_of, decoded
from tests.flower.test_legacy import PretendClient

CLIENTS = {node: PretendClient(node, node) for node in (3, 5, 8)}


def test_a_part_of_the_clients_never_waits() -> None:
    part = PartOfClients(CLIENTS)
    assert part.num_available() == 3
    assert {node_of(proxy) for proxy in part.sample(3)} == {3, 5, 8}
    assert len(part.sample(2, min_num_clients=3)) == 2
    assert part.sample(4) == []
    assert part.sample(2, min_num_clients=4) == []
    assert (part.wait_for(3), part.wait_for(4)) == (True, False)
    assert sorted(part.all()) == ["3", "5", "8"]


def test_a_criterion_is_heeded() -> None:
    class Odd:
        def select(self, client: PretendClient) -> bool:
            return node_of(client) % 2 == 1

    assert {node_of(proxy) for proxy in PartOfClients(CLIENTS).sample(2, criterion=Odd())} == {3, 5}


def test_parameters_and_results_are_those_of_the_newer_api() -> None:
    arrays: list[Any] = [np.arange(3, dtype=np.float32), np.ones((2, 2))]
    parameters = ndarrays_to_parameters(arrays)
    for made, given in zip(arrays_of_parameters(parameters).values(), arrays, strict=True):
        np.testing.assert_array_equal(decoded(made), given)
    message = message_of(7, parameters, {"num-examples": 4}, {"partition-id": 2})
    assert message.metadata.src_node_id == 7
    assert list(arrays_of(message)["arrays"]) == ["0", "1"]
    assert not message.has_error()


def test_what_is_a_number() -> None:
    assert [is_number(value) for value in (1, 0.5, True, "1", b"1", None)] == [True, True, False, False, False, False]


def test_a_strategy_must_take_all_that_it_sees() -> None:
    require_open(FedAvg(), 2)
    with pytest.raises(ValueError, match=r"FedAvg\.fraction_fit"):
        require_open(FedAvg(fraction_fit=0.1), 2)
