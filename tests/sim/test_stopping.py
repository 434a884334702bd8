"""Ctrl-C: results so far, and a checkpoint; a second one ends at once. In a notebook: tests/sim/test_progress.py."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from equifl import simulate
from equifl.experiment.callbacks import Callback
from equifl.experiment.results import Records
from equifl.experiment.run_folder import CHECKPOINT
from equifl.sim.stopping import StopRequests
from tests.sim.test_simulation import CONFIG


@pytest.fixture(autouse=True)
def python_s_own_handler() -> Iterator[None]:
    """As in a terminal: a shell starts what runs in the background with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Interrupt(Callback):
    """Presses Ctrl-C after a round, so many times."""

    def __init__(self, after: int, times: int = 1) -> None:
        self.after, self.times = after, times

    def on_round(self, played: int, records: Records) -> None:
        for _ in range(self.times if played == self.after else 0):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_ctrl_c_returns_the_results_so_far(where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run" if where == "folder" else None
    handler = signal.getsignal(signal.SIGINT)
    results = simulate(CONFIG, out=out, callbacks=[Interrupt(2)], evaluate_every=1)
    assert (results.rounds_played, results.finished) == (2, False)
    assert "Rota" in repr(results)
    assert capsys.readouterr().err == "stopping after this round ...\n"
    assert signal.getsignal(signal.SIGINT) is handler
    if out is not None:
        assert (out / CHECKPOINT).exists()
        whole = simulate(CONFIG, evaluate_every=1)
        assert json.loads(json.dumps(whole.records)) == simulate(CONFIG, out=out, evaluate_every=1).records


def test_a_sweep_stops_as_a_whole(tmp_path: Path) -> None:
    sweep = {"train.lr": [0.1, 0.2, 0.3]}
    stopped = simulate(CONFIG, out=tmp_path / "run", sweep=sweep, callbacks=[Interrupt(2)])
    assert list(stopped.parts) == ["train.lr=0.1"]
    assert simulate(CONFIG, out=tmp_path / "run", sweep=sweep).finished


def test_a_second_ctrl_c_ends_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        simulate(CONFIG, callbacks=[Interrupt(1, times=2)])


def test_in_another_thread_or_under_a_handler_of_ones_own_nothing_changes() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(simulate(CONFIG).finished))
    thread.start()
    thread.join()
    assert found == [True]
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        assert simulate(CONFIG, callbacks=[Interrupt(1)]).finished
        assert asked == [signal.SIGINT]
        stop = StopRequests()
        with stop.listening(terminated=True):  # a program of ours takes it
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
    finally:
        signal.signal(signal.SIGINT, before)
