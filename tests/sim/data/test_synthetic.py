from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equifl.sim.data.catalogue import load
from equifl.sim.data.dataset import Dataset
from tests.sim.data.dataset_checks import check, check_standardised


def test_synthetic() -> None:
    synthetic = load("synthetic", clients=40)
    check(synthetic)
    check_standardised(synthetic)
    assert synthetic.x_train.shape[1:] == (60,)
    assert synthetic.owners_train is not None
    assert synthetic.owners_test is not None
    train, test = np.bincount(synthetic.owners_train), np.bincount(synthetic.owners_test)
    assert len(train) == len(test) == 40
    assert (train + test).min() >= 50
    assert (train + test).max() <= 2000
    np.testing.assert_array_equal(test, (train + test) // 5)


def clients_of(dataset: Dataset) -> list[np.ndarray[Any, Any]]:
    assert dataset.owners_train is not None
    return [dataset.owners_train == client for client in np.unique(dataset.owners_train)]


def test_synthetic_clients_may_be_kept_small() -> None:
    synthetic = load("synthetic", clients=40, largest=20)
    assert synthetic.owners_train is not None
    assert set(np.bincount(synthetic.owners_train)) == {16}
    with pytest.raises(ValueError, match="largest: 4 is not allowed; allowed: an integer of 5 or more"):
        load("synthetic", largest=4)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), clients=st.integers(1, 5))
def test_synthetic_is_its_seeds_and_a_client_does_not_depend_on_the_others(seed: int, clients: int) -> None:
    one, same = (load("synthetic", clients=clients, seed=seed) for _ in range(2))
    np.testing.assert_array_equal(one.x_train, same.x_train)
    np.testing.assert_array_equal(one.y_test, same.y_test)
    more = load("synthetic", clients=clients + 1, seed=seed)
    assert more.y_train[: len(one.y_train)].tolist() == one.y_train.tolist()
    assert not np.array_equal(load("synthetic", clients=clients, seed=seed + 1).y_train, one.y_train)


def test_synthetic_beta_moves_inputs_and_iid_does_not() -> None:
    def spread(**options: Any) -> float:
        dataset = load("synthetic", clients=20, **options)
        return float(np.std([dataset.x_train[whose].mean() for whose in clients_of(dataset)]))

    assert spread(iid=True) < 0.1 < spread(beta=0.0) < spread(beta=3.0)


def test_synthetic_clients_differ_in_their_labels_unless_iid() -> None:
    def difference(**options: Any) -> float:
        """Between the labels of a client and of all, from 0 to 1; the mean over clients."""
        dataset = load("synthetic", clients=20, **options)
        share = [np.bincount(dataset.y_train[whose], minlength=10) / whose.sum() for whose in clients_of(dataset)]
        return float(
            np.abs(share - np.bincount(dataset.y_train, minlength=10) / len(dataset.y_train)).sum(1).mean() / 2
        )

    assert difference(iid=True) < 0.2
    assert difference(alpha=0.0, beta=0.0) > 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 0}, r"clients: 0 is not allowed"),
        ({"seed": -1}, r"seed: -1 is not allowed"),
        ({"alpha": -1.0}, r"alpha: -1.0 is not allowed; allowed: 0 or more"),
        ({"beta": 1e308}, r"beta: 1e\+308 is not allowed; allowed: 0 or more, up to 1e30"),
        ({"beta": "1"}, r"beta: '1' is not allowed; allowed: 0 or more"),
        ({"iid": "no"}, r"iid: 'no' is not allowed; allowed: True or False"),
        ({"alhpa": 1.0}, r"synthetic option: 'alhpa' is not known; did you mean 'alpha'\? allowed: clients, alpha"),
    ],
)
def test_synthetic_refuses_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load("synthetic", **options)
