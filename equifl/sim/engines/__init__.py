"""What trains many models at once: the choice between engines, the engines, and their slow, obvious reference."""

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    import torch as torch
