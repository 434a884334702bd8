"""The server of the older API. Two lines are new: the import, and the strategy around the strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg

from equifl import Rota
from equifl.flower.legacy import FairSelection

START = [np.zeros((20, 10), np.float32)]


def server_fn(context: Context) -> ServerAppComponents:
    config: dict[str, Any] = dict(context.run_config)
    strategy = FairSelection(
        FedAvg(initial_parameters=ndarrays_to_parameters(START)),
        Rota(),
        k=config["k"],
        identity="partition-id",
        folder=config["folder"],
        resume=config["resume"],
    )
    rounds = max(config["rounds"] - strategy.rounds_played, 0)
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds, round_timeout=120.0))


app = ServerApp(server_fn=server_fn)
