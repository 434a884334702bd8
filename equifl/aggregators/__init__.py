"""Server rules: from the replies of a cohort to one step of the server, one rule a file."""

from collections.abc import Mapping

from equifl.aggregators.base import Aggregator, Replies
from equifl.aggregators.by_loss import ByLoss
from equifl.aggregators.by_selector import BySelector
from equifl.aggregators.by_size import BySize
from equifl.aggregators.mean import Mean
from equifl.aggregators.memory import Memory
from equifl.aggregators.momentum import Momentum
from equifl.aggregators.q_fedavg import QFedAvg

# By the names they have in configurations.
AGGREGATORS: Mapping[str, type[Aggregator]] = {
    "mean": Mean,
    "size": BySize,
    "loss": ByLoss,
    "q_fedavg": QFedAvg,
    "momentum": Momentum,
    "memory": Memory,
    "selector": BySelector,
}

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "ByLoss",
    "BySelector",
    "BySize",
    "Mean",
    "Memory",
    "Momentum",
    "QFedAvg",
    "Replies",
]
