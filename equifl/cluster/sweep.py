"""An experiment on a Ray cluster: its runs in groups, one a worker; its records and checkpoints in the one folder."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from numpy.typing import NDArray
from ray.exceptions import RayActorError, RayTaskError

from equifl._numerics.checks import require
from equifl.cluster.session import connect, resource
from equifl.experiment.config import Config
from equifl.experiment.results import Records
from equifl.experiment.run_folder import RunFolder
from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset
from equifl.sim.loop.federation import Federation
from equifl.sim.loop.parts import State, joined, part_of, runs_of, split
from equifl.sim.models.zoo import MakeModule
from equifl.sim.players import CHECKPOINT_SECONDS, cohorts_of, made_with, state_of

_AHEAD = 3  # rounds that workers may be ahead of the record, so that none waits for another in every round
_DEATHS = 5  # of one worker after another, without a finished round, before the experiment is considered the cause


class Worker:
    """A worker's runs: a `Federation` of its own."""

    def prepare(
        self, config: Config, dataset: Dataset, device: str, engine: str, model: MakeModule | None = None
    ) -> tuple[dict[str, Any], str]:
        """Build the federation; returns the versions and machine for the record, and a note on the engine."""
        self._federation = Federation(config, dataset, device=device, engine=engine, model=model)
        return made_with(device, self._federation.engine.name), self._federation.note

    def load(self, state: dict[str, NDArray[Any]], cohorts: Mapping[tuple[str, int], list[Ints]]) -> None:
        """Continue from a checkpoint."""
        self._federation.load_state(state, cohorts)

    def play(self, keep: bool) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]] | None]:
        """Run one round; returns its records, and a checkpoint after it if `keep`."""
        return self._federation.play(), self._federation.state() if keep else None

    def state(self, most: int | None) -> dict[str, NDArray[Any]] | None:
        """A checkpoint, if it has at most so many bytes."""
        return state_of(self._federation, most)


class Group:
    """Some runs and their worker; if that dies, another takes over.

    The new worker starts at the last checkpoint in the folder, or at the beginning, and repeats the same rounds.
    """

    def __init__(
        self, whole: Config, config: Config, dataset: Any, device: str, engine: str, model: MakeModule | None = None
    ) -> None:
        self.config = config
        self._whole = whole
        self._made_of = dataset, device, engine, model
        self._asked: deque[tuple[str, tuple[Any, ...], Any]] = deque()  # what is not answered yet: method and call
        self._deaths = 0
        self._start_worker()

    def _start_worker(self) -> None:
        # A GPU without a CPU, or runs would wait where there are more GPUs than CPUs.
        need: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0} if self._made_of[1] == "cuda" else {"num_cpus": 1}
        workers: Any = ray.remote(Worker)
        self.worker: Any = workers.options(**need).remote()
        self.ready = [self.worker.prepare.remote(self.config, *self._made_of)]

    def resume(self, checkpoint: State, rows: Sequence[dict[str, Any]]) -> None:
        """Continue from a checkpoint of the whole sweep and the records up to it."""
        mine = set(runs_of(self.config))
        cohorts = {run: chosen for run, chosen in cohorts_of(rows).items() if run in mine}
        self.ready.append(self.worker.load.remote(part_of(checkpoint, self._whole, self.config), cohorts))

    def ask(self, method: str, *arguments: bool | int | None) -> None:
        """Call a method of the worker; `answer` returns the results in the same order."""
        self._asked.append((method, arguments, getattr(self.worker, method).remote(*arguments)))

    def answer(self, folder: RunFolder | None, written: int) -> Any:
        """The result of the oldest call, from this worker or its replacement; `written` rounds are in the folder."""
        while True:
            try:
                got(self.ready)
                answer = got(self._asked[0][2])
            except RayActorError as error:
                self._deaths += 1
                if self._deaths == _DEATHS:
                    raise OSError(f"ray: {_DEATHS} workers in a row died over round {written} ({error})") from None
                self._take_over(folder, written)
            else:
                self._asked.popleft()
                self._deaths = 0
                return answer

    def _take_over(self, folder: RunFolder | None, written: int) -> None:
        self._start_worker()
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
        address: of the cluster; None = start one here.
    """

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        *,
        device: str,
        engine: str = "auto",
        model: MakeModule | None = None,
        address: str | None,
    ) -> None:
        kept = config.server.aggregate if isinstance(config.server.aggregate, dict) else {}
        require("server.aggregate.keep", kept.get("keep"), kept.get("keep") != "file", "whole or float16 on a cluster")
        connect(address)
        gpus = resource("GPU")
        if device == "cuda" and not gpus:
            raise ValueError("device: 'cuda' is not allowed; allowed: auto or cpu, because the cluster has no GPU")
        self.config = config
        self.device = "cuda" if gpus and device != "cpu" else "cpu"
        stored = ray.put(dataset)
        workers = max(1, gpus if self.device == "cuda" else resource("CPU"))
        self.groups = [Group(config, part, stored, self.device, engine, model) for part in split(config, workers)]
        self.made_with: dict[str, Any]
        self.note: str
        self.made_with, self.note = got([group.ready[0] for group in self.groups])[0]
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
        """End the workers."""
        for group in self.groups:
            ray.kill(group.worker)

    def _ask(self, method: str, *arguments: bool | int | None) -> None:
        for group in self.groups:
            group.ask(method, *arguments)

    def _answers(self) -> list[Any]:
        return [group.answer(self._folder, self._played) for group in self.groups]

    def _joined(self, states: Sequence[State]) -> State:
        return joined(states, self.config, [group.config for group in self.groups])


def got(call: Any) -> Any:
    """A worker's result; its exceptions are raised here without Ray's wrapper."""
    try:
        return ray.get(call)
    except RayTaskError as error:
        if isinstance(error.cause, Exception) and not isinstance(error.cause, RayActorError):
            raise error.cause from None
        raise
