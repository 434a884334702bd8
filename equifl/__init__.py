"""equifl: client selection for fair federated learning."""

from equifl.objectives import explain
from equifl.selectors import DivFL, PowerOfChoice, Rota, Selector, SubTrunc, Uniform, UnionFL
from equifl.signals import Signals
from equifl.sketch import CountSketch
from equifl.store import SignalStore

__version__ = "0.1.0"

__all__ = [
    "CountSketch",
    "DivFL",
    "PowerOfChoice",
    "Rota",
    "Selector",
    "SignalStore",
    "Signals",
    "SubTrunc",
    "Uniform",
    "UnionFL",
    "explain",
]
