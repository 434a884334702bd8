import numpy as np
import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from equifl.hosts.usable import MissingMetricError, SetAsideError
from equifl.nvflare.results import STEPS, Keys, arrays_of, like, metrics_of, read_training
from equifl.sketch import CountSketch

KEYS = Keys("train_loss", "accuracy", STEPS)
SENT = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(2, np.float32)}
SKETCH = CountSketch(length=16)


def result(kind: ParamsType = ParamsType.FULL, **params: object) -> FLModel:
    return FLModel(kind, params or dict(SENT), metrics={"train_loss": 0.5}, meta={STEPS: 20})


def read(one: FLModel, *needs: str) -> object:
    return read_training(one, SENT, KEYS, frozenset(needs), SKETCH)


def test_the_update_is_the_same_from_whole_parameters_and_from_differences() -> None:
    step = {"w": np.full((2, 3), 0.25, np.float32), "b": np.array([1, -1], np.float32)}
    full = read_training(
        result(w=SENT["w"] + step["w"], b=SENT["b"] + step["b"]), SENT, KEYS, frozenset({"updates"}), SKETCH
    )
    moved = read_training(result(ParamsType.DIFF, **step), SENT, KEYS, frozenset({"updates"}), SKETCH)
    assert full.update is not None
    assert moved.update is not None
    np.testing.assert_allclose(full.update, moved.update, atol=1e-6)
    np.testing.assert_allclose(full.update, -SKETCH(step.values()), atol=1e-6)
    assert (full.loss, full.size, full.weight, full.bytes) == (0.5, 20.0, 20.0, 32)


def test_arrays_that_a_site_left_out_did_not_move() -> None:
    step = np.array([1, -1], np.float32)
    for part in (result(b=SENT["b"] + step), result(ParamsType.DIFF, b=step)):
        update = read_training(part, SENT, KEYS, frozenset({"updates"}), SKETCH).update
        np.testing.assert_allclose(update, -SKETCH([np.zeros((2, 3), np.float32), step]), atol=1e-6)  # type: ignore[arg-type]


def test_what_the_selector_does_not_need_is_not_asked_for() -> None:
    bare = FLModel(ParamsType.FULL, dict(SENT))
    one = read_training(bare, SENT, KEYS, frozenset(), SKETCH)
    assert (one.loss, one.update, one.size, one.weight) == (None, None, None, 1.0)
    with pytest.raises(MissingMetricError, match="no metric `train_loss`"):
        read(bare, "losses")


def test_nothing_or_no_table_is_set_aside() -> None:
    with pytest.raises(SetAsideError, match="it holds no parameters"):
        read(FLModel(ParamsType.FULL, {}))
    with pytest.raises(SetAsideError, match="its parameters are of type ndarray"):
        read(FLModel(ParamsType.FULL, np.zeros(3)))


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    metrics = {"train_loss": np.float32(0.5), "accuracy": torch.tensor(0.25), "note": "x", "many": np.zeros(3)}
    plain = metrics_of(FLModel(metrics=metrics, meta={STEPS: np.int64(3)}))
    assert (plain["train_loss"], plain["accuracy"], plain[STEPS], plain["note"]) == (0.5, 0.25, 3, "x")
    assert all(type(plain[key]) in (int, float) for key in ("train_loss", "accuracy", STEPS))


def test_tensors_are_read_as_arrays_and_given_back_as_tensors() -> None:
    tensors = {"w": torch.ones(2, 3), "half": torch.ones(2, dtype=torch.bfloat16), "int": torch.tensor([3])}
    arrays = arrays_of(tensors)
    assert [array.dtype.name for array in arrays.values()] == ["float32", "float32", "int64"]
    for key, tensor in tensors.items():
        back = like(tensor, arrays[key] * 2.0)
        assert back.dtype == tensor.dtype
        assert torch.equal(back, tensor * 2)
    assert like(np.zeros(2, np.float16), np.ones(2)).dtype == np.float16
