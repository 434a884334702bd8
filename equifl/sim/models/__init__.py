"""Models by name, validation of modules, and the layers of a module."""

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    import torch as torch
