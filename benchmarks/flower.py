"""What FairSelection costs a Flower federation: time of a round with and without it, and the server's memory.

    make bench-flower                            # or: python benchmarks/flower.py [--quick]

Time: one Flower simulation of 100 nodes with LeNet 28x28 (600 examples each, 10 steps of batch 32, 10 nodes train and
10 evaluate in a round), in which FedAvg alone and FedAvg within FairSelection, which keeps records and a checkpoint of
every round, take turns of some rounds each; a round is from one configuration to the next. Beside the difference of
the medians, which the noise of a simulation may exceed: the time spent in FairSelection itself, without what it wraps.

Memory: the peak of a server process in which 10,000 nodes are known and ten of them send a model of a million
parameters, over some rounds; and of the same process with FedAvg alone.

Sketch: how long the update of a model of 100 million parameters takes, and how much memory beside the arrays.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from drawing import fill_in
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from equifl import CountSketch, DivFL, Rota, SubTrunc
from equifl.flower import FairSelection
from equifl.hosts.updates import Updates

NODES, EXAMPLES, COHORT, STEPS, BATCH = 100, 600, 10, 10, 32
KNOWN, PARAMETERS = 10_000, 1_000_000
LARGE = 100_000_000

app = ClientApp()
server = ServerApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    import torch

    from equifl.sim.models.zoo import lenet

    torch.set_num_threads(1)
    model = lenet((1, 28, 28), 10)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]
    generator = torch.Generator().manual_seed(int(context.node_config["partition-id"]))
    x = torch.randn(EXAMPLES, 1, 28, 28, generator=generator)
    y = torch.randint(0, 10, (EXAMPLES,), generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        part = torch.arange(step * BATCH, (step + 1) * BATCH) % EXAMPLES
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[part]), y[part])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": EXAMPLES})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    metrics = MetricRecord({"eval_acc": 0.5, "num-examples": EXAMPLES})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


class Clock:
    """Takes the time of every round of a strategy, and of what it spends outside the strategy that it wraps."""

    def __init__(self, strategy: Any) -> None:
        self.starts: list[float] = []
        self.own: list[float] = []
        inner = getattr(strategy, "strategy", None)
        for name in ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"):
            self._wrap(strategy, name, +1)
            if inner is not None:
                self._wrap(inner, name, -1)

    def _wrap(self, strategy: Any, name: str, sign: int) -> None:
        method = getattr(strategy, name)

        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            if sign > 0 and name == "configure_train":
                self.starts.append(start)
                self.own.append(0.0)
            result = method(*args)
            self.own[-1] += sign * (time.perf_counter() - start)
            return result

        setattr(strategy, name, timed)

    def rounds(self) -> list[float]:
        """Seconds of each round but the last, of which the end is not seen."""
        return np.diff(self.starts).tolist()


@server.main()
def race(grid: Grid, context: Context) -> None:
    from equifl.sim.models.zoo import lenet  # here, because the server whose memory is measured needs no PyTorch

    turns, rounds, out = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    found: dict[str, dict[str, list[float]]] = {}
    arrays = ArrayRecord(lenet((1, 28, 28), 10).state_dict())
    for turn in range(turns):
        for name, strategy in contenders(out.parent / str(turn)).items():
            clock = Clock(strategy)
            strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds, timeout=120)
            taken = found.setdefault(name, {"rounds": [], "own": []})
            taken["rounds"] += clock.rounds()[2:]  # the first ones wait for nodes, and warm up
            taken["own"] += clock.own[2:]
    out.write_text(json.dumps(found))


def contenders(folder: Path) -> dict[str, Any]:
    def fedavg(fraction: float) -> FedAvg:
        return FedAvg(fraction_train=fraction, fraction_evaluate=COHORT / NODES)

    def fair(selector: Any) -> FairSelection:
        return FairSelection(fedavg(1.0), selector, k=COHORT, wait_for=NODES, folder=folder / type(selector).__name__)

    return {"FedAvg": fedavg(COHORT / NODES), "Rota": fair(Rota()), "SubTrunc": fair(SubTrunc())}


class ManyNodes(Grid):
    """10,000 nodes of which those who are asked send a large model back at once."""

    def __init__(self) -> None:
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # messages exist within a run only

    def get_node_ids(self) -> Iterable[int]:
        return range(1, KNOWN + 1)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        rng = np.random.default_rng(0)
        replies = []
        for message in messages:
            arrays = ArrayRecord([rng.standard_normal(PARAMETERS, np.float32)])
            metrics = MetricRecord({"train_loss": 1.0, "num-examples": 10})
            replies.append(Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message))
        return replies

    run = None  # type: ignore[assignment]

    def set_run(self, run: Any) -> None: ...

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError


MEMORY: dict[str, Any] = {
    "FedAvg": None,
    "Rota": Rota(),
    "SubTrunc, sample 10": SubTrunc(sample=10),
    "DivFL, exact": DivFL(),
}


def remember(name: str) -> None:
    """The peak memory of a server, on standard output."""
    strategy: Any = FedAvg(fraction_train=COHORT / KNOWN, fraction_evaluate=0.0)
    if MEMORY[name] is not None:
        strategy = FairSelection(FedAvg(fraction_evaluate=0.0), MEMORY[name], k=COHORT, wait_for=1)
        clients = strategy.clients
        clients.meet(ManyNodes())
        who, sketches = (
            clients.of(range(1, KNOWN + 1)),
            np.random.default_rng(0).standard_normal((KNOWN, 256), np.float32),
        )
        clients._known.learn("updates", who, sketches)
        clients._known.learn("losses", who, np.ones(KNOWN))
        del who, sketches
    initial = ArrayRecord([np.zeros(PARAMETERS, np.float32)])
    strategy.start(grid=ManyNodes(), initial_arrays=initial, num_rounds=5)
    if MEMORY[name] is not None:
        assert strategy.clients.signals(None, []).knows_update.sum() == KNOWN
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def sketch_large() -> None:
    """Seconds (the median of five) and bytes of a sketch, on standard output."""
    sent = {str(i): np.ones(LARGE // 10, np.float32) for i in range(10)}
    trained = {name: np.full(LARGE // 10, 0.5, np.float32) for name in sent}
    before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(5):
        start = time.perf_counter()
        Updates().sketch(sent, trained, CountSketch())
        seconds.append(time.perf_counter() - start)
    extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"seconds": statistics.median(seconds), "extra_bytes": extra * 1024}))


def child(*args: str) -> str:
    quiet = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, __file__, *args], capture_output=True, text=True, env=quiet, timeout=900, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return done.stdout


def summary(found: dict[str, Any]) -> str:
    """For docs/performance.md."""
    rows, peaks = found["rows"], found["peak_bytes"]
    fair = [name for name in rows if name != "FedAvg"]
    longer = " and ".join(f"{rows[name]['over_plain']:.1%} with {name}" for name in fair)
    own = " and ".join(f"{1e3 * rows[name]['own_seconds']:.0f} ms" for name in fair)
    memory = "; ".join(f"{name}: {peak / 2**20:.0f} MiB" for name, peak in peaks.items())
    return (
        f"A round of FedAvg alone takes {rows['FedAvg']['round_seconds']:.2f} s. "
        f"FairSelection makes it longer by {longer};\n"
        f"its own work is {own}, partly while clients still train. "
        f"Peak memory of a server with {KNOWN:,} nodes\nand {PARAMETERS:,} parameters: {memory}.\n"
        f"An update of {LARGE:,} parameters is sketched in {found['sketch']['seconds']:.2f} s, with "
        f"{found['sketch']['extra_bytes'] / 2**20:.0f} MiB beside the arrays."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a minute or two")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "flower.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "race.json"
        child("race", *(("2", "6") if options.quick else ("14", "14")), str(found))
        times = json.loads(found.read_text())
    plain = statistics.median(times["FedAvg"]["rounds"])
    rows = {}
    for name, taken in times.items():
        median = statistics.median(taken["rounds"])
        own = statistics.median(taken["own"]) if name != "FedAvg" else 0.0
        rows[name] = {"round_seconds": median, "over_plain": median / plain - 1, "own_seconds": own}
        print(f"{name:10} round {1e3 * median:7.1f} ms ({median / plain - 1:+.1%}), of it its own {1e3 * own:5.1f} ms")
    peaks = {name: json.loads(child("memory", name).splitlines()[-1]) for name in MEMORY}
    print(f"memory of a server of {KNOWN:,} nodes and {PARAMETERS:,} parameters:")
    for name, peak in peaks.items():
        print(f"{name:36} {peak / 2**20:5.0f} MiB")
    large = json.loads(child("sketch"))
    print(f"sketch of {LARGE:,} parameters: {large['seconds']:.2f} s, {large['extra_bytes'] / 2**20:.0f} MiB")
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}
    result = {"command": "make bench-flower", "machine": machine, "rows": rows, "peak_bytes": peaks, "sketch": large}
    if not options.quick:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        page = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
        fill_in(page, {"flower": summary(result)})
        print(f"written to {options.out} and docs/performance.md")


if __name__ == "__main__":
    if sys.argv[1:2] == ["race"]:
        from flwr.simulation import run_simulation

        one_core: dict[str, Any] = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
        run_simulation(server_app=server, client_app=app, num_supernodes=NODES, backend_config=one_core)
    elif sys.argv[1:2] == ["memory"]:
        remember(sys.argv[2])
    elif sys.argv[1:2] == ["sketch"]:
        sketch_large()
    else:
        main()
