import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest

from equifl.aggregators import ByLoss, BySelector, Mean, Memory, Momentum
from equifl.experiment.config import Config
from equifl.experiment.records import check_stored
from equifl.experiment.rule_tables import make_rule, rule_table

HERE = "tests.experiment.test_rule_tables"


class Own:
    """A rule of somebody's own, which is no dataclass."""

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def step(self, replies: Any, memory: Any) -> Any:
        return replies.updates.sum(0) * self.strength, None


def load(text: str, path: Path, *overrides: str) -> Config:
    (path / "experiment.toml").write_text(text)
    return Config.load(path / "experiment.toml", overrides)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", Mean()),
        ("server.aggregate = 'memory'", Memory()),
        ("server.aggregate = { class = 'memory', q = 1, keep = 'float16' }", Memory(q=1.0, keep="float16")),
        (
            "server.aggregate = { class = 'momentum', inner = { class = 'memory', q = 2 } }",
            Momentum(inner=Memory(q=2.0)),
        ),
        ("[server.aggregate]\nclass = 'selector'", BySelector()),
    ],
)
def test_a_rule_is_a_name_or_a_table(text: str, rule: Any, tmp_path: Path) -> None:
    config = load(text, tmp_path)
    assert make_rule(config.server.aggregate) == rule
    assert Config.from_table(config.as_dict()) == config


def test_forms_that_say_the_same_are_the_same(tmp_path: Path) -> None:
    forms = ["server.aggregate = 'loss'", "server.aggregate = { class = 'loss', q = 1.0 }"]
    assert len({str(load(form, tmp_path).as_dict()) for form in forms}) == 1


def test_parameters_can_be_set_one_by_one(tmp_path: Path) -> None:
    config = load("server.aggregate = 'memory'", tmp_path, "server.aggregate.q=1", "server.aggregate.keep=float16")
    assert config.server.aggregate == {"class": "memory", "q": 1.0, "keep": "float16"}
    assert config.overridden(["server.aggregate.q=0"]).server.aggregate == {"class": "memory", "keep": "float16"}


def test_the_older_form_is_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = load("server = { aggregate = 'loss', q = 2.0 }", tmp_path)
    assert make_rule(config.server.aggregate) == ByLoss(q=2.0)
    assert 'write aggregate = { class = "loss", q = 2.0 }' in caplog.text
    assert load("server = { aggregate = 'mean', q = 1.0 }", tmp_path).server.aggregate == "mean"
    assert "server.q: 1.0 has no effect" in caplog.text


@pytest.mark.parametrize(
    ("stored", "now"),
    [
        ({"aggregate": "mean", "q": 1.0, "lr": 1.0}, {"aggregate": "mean", "lr": 1.0}),
        ({"aggregate": "loss", "q": 1.0, "lr": 1.0}, {"aggregate": "loss", "lr": 1.0}),
        ({"aggregate": "loss", "q": 2.0, "lr": 1.0}, {"aggregate": {"class": "loss", "q": 2.0}, "lr": 1.0}),
    ],
)
def test_a_run_of_an_earlier_version_has_the_same_configuration(
    stored: dict[str, Any], now: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config = Config(rounds=3).as_dict() | {"server": stored}
    check_stored({"config": config, "made_with": {}}, newest=2)
    assert list(config["server"].items()) == list(now.items())
    assert not caplog.text


def test_rules_of_ones_own() -> None:
    made = make_rule({"class": f"{HERE}:Own", "strength": 3.0})
    assert isinstance(made, Own)
    assert made.strength == 3.0
    assert Config.load(overrides=[f"server.aggregate={HERE}:Own"]).server.aggregate == f"{HERE}:Own"


def test_an_object_becomes_its_table() -> None:
    assert rule_table(Momentum(beta=0.5, inner=Memory(q=1.0))) == {
        "class": "momentum",
        "beta": 0.5,
        "inner": {"class": "memory", "q": 1.0},
    }
    with pytest.raises(ValueError, match=r"server.aggregate: .*Own object.* allowed: an object of a dataclass, or a "):
        rule_table(Own())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("memry", r"server.aggregate: unknown server rule; did you mean `memory`\?; or say class = "),
        (
            {"class": "memory", "Q": 1},
            r"server.aggregate.Q: unknown key; did you mean `q`\?|server.aggregate.Q: unknown",
        ),
        ({"q": 1}, r"server.aggregate: \{'q': 1\} is not allowed; allowed: a name, or a table with a class"),
        ({"class": "momentum", "inner": {"class": "no"}}, r"server.aggregate.inner.class: unknown server rule"),
        ("subprocess:Popen", "is of the standard library"),
        ("equifl.selectors:Rota", r"allowed: a class with needs and step\(replies, memory\)"),
        ({"class": "memory", "q": "1"}, r"server.aggregate.q: '1' is not allowed; allowed: a number"),
    ],
)
def test_mistakes_are_named(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_rule(given)
