import logging
import tracemalloc
from typing import Any

import numpy as np
import pytest

from equifl.hosts.updates import KindOfReplies, Updates
from equifl.hosts.usable import MisfitError, SetAsideError
from equifl.sketch import CountSketch

BATCH_NORM: dict[str, Any] = {
    "conv.weight": np.ones(3, np.float32),
    "bn.running_mean": np.ones(2, np.float32),
    "bn.running_var": np.ones(2, np.float32),
    "bn.num_batches_tracked": np.array(7),
    "dense/moving_variance": np.ones(2, np.float32),
    "mean": np.ones(2, np.float32),
}


def test_an_update_is_what_was_sent_less_what_came_back_of_the_same_arrays() -> None:
    sketch = CountSketch(length=32)
    sent = {"w": np.ones(3, np.float32), "b": np.ones(2, np.float32), "steps": np.array([5])}
    trained = {"w": np.array([0, 1, 3], np.float32), "steps": np.array([9])}
    expected = sketch([np.array([1, 0, -2], np.float32)])
    np.testing.assert_array_equal(Updates().sketch(sent, trained, sketch), expected)
    moved = {"w": np.array([-1, 0, 2], np.float32)}
    np.testing.assert_array_equal(Updates(difference=True).sketch(sent, moved, sketch), expected)
    with pytest.raises(MisfitError, match=r"its array w has shape \(2,\), not \(3,\)"):
        Updates().sketch(sent, {"w": np.ones(2, np.float32)}, sketch)
    with pytest.raises(MisfitError, match="none of the floating-point arrays"):
        Updates().sketch(sent, {"steps": np.array([9])}, sketch)
    with pytest.raises(SetAsideError, match="its update is too long"):
        Updates().sketch(sent, {"w": np.full(3, 1e30, np.float32)}, sketch)


def test_running_statistics_and_integers_are_no_part_of_an_update() -> None:
    assert Updates().names(BATCH_NORM) == ["conv.weight", "mean"]
    assert Updates(None).names(BATCH_NORM) == [name for name in BATCH_NORM if "num_batches" not in name]
    assert Updates("weight").left_out(BATCH_NORM) == ["conv.weight", "bn.num_batches_tracked"]
    moved = {name: array + 1 for name, array in BATCH_NORM.items()}
    sketch = CountSketch(length=16)
    plain = {name: BATCH_NORM[name] for name in ("conv.weight", "mean")}
    expected = Updates().sketch(plain, {name: moved[name] for name in plain}, sketch)
    np.testing.assert_array_equal(Updates().sketch(BATCH_NORM, moved, sketch), expected)


def test_a_counter_that_an_average_made_real_is_still_none_of_an_update() -> None:
    sent = {"w": np.zeros(2), "count": np.array(3.0)}
    assert Updates().names(sent) == ["w", "count"]
    assert Updates().names(sent, {"w": np.ones(2), "count": np.array(4)}) == ["w"]


@pytest.mark.parametrize("given", ["(", 3])
def test_what_is_left_out_is_a_regular_expression(given: Any) -> None:
    with pytest.raises(ValueError, match=r"leave_out: .* is not a regular expression"):
        Updates(given)


def replies(rng: np.random.Generator, *, weights: bool, step: float = 0.1) -> Any:
    sent: dict[str, Any] = {"w": rng.normal(size=500), "b": rng.normal(size=20).astype(np.float32)}
    moves = [{name: step * rng.normal(size=array.shape) for name, array in sent.items()} for _ in range(4)]
    return sent, [{name: sent[name] + one[name] if weights else one[name] for name in sent} for one in moves]


@pytest.mark.parametrize("difference", [False, True])
@pytest.mark.parametrize("step", [1e-6, 0.01, 0.3])
def test_replies_of_the_other_kind_are_noticed(
    difference: bool, step: float, caplog: pytest.LogCaptureFixture
) -> None:
    rng, log = np.random.default_rng(0), logging.getLogger("test")
    sent, wrong = replies(rng, weights=difference, step=step)
    with pytest.raises(ValueError, match="leave replies='weights'" if difference else "pass replies='delta'"):
        KindOfReplies(Updates(difference=difference), log).check(sent, wrong)
    right = replies(rng, weights=not difference, step=step)
    watch = KindOfReplies(Updates(difference=difference), log)
    watch.check(*right)
    assert watch.known
    watch.check(sent, wrong)  # the kind is known: later rounds cost nothing


def test_differences_from_a_model_that_began_at_0_may_be_like_it() -> None:
    move = {"w": np.ones(5)}
    watch = KindOfReplies(Updates(difference=True), logging.getLogger("test"))
    watch.check({"w": np.zeros(5)}, [move, move])
    watch.check(move, [move, move])


@pytest.mark.parametrize("step", [2.0, 50.0])
def test_long_updates_are_not_taken_for_another_kind(step: float) -> None:
    for weights in (True, False):
        sent, right = replies(np.random.default_rng(1), weights=weights, step=step)
        assert not any(Updates(difference=not weights).of_the_other_kind(sent, one) for one in right)


def test_one_reply_or_a_model_of_zeros_says_nothing() -> None:
    sent, wrong = replies(np.random.default_rng(0), weights=False)
    watch = KindOfReplies(Updates(), logging.getLogger("test"))
    watch.check(sent, wrong[:1])
    watch.check({name: 0 * array for name, array in sent.items()}, wrong)
    assert not watch.known
    with pytest.raises(ValueError, match="pass replies='delta'"):
        watch.check(sent, wrong)


def test_half_of_those_asked_are_not_enough_to_decide() -> None:
    watch = KindOfReplies(Updates(), logging.getLogger("test"))
    watch.decide([True, True, True], 6)
    assert not watch.known
    with pytest.raises(ValueError, match="pass replies='delta'"):
        watch.decide([True, True, True], 5)


def test_what_is_left_out_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = KindOfReplies(Updates(), logging.getLogger("test"))
    with caplog.at_level(logging.INFO, "test"):
        watch.check(BATCH_NORM, [])
        watch.check(BATCH_NORM, [])
    assert caplog.text.count("bn.running_mean, bn.running_var, bn.num_batches_tracked, dense/moving_variance") == 1


def test_a_sketch_takes_little_memory_whatever_the_tensor() -> None:
    """48 MB of a single tensor: half of that for hashed positions, and pieces."""
    sent = {"w": np.zeros(12_000_000, np.float32)}
    trained = {"w": np.ones(12_000_000, np.float32)}
    sketch = CountSketch()
    tracemalloc.start()
    try:
        found = Updates().sketch(sent, trained, sketch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 45 * 2**20
    assert np.array_equal(found, sketch(sent["w"] - trained["w"]))


def test_pieces_do_not_change_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    shapes = {"w": (7, 3), "b": ()}
    sent, trained = (
        {key: np.asarray(rng.normal(size=shape), np.float32) for key, shape in shapes.items()} for _ in range(2)
    )
    for difference in (False, True):
        updates = Updates(difference=difference)
        whole = updates.sketch(sent, trained, CountSketch()), updates.of_the_other_kind(sent, trained)
        with monkeypatch.context() as patched:
            patched.setattr("equifl.hosts.updates._PIECE", 4)
            assert np.array_equal(updates.sketch(sent, trained, CountSketch()), whole[0])
            assert updates.of_the_other_kind(sent, trained) == whole[1]
