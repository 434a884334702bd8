"""A model of PyTorch, in a file of its own as a job needs it."""

import torch


class Net(torch.nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)
