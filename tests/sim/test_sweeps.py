import json
from pathlib import Path

import pytest

from equifl import load_results, simulate
from equifl.experiment.callbacks import Callback
from equifl.experiment.config import Config
from equifl.experiment.results import Records

TINY = Config.load(
    None,
    [
        "rounds=3",
        "clients=10",
        "per_round=2",
        "seeds=[0, 1]",
        "train.model=logistic",
        "train.steps=1",
        "evaluate_every=1",
        "selectors={uniform = {}, power_of_choice = {}}",
    ],
)
SWEEP: dict[str, list[float]] = {"train.lr": [0.1, 0.2], "selectors.power_of_choice.candidates": [3, 4]}


class StopAfter(Callback):
    """Stops after so many rounds in all."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def on_round(self, played: int, records: Records) -> bool:
        self.left -= 1
        return self.left > 0


def test_points_are_rows_and_parameters_columns() -> None:
    results = simulate(TINY, sweep=SWEEP)
    table = results.table()
    assert table.parameter_names == ["train.lr", "candidates"]
    assert list(table.cells)[:3] == [
        "uniform[train.lr=0.1]",
        "power_of_choice[candidates=3, train.lr=0.1]",
        "power_of_choice[candidates=4, train.lr=0.1]",
    ]
    frame = results.to_pandas()
    assert set(frame["train.lr"]) == {0.1, 0.2}
    assert len(frame) == 2 * 3 * 2 * 3
    # The baseline of each is that of its own experiment.
    mine, base = (
        table.cells[f"{name}train.lr=0.2]"]["accuracy %"] for name in ("power_of_choice[candidates=3, ", "uniform[")
    )
    assert mine.difference is not None
    assert mine.difference[0] == pytest.approx(mine.mean - base.mean)
    assert base.difference is None


def test_each_point_is_the_experiment_alone(tmp_path: Path) -> None:
    simulate(TINY, sweep=SWEEP, out=tmp_path / "sweep")
    alone = simulate(TINY, train={"lr": 0.2}, out=tmp_path / "alone")
    there = (tmp_path / "sweep" / "train.lr=0.2" / "rounds.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in there]
    uniform = [row for row in rows if row["selector"] == "uniform"]
    for row, expected in zip(uniform, [row for row in alone.records if row["selector"] == "uniform"], strict=True):
        assert {key: row[key] for key in expected} == expected


def test_it_is_resumed_as_one_and_can_grow(tmp_path: Path) -> None:
    stopped = simulate(TINY, sweep=SWEEP, out=tmp_path / "a", callbacks=[StopAfter(4)])
    assert not stopped.finished
    assert len(load_results(tmp_path / "a").parts) == 2
    done = simulate(TINY, sweep=SWEEP, out=tmp_path / "a")
    assert done.finished
    whole = simulate(TINY, sweep=SWEEP, out=tmp_path / "b")
    for point in whole.parts:
        assert (tmp_path / "a" / point / "rounds.jsonl").read_bytes() == (
            tmp_path / "b" / point / "rounds.jsonl"
        ).read_bytes()
    more = simulate(TINY, sweep=SWEEP | {"train.lr": [0.1, 0.2, 0.3]}, out=tmp_path / "a")
    assert list(more.parts) == ["train.lr=0.1", "train.lr=0.2", "train.lr=0.3"]
    assert load_results(tmp_path / "a").table().to_dict() == more.table().to_dict()
    assert more.report() == tmp_path / "a" / "report.html"
    part = simulate(TINY, sweep=SWEEP, out=tmp_path / "a")
    assert list(part.parts) == ["train.lr=0.1", "train.lr=0.2"]
    assert part.folder is None  # and so it does not write its report in the place of the whole one's


def test_refuses_a_folder_of_another_kind(tmp_path: Path) -> None:
    simulate(TINY, out=tmp_path / "single")
    with pytest.raises(ValueError, match="holds a single experiment"):
        simulate(TINY, sweep=SWEEP, out=tmp_path / "single")
    simulate(TINY, sweep=SWEEP, out=tmp_path / "sweep")
    with pytest.raises(ValueError, match=r"holds a sweep over other keys \(server.lr and train.lr\)"):
        simulate(TINY, sweep={"server.lr": [1.0]}, out=tmp_path / "sweep")
    with pytest.raises(ValueError, match=r"sweep: holds a sweep; go on with the same sweep, or choose another folder"):
        simulate(TINY, out=tmp_path / "sweep")
    (tmp_path / "sweep" / "sweep.json").write_text("[]")
    with pytest.raises(ValueError, match=r"sweep.json: is damaged"):
        load_results(tmp_path / "sweep")
    with pytest.raises(ValueError, match=r"sweep.json: is damaged"):
        simulate(TINY, sweep=SWEEP, out=tmp_path / "sweep")


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"data.partition.classes_per_client": [2, 11]}, "data.partition.classes_per_client: 11 is not allowed"),
        ({"clients": [10, 2000]}, "data: clients: 2000 is not allowed"),
        ({"data.name": ["digits", "diabetes"]}, "task.name: 'classification' does not fit diabetes"),
    ],
)
def test_what_the_last_experiment_cannot_have_is_refused_before_the_first(
    tmp_path: Path, sweep: dict[str, list[object]], message: str
) -> None:
    ((key, values),) = sweep.items()
    with pytest.raises(ValueError) as error:
        simulate(TINY, sweep=sweep, out=tmp_path / "sweep")
    assert str(error.value).startswith(f"{key}={values[-1]}: {message}")
    assert list(tmp_path.iterdir()) == []
