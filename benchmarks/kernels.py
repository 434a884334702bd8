"""How near the compiled engine's loops come to what the machine can do: GFLOP/s of every stage of LeNet, on one core.

    python benchmarks/kernels.py [--cifar]

Beside them the same convolutions as plain loops over the 16 samples of a tile, left to LLVM to vectorise, and a
product of two 1024 x 1024 matrices by PyTorch. Microseconds for a tile of 16 samples, the best of several repeats.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numba import njit

from equifl.sim.engines.compiled import client_work as client
from equifl.sim.engines.compiled import kernels
from equifl.sim.engines.compiled.memory_layout import CONVOLUTION, LINEAR, POOL, SIMD_WIDTH, TILES
from equifl.sim.engines.compiled.network_plan import Network
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.models.zoo import lenet

KINDS = {CONVOLUTION: "convolution", LINEAR: "linear", POOL: "pool"}
REPEATS, TIMES = 7, 50


@njit(nogil=True, fastmath=True)
def plain_convolution(stage: Any, tables: Any, weights: Any, activations: Any) -> None:
    """Two outputs and a line of five taps at a time, the sums in memory, the samples innermost."""
    for position in range(stage.positions):
        window = stage.x + tables[stage.x_window_table + position]
        output = stage.y + tables[stage.y_position_table + position]
        for row in range(0, stage.outputs, 2):
            a = activations[output + tables[stage.y_output_table + row] :][:SIMD_WIDTH]
            b = activations[output + tables[stage.y_output_table + row + 1] :][:SIMD_WIDTH]
            a[:], b[:] = weights[stage.bias + row], weights[stage.bias + row + 1]
            for tap in range(0, stage.taps, 5):
                x = activations[window + tables[stage.x_tap_table + tap] :][: 5 * SIMD_WIDTH]
                v = weights[stage.weights + row * stage.weight_stride + tap :][:5]
                w = weights[stage.weights + (row + 1) * stage.weight_stride + tap :][:5]
                v0, v1, v2, v3, v4 = v[0], v[1], v[2], v[3], v[4]
                w0, w1, w2, w3, w4 = w[0], w[1], w[2], w[3], w[4]
                for i in range(SIMD_WIDTH):
                    x0, x1, x2, x3, x4 = x[i], x[i + 16], x[i + 32], x[i + 48], x[i + 64]
                    a[i] += x0 * v0 + x1 * v1 + x2 * v2 + x3 * v3 + x4 * v4
                    b[i] += x0 * w0 + x1 * w1 + x2 * w2 + x3 * w3 + x4 * w4


@njit(nogil=True)
def again(times: int, work: Any, arguments: Any) -> None:
    for _ in range(times):
        work(*arguments)


def microseconds(work: Any, *arguments: Any) -> float:
    again(1, work, arguments)
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        again(TIMES, work, arguments)
        seconds.append(time.perf_counter() - start)
    return 1e6 * min(seconds) / TIMES


def stages(network: Network) -> Iterator[tuple[str, float, int]]:
    """What, microseconds a tile, and multiplications a sample."""
    layout, space, rng = network.layout, network.workspace(), np.random.default_rng(0)
    plan, tables = layout.plan, layout.tables
    for array, size in ((space.weights, 0.05), (space.activations, 1.0), (space.gradients, 0.01)):
        array[:] = size * rng.standard_normal(len(array))
    x = rng.standard_normal((SIMD_WIDTH, plan[0]["taps"])).astype(np.float32)
    yield "load", microseconds(client._load_tiles, layout, space, x, np.arange(SIMD_WIDTH), 0), 0
    for i, stage in enumerate(plan[1:], start=1):
        kind, name = stage["kind"], KINDS[stage["kind"]]
        tiles, positions = (TILES, TILES) if kind == LINEAR else (1, stage["positions"])
        before = i - 1 if kind == POOL else 0  # a plan's first stage is not computed
        alone = layout._replace(plan=plan[[before, i]])
        products = int(stage["positions"] * stage["outputs"] * stage["taps"])
        if not plan[before]["fused_pool"]:
            fused = stage["fused_pool"]
            what, part = (f"{name} and pool", layout._replace(plan=plan[[0, i, i + 1]])) if fused else (name, alone)
            yield f"{what}, forward", microseconds(kernels.forward, part, space, tiles) / tiles, products
        if kind == POOL:
            yield f"{name}, backward", microseconds(kernels.backward, alone, space, 1), 0
            continue
        work: Any = stage, tables, space.weights_gradient, space.activations, space.gradients
        if kind == CONVOLUTION:
            spent = microseconds(plain_convolution, stage, tables, space.weights, space.activations)
            yield f"{name}, as plain loops", spent, products
            yield f"{name}, to weights", microseconds(kernels._convolution_to_weights, *work), products
        else:
            spent = microseconds(kernels._linear_to_weights, *work, space.deinterleaved)
            yield f"{name}, to weights", spent, products
        if stage["x"]:
            spent = microseconds(kernels._dense_to_input, stage, positions, tables, space.weights, space.gradients)
            yield f"{name}, to input", spent / tiles, products
    labels = np.arange(SIMD_WIDTH) % 10
    yield (
        "losses and their gradients",
        microseconds(client._cross_entropy, layout, space, labels, 0, 1 / SIMD_WIDTH),
        0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cifar", action="store_true", help="LeNet on CIFAR-10's shape")
    shape = (3, 32, 32) if parser.parse_args().cifar else (1, 28, 28)
    torch.set_num_threads(1)
    a, seconds = torch.randn(1024, 1024), []
    for _ in range(REPEATS):
        start = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - start)
    print(f"{'product of matrices by PyTorch':32}{2e-9 * 1024**3 / min(seconds):19.1f} GFLOP/s")
    for what, spent, products in stages(Network(StackedModel.of(lenet(shape, 10), shape).layers, shape)):
        rate = (
            f"{2e-3 * products * SIMD_WIDTH / spent:7.1f} GFLOP/s" if products and not what.startswith("pool") else ""
        )
        print(f"{what:32}{spent:9.1f} us {rate}")


if __name__ == "__main__":
    main()
