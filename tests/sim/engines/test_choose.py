import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from equifl.experiment.config import Config
from equifl.experiment.run_folder import RunFolder
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.choose import choose_engine, obstacle_to_fast
from equifl.sim.engines.torch.engine import Engine
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.loop.federation import Federation
from equifl.sim.models.validation import examples_of
from equifl.sim.models.zoo import Shape, lenet, make_module
from equifl.sim.run import engine_for, load_data, made_with
from tests.sim.engines.torch.test_engine import SHAPES, made_up
from tests.sim.example_modules import Residual, Tokens

IMAGE = (1, 8, 8)


@pytest.fixture
def no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)


@pytest.mark.parametrize("name", [name for name in SHAPES if ":" not in name])
def test_our_models_run_fast(name: str) -> None:
    pytest.importorskip("numba", reason="the fast engine needs numba: pip install 'equifl[fast]'")
    model = StackedModel.of(make_module(name.split()[0], SHAPES[name], 10, {}), SHAPES[name])
    assert obstacle_to_fast(model, "cpu") == ""
    assert choose_engine(model, made_up(SHAPES[name]), "cpu", "auto").name == "fast"


@pytest.mark.compiled
def test_one_relu_for_all_layers_runs_fast_and_right() -> None:
    pytest.importorskip("numba", reason="the fast engine needs numba: pip install 'equifl[fast]'")
    relu = nn.ReLU()
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), relu, nn.Linear(9, 9), relu, nn.Linear(9, 10))
    model, dataset, weights = (
        StackedModel.of(module, IMAGE),
        made_up(IMAGE),
        nn.utils.parameters_to_vector(module.parameters()),
    )
    fast, general = (choose_engine(model, dataset, "cpu", wanted) for wanted in ("auto", "general"))
    assert (fast.name, general.name) == ("fast", "general")
    found, expected = (engine.gradients(weights.detach()[None], np.arange(30)[None]) for engine in (fast, general))
    torch.testing.assert_close(found, expected)


class Twice(nn.Sequential):
    def forward(self, x: Any) -> Any:
        return 2 * nn.Sequential(*self)(x)


again = nn.Linear(10, 10)


@pytest.mark.parametrize(
    ("module", "shape", "obstacle"),
    [
        (Residual(), IMAGE, "no plain sequence"),
        (Twice(nn.Flatten(), nn.Linear(64, 10)), IMAGE, "no plain sequence"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.GELU(), nn.Linear(10, 10)), IMAGE, "no plain sequence"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 10), again, again), IMAGE, "each with weights of its own"),
        (
            nn.Sequential(nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(25, 10)),
            IMAGE,
            "has padding or ceil_mode",
        ),
        (nn.Sequential(nn.MaxPool2d(2, dilation=2), nn.Flatten(), nn.Linear(9, 10)), IMAGE, "has dilation"),
        (nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(64, 10)), IMAGE, "must not begin with a ReLU"),
        (nn.Sequential(nn.MaxPool2d(3, ceil_mode=True), nn.Flatten(), nn.Linear(9, 10)), IMAGE, "or ceil_mode"),
        (nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(64, 10)), IMAGE, "must not begin with a ReLU"),
        (nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten()), IMAGE, "must end in a linear layer"),
        (nn.Sequential(nn.Linear(8, 10), nn.Flatten(), nn.Linear(80, 10)), IMAGE, "no plain sequence"),
    ],
)
def test_what_is_not_for_the_fast_engine_runs_by_the_general_one_and_says_why(
    module: nn.Module, shape: Shape, obstacle: str
) -> None:
    model = StackedModel.of(module, shape)
    engine = choose_engine(model, made_up(shape), "cpu", "auto")
    assert isinstance(engine, Engine)
    assert obstacle in engine.note
    with pytest.raises(ValueError, match=f"engine: the fast one cannot run this here: .*{obstacle}"):
        choose_engine(model, made_up(shape), "cpu", "fast")


def test_integers_go_by_the_general_engine_and_are_refused_by_the_fast_one() -> None:
    x, y = np.arange(48).reshape(12, 4) % 12, np.arange(12) % 10
    dataset = Dataset("tokens", x, y, x, y, 10)
    model = StackedModel.of(Tokens(), (4,), examples_of(dataset))
    engine = choose_engine(model, dataset, "cpu", "auto")
    assert (engine.name, engine.note) == ("general", "the data are integers, and the fast engine takes float32")
    with pytest.raises(ValueError, match="engine: the fast one cannot run this here: the data are integers"):
        choose_engine(model, dataset, "cpu", "fast")


@pytest.mark.usefixtures("no_numba")
def test_without_numba_the_general_engine_runs_and_says_how_to_get_it() -> None:
    model = StackedModel.of(lenet(IMAGE, 10), IMAGE)
    engine = choose_engine(model, made_up(IMAGE), "cpu", "auto")
    assert (engine.name, engine.note) == ("general", "numba is not installed; pip install 'equifl[fast]'")
    assert choose_engine(model, made_up(IMAGE), "cpu", "general").note == ""
    for module in (Twice(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10)), Residual()):
        engine = choose_engine(StackedModel.of(module, IMAGE), made_up(IMAGE), "cpu", "auto")
        assert engine.name == "general"
        assert engine.note.startswith("the model is no plain sequence")


def test_a_numba_that_does_not_load_is_no_obstacle_to_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.0 or less')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    engine = choose_engine(StackedModel.of(lenet(IMAGE, 10), IMAGE), made_up(IMAGE), "cpu", "auto")
    assert (engine.name, engine.note) == ("general", "numba does not load (Numba needs NumPy 2.0 or less)")


def test_numba_that_must_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba", reason="the fast engine needs numba: pip install 'equifl[fast]'")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert obstacle_to_fast(StackedModel.of(lenet(IMAGE, 10), IMAGE), "cpu") == "NUMBA_DISABLE_JIT is set"


def test_without_fused_multiply_add(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {"sse2": True})
    assert "fused multiply-add" in obstacle_to_fast(StackedModel.of(lenet(IMAGE, 10), IMAGE), "cpu")


@pytest.mark.parametrize("begun", ["general", "fast"])
def test_a_run_goes_on_by_the_engine_it_was_begun_with(begun: str, tmp_path: Path) -> None:
    config = Config()
    assert engine_for(tmp_path / "run", config) == "auto"
    with RunFolder.open(tmp_path / "run", config.as_dict(), made_with("cpu", begun)) as folder:
        assert folder.made_with["engine"] == begun
        assert ("numba" in folder.made_with["versions"]) == (begun != "general")
    assert engine_for(tmp_path / "run", config) == begun


def test_a_run_of_the_hybrid_engine_is_refused(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", Config().as_dict(), {"engine": "hybrid"}).close()
    with pytest.raises(ValueError, match=r"run: was begun with the hybrid engine, which is no more; run it again in"):
        engine_for(tmp_path / "run", Config())


def test_a_run_from_before_there_were_others_goes_on_by_the_general_one(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", Config().as_dict(), {}).close()
    assert engine_for(tmp_path / "run", Config()) == "general"


@pytest.mark.parametrize("engine", ["general", "fast"])
def test_the_configuration_decides(engine: str) -> None:
    pytest.importorskip("numba", reason="the fast engine needs numba: pip install 'equifl[fast]'")
    config = Config.load(None, [f"engine={engine}", "selectors={uniform={}}", "seeds=[0]"])
    assert Federation(config, load_data(config, None), device="cpu").engine.name == engine
