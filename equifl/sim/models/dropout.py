"""Dropout whose masks follow from a seed: the same for a client whatever else is trained beside it.

PyTorch draws masks from one generator for a whole process. Ours are a hash of a seed and an element's place, so that
`torch.func.vmap` maps them, and every model of a stack has its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_BITS = 24  # of a uniform number
# Dimensions of what is dropped as a whole.
_LAYERS: dict[type, int] = {nn.Dropout: 0, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}
_ODD = 0x9E3779B97F4A7C15 - 2**64  # as int64
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


class SeededDropout(nn.Module):
    """`nn.Dropout` (or 1d, 2d, 3d, by whole channels) with masks from a seed; without one it passes its input on.

    >>> layer = SeededDropout(0.5)
    >>> torch.equal(layer(torch.ones(4)), torch.ones(4))
    True
    >>> seed_dropout(layer, torch.tensor(1))
    >>> layer(torch.ones(1, 6)).tolist()
    [[0.0, 0.0, 0.0, 0.0, 2.0, 2.0]]
    """

    def __init__(self, p: float, channels: int = 0) -> None:
        super().__init__()
        self.p, self.channels = p, channels
        self.seed: Tensor | None = None
        self.calls = 0  # since it was seeded: a layer may be used twice

    def forward(self, x: Tensor) -> Tensor:
        if self.seed is None or not self.p:
            return x
        shape = x.shape
        if self.channels:
            if x.dim() != self.channels + 2:
                raise ValueError(f"nn.Dropout{self.channels}d: got shape {tuple(x.shape)}, expected a batch")
            shape = torch.Size([*x.shape[:2], *[1] * self.channels])
        own = _mixed(self.seed + self.calls)
        self.calls += 1
        places = torch.arange(shape.numel(), device=x.device) * _ODD
        drawn = (_mixed(own + places) >> (64 - _BITS)) & (2**_BITS - 1)
        kept = (drawn >= round(self.p * 2**_BITS)).view(shape)
        return x * (kept.to(x.dtype) / (1 - self.p) if self.p < 1 else torch.zeros_like(kept, dtype=x.dtype))


def with_seeded_dropout(module: nn.Module) -> nn.Module:
    """The module with its dropout layers replaced, in place; other random layers stay, and are refused elsewhere."""
    made: dict[int, SeededDropout] = {}
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) in _LAYERS:
                layer = SeededDropout(float(child.p), _LAYERS[type(child)])  # type: ignore[arg-type]
                setattr(parent, name, made.setdefault(id(child), layer))
    return module


def has_dropout(module: nn.Module) -> bool:
    """Whether it has a seeded dropout layer that drops anything."""
    return any(isinstance(layer, SeededDropout) and layer.p > 0 for layer in module.modules())


def seed_dropout(module: nn.Module, seed: Tensor | None) -> None:
    """Seed the dropout layers for one forward pass, each differently; None = nothing is dropped.

    Args:
        module: with seeded dropout layers.
        seed: an int64 without dimensions, which `vmap` may have mapped.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, SeededDropout)]
    for place, layer in enumerate(layers):
        layer.seed = None if seed is None else _mixed(seed + place * 2**32)
        layer.calls = 0


def _mixed(x: Tensor) -> Tensor:
    """The last steps of SplitMix64, on int64, whose products wrap around: neighbours become unlike each other."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * _FACTORS[0]
    x = (x ^ ((x >> 27) & (2**37 - 1))) * _FACTORS[1]
    return x ^ ((x >> 31) & (2**33 - 1))
