from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl.sim.data.catalogue import load
from equifl.sim.data.dataset import Dataset
from equifl.sim.data.own_arrays import dataset_of, read_own
from equifl.sim.data.summary import summary
from tests.sim.data.dataset_checks import check_standardised


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
    for path in (None, 3, tmp_path, tmp_path / "nothing.npz", "x" * 100_000, "/dev/zero"):
        with pytest.raises(ValueError, match=r"path: .* is not allowed; allowed: the path of an .npz file"):
            load("arrays", path=path)
    with pytest.raises(ValueError, match="standardise: 'no' is not allowed; allowed: True or False"):
        load_own(tmp_path, {"standardise": "no"})


@pytest.mark.parametrize("targets", [(), (2,)], ids=["one", "two"])
def test_numbers_of_ones_own_are_for_regression(targets: tuple[int, ...], tmp_path: Path) -> None:
    y = np.random.default_rng(0).normal(50, 9, (28, *targets))
    given: dict[str, Any] = {"y_train": y[:20], "y_test": y[20:]}
    with pytest.raises(ValueError, match=r"y_train: .* numbers to predict are for task = 'regression'"):
        load_own(tmp_path, **given)
    found = load_own(tmp_path, {"regression": True}, **given)
    assert (found.classes, found.outputs) == (None, 2 if targets else 1)
    np.testing.assert_allclose(found.y_test, (y[20:] - y[:20].mean(0)) / y[:20].std(0), atol=1e-4)
    raw = load_own(tmp_path, {"regression": True, "standardise": False}, **given)
    np.testing.assert_array_equal(raw.y_train, y[:20].astype(np.float32))


def test_whole_numbers_are_classes_unless_they_are_for_regression(tmp_path: Path) -> None:
    assert load_own(tmp_path).classes == 4
    assert load_own(tmp_path, {"regression": True}).classes is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": np.arange(7.0)}, r"y_test: shape \(7,\) is not allowed; allowed: \(8,\)"),
        (
            {"y_train": np.full(20, np.nan)},
            r"y_train: 20 of 20 are not finite, first y_train\[0\]; allowed: finite num",
        ),
        ({"y_train": np.array(["a"] * 20)}, r"y_train: cannot be read as numbers \(text\); allowed: numbers"),
        ({"y_train": np.ones((20, 2))}, r"y_test: shape \(8,\) is not allowed; allowed: \(8, 2\)"),
    ],
)
def test_targets_that_are_no_numbers_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_own(tmp_path, {"regression": True}, **changes)


def test_a_class_at_every_position(tmp_path: Path) -> None:
    tokens = np.random.default_rng(0).integers(0, 4, (28, 6))
    given: dict[str, Any] = {
        "x_train": tokens[:20, :5],
        "y_train": tokens[:20, 1:],
        "x_test": tokens[20:, :5],
        "y_test": tokens[20:, 1:],
    }
    found = load_own(tmp_path, **given)
    assert (found.classes, found.y_train.shape) == (4, (20, 5))
    lines = summary(tmp_path / "mine.npz").lines
    assert any(line.startswith("classes: 4 (train + test positions of 0: ") for line in lines)


def test_a_summary_of_numbers_says_what_they_are_for(tmp_path: Path) -> None:
    owners = {"owners_train": np.arange(20) % 2, "owners_test": np.arange(8) % 2}
    np.savez(tmp_path / "mine.npz", **own(y_train=np.linspace(0.5, 9, 20), y_test=np.full(8, 2.5), **owners))
    found = summary(tmp_path / "mine.npz")
    assert (found.problems, found.regression, found.natural) == ((), True, True)
    assert "targets: numbers from 0.5 to 9, mean 4.107, for task = 'regression'" in found.lines
    assert not any("points" in line for line in found.lines)  # that is of accuracies


def test_text_may_be_python_objects_as_pandas_has_it() -> None:
    x, owners = np.arange(40.0).reshape(20, 2), np.repeat(["ann", "bob"], 10)
    y = np.where(np.arange(20) % 2, "no", "yes")
    plain, objects = dataset_of((x, y, owners)), dataset_of((x, y.astype(object), owners.astype(object)))
    np.testing.assert_array_equal(objects.y_train, plain.y_train)
    np.testing.assert_array_equal(objects.owners_train, plain.owners_train)
    with pytest.raises(ValueError, match=r"data: owners: is an array of Python objects; allowed: numbers or text"):
        dataset_of((x, y, np.array(["ann", None] * 10, dtype=object)))
