"""The server: FedAvg as ever, and around it the choice of who trains."""

from __future__ import annotations

from typing import Any

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from equifl import DivFL, PowerOfChoice, Rota, Selector, SubTrunc, Uniform, UnionFL
from equifl.flower import FairSelection
from fair_digits.task import new_model

SELECTORS: dict[str, Selector] = {
    "rota": Rota(),
    "uniform": Uniform(),
    "power_of_choice": PowerOfChoice(),
    "divfl": DivFL(),
    "subtrunc": SubTrunc(),
    "unionfl": UnionFL(),
}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Start the run that the configuration asks for, or go on with the one that is in its folder."""
    config: dict[str, Any] = dict(context.run_config)
    selector = SELECTORS[config["selector"]]
    options = {name: config[name] for name in ("k", "seed", "probe")} | {"identity": config["identity"] or None}
    if config["resume"]:
        strategy = FairSelection.resume(config["folder"], FedAvg(), selector, **options)
    else:
        strategy = FairSelection(FedAvg(), selector, folder=config["folder"], **options)
    strategy.start(
        grid=grid,
        initial_arrays=strategy.arrays or ArrayRecord(new_model(config["seed"]).state_dict()),
        num_rounds=config["rounds"] - strategy.rounds_played,
        timeout=config["timeout"],
    )
