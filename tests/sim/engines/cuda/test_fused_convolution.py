"""Kernels for GPUs against PyTorch; where there is no GPU they are run by Triton's interpreter."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, max_pool2d

pytest.importorskip("triton", reason="Triton is not installed, which is there where CUDA is")

from equifl.sim.engines.cuda.fused_convolution import convolve_and_pool
from equifl.sim.engines.torch import stacked_model as stacked

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _on_device() -> Iterator[None]:
    with torch.device(DEVICE):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(
    ("inputs", "outputs", "height", "width", "kernel", "padding"),
    [
        (1, 6, 10, 10, (5, 5), (0, 0)),  # LeNet's first
        (6, 16, 6, 6, (5, 5), (0, 0)),  # and second
        (3, 9, 7, 10, (3, 3), (1, 1)),  # sides that are not even, more channels than a program takes
        (2, 3, 6, 5, (4, 2), (0, 1)),
        (2, 1, 4, 4, (1, 1), (0, 0)),
    ],
)
def test_the_same_numbers_and_gradients_as_pytorch(
    relu: bool,
    inputs: int,
    outputs: int,
    height: int,
    width: int,
    kernel: tuple[int, int],
    padding: tuple[int, int],
) -> None:
    torch.manual_seed(0)
    models, images = 2, 2
    x = torch.randn(models, images, inputs, height, width, requires_grad=True)
    size = outputs * inputs * kernel[0] * kernel[1]
    row = torch.randn(models, size + outputs + 5, requires_grad=True)  # weights lie within longer rows
    weight, bias = row[:, 2 : 2 + size].view(models, outputs, inputs, *kernel), row[:, 3 + size : 3 + size + outputs]
    found = convolve_and_pool(x, weight, bias, padding=padding, relu=relu)
    each = [max_pool2d(conv2d(*one, padding=padding), 2) for one in zip(x, weight, bias, strict=True)]
    expected = torch.stack(each).relu() if relu else torch.stack(each)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    upstream = torch.randn_like(expected)
    for got, wanted in zip(*(torch.autograd.grad(y, [x, row], upstream) for y in (found, expected)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)
    with torch.no_grad():
        assert torch.equal(convolve_and_pool(x, weight, bias, padding=padding, relu=relu), found)


def test_models_may_share_images_and_weights() -> None:
    x = torch.randn(1, 2, 1, 6, 6)
    weight, bias = torch.randn(1, 2, 1, 3, 3), torch.randn(1, 2)
    shared = convolve_and_pool(
        x.expand(3, -1, -1, -1, -1),
        weight.expand(3, -1, -1, -1, -1),
        bias.expand(3, -1),
        padding=(0, 0),
        relu=True,
    )
    alone = convolve_and_pool(x, weight, bias, padding=(0, 0), relu=True)
    assert torch.equal(shared, alone.expand_as(shared))


def test_what_is_not_a_number_stays_so() -> None:
    x = torch.zeros(1, 1, 1, 4, 4)
    x[0, 0, 0, 1, 1] = torch.nan
    y = convolve_and_pool(x, torch.ones(1, 1, 1, 1, 1), torch.zeros(1, 1), padding=(0, 0), relu=True)
    assert y.isnan().tolist() == [[[[[True, False], [False, False]]]]]


POOLS = [
    nn.MaxPool2d(2),
    nn.MaxPool2d([2, 2], (2, 2)),  # type: ignore[arg-type]
    nn.MaxPool2d(2, padding=1),  # by patches, as are those below
    nn.MaxPool2d(2, ceil_mode=True),
    nn.MaxPool2d(2, stride=1),
    nn.MaxPool2d(2, dilation=2),
    nn.MaxPool2d(3),
]


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_a_network_on_a_gpu_is_that_on_a_cpu(pool: nn.MaxPool2d, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "_triton_runs", lambda: True)
    layers: list[nn.Module] = [nn.Conv2d(1, 2, 3), pool, nn.ReLU(), nn.Flatten()]
    features = nn.Sequential(*layers)(torch.zeros(1, 1, 9, 9)).shape[1]
    layers.append(nn.Linear(features, 3))
    parameters = sum(p.numel() for p in nn.Sequential(*layers).parameters())
    weights, inputs = torch.randn(2, parameters), torch.randn(2, 3, 1, 9, 9)
    found, expected = (forward(layers)(weights, inputs) for forward in (stacked._on_gpu, stacked._on_cpu))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
