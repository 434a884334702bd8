import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from equifl import simulate
from equifl.experiment.config import Config
from equifl.sim import progress
from equifl.sim.progress import Watch, downloads, notes

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


NOTEBOOK = """
from equifl import simulate
results = simulate(rounds=10**6, clients=10, model="logistic", selectors=["uniform"], seeds=1, evaluate_every=1)
print("results of", min(results.rounds_played, 1), "round or more:", results.finished)
"""


@pytest.mark.slow
def test_a_notebook_shows_one_text_that_changes_and_its_stop_button_returns_the_results() -> None:
    manager_of = pytest.importorskip("jupyter_client.manager", reason="needs ipykernel")
    pytest.importorskip("ipykernel")
    manager = manager_of.KernelManager(kernel_name="python3", transport="ipc")
    manager.start_kernel()
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        client.execute(NOTEBOOK)
        places, texts, printed = set(), [], ""
        while "results of" not in printed:
            message = client.get_iopub_msg(timeout=60)
            kind, content = message["msg_type"], message["content"]
            assert kind != "error", content
            if kind in ("display_data", "update_display_data"):
                texts.append(content["data"]["text/plain"])
                places.add(content["transient"]["display_id"])
                if len(texts) == 3:
                    manager.interrupt_kernel()
            printed += content["text"] if kind == "stream" else ""
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert len(places) == 1  # no text under the other
    title, round_line, figures = texts[2].splitlines()
    assert title == "digits: 1 selector x 1 seed on cpu"
    assert round_line.startswith("round ")
    assert figures.startswith("Random ")
    assert printed == "stopping after this round ...\nresults of 1 round or more: False\n"


def test_by_default_it_is_shown_to_those_who_look_and_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny: dict[str, Any] = {"rounds": 1, "clients": 10, "model": "logistic", "selectors": ["uniform"], "seeds": 1}
    for there, chosen, lines in ((False, None, 0), (True, None, 1), (True, False, 0), (False, True, 1)):
        screen = Screen(monkeypatch, terminal_there=there)
        simulate(**tiny, progress=chosen)
        assert ("digits: 1 selector x 1 seed on cpu" in screen.file.getvalue()) == bool(lines)
