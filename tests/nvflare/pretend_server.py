"""FairFedAvg without NVFlare's server: sites are functions, and answer at once."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from equifl.experiment.run_folder import RunFolder
from equifl.nvflare import FairFedAvg

SIZE = 6
MODEL = {"w": np.zeros(SIZE, np.float32), "b": np.ones(2, np.float32), "steps": np.zeros(1, np.float32)}

Site = Callable[[FLModel, str], FLModel | None]


def site(number: int) -> Site:
    """A site that moves the model towards its own, which its number decides."""
    own = np.random.default_rng(number).normal(size=SIZE).astype(np.float32)

    def answer(received: FLModel, task: str) -> FLModel | None:
        distance = float(np.abs(received.params["w"] - own).mean())
        metrics = {"accuracy": 1 / (1 + distance), "train_loss": distance}
        if task == "validate":
            return FLModel(metrics=metrics)
        w = received.params["w"] + 0.3 * (own - received.params["w"])
        params = {"w": w.astype(np.float32), "b": received.params["b"], "steps": received.params["steps"] + 1}
        meta = {"NUM_STEPS_CURRENT_ROUND": 10 + number}
        return FLModel(ParamsType.FULL, params, metrics=metrics, meta=meta)

    return answer


def changed(number: int, change: Callable[[FLModel], FLModel | None]) -> Site:
    """A site whose training results are changed."""
    honest = site(number)

    def answer(received: FLModel, task: str) -> FLModel | None:
        result = honest(received, task)
        assert result is not None
        return change(result) if task == "train" else result

    return answer


def sites(count: int, **others: Site | None) -> dict[str, Site]:
    """site-1, site-2, ...; by name, such as site_2, others instead, or nobody."""
    all_sites = {f"site-{i}": site(i) for i in range(1, count + 1)}
    replaced = {name.replace("_", "-"): one for name, one in others.items()}
    return {name: one for name, one in (all_sites | replaced).items() if one is not None}


class PretendServer(FairFedAvg):
    """Plays the rounds in this process. `log` has what was logged, `sent` every task with its targets."""

    def __init__(self, clients: Mapping[str, Site], root: Path, **options: Any) -> None:
        defaults: dict[str, Any] = {"model": MODEL, "persistor_id": "", "num_clients": 3}
        super().__init__(**(defaults | options))
        self.clients, self.gone = clients, set[str]()
        root.mkdir(exist_ok=True)
        self.log: list[str] = []
        self.sent: list[tuple[str, list[str], dict[str, Any]]] = []
        self.engine = SimpleNamespace(
            get_clients=lambda: [SimpleNamespace(name=name) for name in self.clients],
            get_workspace=lambda: SimpleNamespace(
                get_result_root=lambda job: str(root), get_run_dir=lambda job: str(root)
            ),
            fire_event=lambda *_: None,
        )
        self.fl_ctx = FLContext()
        self.fl_ctx.set_prop(ReservedKey.RUN_NUM, "job")
        self.abort_signal = Signal()
        self.after_round: Callable[[int], None] = lambda played: None

    def broadcast_model(self, data: FLModel, task_name: str, targets: list[str], **options: Any) -> list[FLModel]:
        self.sent.append((task_name, list(targets), options))
        results = []
        for name in sorted(targets):  # in another order than they were chosen
            result = self.clients[name](data, task_name)
            if result is not None:
                result.meta = {**(result.meta or {}), "client_name": name}
                results.append(result)
                if options.get("callback"):
                    options["callback"](result)
        return results

    def get_num_standing_tasks(self) -> int:
        return 0

    def get_client_disconnect_time(self, client_name: str) -> float | None:
        return 1.0 if client_name in self.gone else None

    def update_model(self, model: FLModel, aggr_result: FLModel) -> FLModel:
        new = super().update_model(model, aggr_result)
        self.after_round(self.current_round)
        return new

    def event(self, event_type: str) -> None:
        pass

    def fire_event_with_data(self, *args: Any) -> None:
        pass

    def info(self, msg: str) -> None:
        self.log.append(msg)

    warning = error = panic = info

    def logged(self, part: str) -> list[str]:
        return [line for line in self.log if part in line]

    @property
    def cohorts(self) -> list[list[str]]:
        return [targets for task, targets, _ in self.sent if task == "train"]


def play(clients: Mapping[str, Site], root: Path, **options: Any) -> PretendServer:
    server = PretendServer(clients, root, **options)
    server.run()
    return server


def rows(folder: Path) -> list[dict[str, Any]]:
    return list(RunFolder(folder).rows())


def model_in(root: Path) -> dict[str, Any]:
    with np.load(root / "global_model.npz") as file:
        return dict(file)


def numbers(names: Iterable[str]) -> list[int]:
    return [int(name.removeprefix("site-")) for name in names]
