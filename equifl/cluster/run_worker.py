"""A worker of a sweep: some of its runs, in a process of Ray's.

It imports PyTorch when it prepares its runs, and not before: it has started, then, as soon as it has its CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from equifl.signals import Ints

if TYPE_CHECKING:
    from equifl.experiment.config import Config
    from equifl.sim.data.dataset import Dataset


class Worker:
    """A worker's runs: a `Federation` of its own."""

    def prepare(
        self, config: Config, dataset: Dataset, device: str, engine: str, objects: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], str]:
        """Build the federation, with objects that have no name.

        Returns the versions and machine for the record, and a note on the engine.
        """
        from equifl.sim.loop.federation import Federation
        from equifl.sim.players import made_with

        self._federation = Federation(config, dataset, device=device, engine=engine, **(objects or {}))
        return made_with(device, self._federation.engine.name), self._federation.note

    def load(self, state: dict[str, NDArray[Any]], cohorts: Mapping[tuple[str, int], list[Ints]]) -> None:
        """Continue from a checkpoint."""
        self._federation.load_state(state, cohorts)

    def play(self, keep: bool) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]] | None]:
        """Run one round; returns its records, and a checkpoint after it if `keep`."""
        return self._federation.play(), self._federation.state() if keep else None

    def state(self, most: int | None) -> dict[str, NDArray[Any]] | None:
        """A checkpoint, if it has at most so many bytes."""
        from equifl.sim.players import state_of

        return state_of(self._federation, most)
