"""equifl: client selection for fair federated learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from equifl.experiment.callbacks import Callback
    from equifl.experiment.results import Results, load_results
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


_WHEN_ASKED_FOR = {  # experiments take longer to import than selectors, and simulate needs PyTorch
    "Callback": "equifl.experiment.callbacks",
    "Results": "equifl.experiment.results",
    "load_results": "equifl.experiment.results",
    "simulate": "equifl.sim.simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _WHEN_ASKED_FOR:
        raise AttributeError(f"module 'equifl' has no attribute {name!r}")
    globals()[name] = getattr(import_module(_WHEN_ASKED_FOR[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHEN_ASKED_FOR})
