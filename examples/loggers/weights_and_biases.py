"""Every figure in Weights & Biases, a run a selector and seed: pip install wandb.

Without an account: WANDB_MODE=offline python weights_and_biases.py
"""

from typing import Any

import wandb

from equifl import Callback, simulate
from equifl.experiment.results import Records


class WeightsAndBiases(Callback):
    """Logs to a project; the seeds of a selector are a group."""

    def __init__(self, project: str) -> None:
        self._project, self._runs = project, dict[tuple[str, int], Any]()

    def on_round(self, played: int, records: Records) -> None:
        for record in records:
            selector, seed = run = record["selector"], record["seed"]
            if run not in self._runs:
                names = {"project": self._project, "group": selector, "name": f"{selector} {seed}"}
                self._runs[run] = wandb.init(**names, config={"selector": selector, "seed": seed}, reinit="create_new")
            numbers = {name: value for name, value in record.items() if isinstance(value, float)}
            self._runs[run].log(numbers, step=record["round"])

    def on_end(self, results: Any) -> None:
        for run in self._runs.values():
            run.finish()


if __name__ == "__main__":
    simulate(selectors=["uniform", "rota"], model="mlp", rounds=10, seeds=2, callbacks=[WeightsAndBiases("equifl")])
