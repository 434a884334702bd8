"""Client selectors, one method a file; the protocol and the shared rules, for writing your own."""

from equifl.selectors._common import cohort_size, maximise, unknown_first
from equifl.selectors.base import HasObjective, Selector
from equifl.selectors.divfl import DivFL
from equifl.selectors.power_of_choice import PowerOfChoice
from equifl.selectors.rota import Rota
from equifl.selectors.subtrunc import SubTrunc
from equifl.selectors.uniform import Uniform
from equifl.selectors.unionfl import UnionFL

__all__ = [
    "DivFL",
    "HasObjective",
    "PowerOfChoice",
    "Rota",
    "Selector",
    "SubTrunc",
    "Uniform",
    "UnionFL",
    "cohort_size",
    "maximise",
    "unknown_first",
]
