import math

import pytest

from equifl.experiment.config import Config, Train
from equifl.sim.loop.learning_rate import learning_rate


def test_it_is_constant_by_default() -> None:
    assert {learning_rate(Train(lr=0.3), round, 5) for round in range(-1, 5)} == {0.3}
    assert Train(lr_schedule="constant") == Train()


def test_steps() -> None:
    train = Train(lr=2.0, lr_schedule="steps", lr_rounds=(3, 5))
    assert [learning_rate(train, round, 7) for round in range(-1, 7)] == pytest.approx(
        [2.0, 2.0, 2.0, 2.0, 0.2, 0.2, 0.02, 0.02]
    )


def test_a_cosine_falls_from_the_whole_to_the_share_it_ends_at() -> None:
    train = Train(lr=2.0, lr_schedule="cosine", lr_factor=0.1)
    found = [learning_rate(train, round, 100) for round in range(101)]
    assert found[0] == learning_rate(train, -1, 100) == 2.0
    assert found[50] == pytest.approx((2.0 + 0.2) / 2)
    assert found[100] == pytest.approx(0.2)
    assert found == sorted(found, reverse=True)
    assert found[25] == pytest.approx(0.2 + 1.8 * (1 + math.sqrt(0.5)) / 2)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.lr_schedule=stairs"], "train.lr_schedule: 'stairs' is not allowed; allowed: 'constant' or 'steps'"),
        (["train.lr_schedule=steps"], "train.lr_rounds: None is not allowed; allowed: a list of rounds where"),
        (["train.lr_rounds=[2]"], r"train.lr_rounds: \[2\] is not allowed; allowed: a list of rounds where"),
        (["train.lr_schedule=steps", "train.lr_rounds=[3,2]"], r"train.lr_rounds: \[3, 2\] .* in rising order"),
        (["train.lr_schedule=steps", "train.lr_rounds=[0]"], r"train.lr_rounds: \[0\] .* rounds of 1 or more"),
        (["train.lr_schedule=steps", "train.lr_rounds=[]"], r"train.lr_rounds: \[\] .* rounds of 1 or more"),
        (["train.lr_factor=0.5"], "train.lr_factor: 0.5 is not allowed; allowed: .* with lr_schedule"),
        (["train.lr_schedule=cosine", "train.lr_factor=2"], "train.lr_factor: 2.0 is not allowed"),
        (["train.prox=-1"], "train.prox: -1.0 is not allowed; allowed: 0 or more"),
    ],
)
def test_what_makes_no_schedule_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config.load(None, overrides)


def test_another_schedule_replaces_the_options_of_the_first() -> None:
    config = Config.load(None, ["train.lr_schedule=steps", "train.lr_rounds=[2]"])
    assert config.overridden([]) == config
    assert config.overridden(["train.lr_schedule=cosine"]).train == Train(lr_schedule="cosine")
