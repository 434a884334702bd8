"""equifl: which clients train next in federated learning, so that the model serves everybody evenly."""

from equifl.selectors import DivFL, PowerOfChoice, Rota, Selector, SubTrunc, Uniform, UnionFL
from equifl.signals import Signals
from equifl.store import SignalStore

__version__ = "0.1.0"

__all__ = [
    "DivFL",
    "PowerOfChoice",
    "Rota",
    "Selector",
    "SignalStore",
    "Signals",
    "SubTrunc",
    "Uniform",
    "UnionFL",
]
