"""Convolution and pooling of ours are PyTorch's, with their slopes."""

import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("numba", reason="our loops need numba: pip install 'equifl[fast]'")

import numba

from equifl.sim import client, compiling, kernels, llvm, operations, sixteen
from equifl.sim.compiling import compiled
from equifl.sim.operations import Operation

LENET = Operation((6, 1, 5, 5), window=(2, 2), step=(2, 2), relu=True)
OPERATIONS = {
    "LeNet's first": (LENET, (12, 12)),
    "LeNet's second": (replace(LENET, kernel=(16, 6, 5, 5)), (8, 8)),
    "a convolution": (Operation((4, 3, 3, 3)), (7, 6)),
    "a convolution, rectified": (Operation((4, 3, 3, 3), padding=(1, 1), relu=True), (7, 6)),
    "one of all images": (Operation((3, 2, 4, 5)), (4, 5)),
    "one pixel wide": (Operation((5, 7, 1, 1)), (3, 4)),
    "strides and padding": (Operation((3, 2, 3, 2), (2, 1), (1, 2)), (9, 8)),
    "the same of many channels": (Operation((3, 13, 3, 2), (2, 1), (1, 2)), (9, 8)),
    "more weights than go by lists": (Operation((64, 5, 4, 4), padding=(1, 0)), (6, 5)),
    "steps wider than the kernel": (Operation((3, 2, 1, 1), (2, 3)), (7, 8)),
    "many channels, with steps so wide": (Operation((3, 5, 1, 1), (2, 3)), (7, 8)),
    "padding, then pooling": (Operation((9, 3, 3, 3), padding=(1, 1), window=(2, 2), step=(2, 2)), (7, 10)),
    "windows that overlap": (Operation((2, 1, 2, 2), window=(3, 2), step=(1, 1), relu=True), (8, 8)),
    "pooling alone": (Operation(window=(2, 2), step=(2, 2)), (7, 8)),
    "pooling alone, rectified": (Operation(window=(3, 3), step=(2, 2), relu=True), (8, 9)),
}


def by_pytorch(operation: Operation, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    each = []
    for m, y in enumerate(x):
        if weight is not None:
            given = None if bias is None else bias[m]
            y = functional.conv2d(y, weight[m], given, operation.stride, operation.padding)
        y = functional.max_pool2d(y, operation.window, operation.step) if operation.window else y
        each.append(y.relu() if operation.relu else y)
    return torch.stack(each)


def made_up(operation: Operation, size: tuple[int, int], models: int, images: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    channels = operation.kernel[1] if operation.kernel else 3
    shapes: list[tuple[int, ...]] = [(models, images, channels, *size)]
    shapes += [(models, *operation.kernel), (models, operation.kernel[0])] if operation.kernel else []
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]


def results(function: object, given: list[Tensor], wanted: list[bool]) -> list[Tensor]:
    """The result, and the slopes of what has any."""
    given = [tensor.clone().requires_grad_(slope) for tensor, slope in zip(given, wanted, strict=True)]
    y = function(*given)  # type: ignore[operator]
    draw = torch.Generator().manual_seed(1)
    slope = torch.randn(y.shape, generator=draw, dtype=torch.float64).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [tensor for tensor in given if tensor.requires_grad], slope)]


@pytest.mark.parametrize("images", [1, 5, 16, 37])
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_same_numbers_and_slopes_as_pytorch(name: str, images: int) -> None:
    operation, size = OPERATIONS[name]
    given = made_up(operation, size, 2, images)

    def expected(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return by_pytorch(operation, x, weight, bias)

    everything = [True] * len(given)
    single = [tensor.float() for tensor in given]
    found = results(operation, single, everything)
    for got, right in zip(found, results(expected, given, everything), strict=True):
        torch.testing.assert_close(got.double(), right, rtol=1e-4, atol=1e-5 * float(right.abs().max()))
    with torch.no_grad():
        assert torch.equal(operation(*single), found[0])
    if operation.kernel:  # images have no slopes in a first layer, weights none where they are frozen
        y, to_x, *to_weights = found
        assert all(map(torch.equal, results(operation, single, [False, True, True]), [y, *to_weights]))
        assert all(map(torch.equal, results(operation, single, [True, False, False]), [y, to_x]))


def test_a_bias_may_be_missing() -> None:
    operation, size = OPERATIONS["a convolution"]
    x, weight, _ = (tensor.float() for tensor in made_up(operation, size, 2, 3))
    found = results(operation, [x, weight], [True, True])
    expected = results(lambda x, weight: by_pytorch(operation, x, weight, None), [x, weight], [True, True])
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_images_that_all_models_share_are_not_copied_and_have_the_sum_of_slopes() -> None:
    operation, size = OPERATIONS["LeNet's first"]
    x, weight, bias = (tensor.float() for tensor in made_up(operation, size, 3, 5))

    def shared(one: Tensor) -> Tensor:
        return operation(one.expand(3, -1, -1, -1, -1), weight, bias)

    def copied(one: Tensor) -> Tensor:
        return operation(one.repeat(3, 1, 1, 1, 1), weight, bias)

    for a, b in zip(*(results(function, [x[:1]], [True]) for function in (shared, copied)), strict=True):
        assert torch.equal(a, b)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "channels last": lambda x: x.flatten(0, 1).contiguous(memory_format=torch.channels_last).view_as(x),
    "some of the channels": lambda x: torch.cat([x, x], dim=2)[:, :, : x.shape[2]],
    "every second image": lambda x: x.repeat_interleave(2, dim=1)[:, ::2],
    "every second row": lambda x: x.repeat_interleave(2, dim=3)[:, :, :, ::2],
    "one image many times": lambda x: x[:, :1].expand_as(x),
    "one number many times": lambda x: x[:1, :1, :1, :1, :1].expand_as(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["a convolution", "LeNet's first", "pooling alone"])
def test_images_weights_and_slopes_may_lie_in_any_order(name: str, layout: str) -> None:
    operation, size = OPERATIONS[name]
    given = [tensor.float() for tensor in made_up(operation, size, 2, 5)]
    for i in range(len(given) - 1 or 1):
        odd, plain = list(given), list(given)
        odd[i] = LAYOUTS[layout](given[i])
        plain[i] = odd[i].clone(memory_format=torch.contiguous_format)
        found, expected = ([g.detach().requires_grad_(True) for g in side] for side in (odd, plain))
        y, right = operation(*found), operation(*expected)
        assert torch.equal(y, right)
        slope = LAYOUTS[layout](torch.randn_like(y))
        copied = slope.clone(memory_format=torch.contiguous_format)
        pairs = zip(torch.autograd.grad(y, found, slope), torch.autograd.grad(right, expected, copied), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_the_type_is_that_of_the_images_whatever_is_usual() -> None:
    operation, size = OPERATIONS["LeNet's first"]
    given = [tensor.float() for tensor in made_up(operation, size, 2, 5)]
    expected = results(operation, given, [True] * 3)
    torch.set_default_dtype(torch.float64)
    try:
        assert all(map(torch.equal, results(operation, given, [True] * 3), expected))
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_is_compiled_is_compiled_again_when_a_file_of_its_changes() -> None:
    """Numba itself looks only at the file that a function is in."""
    read = "".join(Path(str(module.__file__)).read_text() for module in (llvm, sixteen, kernels))
    for function in (operations._forward, operations._backward, client.work):
        assert function.py_func.__qualname__.endswith(f"{zlib.crc32(read.encode()):08x}")


def test_who_waits_for_the_compiler_is_told_and_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    caplog.set_level("INFO", "equifl")

    def process() -> int:
        """As each process does it: the name with the digest is made anew."""

        def loop(x):  # type: ignore[no-untyped-def]
            return x + 1

        return int(compiled(loop)(1))

    for waited in (True, False):
        caplog.clear()
        compiling._tell.cache_clear()
        assert process() == 2
        assert [record.getMessage()[:14] for record in caplog.records] == ["numba compiles"] * waited


@pytest.mark.parametrize("relu", [True, False])
def test_what_is_not_a_number_stays_so(relu: bool) -> None:
    x = torch.zeros(1, 1, 1, 4, 4)
    x[0, 0, 0, 1, 1] = torch.nan
    y = Operation((1, 1, 1, 1), window=(2, 2), step=(2, 2), relu=relu)(x, torch.ones(1, 1, 1, 1, 1), torch.zeros(1, 1))
    assert y.isnan().tolist() == [[[[[True, False], [False, False]]]]]


def test_of_equals_the_first_has_the_slope() -> None:
    x = torch.ones(1, 1, 1, 2, 2, requires_grad=True)
    (slope,) = torch.autograd.grad(Operation(window=(2, 2), step=(2, 2))(x).sum(), x)
    assert slope.flatten().tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("name", ["padding, then pooling", "a convolution, rectified"])
def test_it_does_not_matter_what_was_there_before(name: str) -> None:
    """The arrays to work on are the thread's, for all operations: borders are zero, and places are its own."""
    operation, size = OPERATIONS[name]
    given = [tensor.float() for tensor in made_up(operation, size, 2, 5)]
    before = results(operation, given, [True] * 3)
    for other, (another, its_size) in OPERATIONS.items():
        its_own = [1e3 * tensor.float() for tensor in made_up(another, its_size, 1, 3)]
        results(another, its_own, [True] * len(its_own))
        assert all(map(torch.equal, results(operation, given, [True] * 3), before)), other


def test_threads_do_not_meet() -> None:
    operation, size = OPERATIONS["LeNet's second"]
    given = [[tensor.float() + i for tensor in made_up(operation, size, 2, 20)] for i in range(4)]
    expected = [results(operation, mine, [True] * 3) for mine in given]
    found: list[list[Tensor]] = [[] for _ in given]

    def work(i: int) -> None:
        for _ in range(20):
            found[i] = results(operation, given[i], [True] * 3)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(
        torch.equal(a, b)
        for mine, right in zip(found, expected, strict=True)
        for a, b in zip(mine, right, strict=True)
    )


def test_second_derivatives_are_refused() -> None:
    operation, size = OPERATIONS["a convolution"]
    x, weight, bias = (tensor.float().requires_grad_(True) for tensor in made_up(operation, size, 1, 2))
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(operation(x, weight, bias).square().sum(), x, create_graph=True)
