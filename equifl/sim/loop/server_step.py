"""The server rule of an experiment: what it is given in each run, its memory, and where that is kept."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equifl.aggregators.base import Aggregator, Replies, replied_weights, rule_bytes
from equifl.aggregators.last_updates import map_rows, reopened, saved
from equifl.experiment.config import Config
from equifl.experiment.names import display_name, listed
from equifl.experiment.rule_tables import make_rule
from equifl.experiment.run_folder import SERVER_MEMORY
from equifl.selectors.base import HasWeights, weights_of
from equifl.signals import Floats, Ints, Signals
from equifl.sim.engines.torch.transfers import to_device
from equifl.sim.loop.runs import Run
from equifl.sim.loop.server_memory import memories_layout, memories_of_state, memories_to_state
from equifl.sim.memory import in_words

log = logging.getLogger(__name__)


class ServerStep:
    """The server rule, with its memory in every run.

    Args:
        config: of the experiment.
        runs: all runs.
        parameters: the length of an update.
        device: where the updates are.

    Attributes:
        rule: the rule.
    """

    def __init__(self, config: Config, runs: Sequence[Run], parameters: int, device: torch.device) -> None:
        self.rule: Aggregator = make_rule(config.server.aggregate)
        self._runs, self._parameters, self._device = runs, parameters, device
        self._clients = len(runs[0].environment.sizes)
        self._in_file = getattr(self.rule, "keep", None) == "file" and hasattr(self.rule, "file_bytes")
        self._rows: Any = None
        self._weights: dict[int, Floats] = {}
        self._say()

    def _say(self) -> None:
        """What a user should know before the run starts."""
        runs = len(self._runs)
        size = runs * rule_bytes(self.rule, self._clients, self._parameters)
        if self._in_file:
            on_disk = runs * self.rule.file_bytes(self._clients, self._parameters)  # type: ignore[attr-defined]
            log.info("server.aggregate: the rule keeps %s in a file", in_words(on_disk))
        elif size >= 2**20:
            log.info("server.aggregate: the rule keeps %s in memory, and in each checkpoint", in_words(size))
        without = {run.name: None for run in self._runs if not isinstance(run.selector, HasWeights)}
        if "weights" in self.rule.needs and without:
            names = listed([display_name(name) for name in without])
            log.warning("server.aggregate: %s: no weights; the replies of a cohort count the same there", names)

    def open(self, folder: Path | None, *, resumed: bool) -> None:
        """Map the file of the memory, if the rule keeps it there: in the run folder, or without a name."""
        if not self._in_file:
            return
        path = None if folder is None else folder / SERVER_MEMORY
        if path is not None and not resumed:
            path.unlink(missing_ok=True)  # of a run that was killed before its first checkpoint
        if path is not None and resumed and not path.exists():
            raise ValueError(f"it belongs to {path.name}, which is missing")
        self._rows = map_rows(path, len(self._runs), self._clients, self._parameters)

    def selected(self, i: int, signals: Signals, cohort: Ints) -> None:
        """Keep the selector's weights of a cohort, if the rule looks at them and the selector has any."""
        run = self._runs[i]
        if "weights" in self.rule.needs and isinstance(run.selector, HasWeights) and len(cohort):
            self._weights[i] = weights_of(run.selector, signals, cohort, f"selectors.{run.name}")

    def step(self, i: int, replies: Replies, cohort: Ints) -> Tensor:
        """(d,) the step of a run, whose memory becomes the new one."""
        run = self._runs[i]
        replies = replace(replies, population=self._clients, weights=self._replied(i, replies.clients, cohort))
        if run.memory is None and self._in_file:
            if self._rows is None:
                self.open(None, resumed=False)
            run.memory = self.rule.start(self._clients, replies.updates, self._rows[i])  # type: ignore[attr-defined]
        step, run.memory = self.rule.step(replies, run.memory)
        return step

    def _replied(self, i: int, clients: Ints, cohort: Ints) -> Tensor | None:
        """The weights of those who replied; they have the share of those who did not."""
        if i not in self._weights:
            return None
        return to_device(replied_weights(self._weights.pop(i), cohort, clients), self._device)

    def state(self) -> dict[str, NDArray[Any]]:
        """The memories of all runs as plain arrays; what is in a file stays there, and is on the disk then."""
        if self._rows is not None:
            self._rows.flush()
        return memories_to_state([_without_file(run.memory) for run in self._runs])

    def saved(self) -> None:
        """The last state is on the disk, in a checkpoint."""
        for run in self._runs if self._in_file else ():
            if run.memory is not None:
                saved(run.memory)

    def layout(self, state: Mapping[str, NDArray[Any]]) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """The type and shape that its arrays of a checkpoint must have."""
        return memories_layout(state, len(self._runs))

    def memories(self, state: Mapping[str, NDArray[Any]]) -> list[Any]:
        """The memories of all runs from a checkpoint."""
        found = memories_of_state(state, self._device)
        if not self._in_file:
            return found
        if self._rows is None:
            raise ValueError("checkpoint: has no file of the server's memory with it")
        return [None if each is None else reopened(each, self._rows[i]) for i, each in enumerate(found)]


def _without_file(memory: Any) -> Any:
    if isinstance(memory, dict) and isinstance(memory.get("updates"), np.memmap):
        return {name: part for name, part in memory.items() if name not in ("updates", "saved")}
    return memory
