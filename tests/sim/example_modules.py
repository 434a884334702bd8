"""Modules as a user might bring them: not a plain sequence of layers, so that they go through vmap."""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout


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


class Plain(nn.Module):
    """A linear layer, after what `prepare` does."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)

    def prepare(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.prepare(x.flatten(1)))
        return logits


class WithStatistics(Plain):
    def __init__(self, track_running_stats: bool = True) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64, track_running_stats=track_running_stats)

    def prepare(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x)
        return normed


class WithDropout(Plain):
    def prepare(self, x: Tensor) -> Tensor:
        return dropout(x, 0.5, training=self.training)


class Dropped(nn.Module):
    """Channels and numbers are dropped, the latter at two places by one layer."""

    def __init__(self, p: float = 0.4) -> None:
        super().__init__()
        self.conv, self.channels, self.drop = nn.Conv2d(1, 5, 3), nn.Dropout2d(p), nn.Dropout(p)
        self.first, self.last = nn.Linear(180, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.channels(torch.tanh(self.conv(x))).flatten(1))
        logits: Tensor = self.last(self.drop(torch.relu(self.first(x))))
        return logits


class DroppedTable(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(60, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 10))


class HalfFrozen(nn.Sequential):
    """A plain chain, of which the last layer alone is trained."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 12).requires_grad_(False), nn.ReLU(), nn.Linear(12, 10))


class Frozen(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.last.requires_grad_(False)


class InFloat64(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.double()


class Standardised(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.centre = nn.Buffer(torch.full((64,), 0.5))

    def prepare(self, x: Tensor) -> Tensor:
        return x - self.centre


def not_a_module() -> int:
    return 3


class Tokens(nn.Module):
    """The class of a few tokens, each of them looked up."""

    def __init__(self, vocabulary: int = 12, length: int = 4, classes: int = 10, width: int = 8) -> None:
        super().__init__()
        self.look_up = nn.Embedding(vocabulary, width)
        self.last = nn.Linear(length * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(torch.relu(self.look_up(x).flatten(1)))
        return logits


class TokensOfOthers(Tokens):
    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return logits - logits.mean(dim=0)


class TokensAtRandom(Tokens):
    def forward(self, x: Tensor) -> Tensor:
        return dropout(super().forward(x), 0.5)


class UpToHundred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        if float(x.max()) > 100:
            raise ValueError("too large")
        logits: Tensor = self.last(x)
        return logits
