"""Whether a strategy averages weights, and replies whose average is a model that is given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from flwr.app import Array, ArrayRecord, Message
from numpy.typing import NDArray

from equifl._numerics.checks import require
from equifl.flower.clients import Clients
from equifl.flower.replies import TrainNews, decoded
from equifl.flower.wrapped import chain
from equifl.hosts.server_rule import Reply, ServerRule
from equifl.hosts.updates import RUNNING_STATISTICS, Updates

Kind = Literal["weights", "delta"]  # what replies hold

# Flower's own strategies whose next model follows from the weighted mean of the replies alone.
OF_THE_MEAN = ("FedAvg", "FedProx", "FedAvgM", "FedOpt", "FedAdam", "FedAdagrad", "FedYogi")


def require_mean(strategy: Any) -> None:
    """Raise ValueError for a strategy that does not make its model of the mean of the replies, and of nothing else."""
    for part in chain(strategy):
        theirs = next((each.__name__ for each in _aggregating(part) if _is_flowers(each)), "")
        allowed = f"{', '.join(OF_THE_MEAN)}, or a class of yours that extends one of them: an aggregator takes the"
        require("strategy", type(part).__name__, theirs in OF_THE_MEAN, f"{allowed} place of the mean that they make")


def kinds_read(replies: str, leave_out: str | None, strategy: Any, method: str = "aggregate_train") -> Updates:
    """How updates are read from replies of a kind; ValueError for strategies that would not add differences.

    Those of Flower take the mean of what they get for the model; `method` is where a class of the user's adds it.
    """
    require("replies", replies, replies in get_args(Kind), " or ".join(map(repr, get_args(Kind))))
    for part in chain(strategy) if replies == "delta" else ():
        allowed = f"'weights', because {type(part).__name__} would take the mean of differences for the model; give"
        allowed += (
            " equifl.flower.FairSelection an aggregator, such as BySize(), or a strategy of yours that adds them"
        )
        require("replies", replies, not _is_flowers(_aggregating(part, method)[0]), allowed)
    return Updates(leave_out, difference=replies == "delta")


def kinds_changed(replies: str, leave_out: str | None) -> dict[str, Any]:
    """These settings for a configuration, but for the usual ones: folders of earlier versions lack them."""
    given, usual = (
        {"replies": replies, "leave_out": leave_out},
        {"replies": "weights", "leave_out": RUNNING_STATISTICS},
    )
    return {key: value for key, value in given.items() if value != usual[key]}


def next_model(
    rule: ServerRule, clients: Clients, sent: ArrayRecord, news: Mapping[int, TrainNews], chosen: Sequence[int]
) -> dict[str, NDArray[Any]]:
    """What a server rule makes of a model and the usable replies to it, of the nodes that were chosen."""
    replies = [
        Reply(client, one.arrays, one.size or 1.0, math.nan if one.loss is None else one.loss)
        for client, one in zip(clients.of(news).tolist(), news.values(), strict=True)
    ]
    model = {key: decoded(array) for key, array in sent.items()}
    cohort = clients.of(chosen)
    return rule.step(model, replies, len(clients), cohort, clients.free)


def fill_in(replies: Iterable[Message], model: Mapping[str, NDArray[Any]]) -> None:
    """Put these arrays into all replies, so that their average is this model, whatever their weights are."""
    record = ArrayRecord({name: Array(array) for name, array in model.items()})
    for reply in replies:
        for name in list(reply.content.array_records):
            reply.content[name] = record


def _aggregating(part: Any, method: str = "aggregate_train") -> list[type]:
    """The classes of a strategy that say how it aggregates, the one that is called first."""
    return [each for each in type(part).__mro__ if method in vars(each)]


def _is_flowers(kind: type) -> bool:
    return kind.__module__.startswith("flwr.")
