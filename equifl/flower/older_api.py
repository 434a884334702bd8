"""Clients, parameters and results of the older Flower API, as the newer one has them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from equifl._numerics.checks import require
from equifl.flower.wrapped import chain


class PartOfClients(ClientManager):
    """The clients that a strategy may see. Unlike Flower's, it never waits: where it has too few, it has none."""

    def __init__(self, clients: Mapping[int, ClientProxy]) -> None:
        self._clients = {proxy.cid: proxy for proxy in clients.values()}

    def num_available(self) -> int:
        """How many there are."""
        return len(self._clients)

    def register(self, client: ClientProxy) -> bool:
        """Not here: Flower registers clients at its own manager."""
        return False

    def unregister(self, client: ClientProxy) -> None:
        """Not here, either."""

    def all(self) -> dict[str, ClientProxy]:
        """All of them, by id."""
        return dict(self._clients)

    def wait_for(self, num_clients: int, timeout: int = 0) -> bool:
        """Whether there are as many."""
        return len(self._clients) >= num_clients

    def sample(self, num_clients: int, min_num_clients: int | None = None, criterion: Any = None) -> list[ClientProxy]:
        """So many of them at random, or none where there are too few."""
        there = [proxy for proxy in self._clients.values() if criterion is None or criterion.select(proxy)]
        enough = len(there) >= num_clients and len(self._clients) >= (min_num_clients or num_clients)
        return random.sample(there, num_clients) if enough else []


@dataclass(frozen=True)
class _Message:
    """What `Clients` reads of a message."""

    metadata: Any
    content: RecordDict

    def has_error(self) -> bool:
        return False


def message_of(
    node: int, parameters: Parameters | None, metrics: Mapping[str, Any] | None = None, config: Any = None
) -> Any:
    """A result as a reply of the newer API."""
    records: dict[str, Any] = {"metrics": MetricRecord(dict(metrics or {})), "config": ConfigRecord(config or {})}
    if parameters is not None:
        records["arrays"] = arrays_of_parameters(parameters)
    return _Message(SimpleNamespace(src_node_id=node), RecordDict(records))


def arrays_of_parameters(parameters: Parameters) -> ArrayRecord:
    """The parameters, without a copy."""
    tensors = enumerate(parameters.tensors)
    return ArrayRecord({str(i): Array("", (), parameters.tensor_type, tensor) for i, tensor in tensors})


def node_of(proxy: ClientProxy) -> int:
    """The id of a client's node."""
    return int(getattr(proxy, "node_id", proxy.cid))


def is_number(value: Any) -> bool:
    """Whether a metric is one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def require_arrays(where: str, parameters: Parameters) -> None:
    """Raise ValueError for parameters that are no arrays of NumPy, such as the trees of FedXgbBagging."""
    kind = parameters.tensor_type
    allowed = "'numpy.ndarray', as ndarrays_to_parameters writes them; updates of anything else, such as the trees of "
    allowed += "FedXgbBagging, cannot be computed: use such a strategy without FairSelection"
    require(f"{where}.tensor_type", kind, kind == "numpy.ndarray", allowed)


def require_open(strategy: Strategy, k: int) -> None:
    """Raise ValueError for a strategy that would sample among the selected clients, or wait for more than k."""
    what = "a flwr.server.strategy.Strategy; for those of flwr.serverapp.strategy there is equifl.flower.FairSelection"
    require("strategy", strategy, isinstance(strategy, Strategy), what)
    for part in chain(strategy):
        name = type(part).__name__
        given = getattr(part, "initial_parameters", None)
        if given is not None:
            require_arrays(f"{name}.initial_parameters", given)
        fraction = getattr(part, "fraction_fit", 1.0)
        why = "1.0, because FairSelection chooses the clients and the strategy takes them all"
        require(f"{name}.fraction_fit", fraction, fraction == 1.0, why)
        for field in ("min_fit_clients", "min_available_clients"):
            least = getattr(part, field, 0)
            require(f"{name}.{field}", least, least <= k, f"at most k = {k}: it sees no more clients than that")
