"""How near a GPU comes to what it can do when it trains LeNets: TFLOP/s of a step and of a pass without gradients.

    python benchmarks/gpu.py [--out FILE]           # needs a GPU that PyTorch finds

Beside them what the GPU reaches at best, measured in the same run: a copy of memory, and products of large matrices in
float32 and in TF32. A run trains ten models on batches of 32. Counted are the multiplications and additions of the
layers as they are written, whichever of them are left out because a pooling takes no notice of them. Of each the
median of several repeats, after others that compile the kernels; a step also with `tf32`; at last, a whole run
by itself. Beside LeNets, a residual network of 64 channels, a module that is no chain of layers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drawing import fill_in
from torch import Tensor, nn
from torch.nn.functional import relu

from equifl.experiment.config import Config
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.base import Job
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.engines.torch.engine import TorchEngine
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.loop.federation import Federation
from equifl.sim.models.zoo import lenet

SHAPES = {"MNIST": (1, 28, 28), "CIFAR-10": (3, 32, 32), "residual": (3, 32, 32)}
RUNS, COHORT, BATCH, STEPS, EXAMPLES = (1, 10, 100), 10, 32, 10, 600


class Residual(nn.Module):
    """Two residual blocks of 64 channels on images of 32x32x3."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(64, 64, 3, padding=1) for _ in range(4))
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.first(x))
        for a, b in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            x = relu(x + b(relu(a(x))))
        logits: Tensor = self.last(x.mean(dim=(2, 3)))
        return logits


def seconds(work: Callable[[], Any], repeats: int = 9) -> float:
    for _ in range(3):
        work()
    found = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / 1e3)
    return statistics.median(found)


def ceilings() -> dict[str, float]:
    block = torch.randn(2**28, device="cuda")
    copy = torch.empty_like(block)
    found = {"copy, TB/s": 2 * block.nbytes / seconds(lambda: copy.copy_(block)) / 1e12}
    matrix = torch.randn(8192, 8192, device="cuda")
    for name, allowed in (("float32", False), ("TF32", True)):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        found[f"product, {name}, TFLOP/s"] = 2 * 8192**3 / seconds(lambda: matrix @ matrix) / 1e12
    torch.backends.cuda.matmul.allow_tf32 = False
    return found


def operations(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, int]:
    """For one example: forward, and forward and backward. Nothing asks for the gradient of the first layer's input."""
    products: list[int] = []

    def count(layer: nn.Module, _: Any, out: torch.Tensor) -> None:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            products.append(out[0].numel() * layer.weight[0].numel())

    hooks = [layer.register_forward_hook(count) for layer in module.modules()]
    module(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    return 2 * sum(products), 2 * (3 * sum(products) - products[0])


def random_data(shape: tuple[int, ...]) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((70_000, *shape), dtype=np.float32)
    y = rng.integers(0, 10, len(x))
    return Dataset("made up", x[:60_000], y[:60_000], x[60_000:], y[60_000:], 10)


def measure(name: str) -> list[dict[str, Any]]:
    shape, rows = SHAPES[name], []
    dataset, module = random_data(shape), Residual() if name == "residual" else lenet(shape, 10)
    engine = TorchEngine(Job(StackedModel.of(module, shape), dataset, "cuda"))
    forward, both = operations(module, shape)
    rng = np.random.default_rng(0)
    for runs in RUNS[:2] if name == "residual" else RUNS:
        models = runs * COHORT
        weights = 0.05 * torch.randn(models, engine.model.parameters, device="cuda")
        batches = rng.integers(0, 60_000, (models, STEPS, BATCH))
        examples = rng.integers(0, 60_000, (models, EXAMPLES))
        torch.cuda.reset_peak_memory_stats()
        train = seconds(lambda w=weights, b=batches: engine.train(w, b, LocalTraining(lr=0.01)))  # type: ignore[misc]
        losses = seconds(lambda w=weights, e=examples: engine.losses(w, e))  # type: ignore[misc]
        row: dict[str, Any] = {"data": name, "runs": runs, "step_seconds": train / STEPS, "losses_seconds": losses}
        row["train_tflops"] = both * models * STEPS * BATCH / train / 1e12
        row["losses_tflops"] = forward * models * EXAMPLES / losses / 1e12
        row["peak_bytes"] = torch.cuda.max_memory_allocated()
        rough = seconds(lambda w=weights, b=batches: engine.train(w, b, LocalTraining(lr=0.01, tf32=True)))  # type: ignore[misc]
        row["tf32_step_seconds"] = rough / STEPS
        rows.append(row)
        print(
            f"{name:9} {runs:4} runs: a step {1e3 * train / STEPS:6.2f} ms, {row['train_tflops']:5.1f} TFLOP/s, "
            f"with TF32 {1e3 * rough / STEPS:6.2f} ms; "
            f"losses {1e3 * losses:6.2f} ms, {row['losses_tflops']:5.1f} TFLOP/s; {row['peak_bytes'] / 2**30:.1f} GiB"
        )
    return rows


def one_run(selector: str) -> float:
    """Seconds of 70 rounds of one run, as in the paper's setting of MNIST, evaluated every ten."""
    shape = ["rounds=70", "clients=100", "per_round=10", "seeds=[0]", "evaluate_every=10", "data={partition='iid'}"]
    config = Config.load(None, [*shape, "train={steps=20, lr=0.005}", f"selectors={{{selector}={{}}}}"])
    federation = Federation(config, random_data(SHAPES["MNIST"]), device="cuda")
    start = time.perf_counter()
    for _ in range(70):
        federation.play()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def table(found: dict[str, Any]) -> str:
    """For docs/performance.md, with what the device reaches at best and what a run by itself takes."""
    copy, best, tf32 = found["ceilings"].values()
    head = "model | runs | step | TFLOP/s | of peak | step with TF32 | losses | TFLOP/s | of peak | memory"
    lines = [f"| {head} |", "|---|" + 9 * "---:|"]
    for row in found["rows"]:
        train, losses = row["train_tflops"], row["losses_tflops"]
        cells = [
            row["data"],
            row["runs"],
            f"{1e3 * row['step_seconds']:.2f} ms",
            f"{train:.1f}",
            f"{train / best:.0%}",
            f"{1e3 * row['tf32_step_seconds']:.2f} ms",
        ]
        cells += [f"{1e3 * row['losses_seconds']:.1f} ms", f"{losses:.1f}", f"{losses / best:.0%}"]
        lines.append("| " + " | ".join(map(str, [*cells, f"{row['peak_bytes'] / 2**30:.1f} GiB"])) + " |")
    alone = ", ".join(f"{taken:.1f} s with `{name}`" for name, taken in found["one_run_seconds"].items())
    products = f"products of large matrices {best:.0f} TFLOP/s in float32 and {tf32:.0f} in TF32"
    lines += ["", f"Peaks in the same run: copies of memory {copy:.1f} TB/s, {products}."]
    lines += [f"70 rounds of one run of MNIST's shape by itself take {alone}."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpu.json")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU here")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
    found |= {"triton": version("triton"), "ceilings": ceilings()}
    print(", ".join(f"{name} {value:.1f}" for name, value in found["ceilings"].items()))
    found["rows"] = [row for name in SHAPES for row in measure(name)]
    found["one_run_seconds"] = {name: one_run(name) for name in ("uniform", "rota", "subtrunc")}
    print("70 rounds of one run:", ", ".join(f"{k} {v:.1f} s" for k, v in found["one_run_seconds"].items()))
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    fill_in(Path(__file__).parents[1] / "docs" / "performance.md", {"gpu": table(found)})
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
