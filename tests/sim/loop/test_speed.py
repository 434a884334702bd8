from pathlib import Path

import numpy as np
import pytest

from equifl.experiment.config import Config, Speed, Train
from equifl.sim.loop.speed import Clock, read_seconds

SIZES = np.array([10.0, 64.0, 100.0])


def clock(speed: Speed, train: Train | None = None, sizes: np.typing.NDArray[np.float64] = SIZES) -> Clock:
    made = Clock.make(speed, train or Train(steps=4), sizes, np.random.default_rng(0))
    assert made is not None
    return made


def test_there_is_none_by_default() -> None:
    assert Clock.make(Config().speed, Train(), SIZES, np.random.default_rng(0)) is None


def test_seconds_are_those_of_the_steps_and_the_transfer() -> None:
    rng = np.random.default_rng(1)
    assert clock(Speed(step_seconds=2.0)).durations(0, rng).tolist() == [8.0, 8.0, 8.0]
    by_epochs = clock(Speed(step_seconds=2.0, reply_seconds=0.5), Train(epochs=2, batch_size=32))
    assert by_epochs.durations(0, rng).tolist() == [4.5, 8.5, 16.5]  # 1, 2 and 4 batches, twice


@pytest.mark.parametrize("distribution", ["lognormal", "exponential"])
def test_clients_differ_around_the_median(distribution: str) -> None:
    speed = Speed(step_seconds=3.0, distribution=distribution, sigma=0.7)  # type: ignore[arg-type]
    found = clock(speed, Train(steps=1), np.full(20000, 5.0)).durations(0, np.random.default_rng(0))
    assert np.median(found) == pytest.approx(3.0, rel=0.05)
    if distribution == "lognormal":
        assert np.log(found).std() == pytest.approx(0.7, rel=0.05)
    else:
        assert found.mean() == pytest.approx(3.0 / np.log(2), rel=0.05)


def test_a_client_is_about_as_fast_in_every_round() -> None:
    made = clock(Speed(step_seconds=1.0, sigma=1.0, jitter=0.1), Train(steps=1), np.full(500, 5.0))
    first, second = (made.durations(t, np.random.default_rng(t)) for t in (0, 1))
    assert (first != second).all()
    assert np.log(first / second).std() == pytest.approx(0.1 * np.sqrt(2), rel=0.2)


def test_a_trace_says_it_round_by_round_and_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "seconds.csv"
    path.write_text("1,2,3\n4.5,5,6\n")
    made = clock(Speed(trace=str(path)))
    rng = np.random.default_rng(0)
    assert [made.durations(t, rng).tolist() for t in (0, 1, 2)] == [[1, 2, 3], [4.5, 5, 6], [1, 2, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [("1,2\n", "3 columns, not 2"), ("1,0,2\n", "seconds above 0 only"), ("1,x,2\n", "cannot be read")],
)
def test_a_wrong_trace_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "seconds.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"speed.trace: .*{message}"):
        read_seconds(str(path), 3)
    with pytest.raises(ValueError, match=r"speed.trace: .* the path of a CSV file"):
        read_seconds(str(tmp_path / "none.csv"), 3)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["speed.step_seconds=0.0"], r"speed.step_seconds: 0.0 is not allowed; allowed: above 0"),
        (["speed.sigma=1.0"], r"speed.sigma: 1.0 is not allowed; allowed: with speed.step_seconds only"),
        (["speed.step_seconds=1.0", "speed.trace=a.csv"], "step_seconds or a trace, not both"),
        (["speed.step_seconds=1.0", "speed.jitter=-1.0"], "speed.jitter: -1.0 is not allowed; allowed: 0 or more"),
        (["speed.step_seconds=1.0", "speed.distribution=normal"], "speed.distribution"),
    ],
)
def test_a_wrong_configuration_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config.load(overrides=overrides)
