"""One method, one file."""

from equifl.selectors.divfl import DivFL
from equifl.selectors.power_of_choice import PowerOfChoice
from equifl.selectors.rota import Rota
from equifl.selectors.rules import Selector
from equifl.selectors.subtrunc import SubTrunc
from equifl.selectors.uniform import Uniform
from equifl.selectors.unionfl import UnionFL

__all__ = ["DivFL", "PowerOfChoice", "Rota", "Selector", "SubTrunc", "Uniform", "UnionFL"]
