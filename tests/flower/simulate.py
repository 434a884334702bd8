"""A Flower simulation of 20 nodes: every selector in two strategies, and one run that is stopped and continued.

python -m tests.flower.simulate FOLDER first|again
"""

import sys
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg
from flwr.simulation import run_simulation

from equifl import DivFL, PowerOfChoice, Rota, SubTrunc, Uniform, UnionFL
from equifl.flower import FairSelection
from tests.flower.federation import app, initial_arrays

ROUNDS, STOP = 4, 2
SELECTORS = (Uniform(), PowerOfChoice(), DivFL(), SubTrunc(), UnionFL(), Rota())
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    folder, turn = Path(sys.argv[1]), sys.argv[2]
    for inner in (FedAvg, FedAdam):
        for selector in SELECTORS:
            name = f"{turn}-{inner.__name__}-{type(selector).__name__}"
            strategy = FairSelection(inner(), selector, k=5, wait_for=20, folder=folder / name)
            strategy.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=ROUNDS, timeout=60)
    options = {"k": 5, "wait_for": 20, "identity": "partition-id", "probe": "newcomers"}
    if turn == "first":
        for name, rounds in (("whole", ROUNDS), ("parts", STOP)):
            strategy = FairSelection(FedAvg(), DivFL(), folder=folder / name, **options)  # type: ignore[arg-type]
            strategy.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=rounds, timeout=60)
        strategy = FairSelection(FedAvg(), Rota(), k=5, extra=10, wait_for=20, folder=folder / "extra")
        strategy.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=2, timeout=60)
    else:
        strategy = FairSelection.resume(folder / "parts", FedAvg(), DivFL(), **options)
        assert strategy.arrays is not None
        left = ROUNDS - strategy.rounds_played
        strategy.start(grid=grid, initial_arrays=strategy.arrays, num_rounds=left, timeout=60)


if __name__ == "__main__":
    run_simulation(
        server_app=server,
        client_app=app,
        num_supernodes=20,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}},
    )
