"""What the README says a reader can type."""

import re
from pathlib import Path

import equifl

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_names_it_calls_without_a_module_are_exported() -> None:
    called = set(re.findall(r"`([A-Za-z]\w*)\(", README)) | set(re.findall(r"sketch=(\w+)\(", README))
    assert {"Rota", "SubTrunc", "SignalStore", "CountSketch", "explain"} <= called
    assert called <= set(equifl.__all__)


def test_everything_exported_is_there() -> None:
    assert sorted(equifl.__all__) == equifl.__all__
    assert all(hasattr(equifl, name) for name in equifl.__all__)


def test_its_loop_runs() -> None:
    (loop,) = (code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "SignalStore" in code)
    variables: dict[str, object] = {}
    exec(loop, variables)
    store = variables["store"]
    assert isinstance(store, equifl.SignalStore)
    assert store.signals(20).times_selected.tolist() == [2] * 100
