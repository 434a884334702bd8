"""Data sets, where their files come from, and how they are divided among clients."""

from equifl.sim.data.catalogue import load as load_dataset
from equifl.sim.data.dataset import Dataset

__all__ = ["Dataset", "load_dataset"]
