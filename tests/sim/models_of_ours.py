"""Modules as a user might bring them: not a plain sequence of layers, so that they go through vmap."""

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, width), nn.Linear(width, width)
        self.norm, self.last = nn.GroupNorm(2, width), nn.Linear(width, 10)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        logits: Tensor = self.last(self.norm(x + self.scale * self.second(x)))
        return logits


class WithStatistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)


class WithDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)


def not_a_module() -> int:
    return 3
