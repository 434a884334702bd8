"""Callbacks of an experiment."""

from __future__ import annotations

from typing import Any

from equifl.experiment.config import Config
from equifl.experiment.results import Records, Results


class Callback:
    """Inherit it and override the methods you need; `simulate(callbacks=[...])` calls them.

    Of a run folder that grows, each part that is played has its own start and rounds; the end is that of the whole.
    """

    def on_start(self, config: Config, player: Any) -> None:
        """Called before the first round; `player` has the `device`, and a `note` on the engine."""

    def on_round(self, played: int, records: Records) -> bool | None:
        """Called after each round, with the number of rounds so far and the new records; return False to stop."""

    def on_end(self, results: Results) -> None:
        """Called when the experiment is finished or was stopped; alone, if its folder was finished already."""
