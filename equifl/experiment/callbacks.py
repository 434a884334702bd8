"""What an experiment tells others while it is played."""

from __future__ import annotations

from typing import Any

from equifl.experiment.config import Config
from equifl.experiment.results import Records, Results


class Callback:
    """Inherit it and say what you want to be told of; `simulate(callbacks=[...])` calls it."""

    def on_start(self, config: Config, player: Any) -> None:
        """Everything is ready; `player` says on which `device`, and by a `note` why by which engine."""

    def on_round(self, played: int, records: Records) -> bool | None:
        """So many rounds are played; the records since the last time. False stops the experiment after this round."""

    def on_end(self, results: Results) -> None:
        """It is finished, or was stopped."""
