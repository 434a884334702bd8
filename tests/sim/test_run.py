from pathlib import Path
from typing import Any

import pytest

from equifl.config import Config
from equifl.records import RunFolder
from equifl.sim.federation import Federation
from equifl.sim.run import choose_device, load_data, made_with, run

TINY = ["rounds=2", "clients=10", "per_round=2", "seeds=[0]", "train.model=logistic", "train.steps=1"]


def play(folder: Path) -> bool:
    config = Config.load(None, TINY)
    federation = Federation(config, load_data(config, None), device="cpu")
    with RunFolder.open(folder, config.as_dict(), made_with("cpu", federation.engine.name)) as opened:
        return run(federation, opened, on_round=lambda played, rows: True)


@pytest.mark.parametrize("kept", [0, 5])
def test_records_that_went_missing_are_noticed(kept: int, tmp_path: Path) -> None:
    assert play(tmp_path / "run")
    rounds = tmp_path / "run" / "rounds.jsonl"
    lines = rounds.read_text().splitlines(keepends=True)
    assert len(lines) == 12  # six selectors, two rounds
    rounds.write_text("".join(lines[:kept]))
    with pytest.raises(ValueError, match=rf"rounds.jsonl: {kept} records where the checkpoint has 12; put the whole"):
        play(tmp_path / "run")


def test_a_finished_run_has_nothing_left_to_play(tmp_path: Path) -> None:
    assert play(tmp_path / "run")
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    assert play(tmp_path / "run")
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    there: Any = {"value": False}
    monkeypatch.setattr("torch.cuda.is_available", lambda: there["value"])
    assert choose_device("auto") == "cpu"
    with pytest.raises(ValueError, match=r"device: 'cuda' is not allowed; .* PyTorch finds no GPU"):
        choose_device("cuda")
    there["value"] = True
    assert choose_device("auto") == choose_device("cuda") == "cuda"
