from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl.signals import Ints
from equifl.sim.data.catalogue import load
from equifl.sim.data.dataset import Dataset
from equifl.sim.data.partition import KINDS, Partition, few_tested, natural_clients, options_of, split


def made_up(y_train: Ints, y_test: Ints, **fields: Any) -> Dataset:
    """What partitions look at: labels, and owners if there are."""
    classes = 1 + max(1, int(y_train.max()), int(y_test.max()))
    x_train, x_test = (np.zeros((len(y), 1), np.float32) for y in (y_train, y_test))
    return Dataset("made up", x_train, y_train, x_test, y_test, classes, **fields)


@st.composite
def datasets(draw: st.DrawFn, *, classes: int | None = None, least: int = 1) -> Dataset:
    """Up to six classes of unequal size, in no order."""
    n = classes or draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(seeds))
    train, test = rng.integers(least, least + 40, n), rng.integers(least, least + 10, n)
    return made_up(*(rng.permutation(np.repeat(np.arange(n), members)) for members in (train, test)))


seeds = st.integers(0, 2**32 - 1)


def cut(kind: str, dataset: Dataset, clients: int, seed: int = 0, **options: Any) -> Partition:
    return split(kind, dataset, clients, rng=np.random.default_rng(seed), **options)


def sizes(parts: tuple[Ints, ...]) -> list[int]:
    return [len(part) for part in parts]


def counts(parts: tuple[Ints, ...], y: Ints, classes: int) -> Ints:
    """(clients, classes) how many of each class everyone has."""
    return np.array([np.bincount(y[part], minlength=classes) for part in parts])


def both_counts(partition: Partition, dataset: Dataset) -> tuple[Ints, Ints]:
    train = counts(partition.train, dataset.y_train, dataset.outputs)
    return train, counts(partition.test, dataset.y_test, dataset.outputs)


def check(partition: Partition, dataset: Dataset, clients: int) -> None:
    """What holds whatever the kind."""
    for parts, y in ((partition.train, dataset.y_train), (partition.test, dataset.y_test)):
        assert len(parts) == clients
        assert all(part.dtype == np.int64 and len(part) for part in parts)
        assert all((np.diff(part) > 0).all() for part in parts)
        used = np.concatenate(parts)
        assert len(np.unique(used)) == len(used) <= len(y)
        assert 0 <= used.min() <= used.max() < len(y)


@given(st.data(), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), seeds)
def test_classes_gives_everyone_as_many_classes_as_promised(
    data: st.DataObject, classes: int, c: int, times: int, seed: int
) -> None:
    classes, c = max(2, classes), min(max(2, classes), c)
    clients = times * classes // np.gcd(c, classes)
    shards = clients * c // classes
    dataset = data.draw(datasets(classes=classes, least=shards))
    partition = cut("classes", dataset, clients, seed, classes_per_client=c)
    check(partition, dataset, clients)
    train, test = both_counts(partition, dataset)
    assert ((train > 0).sum(axis=1) == c).all()
    np.testing.assert_array_equal(train > 0, test > 0)
    for has, y in ((train, dataset.y_train), (test, dataset.y_test)):
        members = np.bincount(y, minlength=classes)
        np.testing.assert_array_equal(has, (has > 0) * (members // shards))  # equal shards
        assert ((has > 0).sum(axis=0) == shards).all()


def test_classes_deals_examples_at_random() -> None:
    first, other = (cut("classes", many(), 10, seed, classes_per_client=10) for seed in (0, 1))
    assert first.train[0].tolist() != other.train[0].tolist()
    assert first.test[0].tolist() != other.test[0].tolist()


def test_classes_deals_any_pair_of_classes() -> None:
    dataset = made_up(np.tile(np.arange(10), 100), np.tile(np.arange(10), 100))
    train, _ = both_counts(cut("classes", dataset, 300, classes_per_client=2), dataset)
    together = (train > 0).T.astype(int) @ (train > 0)
    assert (together[~np.eye(10, dtype=bool)] > 0).all()  # 45 pairs, 300 clients


@given(datasets(least=3), st.integers(1, 12), st.floats(0.01, 100), st.integers(1, 3), seeds)
def test_dirichlet_uses_everything_and_leaves_nobody_with_too_little(
    dataset: Dataset, clients: int, alpha: float, least: int, seed: int
) -> None:
    clients = min(clients, len(dataset.y_train) // least, len(dataset.y_test))
    partition = cut("dirichlet", dataset, clients, seed, alpha=alpha, least=least)
    check(partition, dataset, clients)
    assert min(sizes(partition.train)) >= least
    assert sum(sizes(partition.train)) == len(dataset.y_train)
    train, _ = both_counts(partition, dataset)
    trained = (train.sum(axis=0) > 0)[dataset.y_test].sum()
    assert sum(sizes(partition.test)) == trained


def many(classes: int = 10) -> Dataset:
    return made_up(np.tile(np.arange(classes), 600), np.tile(np.arange(classes), 100))


def test_dirichlet_cuts_the_test_split_in_the_same_proportions() -> None:
    dataset = many()
    train, test = both_counts(cut("dirichlet", dataset, 20, alpha=0.5), dataset)
    assert np.abs(test - train / 6).max() <= 1
    assert not (test[train == 0]).any()


def test_clients_with_too_little_get_more_of_what_they_have() -> None:
    partition = cut("dirichlet", many(), 300, alpha=0.1)  # many would have nothing to be tested on
    train, test = both_counts(partition, many())
    assert not (test[train == 0]).any()


def test_dirichlet_is_even_with_a_large_alpha_and_uneven_with_a_small_one() -> None:
    even, uneven = (both_counts(cut("dirichlet", many(), 10, alpha=alpha), many())[0] for alpha in (1e6, 0.01))
    assert np.ptp(even) <= 3
    assert np.median((uneven > 20).sum(axis=1)) <= 2


def test_dirichlet_can_serve_as_many_as_there_are_examples_for() -> None:
    dataset = many()
    partition = cut("dirichlet", dataset, 600, alpha=0.1, least=10)
    check(partition, dataset, 600)
    assert sizes(partition.train) == [10] * 600


@given(datasets(least=15), st.integers(1, 10), st.integers(1, 3), seeds)
def test_shards_are_equal_and_few_labels_each(dataset: Dataset, clients: int, each: int, seed: int) -> None:
    partition = cut("shards", dataset, clients, seed, shards_per_client=each)
    check(partition, dataset, clients)
    examples = len(dataset.y_train)
    assert sizes(partition.train) == [each * (examples // (clients * each))] * clients
    train, _ = both_counts(partition, dataset)
    # Every border between two classes falls into one shard at most.
    assert (train > 0).sum() <= clients * each + dataset.outputs - 1


def test_what_shards_leave_over_is_not_of_one_class() -> None:
    dataset = made_up(np.repeat(np.arange(10), 600), np.repeat(np.arange(10), 100))
    train, _ = both_counts(cut("shards", dataset, 1000, shards_per_client=4), dataset)
    assert train.sum() == 4000
    assert np.ptp(train.sum(axis=0)) < 100


def test_shards_test_on_the_labels_trained_on() -> None:
    train, test = both_counts(cut("shards", many(), 30), many())
    assert ((train > 0).sum(axis=1) <= 4).all()
    np.testing.assert_array_equal(train > 0, test > 0)


@given(datasets(least=2), st.integers(1, 4), seeds)
def test_iid_gives_equal_parts(dataset: Dataset, clients: int, seed: int) -> None:
    partition = cut("iid", dataset, clients, seed)
    check(partition, dataset, clients)
    assert sizes(partition.train) == [len(dataset.y_train) // clients] * clients
    assert sizes(partition.test) == [len(dataset.y_test) // clients] * clients


def test_iid_clients_are_alike() -> None:
    train, _ = both_counts(cut("iid", many(), 10), many())
    assert 30 < train.min() <= train.max() < 90  # 60 of each class, give or take four deviations


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=30), seeds)
def test_natural_is_by_owner(owners: list[int], seed: int) -> None:
    whose = np.array(owners)
    test_owners = np.random.default_rng(seed).permutation(np.tile(whose, 2))
    y = np.zeros(len(whose), np.int64)
    dataset = made_up(y, np.tile(y, 2), owners_train=whose, owners_test=test_owners)
    names = np.unique(whose)
    partition = cut("natural", dataset, len(names))
    check(partition, dataset, len(names))
    for name, train, test in zip(names, partition.train, partition.test, strict=True):
        assert train.tolist() == np.flatnonzero(whose == name).tolist()
        assert test.tolist() == np.flatnonzero(test_owners == name).tolist()


DRAWN = [kind for kind in KINDS if kind != "natural"]


@pytest.mark.parametrize("kind", DRAWN)
def test_the_same_seed_gives_the_same_partition(kind: str) -> None:
    first, again, other = (cut(kind, many(), 20, seed) for seed in (3, 3, 4))
    for a, b in zip(first.train + first.test, again.train + again.test, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(a.tolist() != b.tolist() for a, b in zip(first.train, other.train, strict=True))


@pytest.mark.parametrize("kind", ["classes", "iid"])
@given(seed=seeds, sigma=st.floats(0.1, 3))
def test_lognormal_sizes_are_unequal_and_keep_what_was_promised(kind: str, seed: int, sigma: float) -> None:
    dataset = many()
    equal = cut(kind, dataset, 20, seed)
    partition = cut(kind, dataset, 20, seed, sizes="lognormal", size_sigma=sigma)
    check(partition, dataset, 20)
    has = sizes(partition.train)
    assert min(has) >= 10
    assert max(has) == sizes(equal.train)[0]
    assert len(set(has)) > 1
    for part, whole in zip(partition.train, equal.train, strict=True):
        assert np.isin(part, whole).all()
    for a, b in zip(partition.test, equal.test, strict=True):
        np.testing.assert_array_equal(a, b)
    if kind == "classes":
        train, _ = both_counts(partition, dataset)
        assert ((train > 0).sum(axis=1) == 3).all()


def test_lognormal_sizes_leave_those_alone_who_have_few() -> None:
    dataset = made_up(np.tile([0, 1], 20), np.tile([0, 1], 20))
    assert sizes(cut("iid", dataset, 8, sizes="lognormal").train) == [5] * 8


def test_lognormal_sizes_have_the_deviation_asked_for() -> None:
    dataset = made_up(np.tile([0, 1], 200_000), np.tile([0, 1], 200))
    has = np.log(sizes(cut("iid", dataset, 200, sizes="lognormal", size_sigma=0.7).train))
    assert 0.6 < has.std() < 0.8


@pytest.mark.parametrize(
    ("kind", "clients", "options", "message"),
    [
        ("class", 10, {}, r"partition: 'class' is not known; did you mean 'classes'\? allowed: classes, dirichlet"),
        ("iid", 0, {}, r"clients: 0 is not allowed; allowed: an integer of 1 or more"),
        ("iid", 2.0, {}, r"clients: 2.0 is not allowed"),
        ("classes", 10, {"class_per_client": 3}, r"classes option: 'class_per_client' .* 'classes_per_client'\?"),
        ("iid", 10, {"alpha": 3}, r"iid option: 'alpha' is not known; allowed: sizes, size_sigma"),
        ("natural", 10, {"alpha": 3}, r"natural option: 'alpha' is not known; allowed: drop_incomplete"),
        ("natural", 10, {"drop_incomplete": 1}, r"drop_incomplete: 1 is not allowed; allowed: True or False"),
        ("classes", 7, {}, r"clients: 7 is not allowed; allowed: a multiple of 10, so that 10 classes .* 3 a client"),
        ("classes", 7, {"classes_per_client": 4}, r"clients: 7 .* a multiple of 5"),
        ("classes", 10, {"classes_per_client": 11}, r"classes_per_client: 11 is not allowed; allowed: 1 to 10"),
        ("classes", 10, {"classes_per_client": 0}, r"classes_per_client: 0"),
        ("classes", 1000, {}, r"clients: 1000 is not allowed; allowed: at most 333, as class 0 has 100 test examples"),
        ("classes", 10, {"sizes": "normal"}, r"sizes: 'normal' is not allowed; allowed: 'equal' or 'lognormal'"),
        ("iid", 10, {"sizes": "lognormal", "size_sigma": 0}, r"size_sigma: 0 is not allowed; allowed: above 0"),
        ("iid", 10, {"sizes": "lognormal", "size_sigma": 1e308}, r"size_sigma: 1e\+308 is not allowed; "),
        ("dirichlet", 10, {"alpha": 1e308}, r"alpha: 1e\+308 is not allowed; allowed: above 0, below 1e100"),
        ("classes", 10**9, {"classes_per_client": 2}, r"clients: 1000000000 is not allowed; allowed: at most "),
        ("iid", 1001, {}, r"clients: 1001 is not allowed; allowed: at most 1000, the number of test examples"),
        ("iid", 6001, {}, r"clients: 6001 .* at most 6000, the number of training examples"),
        ("dirichlet", 601, {}, r"clients: 601 .* at most 600, as there are 6000 training examples for at least 10"),
        ("dirichlet", 1001, {"least": 1}, r"clients: 1001 .* at most 1000, the number of test examples"),
        ("dirichlet", 10, {"alpha": 0}, r"alpha: 0 is not allowed; allowed: above 0"),
        ("dirichlet", 10, {"alpha": "0.5"}, r"alpha: '0.5' is not allowed"),
        ("dirichlet", 10, {"alpha": float("nan")}, r"alpha: nan is not allowed"),
        ("dirichlet", 10, {"least": 0}, r"least: 0 is not allowed"),
        ("shards", 10, {"shards_per_client": 0}, r"shards_per_client: 0"),
        ("shards", 3001, {}, r"clients: 3001 .* at most 3000, as there are 6000 training examples for 2 shards"),
        ("shards", 1001, {}, r"clients: 1001 .* at most 1000, the number of test examples"),
        ("natural", 10, {}, r"partition: 'natural' is not allowed for made up, which has no natural clients"),
    ],
)
def test_refuses_what_cannot_be(kind: str, clients: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cut(kind, many(), clients, **options)


@pytest.mark.parametrize("kind", ["dirichlet", "shards"])
def test_a_test_split_of_classes_that_nobody_trains_on_is_refused(kind: str) -> None:
    dataset = made_up(np.zeros(100, np.int64), np.array([0, 1, 1, 1, 1]))
    with pytest.raises(ValueError, match="clients: 2 is not allowed; allowed: at most 1, the number of test examples"):
        cut(kind, dataset, 2)


def test_natural_refuses_another_number_of_clients_and_owners_of_one_split_only() -> None:
    y = np.array([0, 1, 0, 1])
    dataset = made_up(y, y, owners_train=np.array([7, 7, 8, 9]), owners_test=np.array([7, 8, 9, 9]))
    with pytest.raises(ValueError, match="clients: 2 is not allowed; allowed: 3, the natural clients of made up; or"):
        cut("natural", dataset, 2)
    dataset = made_up(y, y, owners_train=np.array([7, 7, 8, 9]), owners_test=np.array([7, 8, 8, 8]))
    with pytest.raises(ValueError, match=r"owners: 1 of 3 clients is in one split only: 9; .* drop_incomplete = true"):
        cut("natural", dataset, 3)


@pytest.mark.parametrize("named", [np.array([3, 4, 5, 6]), np.array(["anna", "ben", "carl", "dora"])])
def test_natural_clients_of_one_split_only_are_named_or_dropped(named: Any) -> None:
    a, b, c, d = named
    train, test = np.array([c, a, b, c, d]), np.array([b, c, a, c])
    y = np.array([0, 1, 0, 1, 0])
    dataset = made_up(y, y[:4], owners_train=train, owners_test=test)
    with pytest.raises(ValueError, match=rf"owners: 1 of 4 clients is in one split only: {d.item()!r};"):
        natural_clients(dataset)
    assert natural_clients(dataset, drop_incomplete=True).tolist() == [a, b, c]
    partition = cut("natural", dataset, 3, drop_incomplete=True)
    assert [part.tolist() for part in partition.train] == [[1], [2], [0, 3]]
    assert [part.tolist() for part in partition.test] == [[2], [0], [1, 3]]


@pytest.mark.parametrize("drop", [False, True])
def test_natural_clients_none_of_whom_is_in_both_splits_are_refused(drop: bool) -> None:
    y = np.array([0, 1, 0, 1])
    dataset = made_up(y, y, owners_train=np.arange(4), owners_test=np.arange(4, 8))
    with pytest.raises(
        ValueError, match=r"8 of 8 clients are in one split only: 0, 1, 2, ...; .* divide the examples"
    ):
        natural_clients(dataset, drop_incomplete=drop)


def test_few_test_examples_are_counted_over_seeds() -> None:
    assert few_tested([np.array([10, 11])]) == ""
    assert few_tested([np.array([9, 11])]).startswith("1 of 2 clients has fewer than 10 test examples: each scores in")
    assert few_tested([np.array([9, 11]), np.array([3, 3])]).startswith("1 to 2 of 2 clients have fewer")


def test_every_kind_says_its_options() -> None:
    assert {kind: options_of(kind) for kind in KINDS} == {
        "classes": ("classes_per_client", "sizes", "size_sigma"),
        "dirichlet": ("alpha", "least"),
        "shards": ("shards_per_client",),
        "iid": ("sizes", "size_sigma"),
        "natural": ("drop_incomplete",),
    }


@pytest.mark.parametrize("kind", DRAWN)
def test_a_thousand_clients_of_sixty_thousand_examples(kind: str) -> None:
    dataset = made_up(np.tile(np.arange(10), 6000), np.tile(np.arange(10), 1000))
    check(cut(kind, dataset, 1000), dataset, 1000)


def test_digits_and_synthetic_can_be_cut() -> None:
    digits = load("digits")
    check(cut("classes", digits, 100), digits, 100)
    check(cut("dirichlet", digits, 50), digits, 50)
    synthetic = load("synthetic", clients=12)
    check(cut("natural", synthetic, 12), synthetic, 12)
