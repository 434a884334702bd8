"""The round loop (Algorithm 1 of the paper), the environment of each seed, and the server's memory of clients."""

from equifl.extras import needed_by

with needed_by("equifl.sim"):
    import torch as torch
