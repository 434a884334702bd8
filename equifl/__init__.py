"""equifl: client selection for fair federated learning."""

from typing import TYPE_CHECKING, Any

from equifl.experiment.callbacks import Callback
from equifl.experiment.results import Results, load_results
from equifl.objectives import explain
from equifl.selectors import (
    ActiveFL,
    Balanced,
    ClusteredSampling,
    DivFL,
    FedGS,
    HiCSFL,
    LabelBalance,
    Oort,
    OptimalSampling,
    PowerOfChoice,
    Reshuffle,
    Rota,
    Selector,
    SubTrunc,
    Uniform,
    UnionFL,
)
from equifl.signals import Signals
from equifl.sketch import CountSketch
from equifl.store import SignalStore

if TYPE_CHECKING:
    from equifl.sim.simulation import simulate as simulate

__version__ = "0.2.0"

__all__ = [
    "ActiveFL",
    "Balanced",
    "Callback",
    "ClusteredSampling",
    "CountSketch",
    "DivFL",
    "FedGS",
    "HiCSFL",
    "LabelBalance",
    "Oort",
    "OptimalSampling",
    "PowerOfChoice",
    "Reshuffle",
    "Results",
    "Rota",
    "Selector",
    "SignalStore",
    "Signals",
    "SubTrunc",
    "Uniform",
    "UnionFL",
    "explain",
    "load_results",
]


def __getattr__(name: str) -> Any:
    """`equifl.simulate`, when it is asked for: PyTorch takes a second, and not everybody has it."""
    if name == "simulate":
        from equifl.sim.simulation import simulate

        return simulate
    raise AttributeError(f"module 'equifl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "simulate"])
