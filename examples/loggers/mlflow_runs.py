"""Every figure in MLflow, a run a selector and seed, in a folder or on a server: pip install mlflow-skinny."""

import os
from typing import Any

from mlflow import MlflowClient

from equifl import Callback, simulate
from equifl.experiment.results import Records


class MLflow(Callback):
    """Logs to an experiment at an address: of a server, or a folder; of a database with the whole `mlflow`."""

    def __init__(self, address: str, experiment: str) -> None:
        self._client, self._runs = MlflowClient(address), dict[tuple[str, int], str]()
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = found.experiment_id if found else self._client.create_experiment(experiment)

    def on_round(self, played: int, records: Records) -> None:
        for record in records:
            selector, seed = run = record["selector"], record["seed"]
            if run not in self._runs:
                made = self._client.create_run(self._experiment, run_name=f"{selector} {seed}")
                self._runs[run] = made.info.run_id
                self._client.log_param(made.info.run_id, "selector", selector)
                self._client.log_param(made.info.run_id, "seed", seed)
            for name, value in record.items():
                if isinstance(value, float):
                    self._client.log_metric(self._runs[run], name, value, step=record["round"])

    def on_end(self, results: Any) -> None:
        for run in self._runs.values():
            self._client.set_terminated(run)


if __name__ == "__main__":
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 prefers a database to a folder
    simulate(selectors=["uniform", "rota"], model="mlp", rounds=10, seeds=2, callbacks=[MLflow("mlruns", "equifl")])
