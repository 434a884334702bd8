"""Server rules: from the replies of a cohort to one step of the server, one rule a file."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from equifl.aggregators.base import Aggregator, Replies
from equifl.aggregators.by_loss import ByLoss
from equifl.aggregators.by_size import BySize
from equifl.aggregators.mean import Mean

AGGREGATORS: Mapping[str, type[Aggregator]] = {"mean": Mean, "size": BySize, "loss": ByLoss}


def make_aggregator(name: str, options: Mapping[str, Any]) -> Aggregator:
    """The rule of this name, with those of the options that it takes."""
    rule = AGGREGATORS[name]
    return rule(**{key: value for key, value in options.items() if key in signature(rule).parameters})


__all__ = ["AGGREGATORS", "Aggregator", "ByLoss", "BySize", "Mean", "Replies", "make_aggregator"]
