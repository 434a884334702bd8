"""The round loop (Algorithm 1 of the paper) and what it keeps: what a seed decides, what the server remembers."""

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    import torch as torch
