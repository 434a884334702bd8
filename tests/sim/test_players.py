"""How often a player returns a checkpoint."""

from pathlib import Path
from typing import Any

import pytest

from equifl.experiment.config import Config
from equifl.experiment.run_folder import RunFolder
from equifl.sim import players
from equifl.sim.loop.federation import Federation
from equifl.sim.players import LocalPlayer
from equifl.sim.simulation import load_data

CONFIG = Config.load(overrides=["rounds=20", "clients=5", "per_round=2", "seeds=[0]", "train.model=logistic"])


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("writing", "expected"), [(0.1, 30.0), (3.0, 60.0 + 10.0)])
def test_checkpoints_that_take_long_are_made_less_often(
    writing: float, expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round takes 10 s: 30 s pass between quick checkpoints, and 20 s for each second that a slow one took."""
    clock: Any = Clock()
    monkeypatch.setattr(players, "time", clock)
    player = LocalPlayer(CONFIG, load_data(CONFIG, None), device="cpu", engine="torch")
    play = Federation.play

    def ten_seconds(federation: Federation) -> Any:
        clock.now += 10.0
        return play(federation)

    monkeypatch.setattr(Federation, "play", ten_seconds)
    written: list[float] = []
    with RunFolder.open(tmp_path / "run", CONFIG.as_dict(), {}) as folder:
        player.begin(folder, None, [])
        for _ in range(13):
            if player.play(more=True)[1] is not None:
                written.append(clock.now)
                clock.now += writing
    assert written[0] == 130.0
    assert written[1] - written[0] - writing == pytest.approx(expected)
