import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from equifl.experiment.config import Config
from equifl.experiment.named_object import named_object


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes modules that can be imported in this test."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)

    return make


def test_a_configuration_starts_no_process(tmp_path: Path) -> None:
    config, there = tmp_path / "some.toml", tmp_path / "there"
    config.write_text(f'[selectors]\nx = {{ class = "subprocess:Popen", args = ["touch", "{there}"] }}\n')
    with pytest.raises(ValueError, match=r"selectors\.x\.class: 'subprocess:Popen' is of the standard library"):
        Config.load(config)
    assert not there.exists()


@pytest.mark.parametrize("key", ["selectors.x.class", "selectors.unionfl.inner.class"])
@pytest.mark.parametrize(
    "name", ["sys:exit", "builtins:exec", "os.path:join", "antigravity:fly", "_abc:get_cache_token"]
)
def test_the_standard_library_is_refused(key: str, name: str) -> None:
    with pytest.raises(
        ValueError, match=f"{key}: {name!r} is of the standard library, which is not allowed; allowed: "
    ):
        Config.load(overrides=[f"{key}={name}"])
    assert "antigravity" not in sys.modules  # which opens a browser as it is imported


@pytest.mark.slow
@pytest.mark.parametrize("key", ["selectors.x.class", "train.model"])
def test_exit_is_no_way_to_succeed(key: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "equifl", "run", "--out", str(tmp_path / "run"), "--set", f"{key}=sys:exit"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith(f"equifl: {key}: 'sys:exit' is of the standard library, which is not allowed; ")
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_what_a_module_took_from_the_standard_library_is_refused_there_too(module: Any) -> None:
    module("borrowed_names", "from selectors import DefaultSelector\nfrom subprocess import Popen, run\n")
    for name in ("DefaultSelector", "Popen", "run"):
        with pytest.raises(ValueError, match=f"x: 'borrowed_names:{name}' is of the standard library"):
            named_object("x", f"borrowed_names:{name}", lambda found: True, "anything")


def test_an_object_is_checked_before_it_is_called(module: Any, tmp_path: Path) -> None:
    there = tmp_path / "there"
    module("calls_out", f"def touch(**_):\n    open({str(there)!r}, 'w').close()\nclass No:\n    __init__ = touch\n")
    for name in ("touch", "No"):
        with pytest.raises(ValueError, match=r"is not allowed; allowed: a class with select\(signals, k, \*, rng\)"):
            Config.load(overrides=[f"selectors.x.class=calls_out:{name}"])
    assert not there.exists()


@pytest.mark.parametrize(
    "line", ["raise SystemExit(0)", "1 / 0", "raise Exception('a' * 1000)", "def", "import no.such"]
)
def test_a_module_that_fails_is_a_sentence(line: str, module: Any) -> None:
    module("fails_as_imported", f"{line}\n")
    with pytest.raises(ValueError, match=r"^x: 'fails_as_imported:Name' cannot be found \(") as refused:
        named_object("x", "fails_as_imported:Name", callable, "anything")
    assert len(str(refused.value)) < 300
