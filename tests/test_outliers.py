import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equifl.outliers import clip_outliers

losses = st.lists(st.floats(0.01, 10), min_size=3, max_size=30)


@given(honest=losses, lie=st.floats(1e4, 1e30), liars=st.integers(1, 30))
def test_fewer_than_half_cannot_exceed_the_honest(honest: list[float], lie: float, liars: int) -> None:
    liars = min(liars, (len(honest) - 1) // 2)
    seen = clip_outliers(np.array(honest + [lie] * liars))
    assert seen.max() <= max(honest)


@given(honest=losses)
def test_nothing_is_raised_and_the_order_stays(honest: list[float]) -> None:
    before = np.array(honest)
    after = clip_outliers(before)
    assert (after <= before).all()
    assert (np.diff(after[np.argsort(before, kind="stable")]) >= 0).all()


@pytest.mark.parametrize(
    "honest", [[0.1, 0.11, 0.09, 0.12, 0.1, 0.11, 0.1, 1.5, 1.8, 2.0], [0.0] * 6 + [0.5, 1.0, 2.0], [2.3] * 8 + [2.4]]
)
def test_the_badly_served_are_no_liars(honest: list[float]) -> None:
    assert clip_outliers(np.array(honest)).tolist() == honest


def test_unknown_stays_unknown() -> None:
    assert np.isnan(clip_outliers(np.full(3, np.nan))).all()
