import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg

from equifl import Rota
from tests.flower.pretend_grid import PretendGrid, cohorts, fair, grid_of, play

pytestmark = pytest.mark.usefixtures("inside_a_run")


INNER = [
    flower.FedAvg(),
    flower.FedAdam(),
    flower.FedAdagrad(),
    flower.FedYogi(),
    flower.FedAvgM(),
    flower.FedProx(proximal_mu=0.1),
    flower.FedMedian(),
    flower.FedTrimmedAvg(),
    flower.QFedAvg(client_learning_rate=0.5),
    flower.Krum(num_malicious_nodes=0),
    flower.DifferentialPrivacyServerSideFixedClipping(flower.FedAvg(), 0.01, 5.0, num_sampled_clients=3),
    flower.DifferentialPrivacyServerSideAdaptiveClipping(flower.FedAvg(), 0.01, num_sampled_clients=3),
]


@pytest.mark.parametrize("inner", INNER, ids=lambda inner: type(inner).__name__)
def test_any_strategy_can_be_wrapped(inner: Any, tmp_path: Path) -> None:
    result = play(fair(Rota(), inner, folder=tmp_path), grid_of(), 3)
    assert len({client for cohort in cohorts(tmp_path) for client in cohort}) == 8, (
        "9 seats, and nobody sits twice before all did"
    )
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())


def test_fewer_than_k_take_part_and_fewer_than_the_strategy_wants_do_not(caplog: pytest.LogCaptureFixture) -> None:
    grid = grid_of(2)
    play(fair(Rota()), grid, 1)
    assert len(grid.asked_to("train")) == 2
    grid = grid_of(1)
    with caplog.at_level(logging.WARNING, "flwr"):
        play(fair(Rota()), grid, 1)
    assert grid.asked == []
    assert "no train, because FedAvg needs 2 nodes and 1 are online" in caplog.text


@pytest.mark.parametrize(
    ("inner", "options", "words"),
    [
        (FedAvg(fraction_train=0.1), {}, "FedAvg.fraction_train: 0.1 is not allowed; allowed: 1.0"),
        (FedAvg(min_available_nodes=20), {}, "FedAvg.min_available_nodes: 20 is not allowed; allowed: at most k = 3"),
        (FedAvg(min_train_nodes=5), {}, "FedAvg.min_train_nodes: 5 is not allowed"),
        (
            flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_train=0.5), 1.0, 1.0, 3),
            {},
            "FedAvg.fraction_train: 0.5",
        ),
        (
            flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 5),
            {},
            "num_sampled_clients: 5 is not allowed; allowed: k = 3",
        ),
        (FedAvg(), {"k": 0}, "k: 0 is not allowed"),
        (None, {"strategy": "fedavg"}, "strategy: 'fedavg' is not allowed"),
        (FedAvg(), {"probe": "sometimes"}, "probe: 'sometimes' is not allowed"),
        (FedAvg(), {"patience": -1}, "patience: -1 is not allowed"),
    ],
)
def test_bad_settings_are_refused_at_once(inner: Any, options: dict[str, Any], words: str) -> None:
    inner = options.pop("strategy", inner)
    with pytest.raises(ValueError) as caught:
        fair(Rota(), inner, **options)
    assert words in str(caught.value)


def test_nobody_online_is_waited_for_and_not_for_ever() -> None:
    grid = PretendGrid({})
    result = play(fair(Rota()), grid, 2)
    assert not grid.asked
    assert result.train_metrics_clientapp == {}


@pytest.mark.parametrize("name", ["strategy", "_pending_events"])
@pytest.mark.parametrize("value", ["fedavg", ["x"], FedAvg])
def test_attributes_of_ones_own_may_be_named_as_flowers_are(name: str, value: Any, tmp_path: Path) -> None:
    def named(value: Any) -> Any:
        inner = FedAvg()
        setattr(inner, name, value)
        return inner

    play(fair(Rota(), named(value), folder=tmp_path), grid_of(), 2)
    assert fair(Rota(), named(value), folder=tmp_path, resume=True).rounds_played == 2
    if name == "strategy":
        with pytest.raises(ValueError, match=r"FedAvg\.strategy"):
            fair(Rota(), named("another"), folder=tmp_path, resume=True)
