"""Models by name, whether a module can be trained, and which layers it is."""

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    import torch as torch
