"""From the replies of a cohort to one step of the server: one rule, one file."""

from equifl.aggregators.base import Aggregator, Replies
from equifl.aggregators.by_loss import ByLoss
from equifl.aggregators.by_size import BySize
from equifl.aggregators.mean import Mean

__all__ = ["Aggregator", "ByLoss", "BySize", "Mean", "Replies"]
