"""How near the fast engine's loops come to what the machine can do: GFLOP/s of every stage of LeNet, on one core.

    python benchmarks/kernels.py [--cifar]

Beside them the same convolutions as plain loops over the sixteen samples, left to LLVM to vectorise, and a product of
two 1024 x 1024 matrices by PyTorch. Microseconds for a tile of sixteen samples, the best of several repeats.
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
from equifl.sim.engines.compiled import kernels as k
from equifl.sim.engines.compiled.llvm import LANES
from equifl.sim.engines.compiled.network_plan import Network
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.models.zoo import lenet

KINDS = {k.CONVOLUTION: "convolution", k.LINEAR: "linear", k.POOL: "pool"}
REPEATS, TIMES = 7, 50


@njit(nogil=True, fastmath=True)
def plain_convolution(s: Any, tables: Any, params: Any, acts: Any) -> None:
    """Two rows and a line of the window at a time, the sums in memory, the lanes innermost."""
    for spot in range(s[k.SPOTS]):
        x_at, y_at = s[k.X] + tables[s[k.X_SPOTS] + spot], s[k.Y] + tables[s[k.Y_SPOTS] + spot]
        for row in range(0, s[k.ROWS], 2):
            a = acts[y_at + tables[s[k.Y_ROWS] + row] :][:LANES]
            b = acts[y_at + tables[s[k.Y_ROWS] + row + 1] :][:LANES]
            a[:], b[:] = params[s[k.BIAS] + row], params[s[k.BIAS] + row + 1]
            for term in range(0, s[k.TERMS], 5):
                x = acts[x_at + tables[s[k.X_TERMS] + term] :][: 5 * LANES]
                v = params[s[k.W] + row * s[k.W_ROW] + term :][:5]
                w = params[s[k.W] + (row + 1) * s[k.W_ROW] + term :][:5]
                v0, v1, v2, v3, v4 = v[0], v[1], v[2], v[3], v[4]
                w0, w1, w2, w3, w4 = w[0], w[1], w[2], w[3], w[4]
                for i in range(LANES):
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
    (plan, tables, _), rng = network.layout, np.random.default_rng(0)
    params, gradient, _, acts, slopes, turned, pick, rows, filled = network.desk()
    for array, size in ((params, 0.05), (acts, 1.0), (slopes, 0.01)):
        array[:] = size * rng.standard_normal(len(array))
    x = rng.standard_normal((LANES, plan[0, k.TERMS])).astype(np.float32)
    yield "load", microseconds(client._load_tiles, plan[0], tables, acts, x, np.arange(LANES), 0, rows, filled), 0
    for i, s in enumerate(plan[1:], start=1):
        name, pooled = KINDS[s[k.KIND]], s[k.POOLED]
        tiles, spots = (k.TILES, k.TILES) if s[k.KIND] == k.LINEAR else (1, s[k.SPOTS])
        before = plan[i - 1 if s[k.KIND] == k.POOL else 0]  # which is not done
        one, both = np.stack([before, s]), np.concatenate([plan[:1], plan[i : i + 2]])
        products = int(s[k.SPOTS] * s[k.ROWS] * s[k.TERMS])
        if not before[k.POOLED]:
            what, forward = (f"{name} and pool", both) if pooled else (name, one)
            spent = microseconds(k.forward, forward, tables, params, acts, pick, tiles)
            yield f"{what}, forward", spent / tiles, products
        if s[k.KIND] == k.POOL:
            desk = gradient, acts, slopes, pick, turned
            yield f"{name}, backward", microseconds(k.backward, one, tables, params, *desk, False, 1), 0
            continue
        work: Any = s, tables, gradient, acts, slopes
        if s[k.KIND] == k.CONVOLUTION:
            yield f"{name}, as plain loops", microseconds(plain_convolution, s, tables, params, acts), products
            yield f"{name}, to weights", microseconds(k._convolution_to_weights, *work), products
        else:
            yield f"{name}, to weights", microseconds(k._linear_to_weights, *work, turned), products
        if s[k.X]:
            spent = microseconds(k._dense_to_input, s, spots, tables, params, slopes)
            yield f"{name}, to input", spent / tiles, products
    outputs = plan[-1], tables, acts, slopes, np.arange(LANES) % 10, np.arange(LANES), LANES, 1 / LANES
    yield "losses and their slopes", microseconds(client._cross_entropy, *outputs), 0


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
        rate = f"{2e-3 * products * LANES / spent:7.1f} GFLOP/s" if products and not what.startswith("pool") else ""
        print(f"{what:32}{spent:9.1f} us {rate}")


if __name__ == "__main__":
    main()
