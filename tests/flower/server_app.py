"""The server of `federation.py` for a real deployment: Rota chooses, and knows its clients by their keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from equifl import Rota
from equifl.flower import FairSelection

from .federation import initial_arrays

app = ServerApp()


class FedAvgInHaste(FedAvg):
    """Evaluates in the third round alone: that takes as long as training, and once is enough to see it work."""

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return super().configure_evaluate(server_round, arrays, config, grid) if server_round == 3 else []


@app.main()
def main(grid: Grid, context: Context) -> None:
    config: dict[str, Any] = dict(context.run_config)
    if config["resume"]:
        strategy = FairSelection.resume(config["folder"], FedAvgInHaste(), Rota(), k=2)
    else:
        strategy = FairSelection(FedAvgInHaste(), Rota(), k=2, folder=config["folder"])
    # Rounds without end: the test stops them.
    strategy.start(grid=grid, initial_arrays=strategy.arrays or initial_arrays(), num_rounds=1000, timeout=30)
