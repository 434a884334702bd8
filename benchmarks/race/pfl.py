"""pfl-research: its simulated backend, in one process with PyTorch's threads, or in two with one thread each.

Two processes find each other as pfl's own platform says, by `PFL_WORKER_ADDRESSES`, through gloo on the loopback. It
asks for metrics in its first round; those here are for nothing, so that it does not evaluate either.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any


def second_process() -> subprocess.Popen[bytes] | None:
    """Started by the first; pfl's settings must be there before it is imported."""
    if "PFL_WORKER_RANK" in os.environ:
        return None
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as server:
            ports.append(server.getsockname()[1])
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
    os.environ |= {"PFL_WORKER_ADDRESSES": addresses, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    other = subprocess.Popen([sys.executable, "-m", "race", *sys.argv[1:]], env=os.environ | {"PFL_WORKER_RANK": "1"})
    os.environ["PFL_WORKER_RANK"] = "0"
    return other


def run(course: Any) -> dict[str, Any]:
    """The variant is the number of processes."""
    other = second_process() if course.variant == "2" else None
    try:
        return simulate(course)
    finally:
        if other is not None:
            other.wait(60)


def simulate(course: Any) -> dict[str, Any]:
    import numpy as np
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.internal.ops import pytorch_ops
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel
    from torch.nn.functional import cross_entropy

    from equifl.sim.models.zoo import lenet
    from race.course import BATCH, CLIENTS, COHORT, EXAMPLES, RATE, Stopwatch, loss_of

    arrays = course.data()
    x, y = map(torch.from_numpy, arrays)
    torch.manual_seed(0)  # the processes begin with the same model, and draw the same cohorts
    np.random.seed(0)  # noqa: NPY002 - the generator that pfl draws from
    rng, watch = np.random.default_rng([1, pytorch_ops.distributed.global_rank]), Stopwatch()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lenet(x.shape[2:], 10)

        def loss(self, inputs: Any, labels: Any) -> Any:
            return cross_entropy(self.layers(inputs), labels)

        def metrics(self, inputs: Any, labels: Any) -> dict[str, Any]:
            return {"none": Weighted(0, 1)}

    class Laps(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            watch.lap()
            return False, Metrics()

    def client(user: int) -> Any:
        order = torch.from_numpy(rng.permutation(EXAMPLES)[: course.taken])
        return Dataset([x[user][order], y[user][order]], user_id=user)

    net = Net()
    before = loss_of(net.layers, *arrays)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    users = FederatedDataset(client, get_user_sampler("minimize_reuse", list(range(CLIENTS))))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=1 + course.rounds,
            evaluation_frequency=10**6,
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=users, val_data=users),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
        callbacks=[Laps()],
        send_metrics_to_platform=False,
    )
    (steps,) = pytorch_ops.distributed.all_reduce([torch.tensor([float(watch.steps)])])
    if pytorch_ops.distributed.global_rank:
        sys.exit()
    return dict(course.report(watch.ends, int(steps), (before, loss_of(net.layers, *arrays))))
