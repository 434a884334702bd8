"""A sweep on a cluster of two GPUs, as far as Ray can tell: its workers compute on CPUs.

python -m tests.cluster.on_gpus FOLDER writes the run into FOLDER/run, and into FOLDER/gpus a line a worker: its GPUs.
"""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

from equifl.cluster import sweep
from equifl.cluster.run_worker import Worker
from equifl.cluster.session import _loopback
from equifl.experiment.config import Config
from equifl.sim.data.dataset import Dataset
from equifl.sim.simulation import simulate
from tests.cluster.test_sweep import CONFIG, DATA, Every


def run(folder: Path) -> None:
    class Told(Worker):
        """Takes the GPU that Ray gives it, and leaves it alone."""

        def prepare(
            self, config: Config, dataset: Dataset, device: str, engine: str, objects: Mapping[str, Any] | None = None
        ) -> tuple[dict[str, Any], str]:
            with (folder / "gpus").open("a") as file:
                print(device, *ray.get_gpu_ids(), file=file)
            return super().prepare(config, dataset, "cpu", engine, objects)

    def kill_one(played: int) -> None:
        if played == 3:
            ray.kill(player.groups[1].worker)

    with _loopback():
        store: dict[str, Any] = {"object_store_memory": 2**27, "include_dashboard": False}
        store |= {"_node_ip_address": "127.0.0.1", "log_to_driver": False, "logging_level": logging.WARNING}
        ray.init("local", num_cpus=1, num_gpus=2, **store)
    sweep.Worker = Told  # type: ignore[attr-defined]
    player = sweep.Sweep(CONFIG, DATA, device="auto", address=None)
    made: Any = lambda *_, **__: player  # noqa: E731
    results = simulate(CONFIG, dataset=DATA, out=folder / "run", player=made, callbacks=[Every(kill_one)])
    assert results.finished


if __name__ == "__main__":
    run(Path(sys.argv[1]))
