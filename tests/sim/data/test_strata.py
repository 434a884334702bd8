from typing import Any

import numpy as np
import pytest

from equifl.sim.data.dataset import Dataset
from equifl.sim.data.partition import split
from equifl.sim.data.strata import strata

X = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=400)


def numbers() -> Dataset:
    return Dataset("numbers", X[:300], Y[:300], X[300:], Y[300:], None)


def test_numbers_are_labelled_by_tenths() -> None:
    found = strata("classes", numbers())
    assert found.classes == 10
    assert np.bincount(found.y_train).tolist() == [30] * 10
    for label in range(1, 10):
        assert Y[:300][found.y_train == label].min() >= Y[:300][found.y_train < label].max()
        assert (Y[300:][found.y_test >= label] >= Y[:300][found.y_train == label].min()).all()


@pytest.mark.parametrize("kind", ["classes", "dirichlet", "shards"])
def test_clients_have_targets_of_their_own_ranges(kind: str) -> None:
    of_kind: dict[str, Any] = {"classes": {"classes_per_client": 1}, "dirichlet": {"alpha": 0.1}}
    options = of_kind.get(kind, {})
    found = split(kind, numbers(), 10, rng=np.random.default_rng(0), **options)
    within = np.mean([Y[:300][ids].var() for ids in found.train])
    assert within < {"classes": 0.1, "dirichlet": 0.8, "shards": 0.8}[kind] * Y.var()
    assert all(len(ids) for ids in found.test)


@pytest.mark.parametrize("kind", ["classes", "dirichlet", "shards"])
@pytest.mark.parametrize("classes", [None, 5])
def test_where_an_example_has_many_targets_only_others_are_allowed(kind: str, classes: int | None) -> None:
    y = np.random.default_rng(0).integers(0, 5, (400, 2))
    several = Dataset("several", X[:300], y[:300], X[300:], y[300:], classes)
    with pytest.raises(
        ValueError, match=rf"partition: '{kind}' goes by one target .* several has 2; allowed: iid, na"
    ):
        split(kind, several, 10, rng=np.random.default_rng(0))
    found = split("iid", several, 10, rng=np.random.default_rng(0), sizes="lognormal")
    assert len(found.train) == 10
