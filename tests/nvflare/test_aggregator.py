from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from equifl.nvflare.aggregator import CheckedAggregator
from equifl.nvflare.results import STEPS, Keys, TrainResult, read_training
from equifl.sketch import CountSketch

SENT = {"w": np.zeros(2, np.float32)}


def read(result: FLModel, sent: Mapping[str, NDArray[Any]]) -> TrainResult:
    return read_training(result, sent, Keys("loss", "accuracy", STEPS), frozenset(), CountSketch(length=8))


def of(site: str, value: float, *, steps: float = 1.0, round: int | None = None, **metrics: Any) -> FLModel:
    params = {"w": np.full(2, value, np.float32)}
    meta = {"client_name": site, STEPS: steps}
    return FLModel(ParamsType.FULL, params, metrics=metrics, meta=meta, current_round=round)


def begun(*sites: str, **options: Any) -> CheckedAggregator:
    one = CheckedAggregator(read, **options)
    one.begin(3, SENT, sites)
    return one


def test_a_mean_and_its_metrics_are_weighted_by_steps_and_factors() -> None:
    one = begun("a", "b", weights={"b": 0.5})
    one.accept_model(of("a", 1.0, steps=10, accuracy=0.2, note="x"))
    one.accept_model(of("b", 4.0, steps=40, accuracy=0.5, auc=float("nan")))
    model = one.aggregate_model()
    np.testing.assert_allclose(model.params["w"], 3.0)
    assert model.metrics == {"accuracy": 0.4}
    assert (model.params_type, model.current_round) == (ParamsType.FULL, 3)


def test_late_repeated_and_uninvited_results_do_not_count() -> None:
    one = begun("a", "b")
    one.accept_model(of("a", 1.0))
    one.accept_model(of("a", 9.0))
    one.accept_model(of("b", 9.0, round=2))
    one.accept_model(of("c", 9.0))
    assert list(one.results) == ["a"]
    assert "it came twice" in str(one.aside["a"])
    assert all("it came late, or from a site that was not asked" in str(one.aside[site]) for site in ("b", "c"))
    np.testing.assert_array_equal(one.aggregate_model().params["w"], [1, 1])
    one.accept_model(of("b", 9.0))
    assert list(one.results) == ["a"]


def test_large_numbers_do_not_overflow_in_the_mean() -> None:
    one = begun("a", "b", weights={"a": 1e6, "b": 1e6})
    one.accept_model(of("a", 9e17, steps=9e15))  # by their weights these are beyond float32
    one.accept_model(of("b", 9e17, steps=9e15))
    np.testing.assert_allclose(one.aggregate_model().params["w"], 9e17, rtol=1e-6)
    assert not one.overflowed


def test_a_mean_that_is_not_finite_leaves_the_model() -> None:
    class Endless(CheckedAggregator):
        def accept_model(self, model: FLModel) -> None:
            pass

        def aggregate_model(self) -> FLModel:
            return FLModel(ParamsType.FULL, {"w": np.full(2, np.inf)})

    one = begun("a", inner=Endless(read))
    one.accept_model(of("a", 1.0))
    np.testing.assert_array_equal(one.aggregate_model().params["w"], [0, 0])
    assert one.overflowed


class Fails(CheckedAggregator):
    def __init__(self, *, where: str, made: object = None) -> None:
        super().__init__(read)
        self.where, self.made = where, made

    def accept_model(self, model: FLModel) -> None:
        if self.where == "accept_model":
            raise KeyError("momentum")

    def aggregate_model(self) -> FLModel:
        if self.where == "aggregate_model":
            raise KeyError("momentum")
        return cast(FLModel, self.made)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (Fails(where="accept_model"), r"aggregator: Fails\.accept_model raised KeyError: 'momentum'"),
        (Fails(where="aggregate_model"), r"aggregator: Fails\.aggregate_model raised KeyError: 'momentum'"),
        (Fails(where=""), r"aggregator: Fails\.aggregate_model returned NoneType, expected an FLModel"),
    ],
)
def test_errors_of_the_user_s_aggregator_are_not_those_of_a_site(inner: Fails, message: str) -> None:
    one = begun("a", "b", inner=inner)
    for site in ("a", "b"):
        one.accept_model(of(site, 1.0))
    with pytest.raises(ValueError, match=message):
        one.aggregate_model()


class ByLoss(CheckedAggregator):
    """Weights by a metric."""

    def __init__(self) -> None:
        super().__init__(read)

    def reset_stats(self) -> None:
        self.sum, self.total = np.zeros(2), 0.0

    def accept_model(self, model: FLModel) -> None:
        weight = 1 / model.metrics["loss"]
        self.sum, self.total = self.sum + weight * model.params["w"], self.total + weight

    def aggregate_model(self) -> FLModel:
        return FLModel(ParamsType.FULL, {"w": self.sum / self.total})


@pytest.mark.parametrize("odd", ["a", "b", "c"])
def test_a_result_that_the_user_s_aggregator_cannot_take_is_set_aside(odd: str) -> None:
    one = begun("a", "b", "c", inner=ByLoss())
    for site in ("a", "b", "c"):
        one.accept_model(of(site, 9.0) if site == odd else of(site, 1.0, loss=0.5))
    np.testing.assert_array_equal(one.aggregate_model().params["w"], [1, 1])
    assert sorted([*one.results, odd]) == ["a", "b", "c"]
    assert {site: str(error) for site, error in one.aside.items()} == {
        odd: "aggregator: ByLoss.accept_model raised KeyError: 'loss'"
    }


def test_a_few_results_do_not_show_how_the_user_s_aggregator_is_written() -> None:
    one = begun("a", "b", "c", "d", inner=ByLoss())
    for site in ("a", "b", "a", "b"):
        one.accept_model(of(site, 9.0))
    assert {str(error) for error in one.aside.values()} == {"aggregator: ByLoss.accept_model raised KeyError: 'loss'"}
    np.testing.assert_array_equal(one.aggregate_model().params["w"], [0, 0])
    one.reset_stats()
    one.begin(4, SENT, ["a", "b", "c", "d"])
    for site in ("a", "b", "c"):
        one.accept_model(of(site, 9.0))
    with pytest.raises(ValueError, match=r"ByLoss\.accept_model raised KeyError: 'loss'"):
        one.aggregate_model()


def test_a_round_begins_anew() -> None:
    one = begun("a")
    one.accept_model(of("a", 5.0))
    one.aggregate_model()
    one.reset_stats()
    one.accept_model(of("a", 7.0))  # before the round has begun
    assert one.results == {}
    one.reset_stats()
    one.begin(4, SENT, ["a"])
    np.testing.assert_array_equal(one.aggregate_model().params["w"], [0, 0])
    assert one.aside == {}
