import json
from pathlib import Path

import numpy as np
import pytest

from equifl.experiment.config import Config
from equifl.experiment.results import load_results
from equifl.sim.loop.federation import Federation
from equifl.sim.simulation import load_data, simulate

SMALL = ["clients=8", "per_round=2", "seeds=[0,1]", "train.model=logistic", "train.steps=2", "selectors={uniform={}}"]


def config(*overrides: str) -> Config:
    return Config.load(overrides=[*SMALL, "data.partition=iid", "rounds=4", "evaluate_every=2", *overrides])


def test_records_hold_what_no_one_could_compute_later() -> None:
    made = config()
    data = load_data(made, None)
    federation = Federation(made, data, device="cpu", engine="torch")
    first, second = federation.play(), federation.play()
    for i, run in enumerate(federation.runs):
        tests = run.environment.partition.test
        counts = [[int((data.y_test[test] == c).sum()) for c in range(10)] for test in tests]
        assert first[i]["test_classes"] == counts
        assert "test_classes" not in second[i]
        assert "client_loss" not in first[i]
        right = federation.engine.scores(federation.recent.mean(dim=1))[i]
        by_class = [100 * right[data.y_test == c].mean() for c in range(10)]
        np.testing.assert_allclose(second[i]["class_accuracy"], by_class, atol=1e-4)
        losses = second[i]["client_loss"]
        assert np.mean(losses) == pytest.approx(second[i]["global_loss"], rel=1e-4)
        assert len(set(losses)) == 8


def test_numbers_have_no_classes() -> None:
    made = Config.load(overrides=["rounds=1", "data={name='diabetes', partition='iid'}", "task=regression", *SMALL])
    record = simulate(made, device="cpu").records[0]
    assert "client_loss" in record
    assert not {"class_accuracy", "test_classes"} & record.keys()


def test_the_last_rounds_are_evaluated_one_by_one(tmp_path: Path) -> None:
    made = config("rounds=9", "evaluate_every=4", "evaluate_last=3")
    results = simulate(made, out=tmp_path / "run", device="cpu")
    rounds = [record["round"] for record in results.records if "accuracy" in record and record["seed"] == 0]
    assert rounds == [3, 6, 7, 8]
    assert load_results(tmp_path / "run").finished  # and what is due is checked when it is read
    assert results.table(at="late").averaged == 2


def test_a_folder_without_the_new_keys_is_read(tmp_path: Path) -> None:
    simulate(config(), out=tmp_path / "run", device="cpu")
    path = tmp_path / "run" / "rounds.jsonl"
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    del stored["format"], stored["crc"], stored["config"]["evaluate_last"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(stored))
    new = ("client_loss", "class_accuracy", "test_classes", "crc")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    old = [{key: value for key, value in row.items() if key not in new} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in old))
    results = load_results(tmp_path / "run")
    assert results.finished
    names = ["accuracy", "expected_dissimilarity", "loss_std", "q10"]
    cells = results.table(measures=names).cells["uniform"]
    assert np.isnan([cells["without noise"].mean, cells["loss deviation"].mean]).all()
    assert not np.isnan([cells["accuracy %"].mean, cells["10 % quantile"].mean]).any()
    assert "expected_dissimilarity" not in results.final().columns


@pytest.mark.parametrize(
    ("every", "last", "selector", "said"),
    [
        (4, None, "rota", True),
        (8, None, "reshuffle", True),
        (3, None, "rota", False),
        (4, 4, "rota", False),
        (4, None, "uniform", False),
    ],
)
def test_evaluations_that_only_come_after_whole_turns_are_said(
    every: int, last: int | None, selector: str, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    more = [] if last is None else [f"evaluate_last={last}"]
    made = config(f"evaluate_every={every}", "rounds=8", f"selectors={{{selector}={{}}}}", *more)
    Federation(made, load_data(made, None), device="cpu", engine="torch")
    assert (f"evaluate_every = {every}: everybody has a turn in 4 rounds" in caplog.text) == said
