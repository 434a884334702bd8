"""Engines that train many models at once, the choice between them, and a simple reference implementation."""

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    import torch as torch
