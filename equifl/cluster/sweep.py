"""An experiment on a Ray cluster: its runs in groups, one a worker; its records and checkpoints in the one folder."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from equifl._numerics.checks import require
from equifl.cluster.run_worker import Worker
from equifl.cluster.session import connect, connection, resource, stored
from equifl.cluster.watch import ClusterLostError
from equifl.cluster.workers import DEATHS, WAIT_LIMIT, WorkerDiedError, check_wait_limit, results, started
from equifl.experiment.config import Config
from equifl.experiment.results import Records
from equifl.experiment.run_folder import RunFolder
from equifl.experiment.task_table import TaskFunction
from equifl.sim.data.dataset import Dataset
from equifl.sim.loop.parts import State, joined, part_of, runs_of, split
from equifl.sim.models.zoo import MakeModule
from equifl.sim.players import CHECKPOINT_SECONDS, cohorts_of

log = logging.getLogger("equifl")

_AHEAD = 3  # rounds that workers may be ahead of the record, so that none waits for another in every round


class Group:
    """Some runs and their worker; if that dies, another takes over.

    The new worker starts at the last checkpoint in the folder, or at the beginning, and repeats the same rounds.
    """

    def __init__(
        self,
        whole: Config,
        config: Config,
        dataset: Any,
        device: str,
        engine: str,
        objects: Mapping[str, Any] | None = None,
        *,
        groups: int,
        wait_limit: float = WAIT_LIMIT,
    ) -> None:
        self.config = config
        self._whole = whole
        self._made_of = dataset, device, engine, objects
        self._kind = "GPU" if device == "cuda" else "CPU"
        self._groups, self._wait_limit = groups, wait_limit
        self._asked: deque[tuple[str, tuple[Any, ...], Any]] = deque()  # what is not answered yet: method and call
        self._deaths = 0
        self._start_worker()

    def _start_worker(self, *, shares: bool = False) -> None:
        # A GPU without a CPU, or runs would wait where there are more GPUs than CPUs. Who shares needs a node with
        # CPUs, but none of its own there.
        need: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0} if self._kind == "GPU" else {"num_cpus": 1}
        need = {} if shares else need
        connection()
        workers: Any = ray.remote(Worker)
        self.worker: Any = workers.options(**need).remote()
        self.started = self.worker.__ray_ready__.remote()
        self.ready = [self.worker.prepare.remote(self.config, *self._made_of)]

    def prepared(self) -> tuple[dict[str, Any], str]:
        """What `Worker.prepare` returned, of this worker or its replacement."""
        return self._survived(lambda: results(self.ready)[0], None, 0)

    def resume(self, checkpoint: State, rows: Sequence[dict[str, Any]]) -> None:
        """Continue from a checkpoint of the whole sweep and the records up to it."""
        mine = set(runs_of(self.config))
        cohorts = {run: chosen for run, chosen in cohorts_of(rows).items() if run in mine}
        connection()
        self.ready.append(self.worker.load.remote(part_of(checkpoint, self._whole, self.config), cohorts))

    def ask(self, method: str, *arguments: bool | int | None) -> None:
        """Call a method of the worker; `answer` returns the results in the same order."""
        self._asked.append((method, arguments, getattr(self.worker, method).remote(*arguments)))

    def answer(self, folder: RunFolder | None, written: int) -> Any:
        """The result of the oldest call, from this worker or its replacement; `written` rounds are in the folder."""
        answer = self._survived(lambda: results([*self.ready, self._asked[0][2]])[-1], folder, written)
        self._asked.popleft()
        return answer

    def close(self) -> None:
        """End the worker, or its waiting for a place."""
        ray.kill(self.worker)

    def _survived(self, get: Callable[[], Any], folder: RunFolder | None, written: int) -> Any:
        while True:
            try:
                answer = get()
            except WorkerDiedError as error:
                self._deaths += 1
                if self._deaths == DEATHS:
                    raise OSError(f"ray: {DEATHS} workers in a row died over round {written} ({error})") from None
                log.warning("ray: a worker died over round %d (%s); another takes over", written, error)
                self._take_over(folder, written)
            else:
                self._deaths = 0
                return answer

    def _take_over(self, folder: RunFolder | None, written: int) -> None:
        self.close()  # it may be cut off and not dead, and would keep its CPU
        self._start_worker()
        limit = self._wait_limit
        if not started([self.started], self._kind, limit, least=self._groups if self._kind == "CPU" else 0):
            log.warning(
                "ray: the cluster has fewer CPUs than the %d workers: one that takes over shares", self._groups
            )
            self.close()
            self._start_worker(shares=True)
            started([self.started], self._kind, limit)
        checkpoint = None if folder is None else folder.load_checkpoint()
        played = 0 if checkpoint is None else int(checkpoint["rounds_played"])
        if folder is not None and checkpoint is not None:
            self.resume(checkpoint, folder.rows(played * len(runs_of(self._whole))))
        for _ in range(played, written):
            self.worker.play.remote(False)  # recorded already
        again, self._asked = self._asked, deque()
        for method, arguments, _ in again:
            self.ask(method, *arguments)


class Sweep:
    """Runs all runs of a configuration on as many workers as the cluster has GPUs, or CPUs if it has none.

    It is a `equifl.sim.players.Player`, made by `functools.partial(Sweep, address=...)` for `simulate(player=...)`.

    Args:
        config: every selector with every seed.
        dataset: put into the cluster's object store once.
        device: auto, cpu or cuda; auto is cuda if the cluster has a GPU.
        engine: auto, torch or compiled.
        model: makes the model, if the configuration has no name for it; workers get a copy.
        functions: the task's loss and score, likewise.
        address: of the cluster; None = start one here.
        wait_limit: seconds to wait for free CPUs or GPUs, one a worker; then there is a `TimeoutError`.

    Raises (also `play` and `state`):
        ClusterLostError: the head of the cluster is gone for half a minute, or the node of this process is.
    """

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        *,
        device: str,
        engine: str = "auto",
        model: MakeModule | None = None,
        functions: Mapping[str, TaskFunction] | None = None,
        address: str | None,
        wait_limit: float = WAIT_LIMIT,
    ) -> None:
        kept = config.server.aggregate if isinstance(config.server.aggregate, dict) else {}
        require("server.aggregate.keep", kept.get("keep"), kept.get("keep") != "file", "whole or float16 on a cluster")
        check_wait_limit(wait_limit)
        connect(address)
        gpus = resource("GPU")
        if device == "cuda" and not gpus:
            raise ValueError("device: 'cuda' is not allowed; allowed: auto or cpu, because the cluster has no GPU")
        self.config = config
        self.device = "cuda" if gpus and device != "cpu" else "cpu"
        [data] = stored(dataset)
        workers = max(1, gpus if self.device == "cuda" else resource("CPU"))
        parts = split(config, workers)
        options: dict[str, Any] = {"groups": len(parts), "wait_limit": wait_limit}
        objects = {"model": model, "functions": functions}
        self.groups = [Group(config, part, data, self.device, engine, objects, **options) for part in parts]
        self.made_with: dict[str, Any]
        self.note: str
        try:
            started([group.started for group in self.groups], "GPU" if self.device == "cuda" else "CPU", wait_limit)
            prepared = [group.prepared() for group in self.groups]
            self.made_with, self.note = prepared[0]
        except BaseException:
            self.close()
            raise
        self.ahead = 0
        self._folder: RunFolder | None = None
        self._played, self._saved = 0, time.monotonic()

    def begin(self, folder: RunFolder | None, checkpoint: State | None, records: Records) -> None:
        """See `Player.begin`."""
        self._folder, self._saved = folder, time.monotonic()
        self._played = len(records) // len(runs_of(self.config))
        if checkpoint is not None:
            for group in self.groups:
                group.resume(checkpoint, records)

    def play(self, *, more: bool) -> tuple[Records, State | None]:
        """See `Player.play`."""
        while more and self.ahead < min(_AHEAD, self.config.rounds - self._played):
            keep = self._folder is not None and time.monotonic() - self._saved > CHECKPOINT_SECONDS
            self._saved = time.monotonic() if keep else self._saved
            self._ask("play", keep)
            self.ahead += 1
        answers = self._answers()
        self.ahead -= 1
        self._played += 1
        found = {(row["selector"], row["seed"]): row for rows, _ in answers for row in rows}
        states = [state for _, state in answers if state is not None]
        return [found[run] for run in runs_of(self.config)], self._joined(states) if states else None

    def state(self, most: int | None = None) -> State | None:
        """See `Player.state`."""
        self._ask("state", most)
        states = self._answers()
        size = sum(array.nbytes for state in states for array in (state or {}).values())
        small = most is None or size <= most
        return self._joined(states) if small and all(state is not None for state in states) else None

    def saved(self) -> None:
        """See `Player.saved`: workers keep nothing beside a checkpoint."""

    def close(self) -> None:
        """End the workers, if the cluster is still there."""
        try:
            connection()
        except ClusterLostError:
            return
        for group in self.groups:
            group.close()

    def _ask(self, method: str, *arguments: bool | int | None) -> None:
        for group in self.groups:
            group.ask(method, *arguments)

    def _answers(self) -> list[Any]:
        return [group.answer(self._folder, self._played) for group in self.groups]

    def _joined(self, states: Sequence[State]) -> State:
        return joined(states, self.config, [group.config for group in self.groups])
