"""A causal transformer for sequences of tokens, from operations that `torch.func.vmap` maps."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class CausalTransformer(nn.Module):
    """Scores of what follows each token, from it and those before: (B, length) to (B, length, tokens).

    Args:
        length: tokens of an example.
        tokens: how many different ones there are.
        width: numbers that stand for a token.
        heads: of attention, each of width / heads numbers.
        layers: blocks of attention and a hidden layer of 4 x width.
        dropout: share of numbers dropped in training, after the embedding and each part of a block.
    """

    def __init__(
        self, length: int, tokens: int, *, width: int = 32, heads: int = 2, layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.places = nn.Parameter(torch.randn(length, width) / math.sqrt(width))
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(_Block(length, width, heads, dropout) for _ in range(layers)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, tokens)
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(width))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(self.norm(self.blocks(self.drop(self.embedding(x) + self.places))))
        return scores


class _Block(nn.Module):
    def __init__(self, length: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)
        self.future = nn.Buffer(torch.ones(length, length, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.join(self._attended(self.first(x))))
        mixed: Tensor = x + self.drop(self.narrow(torch.relu(self.wide(self.second(x)))))
        return mixed

    def _attended(self, x: Tensor) -> Tensor:
        """Every token's mean of the values of those up to it, weighted by how well its query fits their keys."""
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, 2)
        )
        fit = query @ key.transpose(2, 3) / math.sqrt(query.shape[3])
        weights = fit.masked_fill(self.future, -torch.inf).softmax(dim=3)
        return (weights @ value).transpose(1, 2).flatten(2)
