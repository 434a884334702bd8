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
from equifl.sim.engines.base import Job
from equifl.sim.engines.choose import choose_engine
from equifl.sim.engines.compiled.engine import CompiledEngine
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.loop.federation import Federation
from equifl.sim.models.validation import examples_of
from equifl.sim.models.zoo import Shape, lenet, make_module
from equifl.sim.players import made_with
from equifl.sim.playing import engine_for
from equifl.sim.simulation import load_data
from equifl.sim.tasks import Task
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
    engine, note = choose_engine(Job(model, made_up(SHAPES[name])))
    assert (engine.name, note) == ("compiled", "")


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
    engines = [choose_engine(Job(model, dataset), wanted)[0] for wanted in ("auto", "torch")]
    assert [engine.name for engine in engines] == ["compiled", "torch"]
    found, expected = (engine.gradients(weights.detach()[None], np.arange(30)[None]) for engine in engines)
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
    job = Job(model, made_up(shape))
    engine, note = choose_engine(job)
    assert engine.name == "torch"
    assert note.startswith("by the torch engine, not by compiled: ")
    assert obstacle in note
    with pytest.raises(ValueError, match=f"engine: 'compiled' does not support this: .*{obstacle}"):
        choose_engine(job, "compiled")


def test_integers_go_by_the_general_engine_and_are_refused_by_the_fast_one() -> None:
    x, y = np.arange(48).reshape(12, 4) % 12, np.arange(12) % 10
    dataset = Dataset("tokens", x, y, x, y, 10)
    model = StackedModel.of(Tokens(), (4,), examples_of(dataset))
    engine, note = choose_engine(Job(model, dataset))
    assert engine.name == "torch"
    assert note == "by the torch engine, not by compiled: the data are integers, and it takes float32"
    with pytest.raises(ValueError, match="engine: 'compiled' does not support this: the data are integers"):
        choose_engine(Job(model, dataset), "compiled")


def test_another_task_than_classification_is_not_for_the_compiled_engine() -> None:
    model = StackedModel.of(lenet(IMAGE, 10), IMAGE)
    other = Task(
        "squares", loss=lambda outputs, _: outputs.square().sum(dim=1), score=lambda outputs, _: outputs[:, 0]
    )
    engine, note = choose_engine(Job(model, made_up(IMAGE), task=other))
    assert engine.name == "torch"
    assert note.endswith("it does classification by cross-entropy only, not squares")
    weights = nn.utils.parameters_to_vector(model.module.parameters()).detach()[None]
    outputs = model.module(torch.from_numpy(made_up(IMAGE).x_test)).detach()
    np.testing.assert_allclose(engine.scores(weights)[0], outputs[:, 0], rtol=1e-4, atol=1e-5)
    (loss,) = engine.losses(weights, np.arange(5)[None])
    expected = model.module(torch.from_numpy(made_up(IMAGE).x_train[:5])).detach().square().sum(dim=1).mean()
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)


def test_an_engine_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match="engine: 'compile' is not known; did you mean 'compiled'"):
        choose_engine(Job(StackedModel.of(lenet(IMAGE, 10), IMAGE), made_up(IMAGE)), "compile")


@pytest.mark.usefixtures("no_numba")
def test_without_numba_the_general_engine_runs_and_says_how_to_get_it() -> None:
    model = StackedModel.of(lenet(IMAGE, 10), IMAGE)
    engine, note = choose_engine(Job(model, made_up(IMAGE)))
    assert engine.name == "torch"
    assert note.endswith("not by compiled: numba is not installed; pip install 'equifl[fast]'")
    assert choose_engine(Job(model, made_up(IMAGE)), "torch")[1] == ""
    for module in (Twice(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10)), Residual()):
        engine, note = choose_engine(Job(StackedModel.of(module, IMAGE), made_up(IMAGE)))
        assert engine.name == "torch"
        assert "not by compiled: the model is no plain sequence" in note


def test_a_numba_that_does_not_load_is_no_obstacle_to_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.0 or less')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    engine, note = choose_engine(Job(StackedModel.of(lenet(IMAGE, 10), IMAGE), made_up(IMAGE)))
    assert engine.name == "torch"
    assert note.endswith("numba does not load (Numba needs NumPy 2.0 or less)")


def test_numba_that_must_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba", reason="the fast engine needs numba: pip install 'equifl[fast]'")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    job = Job(StackedModel.of(lenet(IMAGE, 10), IMAGE), made_up(IMAGE))
    assert CompiledEngine.supports(job) == "NUMBA_DISABLE_JIT is set"


def test_without_fused_multiply_add(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {"sse2": True})
    job = Job(StackedModel.of(lenet(IMAGE, 10), IMAGE), made_up(IMAGE))
    assert "fused multiply-add" in CompiledEngine.supports(job)


@pytest.mark.parametrize("begun", ["torch", "compiled"])
def test_a_run_goes_on_by_the_engine_it_was_begun_with(begun: str, tmp_path: Path) -> None:
    config = Config()
    assert engine_for(tmp_path / "run", config) == "auto"
    with RunFolder.open(tmp_path / "run", config.as_dict(), made_with("cpu", begun)) as folder:
        assert folder.made_with["engine"] == begun
        assert ("numba" in folder.made_with["versions"]) == (begun == "compiled")
    assert engine_for(tmp_path / "run", config) == begun


def test_a_run_of_the_hybrid_engine_is_refused(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", Config().as_dict(), {"engine": "hybrid"}).close()
    with pytest.raises(ValueError, match=r"run: was begun with the hybrid engine, which was removed; run it again in"):
        engine_for(tmp_path / "run", Config())


def test_a_run_from_before_there_were_others_goes_on_by_the_general_one(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", Config().as_dict(), {}).close()
    assert engine_for(tmp_path / "run", Config()) == "torch"


@pytest.mark.parametrize(("old", "new"), [("general", "torch"), ("fast", "compiled")])
def test_engines_go_by_their_older_names_too(old: str, new: str, tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", Config().as_dict(), {"engine": old}).close()
    assert engine_for(tmp_path / "run", Config()) == new
    assert Config.load(None, [f"engine={old}"]).engine == new


@pytest.mark.parametrize("engine", ["torch", "compiled"])
def test_the_configuration_decides(engine: str) -> None:
    pytest.importorskip("numba", reason="the fast engine needs numba: pip install 'equifl[fast]'")
    config = Config.load(None, [f"engine={engine}", "selectors={uniform={}}", "seeds=[0]"])
    assert Federation(config, load_data(config, None), device="cpu").engine.name == engine
