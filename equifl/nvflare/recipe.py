"""FairFedAvgRecipe: a whole job with fair cohorts, for NVFlare's environments (SimEnv, PocEnv, ProdEnv)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from nvflare.app_common.abstract.model_persistor import ModelPersistor
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.job_config.base_fed_job import BaseFedJob
from nvflare.job_config.script_runner import ScriptRunner
from nvflare.recipe.spec import Recipe

from equifl._numerics.checks import keywords, known, require
from equifl.nvflare.controller import FairFedAvg
from equifl.nvflare.job_json import arguments_of
from equifl.selectors import Selector

_OF_A_SITE = ("train_script", "train_args", "launch_external_process", "command")


class FairFedAvgRecipe(Recipe):  # type: ignore[misc]
    """NVFlare's FedAvg recipe, whose cohorts a selector of equifl chooses.

        recipe = FairFedAvgRecipe(model=Net(), num_clients=5, num_rounds=50, train_script="client.py", selector="rota")
        recipe.execute(SimEnv(num_clients=20))

    Args:
        model: the global model to begin with: a PyTorch module; {"class_path": "module.Class", "args": {...}}; arrays
            by name, for scripts that work with NumPy; or a ModelPersistor of NVFlare that has it.
        train_script: the script that every site runs, on the Client API (`nvflare.client`).
        selector: a selector, its name, or its table (see `FairFedAvg`).
        num_clients: sites to train with in each round.
        num_rounds: rounds in all.
        min_clients: sites to wait for before the job starts, with those that are there; it ends when fewer are left
            (default: num_clients).
        name: of the job.
        train_args: arguments of the script.
        framework: of the script; by default PyTorch for its models, and NumPy for arrays.
        launch_external_process: whether the script runs in a process of its own.
        command: what runs it there.
        server_expected_format: how parameters reach the server.
        params_transfer_type: whether sites send their parameters (FULL) or the differences (DIFF).
        key_metric: the metric by which NVFlare keeps the best model.
        options: those of `FairFedAvg`: `timeout`, `evaluate_every`, `folder`, `resume`, ...
    """

    def __init__(
        self,
        *,
        model: Any,
        train_script: str,
        selector: str | Mapping[str, Any] | Selector = "rota",
        num_clients: int,
        num_rounds: int = 5,
        min_clients: int | None = None,
        name: str = "fair_fedavg",
        train_args: str = "",
        framework: FrameworkType | None = None,
        launch_external_process: bool = False,
        command: str = "python3 -u",
        server_expected_format: ExchangeFormat = ExchangeFormat.NUMPY,
        params_transfer_type: TransferType = TransferType.FULL,
        key_metric: str = "accuracy",
        **options: Any,
    ) -> None:
        known("FairFedAvgRecipe", options, [*keywords(FairFedAvgRecipe), *arguments_of(FairFedAvg)])
        arrays = isinstance(model, Mapping) and not ({"class_path", "path"} & model.keys())
        numpy = arrays or isinstance(model, ModelPersistor)
        self.train_script, self.train_args, self.command = train_script, train_args, command
        self.launch_external_process = launch_external_process
        self.per_site_config: dict[str, dict[str, Any]] = {}
        self._exchange = {
            "framework": framework or (FrameworkType.NUMPY if numpy else FrameworkType.PYTORCH),
            "server_expected_format": server_expected_format,
            "params_transfer_type": params_transfer_type,
        }
        job = BaseFedJob(name=name, min_clients=min_clients or num_clients, key_metric=key_metric)
        job.set_app_packages(["equifl"])  # it is installed on the server; NVFlare would copy some of its files
        if arrays:
            options = {"persistor_id": "", "model": model} | options
        else:
            options = {"persistor_id": _persistor(job, model, server_expected_format)} | options
        job.to_server(FairFedAvg(selector=selector, num_clients=num_clients, num_rounds=num_rounds, **options))
        super().__init__(job)

    def _apply_per_site_config(self, config: dict[str, dict[str, Any]]) -> None:
        for site, options in config.items():
            known(f"per-site option of {site}", options, _OF_A_SITE)
        self.per_site_config = config

    def _prepare_client_apps(self) -> None:
        if not self.per_site_config:
            self._job.to_clients(self._runner({}))
        for site, options in self.per_site_config.items():
            self._job.to(self._runner(options), site)

    def _runner(self, options: Mapping[str, Any]) -> ScriptRunner:
        chosen = {key: options.get(key, getattr(self, key)) for key in _OF_A_SITE}
        script, arguments = chosen.pop("train_script"), chosen.pop("train_args")
        return ScriptRunner(script=script, script_args=arguments, **chosen, **self._exchange)


def _persistor(job: BaseFedJob, model: Any, expected: ExchangeFormat) -> str:
    """Add what loads and saves the model to the server; returns its id."""
    if isinstance(model, ModelPersistor):
        return str(job.to_server(model, id="persistor"))
    is_torch = isinstance(model, Mapping) or hasattr(model, "state_dict")
    what = "a PyTorch module, {'class_path': ...}, arrays by name, or a ModelPersistor"
    require("model", model, is_torch and not isinstance(model, np.ndarray), what)
    from nvflare.app_opt.pt.job_config.model import PTModel  # needs torch

    if isinstance(model, Mapping):
        model = {"path": model.get("class_path", model.get("path")), "args": dict(model.get("args", {}))}
    found = job.to_server(PTModel(model, allow_numpy_conversion=expected != ExchangeFormat.PYTORCH), id="persistor")
    job.comp_ids.update(found)
    return str(found["persistor_id"])
