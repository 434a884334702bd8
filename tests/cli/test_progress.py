import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from equifl.cli import progress
from equifl.cli.progress import Watch, downloads, notes
from equifl.experiment.config import Config

CONFIG = Config(rounds=40, seeds=(0, 1), selectors={"uniform": {}, "rota": {}})


@contextmanager
def watching(config: Config, *, silent: bool = False) -> Iterator[Watch]:
    with Watch(silent) as watch:
        watch.on_start(config, SimpleNamespace(device="cpu", note=""))
        yield watch


def evaluated(selector: str, seed: int, accuracy: float, dissimilarity: float) -> dict[str, Any]:
    return {"selector": selector, "seed": seed, "accuracy": accuracy, "dissimilarity": dissimilarity}


class Screen:
    """What is shown on standard error, and a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, terminal_there: bool) -> None:
        self.file, self.now = io.StringIO(), 1000.0
        monkeypatch.setattr(progress, "errors", Console(file=self.file, width=80, force_terminal=terminal_there))
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.now))

    @property
    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()


def test_without_a_terminal_progress_is_a_plain_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, terminal_there=False)
    with watching(CONFIG) as watch:
        for played in range(1, 41):
            rows = [evaluated(name, seed, 50.0 + played + seed, 8.0) for name in CONFIG.selectors for seed in (0, 1)]
            watch.on_round(played, rows if played % 5 == 0 else [{"selector": "rota", "seed": 0}])
            screen.now += 1.0
    assert screen.lines == [
        "digits: 2 selectors x 2 seeds on cpu",
        "round 1/40",
        "round 11/40, 29 s left; Random 60.5 / 8.0, Rota 60.5 / 8.0",
        "round 21/40, 19 s left; Random 70.5 / 8.0, Rota 70.5 / 8.0",
        "round 31/40, 9 s left; Random 80.5 / 8.0, Rota 80.5 / 8.0",
        "round 40/40; Random 90.5 / 8.0, Rota 90.5 / 8.0",
    ]


def test_the_time_left_counts_from_where_a_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, terminal_there=False)
    with watching(CONFIG) as watch:
        screen.now += 100  # to get ready
        watch.on_round(30, [evaluated("rota", 0, 70.0, 9.0)])
        screen.now += 20
        watch.on_round(32, [])
    assert screen.lines[1:] == ["round 30/40; Rota 70.0 / 9.0", "round 32/40, 80 s left; Rota 70.0 / 9.0"]


def test_one_selector_with_one_seed_is_named_so(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, terminal_there=False)
    with watching(replace(CONFIG, seeds=(0,), selectors={"rota": {}})):
        pass
    assert screen.lines == ["digits: 1 selector x 1 seed on cpu"]


def test_a_long_line_stays_one_line_and_names_keep_their_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, terminal_there=False)
    names = [f"[bold]selector_number_{i}" for i in range(20)]
    with watching(CONFIG) as watch:
        watch.on_round(1, [evaluated(name, 0, 70.0, 9.0) for name in names])
    assert screen.lines[1:] == ["round 1/40; " + ", ".join(f"{name} 70.0 / 9.0" for name in names)]


@pytest.mark.parametrize("terminal_there", [False, True])
def test_silence_is_silent(monkeypatch: pytest.MonkeyPatch, terminal_there: bool) -> None:
    screen = Screen(monkeypatch, terminal_there=terminal_there)
    with downloads(silent=True) as show:
        show("some.gz", 5, 10)
    with watching(CONFIG, silent=True) as watch:
        watch.on_round(1, [evaluated("rota", 0, 70.0, 9.0)])
        watch.on_round(40, [evaluated("rota", 0, 70.0, 9.0)])
    assert screen.file.getvalue() == ""


def test_on_a_terminal_there_is_a_bar_with_the_latest_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, terminal_there=True)
    with downloads(silent=False) as show:
        show("some.gz", 5, None)
        show("some.gz", 10, 10)
    with watching(CONFIG) as watch:
        watch.on_round(10, [evaluated("[mine]", 0, 70.0, 9.0), evaluated("[mine]", 1, 71.0, 8.0)])
    shown = screen.file.getvalue()
    for text in (
        "some.gz",
        "10/10 bytes",
        "digits: 2 selectors x 2 seeds on cpu",
        "10/40 rounds",
        "[mine] 70.5 / 8.5",
    ):
        assert text in shown
    assert "round 10/40" not in shown


def test_without_a_terminal_downloads_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, terminal_there=False)
    with downloads(silent=False) as show:
        show("some.gz", 5, 10)
    assert screen.file.getvalue() == ""


@pytest.mark.parametrize("silent", [False, True])
def test_what_modules_say_is_shown_meanwhile_unless_silence_is_wanted(
    silent: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    file, log = io.StringIO(), logging.getLogger("equifl.some.module")
    monkeypatch.setattr(progress, "errors", Console(file=file, width=80))
    with notes(silent):
        log.info("[one] moment")
        log.debug("nobody wants to know")
    assert caplog.messages == []  # nobody else shows it too
    assert not log.isEnabledFor(logging.DEBUG)
    log.info("too late")
    assert caplog.messages == ["too late"]  # and all is as it was
    assert file.getvalue() == ("" if silent else "[one] moment\n")
