import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvflare.app_common.np.np_model_persistor import NPModelPersistor

from equifl import SubTrunc
from equifl.nvflare import FairFedAvg, FairFedAvgRecipe
from tests.nvflare.net import Net

SCRIPT = str(Path(__file__).parent / "site_script.py")


def written(recipe: FairFedAvgRecipe, folder: Path) -> tuple[dict[str, Any], Path]:
    """The server's configuration in the job that a recipe writes, and the folder of the job."""
    recipe.export(str(folder))
    (config,) = folder.rglob("config_fed_server.json")
    return json.loads(config.read_text()), folder


def controller(config: dict[str, Any]) -> dict[str, Any]:
    (workflow,) = config["workflows"]
    assert workflow["path"] == "equifl.nvflare.controller.FairFedAvg"
    return dict(workflow["args"])


def recipe(**options: Any) -> FairFedAvgRecipe:
    defaults: dict[str, Any] = {"model": {"w": np.ones(2)}, "train_script": SCRIPT, "num_clients": 2}
    return FairFedAvgRecipe(**(defaults | options))


def test_a_job_names_the_selector_with_its_parameters(tmp_path: Path) -> None:
    made = recipe(selector=SubTrunc(lam=0.9), num_rounds=7, timeout=60, folder="/runs/mine", resume=True)
    config, folder = written(made, tmp_path)
    arguments = controller(config)
    again = FairFedAvg(**arguments)
    assert again.selector == {"class": "subtrunc", "lam": 0.9}
    assert (again.num_clients, again.num_rounds, again.timeout) == (2, 7, 60)
    assert (again.folder, again.resume, again.model) == ("/runs/mine", True, {"w": [1.0, 1.0]})
    assert not list(folder.rglob("custom/equifl")), "equifl is installed, not copied in parts"
    assert list(folder.rglob("custom/**/site_script.py"))


def test_defaults_are_those_of_the_controller(tmp_path: Path) -> None:
    config, _ = written(recipe(), tmp_path)
    arguments = controller(config)
    assert not {"timeout", "seed", "folder", "resume", "evaluate_every"} & arguments.keys()
    assert FairFedAvg(**arguments).timeout == 3600


def test_a_torch_module_comes_with_its_persistor(tmp_path: Path) -> None:
    config, _ = written(recipe(model=Net()), tmp_path / "module")
    assert controller(config).get("persistor_id", "persistor") == "persistor"
    (component,) = [one for one in config["components"] if one["id"] == "persistor"]
    assert component["path"].endswith("PTFileModelPersistor")
    named = {"class_path": "tests.nvflare.net.Net", "args": {"width": 4}}
    config, _ = written(recipe(model=named), tmp_path / "named")
    assert "tests.nvflare.net.Net" in json.dumps(config["components"])


def test_a_persistor_of_one_s_own(tmp_path: Path) -> None:
    config, _ = written(recipe(model=NPModelPersistor(model=[[1.0]])), tmp_path)
    assert controller(config).get("persistor_id", "persistor") == "persistor"
    assert any(one["path"].endswith("NPModelPersistor") for one in config["components"])


def test_sites_may_have_scripts_of_their_own(tmp_path: Path) -> None:
    made = recipe()
    made.set_per_site_config({"site-1": {}, "site-2": {"train_args": "--seconds 1"}})
    assert made.configured_sites() == ["site-1", "site-2"]
    made.export(str(tmp_path))
    texts = [path.read_text() for path in tmp_path.rglob("config_fed_client.json")]
    assert sorted("--seconds 1" in text for text in texts) == [False, True]
    with pytest.raises(ValueError, match="'trainargs' is not known; did you mean 'train_args'"):
        recipe().set_per_site_config({"site-1": {"trainargs": ""}})


@pytest.mark.parametrize(
    ("wrong", "meant"), [("timout", "timeout"), ("train_arg", "train_args"), ("patince", "patience")]
)
def test_a_misspelt_option_has_a_hint(wrong: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"FairFedAvgRecipe: '{wrong}' is not known; did you mean '{meant}'"):
        recipe(**{wrong: 5})


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model: .* is not allowed; allowed: a PyTorch module"):
        recipe(model=np.ones(3))
