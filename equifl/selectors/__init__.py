"""Client selectors, one method a file; the protocol and the shared rules, for writing your own."""

from collections.abc import Mapping

from equifl.selectors.active_fl import ActiveFL
from equifl.selectors.balanced import Balanced
from equifl.selectors.base import HasObjective, HasWeights, Selector, cohort_size, weights_of
from equifl.selectors.clustered_sampling import ClusteredSampling
from equifl.selectors.divfl import DivFL
from equifl.selectors.fedgs import FedGS
from equifl.selectors.greedy_selection import maximise
from equifl.selectors.hicsfl import HiCSFL
from equifl.selectors.label_balance import LabelBalance
from equifl.selectors.oort import Oort
from equifl.selectors.optimal_sampling import OptimalSampling
from equifl.selectors.power_of_choice import PowerOfChoice
from equifl.selectors.reshuffle import Reshuffle
from equifl.selectors.rota import Rota
from equifl.selectors.subtrunc import SubTrunc
from equifl.selectors.uniform import Uniform
from equifl.selectors.unionfl import UnionFL
from equifl.selectors.unknown_clients import unknown_first

# By the names they have in configurations.
SELECTORS: Mapping[str, type] = {
    "uniform": Uniform,
    "power_of_choice": PowerOfChoice,
    "divfl": DivFL,
    "subtrunc": SubTrunc,
    "unionfl": UnionFL,
    "rota": Rota,
    "reshuffle": Reshuffle,
    "balanced": Balanced,
    "clustered_sampling": ClusteredSampling,
    "fedgs": FedGS,
    "active_fl": ActiveFL,
    "oort": Oort,
    "label_balance": LabelBalance,
    "hicsfl": HiCSFL,
    "optimal_sampling": OptimalSampling,
}

__all__ = [
    "SELECTORS",
    "ActiveFL",
    "Balanced",
    "ClusteredSampling",
    "DivFL",
    "FedGS",
    "HasObjective",
    "HasWeights",
    "HiCSFL",
    "LabelBalance",
    "Oort",
    "OptimalSampling",
    "PowerOfChoice",
    "Reshuffle",
    "Rota",
    "Selector",
    "SubTrunc",
    "Uniform",
    "UnionFL",
    "cohort_size",
    "maximise",
    "unknown_first",
    "weights_of",
]
