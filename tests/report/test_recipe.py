import tomllib
from pathlib import Path
from typing import Any

import pytest

from equifl.experiment.config import Config
from equifl.report.page import as_toml

OWN = {"class": "tests.own_selector:Own", "note": 'a "quoted" \\ line\nand \x7f, \u00e9 and \U0001f600'}


@pytest.mark.parametrize(
    "changes",
    [
        [],
        ["rounds=3", "seeds=[4]", "train.lr=1e-5", "signal_examples=64", "train.model_options={hidden = 64}"],
        ["data.name=synthetic", "data.partition=natural", "data.iid=true", "availability.online=0.5"],
        ["data.name=synthetic", "data.alpha=0.5", "data.partition={kind='dirichlet', alpha=0.1}"],
        ["per_round=[5, 4]", "selectors={unionfl={window=[1, 5]}}"],
        ["selectors={both={class='unionfl', inner={class='subtrunc', lam=0.25}}, 'a b'={class='rota'}}"],
    ],
)
def test_a_configuration_comes_back_from_its_toml(changes: list[str], tmp_path: Path) -> None:
    config = Config.load(overrides=changes)
    (tmp_path / "experiment.toml").write_text(as_toml(config.as_dict()), encoding="utf-8")
    assert Config.load(tmp_path / "experiment.toml") == config


@pytest.mark.parametrize("name", ["plain", "a b", "<script>", 'quo"te', "new\nline", "\u00e4", "", "a.b", "\x7f"])
def test_any_name_and_any_text_can_be_written(name: str) -> None:
    table: dict[str, Any] = {"selectors": {name: OWN}}
    assert tomllib.loads(as_toml(table)) == table
