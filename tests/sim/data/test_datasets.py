from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equifl.sim.data.arrays import read_own
from equifl.sim.data.datasets import NAMES, Dataset, listing, load, options_of
from equifl.sim.data.download import SOURCES

pytestmark = pytest.mark.usefixtures("nothing_of_the_users")


def check_standardised(dataset: Dataset) -> None:
    for channel in np.moveaxis(dataset.x_train, 1, 0):
        np.testing.assert_allclose(channel.mean(dtype=np.float64), 0, atol=1e-5)
        np.testing.assert_allclose(channel.std(dtype=np.float64), 1, atol=1e-4)


def check(dataset: Dataset) -> None:
    assert dataset.x_train.dtype == dataset.x_test.dtype == np.float32
    assert dataset.y_train.dtype == dataset.y_test.dtype == np.int64
    assert dataset.x_train.flags.c_contiguous
    assert dataset.x_train.flags.writeable  # torch warns of arrays that are not
    entry = listing()[dataset.name]
    assert entry.train in (None, len(dataset.x_train))
    assert entry.test in (None, len(dataset.x_test))
    assert np.unique(dataset.y_train).tolist() == list(range(dataset.classes))


def test_digits() -> None:
    digits = load("digits")
    check(digits)
    check_standardised(digits)
    assert digits.x_train.shape == (1442, 1, 8, 8)
    assert digits.x_test.shape == (355, 1, 8, 8)
    members = np.bincount(np.concatenate([digits.y_train, digits.y_test]))
    np.testing.assert_array_equal(np.bincount(digits.y_test), members // 5)
    np.testing.assert_array_equal(load("digits").x_train, digits.x_train)


def test_mnist(real_data: Path) -> None:
    mnist = load("mnist", data_dir=real_data)
    check(mnist)
    check_standardised(mnist)
    assert mnist.x_train.shape == (60_000, 1, 28, 28)
    assert mnist.x_test.shape == (10_000, 1, 28, 28)
    assert mnist.y_train[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.y_test[:5].tolist() == [7, 2, 1, 0, 4]
    np.testing.assert_allclose(mnist.x_train.min(), -0.1307 / 0.3081, atol=1e-3)  # the figures everyone uses


def test_fashion_mnist_has_the_format_of_mnist(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "fashion-mnist", SOURCES["mnist"])
    dataset = load("fashion-mnist", data_dir=real_data)
    assert dataset.name == "fashion-mnist"
    assert dataset.x_train.shape == (60_000, 1, 28, 28)


def test_cifar10(real_cifar10: Path) -> None:
    cifar10 = load("cifar10", data_dir=real_cifar10)
    check(cifar10)
    check_standardised(cifar10)
    assert cifar10.x_train.shape == (50_000, 3, 32, 32)
    assert cifar10.x_test.shape == (10_000, 3, 32, 32)
    assert cifar10.y_train[:5].tolist() == [6, 9, 9, 4, 1]
    assert cifar10.y_test[:5].tolist() == [3, 8, 8, 0, 6]
    assert np.bincount(cifar10.y_train).tolist() == [5000] * 10
    # The first picture, a frog, begins with the red, green and blue of (59, 62, 63); 0 and 255 occur somewhere.
    black = cifar10.x_train.min(axis=(0, 2, 3))
    scale = cifar10.x_train.max(axis=(0, 2, 3)) - black
    first = (cifar10.x_train[0, :, 0, 0] - black) / scale * 255
    np.testing.assert_allclose(first, [59, 62, 63], atol=1e-3)


def test_heart_disease(real_data: Path) -> None:
    heart = load("heart-disease", data_dir=real_data)
    check(heart)
    assert heart.x_train.shape == (614, 13)
    assert heart.x_test.shape == (306, 13)
    assert heart.classes == 2
    assert heart.owners_train is not None
    assert heart.owners_test is not None
    assert np.bincount(heart.owners_train).tolist() == [202, 196, 82, 134]
    assert np.bincount(heart.owners_test).tolist() == [101, 98, 41, 66]
    assert int(heart.y_train.sum() + heart.y_test.sum()) == 509  # of the 920 are ill
    assert np.ptp(heart.x_train[heart.owners_train == 2][:, 4]) == 0  # cholesterol was not measured in Switzerland


def test_heart_disease_is_standardised_on_what_was_measured(real_data: Path) -> None:
    heart = load("heart-disease", data_dir=real_data)
    for column in heart.x_train.T.astype(np.float64):
        measured = column[column != 0]  # the mean of all is nobody's value
        np.testing.assert_allclose(measured.mean(), 0, atol=1e-5)
        np.testing.assert_allclose(measured.std(), 1, atol=1e-4)


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


@settings(max_examples=10, deadline=None)
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
        ({"beta": "1"}, r"beta: '1' is not allowed; allowed: 0 or more"),
        ({"iid": "no"}, r"iid: 'no' is not allowed; allowed: True or False"),
        ({"alhpa": 1.0}, r"synthetic option: 'alhpa' is not known; did you mean 'alpha'\? allowed: clients, alpha"),
    ],
)
def test_synthetic_refuses_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load("synthetic", **options)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(
        ValueError, match=r"data set: 'cifar-10' is not known; did you mean 'cifar10'\? allowed: digits"
    ):
        load("cifar-10")
    with pytest.raises(ValueError, match="mnist option: 'clients' is not known; allowed: none"):
        load("mnist", clients=3)


def test_the_list_says_what_there_is_and_where(real_data: Path, tmp_path: Path) -> None:
    entries = listing(real_data)
    assert tuple(entries) == NAMES
    assert entries["mnist"].folder == real_data / "mnist"
    assert entries["mnist"].download == sum(
        (real_data / "mnist" / file).stat().st_size for file in SOURCES["mnist"].files
    )
    assert entries["cifar10"].folder is None
    assert entries["digits"].download == 0
    assert all(entry.folder is None for entry in listing(tmp_path).values())
    assert options_of("arrays") == ("path", "standardise")


def own(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.normal(3, 2, (20, 5)), "y_train": np.arange(20) % 4}
    arrays |= {"x_test": rng.normal(3, 2, (8, 5)), "y_test": np.arange(8) % 4}
    return {name: array for name, array in (arrays | changes).items() if array is not None}


def load_own(folder: Path, options: dict[str, Any] | None = None, **changes: Any) -> Dataset:
    np.savez(folder / "mine.npz", **own(**changes))
    return load("arrays", path=folder / "mine.npz", **(options or {}))


def test_own_arrays(tmp_path: Path) -> None:
    dataset = load_own(tmp_path)
    assert (dataset.name, dataset.classes) == ("mine", 4)
    check_standardised(dataset)
    arrays = own()
    expected = (arrays["x_test"] - arrays["x_train"].mean(0)) / arrays["x_train"].std(0)
    np.testing.assert_allclose(dataset.x_test, expected, atol=1e-5)
    assert dataset.owners_train is None


def test_own_arrays_stay_as_they_are_if_asked(tmp_path: Path) -> None:
    dataset = load_own(tmp_path, {"standardise": False})
    np.testing.assert_array_equal(dataset.x_train, own()["x_train"].astype(np.float32))


@pytest.mark.parametrize(("shape", "channels"), [((7, 6), 1), ((1, 7, 6), 1), ((3, 7, 6), 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_own_images(shape: tuple[int, ...], channels: int, dtype: type, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images: dict[str, Any] = {name: rng.integers(0, 255, (n, *shape)) for name, n in (("x_train", 20), ("x_test", 8))}
    dataset = load_own(tmp_path, **{name: array.astype(dtype) for name, array in images.items()})
    assert dataset.x_train.shape == (20, channels, 7, 6)
    check_standardised(dataset)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_integers_of_ones_own_stay_integers(dtype: type, tmp_path: Path) -> None:
    tokens = {name: np.random.default_rng(0).integers(0, 99, (n, 5)) for name, n in (("x_train", 20), ("x_test", 8))}
    given: dict[str, Any] = {name: array.astype(dtype) for name, array in tokens.items()}
    for options in ({}, {"standardise": False}):
        dataset = load_own(tmp_path, options, **given)
        assert dataset.x_train.dtype == dataset.x_test.dtype == np.int64
        np.testing.assert_array_equal(dataset.x_train, tokens["x_train"])
        np.testing.assert_array_equal(dataset.x_test, tokens["x_test"])
    with pytest.raises(
        ValueError, match=r"standardise: True is not allowed; allowed: False, or leave it out: .*integer"
    ):
        load_own(tmp_path, {"standardise": True}, **given)


@pytest.mark.parametrize("kind", [str, np.bytes_])
def test_labels_and_owners_may_be_text(kind: type, tmp_path: Path) -> None:
    letters: Any = np.array(["wolf", "cat", "ape"]).astype(kind)
    dataset = load_own(
        tmp_path,
        y_train=letters[np.arange(20) % 3],
        y_test=letters[np.arange(8) % 2],
        owners_train=letters[np.arange(20) // 7],
        owners_test=letters[np.arange(8) // 3],
    )
    order = np.array([2, 1, 0])  # as the alphabet has it
    assert dataset.classes == 3
    assert dataset.y_train.tolist() == order[np.arange(20) % 3].tolist()
    assert dataset.y_test.tolist() == order[np.arange(8) % 2].tolist()
    assert dataset.owners_train is not None
    assert dataset.owners_test is not None
    assert dataset.owners_train.tolist() == np.array(["wolf", "cat", "ape"])[np.arange(20) // 7].tolist()
    assert dataset.owners_test[0] == "wolf"


def test_all_that_is_wrong_is_found_at_once(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **own(x_train=np.full((20, 5), np.nan), y_train=np.arange(19) % 4, y_test=None))
    found = read_own(tmp_path / "mine.npz")
    assert [fault.partition(":")[0] for fault in found.faults] == ["mine.npz", "x_train", "y_train"]
    assert list(found.arrays) == ["x_test"]


def test_own_owners(tmp_path: Path) -> None:
    dataset = load_own(tmp_path, owners_train=np.arange(20) // 5, owners_test=np.arange(8) // 2)
    assert dataset.owners_train is not None
    assert dataset.owners_train.tolist() == (np.arange(20) // 5).tolist()


def test_a_constant_feature_becomes_zero(tmp_path: Path) -> None:
    x_train, x_test = np.full((20, 2), 0.1), np.full((8, 2), 0.1)
    x_train[0, 1] = 5
    dataset = load_own(tmp_path, x_train=x_train, x_test=x_test)
    np.testing.assert_allclose(dataset.x_train[:, 0], 0, atol=1e-6)
    np.testing.assert_allclose(dataset.x_test[:, 0], 0, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None, "y_test": None}, r"mine.npz: x_test, y_test missing; allowed: a file with x_train, y_train"),
        ({"owner_train": [1] * 20}, r"mine.npz: 'owner_train' is not known; did you mean 'owners_train'\?"),
        ({"y_train": np.arange(19) % 4}, r"y_train: shape \(19,\) is not allowed; allowed: \(20,\)"),
        ({"y_test": np.zeros((8, 1), int)}, r"y_test: shape \(8, 1\) is not allowed; allowed: \(8,\)"),
        ({"y_train": 1 + np.arange(20) % 4}, r"y_train: \[1, 2, 3, 4\] .* 0 to C-1, all .* subtract 1 from"),
        ({"y_train": np.arange(20) % 4 - 1}, r"y_train: \[-1, 0, 1, 2\] are not allowed"),
        ({"y_train": np.arange(20) % 4 + 0.5}, r"(?s)y_train: .* allowed: integers"),
        ({"y_train": 3 * (np.arange(20) % 4)}, r"y_train: \[0, 3, 6, 9\] are not allowed; .* return_inverse=True"),
        (
            {"y_train": np.zeros(20, int), "y_test": np.zeros(8, int)},
            r"y_train: all labels are \[0\]; allowed: two cla",
        ),
        ({"y_train": np.arange(20) % 2 == 0}, r"y_train: .* allowed: integers or text.*; astype\(int\) makes them so"),
        (
            {"y_train": np.array(["a", "b"] * 10), "y_test": np.array(["a", "c"] * 4)},
            r"y_test: \['c'\] are not allowed",
        ),
        ({"y_train": np.array(["a", "b"] * 10)}, r"y_test: 'int64' is not allowed; allowed: text, as y_train is"),
        ({"y_test": np.arange(8)}, r"y_test: \[4, 5, 6, 7\] are not allowed; allowed: 0 to 3"),
        (
            {"x_train": np.zeros(20)},
            r"x_train: shape \(20,\) is not allowed; allowed: \(n, features\) or \(n, channels",
        ),
        ({"x_train": np.zeros((20, 0))}, r"x_train: shape \(20, 0\) is not allowed"),
        ({"x_test": np.zeros((8, 6))}, r"x_test: shape \(8, 6\) is not allowed; allowed: \(8, 5\)"),
        ({"x_train": np.full((20, 5), np.nan)}, r"x_train: not all finite"),
        ({"x_train": np.full((20, 5), 1e300)}, r"x_train: not all finite"),
        ({"x_train": np.full((20, 5), "a")}, r"x_train: cannot be read as numbers"),
        (
            {"x_train": np.full((20, 5), None)},
            r"x_train: is an array of Python objects; allowed: numbers or text; save",
        ),
        (
            {"x_test": np.zeros((8, 5), int)},
            r"x_train, x_test: float32 and int64 are not allowed; .* in both or in none",
        ),
        ({"x_train": np.float64(3)}, r"x_train: shape .* is not allowed; allowed: \(n, features\)"),
        ({"owners_train": np.zeros(20, int)}, r"owners_train, owners_test: only one is there; allowed: both or none"),
        (
            {"owners_train": np.zeros(20, int), "owners_test": np.zeros(7, int)},
            r"owners_test: shape \(7,\) is not allowed; allowed: \(8,\), one value for each example of x_test",
        ),
        (
            {"owners_train": np.zeros(20, int), "owners_test": np.array(["a"] * 8)},
            r"owners_train, owners_test: text in one, integers in the other",
        ),
    ],
)
def test_bad_arrays_are_refused_by_name(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_own(tmp_path, **changes)


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 but cut short"])
def test_what_is_no_npz_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"path: .*mine.npz' is not an .npz file of numbers"):
        load("arrays", path=path)


def test_one_array_alone_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"is not an .npz file of numbers"):
        load("arrays", path=tmp_path / "mine.npy")


def test_own_arrays_need_a_path(tmp_path: Path) -> None:
    for path in (None, 3, tmp_path, tmp_path / "nothing.npz"):
        with pytest.raises(ValueError, match=r"path: .* is not allowed; allowed: the path of an .npz file"):
            load("arrays", path=path)
    with pytest.raises(ValueError, match="standardise: 'no' is not allowed; allowed: True or False"):
        load_own(tmp_path, {"standardise": "no"})
