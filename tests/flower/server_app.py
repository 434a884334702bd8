"""The server of `federation.py` for a real deployment: Rota chooses, and knows its clients by their keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from equifl import Rota
from equifl.flower import FairSelection

from .federation import initial_arrays

app = ServerApp()


class FedAvgInHaste(FedAvg):
    """Evaluates with two nodes, from the third round until one has answered: it takes as long as training does."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.1)
        self.evaluated = False

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        wanted = server_round >= 3 and not self.evaluated
        return super().configure_evaluate(server_round, arrays, config, grid) if wanted else []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        metrics = super().aggregate_evaluate(server_round, replies)
        self.evaluated = metrics is not None
        return metrics


@app.main()
def main(grid: Grid, context: Context) -> None:
    config: dict[str, Any] = dict(context.run_config)
    if config["resume"]:
        strategy = FairSelection.resume(config["folder"], FedAvgInHaste(), Rota(), k=2)
    else:
        identity = config["identity"] or None
        strategy = FairSelection(FedAvgInHaste(), Rota(), k=2, folder=config["folder"], identity=identity)
    # Rounds without end: the test stops them.
    strategy.start(grid=grid, initial_arrays=strategy.arrays or initial_arrays(), num_rounds=1000, timeout=40)
