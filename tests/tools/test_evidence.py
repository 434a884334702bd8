import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from equifl import simulate
from equifl.experiment.config import Config
from equifl.experiment.measures import chosen_measures, with_test_classes
from equifl.paper.tables import DATA, SETTINGS
from equifl.selectors import SELECTORS
from equifl.sim.data.catalogue import load
from tools.evidence import (
    EVERY,
    EVERYBODY,
    MEASURES,
    PER_ROUND,
    Evidence,
    Part,
    collect,
    configuration,
    groups,
    play,
    play_missing,
)


def small(rounds: int) -> Config:
    return Config.from_table(
        {
            "rounds": rounds,
            "clients": 20,
            "per_round": 4,
            "seeds": [3],
            "selectors": {"uniform": {}, "rota": {}},
            "train": {"model": "logistic", "steps": 2},
            "data": {"name": "digits", "partition": {"kind": "classes", "classes_per_client": 2}},
        }
    )


@pytest.mark.slow
def test_figures_are_those_of_simulate() -> None:
    """The last model's and the averaged model's, after the last round and as means over the last ten."""
    config = small(21)
    kept = play(config, load("digits"))[3]
    for kind, average in (("last", 1), ("averaged", 10)):
        server = dataclasses.replace(config.server, average_last=average)
        results = simulate(dataclasses.replace(config, server=server, evaluate_every=1), progress=False)
        columns = chosen_measures(MEASURES)
        for name in ("uniform", "rota"):
            rows = [row for row in with_test_classes(results.records) if row["selector"] == name]
            for column in columns:
                values = [float(column.read(row) or 0) for row in rows]
                assert kept[name][kind][column.name] == pytest.approx([values[-1], np.mean(values[-10:])], abs=1e-3)
            if kind == "last":
                assert kept[name]["rounds"]["10"] == pytest.approx([rows[9][m] for m in MEASURES[:2]], abs=1e-3)
                assert kept[name]["bytes_up"] == sum(row["bytes_up"] for row in rows)
                assert kept[name]["gini"] == pytest.approx(rows[-1]["participation"]["gini"], abs=1e-4)
                assert kept[name]["clients_last"] == pytest.approx(rows[-1]["client_accuracy"], abs=0.051)


@pytest.mark.parametrize("data", DATA)
def test_every_selector_starts_cold_and_has_the_same_uplink_or_a_loss_more(data: str) -> None:
    for group, selectors in groups(data).items():
        config = configuration(data, group, selectors, [0])
        assert not config.introduce
        assert config.per_round == (100 if EVERYBODY in group else PER_ROUND)
        assert config.rounds == SETTINGS[data]["rounds"] * (5 if group.startswith("long") else 1)
        assert config.availability.online == (0.3 if group.startswith("online_0.3") else 1)
    assert set(SELECTORS) < set(groups(data)["mean"])


def test_what_was_played_is_not_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def pretend(config: Config, dataset: object, device: str) -> dict[int, dict[str, dict[str, int]]]:
        asked.append(list(config.selectors))
        return {seed: {name: {"gini": 0} for name in config.selectors} for seed in config.seeds}

    monkeypatch.setattr("tools.evidence.FOLDER", tmp_path / "committed")
    monkeypatch.setattr("tools.evidence.Evidence.read.__func__.__defaults__", (tmp_path / "committed",))
    monkeypatch.setattr("tools.evidence.play", pretend)
    monkeypatch.setattr("tools.evidence._load", lambda data, data_dir: None)
    work = tmp_path / "work"
    work.mkdir()

    def played(*selectors: str, seeds: Sequence[int] = (0,)) -> list[str]:
        return play_missing(Part("mnist", "mean", seeds, selectors), work)

    assert played("uniform", "nobody") == ["uniform"]
    collect("mnist", work)
    assert played("uniform", "rota") == ["rota"]
    collect("mnist", work)
    for path in work.iterdir():
        path.unlink()
    assert not played("uniform", "rota")
    assert played("uniform", seeds=(0, 1)) == ["uniform"]
    collect("mnist", work)
    found = Evidence.read("mnist")
    assert found.runs == {"mean": {"uniform": {0: {"gini": 0}, 1: {"gini": 0}}, "rota": {0: {"gini": 0}}}}
    goes = json.loads(found.path.read_text())["made_with"]
    assert [go["groups"] for go in goes] == [["mean"]] * 3
    assert all(go["versions"]["equifl"] for go in goes)
    assert asked == [["uniform"], ["rota"], ["uniform"]]


@pytest.mark.slow
def test_committed_runs_begin_as_they_do_here(real_data: Path) -> None:
    """One seed on MNIST, ten rounds: four selectors with the mean, one with memory by loss, one with its weights."""
    committed = Evidence.read("mnist").runs
    for group, names in {
        "mean": ["uniform", "rota", "subtrunc", "unionfl"],
        "memory by loss": ["rota"],
        "fresh: own weights": ["optimal_sampling"],
    }.items():
        config = configuration("mnist", group, {name: {} for name in names}, [0])
        found = play(config, load("mnist", data_dir=real_data), rounds=EVERY)[0]
        for name in names:
            assert found[name]["rounds"]["10"] == pytest.approx(committed[group][name][0]["rounds"]["10"], abs=0.1)
