import dataclasses
from pathlib import Path
from typing import Any

import pytest

from equifl.experiment.config import Config
from equifl.paper import runs
from equifl.paper.runs import PaperResults, run_missing
from equifl.paper.tables import DATA, configuration, six
from equifl.sim.loop.federation import Federation
from equifl.sim.simulation import load_data

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "results" / "paper"


def tiny(data: str, selectors: Any, seeds: Any, variant: str = "paper") -> Config:
    names = list(selectors)
    return Config.from_table(
        {
            "rounds": 2,
            "clients": 10,
            "per_round": 2,
            "evaluate_every": 1,
            "seeds": list(seeds),
            "train": {"model": "logistic", "steps": 1},
            "data": {"partition": "iid"},
            "selectors": {name: {} for name in names},
        }
    )


@pytest.mark.slow
def test_what_is_there_is_never_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], list[int]]] = []

    def watched(data: str, selectors: Any, seeds: Any, variant: str = "paper") -> Config:
        asked.append((list(selectors), list(seeds)))
        return tiny(data, selectors, seeds)

    monkeypatch.setattr(runs, "configuration", watched)
    options: dict[str, Any] = {"data": "digits", "work": tmp_path / "work", "device": "cpu", "data_dir": None}
    path = tmp_path / "digits.json"
    run_missing(PaperResults.read(path), ["uniform"], range(2), **options)
    run_missing(PaperResults.read(path), ["uniform", "rota"], range(3), **options)
    run_missing(PaperResults.read(path), ["rota", "uniform"], range(3), **options)
    assert asked == [(["uniform"], [0, 1]), (["rota"], [0, 1]), (["uniform", "rota"], [2])]
    results = PaperResults.read(path)
    assert {name: sorted(by) for name, by in results.runs.items()} == {"uniform": [0, 1, 2], "rota": [0, 1, 2]}
    assert set(results.runs["rota"][0]["rounds"]) == {"1", "2"}
    assert results.made_with["versions"]["equifl"]


def test_a_finished_run_that_is_not_in_the_results_yet_is_read_and_not_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job: Any = (tiny("digits", ["uniform"], [0]), tmp_path / "work", "cpu", None)
    played = runs.play(*job)
    monkeypatch.setattr(Federation, "__init__", None)
    assert runs.play(*job) == played


@pytest.mark.parametrize("data", DATA)
def test_the_committed_results_are_whole(data: str) -> None:
    results = PaperResults.read(COMMITTED / f"{data}-paper.json")
    assert len(results.runs) == 14
    rounds = configuration(data, six(data), [0]).rounds
    for by_seed in results.runs.values():
        assert sorted(by_seed) == list(range(20))
        assert all(list(run["rounds"]) == [str(r) for r in range(10, rounds + 1, 10)] for run in by_seed.values())


@pytest.mark.slow
def test_a_committed_trajectory_begins_as_it_does_here(real_data: Path) -> None:
    """One seed of two selectors on MNIST, ten rounds on this CPU against the GPU's record of them.

    The two add up in different orders; ten rounds later they still agree to a tenth of a point.
    """
    config = dataclasses.replace(configuration("mnist", ["uniform", "rota"], [0]), rounds=10)
    federation = Federation(config, load_data(config, real_data), device="cpu")
    records = [federation.play() for _ in range(10)][-1]
    committed = PaperResults.read(COMMITTED / "mnist-paper.json").runs
    for record in records:
        accuracy, dissimilarity, local_loss = committed[record["selector"]][0]["rounds"]["10"]
        assert record["accuracy"] == pytest.approx(accuracy, abs=0.1)
        assert record["dissimilarity"] == pytest.approx(dissimilarity, abs=0.1)
        assert record["local_loss"] == pytest.approx(local_loss, abs=0.002)
