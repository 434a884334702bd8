"""The wrapped strategy: checks of its settings, and the part of the grid that it sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from flwr.app import Message
from flwr.server.strategy import Strategy as OlderStrategy
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyClientSideAdaptiveClipping, FedAvg, Strategy

from equifl._numerics.checks import require

_CLIPPED = "norm_bit"  # the metric by which a client says whether it clipped its update


class TooFewNodes(Exception):  # noqa: N818
    """The wrapped strategy waits for more nodes than it can see."""


class Relay(Grid):
    """A grid that does what another one does."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def get_node_ids(self) -> Iterable[int]:
        """The visible nodes."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """The visible nodes, with Flower's information on each."""
        return nodes_of(self._grid)

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(self, *args: Any, **options: Any) -> Message:
        return self._grid.create_message(*args, **options)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self._grid.send_and_receive(messages, timeout=timeout)


class PartOfGrid(Relay):
    """A grid on which only some nodes are online.

    Flower's strategies poll until enough nodes are online. From the fourth poll on, once `patience` seconds have
    passed, it raises `TooFewNodes`, so that a strategy cannot wait for ever.
    """

    def __init__(self, grid: Grid, shown: Callable[[], list[int]], patience: float) -> None:
        super().__init__(grid)
        self._shown = shown
        self._until = time.monotonic() + patience
        self._times_asked = 0

    def get_node_ids(self) -> Iterable[int]:
        """The visible nodes."""
        self._times_asked += 1
        if self._times_asked > 3 and time.monotonic() > self._until:
            raise TooFewNodes
        return self._shown()

    def get_nodes(self) -> Iterable[Any]:
        """The visible nodes, with Flower's information on each."""
        shown = set(self.get_node_ids())
        return [node for node in super().get_nodes() if node.node_id in shown]


def nodes_of(grid: Grid) -> Iterable[Any]:
    """Flower's information on each node; only ids, in versions without `get_nodes`."""
    if hasattr(grid, "get_nodes"):
        return grid.get_nodes()
    return [SimpleNamespace(node_id=node_id) for node_id in grid.get_node_ids()]


def require_open(strategy: Strategy, k: int, extra: int = 0) -> None:
    """Raise ValueError for a strategy that would sample among the selected nodes, or wait for more than k."""
    what = "a flwr.serverapp.strategy.Strategy; for those of flwr.server.strategy there is equifl.flower.legacy"
    require("strategy", strategy, isinstance(strategy, Strategy), what)
    for part in chain(strategy):
        name = type(part).__name__
        fraction = getattr(part, "fraction_train", 1.0)
        why = "1.0, because FairSelection chooses the nodes and the strategy takes them all"
        require(f"{name}.fraction_train", fraction, fraction == 1.0, why)
        for field in ("min_train_nodes", "min_available_nodes"):
            least = getattr(part, field, 0)
            require(f"{name}.{field}", least, least <= k, f"at most k = {k}: it sees no more nodes than that")
        sampled = getattr(part, "num_sampled_clients", k)
        require(f"{name}.num_sampled_clients", sampled, sampled == k, f"k = {k}")
        exactly = hasattr(part, "num_sampled_clients")
        require("extra", extra, not (extra and exactly), f"0 with {name}, whose noise is for k replies")


@dataclass(frozen=True)
class Reads:
    """What a strategy reads of replies: whether it averages them, and the metrics that it weights them by."""

    averages: bool
    weight: str | None
    loss: str | None
    own: frozenset[str]  # "train", "evaluate": where a function of the user averages the metrics
    by_name: frozenset[str] = frozenset()  # where code of the user reads them, which may name some
    others: tuple[str, ...] = ()  # metrics of training replies that it cannot do without, beside weight and loss
    equal_weights: bool = False  # whether it takes only those

    @classmethod
    def of(cls, strategy: Strategy) -> Reads:
        """As Flower's own strategies name it; nothing for one that is written anew."""
        parts = list(chain(strategy))
        weight, loss = (
            next((getattr(part, name) for part in parts if hasattr(part, name)), None)
            for name in ("weighted_by_key", "train_loss_key")
        )
        functions = [(k, getattr(part, f"{k}_metrics_aggr_fn", None)) for part in parts for k in ("train", "evaluate")]
        own = {kind for kind, function in functions if function and not _is_flowers(function)}
        methods = [(k, getattr(type(part), f"aggregate_{k}")) for part in parts for k in ("train", "evaluate")]
        by_name = own | {kind for kind, method in methods if not _is_flowers(method)}
        bits = any(isinstance(part, DifferentialPrivacyClientSideAdaptiveClipping) for part in parts)
        averages, others = any(isinstance(part, FedAvg) for part in parts), (_CLIPPED,) if bits else ()
        return cls(averages, weight, loss, frozenset(own), frozenset(by_name), others, accounts(strategy))


def _is_flowers(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("flwr.")


def least_nodes(strategy: Strategy, what: str) -> int:
    """The number of nodes a strategy waits for."""
    wanted = [getattr(part, f"min_{field}_nodes", 0) for part in chain(strategy) for field in (what, "available")]
    if what == "train" and accounts(strategy):  # a wrapper with an accountant refuses any other number
        wanted += [getattr(part, "num_sampled_clients", 0) for part in chain(strategy)]
    return max(wanted)


def accounts(strategy: Strategy) -> bool:
    """Whether it counts what privacy its rounds cost."""
    return any(getattr(part, "accountant", None) is not None for part in chain(strategy))


def forget_round(strategy: Strategy, number: int) -> None:
    """Forget that this round was begun: a wrapper with an accountant refuses to begin it again."""
    for part in chain(strategy):
        pending = getattr(part, "_pending_events", None)
        if isinstance(pending, dict):
            pending.pop(number, None)


def chain(strategy: Any) -> Iterator[Any]:
    """The strategy, and those that it wraps in turn, as the attribute `strategy`."""
    while strategy is not None:
        yield strategy
        strategy = inner_of(strategy)


def inner_of(strategy: Any) -> Any:
    """The strategy that this one wraps, of either API; None if its attribute `strategy` is no strategy."""
    inner = getattr(strategy, "strategy", None)
    return inner if isinstance(inner, Strategy | OlderStrategy) else None
