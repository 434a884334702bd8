"""What the README says a reader can type."""

import re
from pathlib import Path

import pytest

import equifl
from equifl.experiment.results import Results

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_names_it_calls_without_a_module_are_exported() -> None:
    called = set(re.findall(r"`([A-Za-z]\w*)\(", README)) | set(re.findall(r"sketch=(\w+)\(", README))
    assert {"Rota", "SubTrunc", "SignalStore", "CountSketch", "Balanced"} <= called
    assert called <= set(equifl.__all__)


def test_everything_exported_is_there() -> None:
    assert sorted(equifl.__all__) == equifl.__all__
    assert all(hasattr(equifl, name) for name in equifl.__all__)
    assert {"simulate", *equifl.__all__} <= set(dir(equifl))  # what a notebook completes


def test_it_can_be_read_in_one_go() -> None:
    assert len(README.splitlines()) <= 120


def variables_after(word: str) -> dict[str, object]:
    """Runs the one block of Python that has this word."""
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if word in code)
    variables: dict[str, object] = {}
    exec(code, variables)
    return variables


@pytest.mark.slow
@pytest.mark.compiled
def test_its_experiment_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = variables_after("simulate")["results"]
    assert isinstance(results, Results)
    assert results.finished
    assert (tmp_path / "first.html").is_file()


def test_its_loop_runs() -> None:
    store = variables_after("SignalStore")["store"]
    assert isinstance(store, equifl.SignalStore)
    assert store.signals(20).times_selected.tolist() == [2] * 100
