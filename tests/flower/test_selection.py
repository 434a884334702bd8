import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from flwr.serverapp.strategy import FedAvg

from equifl import DivFL, Rota, Selector, SubTrunc, UnionFL
from equifl.flower import FairSelection
from tests.flower.conftest import Clock
from tests.flower.pretend_grid import (
    ALL,
    cohorts,
    fair,
    grid_of,
    play,
    rows,
)

pytestmark = pytest.mark.usefixtures("inside_a_run")


@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_the_strategy_trains_with_the_chosen_and_nobody_else(selector: Selector, tmp_path: Path) -> None:
    grid = grid_of()
    result = play(fair(selector, folder=tmp_path), grid, 4)
    asked = grid.asked_to("train")
    assert [grid.partitions[node] for node in asked] == list(chain(*cohorts(tmp_path)))
    assert all(len(set(cohort)) == 3 for cohort in cohorts(tmp_path))
    assert result.evaluate_metrics_clientapp[4]["eval_acc"] > result.evaluate_metrics_clientapp[1]["eval_acc"]


def test_who_never_comes_is_waited_for_once(clock: Clock) -> None:
    play(fair(Rota(), k=6, patience=2), grid_of(5), 4)
    assert 2 <= clock.now < 2.5, "once 2 s, not in every round"


def test_without_patience_there_is_still_training() -> None:
    grid = grid_of()
    play(fair(Rota(), patience=0), grid, 2)
    assert len(grid.asked_to("train")) == 6


def test_a_strategy_that_fails_can_be_started_again(tmp_path: Path) -> None:
    class Fails(FedAvg):
        fails = True

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            if server_round == 3 and self.fails:
                raise RuntimeError("no")
            return super().aggregate_train(server_round, replies)

    inner = Fails()
    strategy, grid = fair(Rota(), inner, folder=tmp_path), grid_of()
    with pytest.raises(RuntimeError):
        play(strategy, grid, 4)
    inner.fails = False
    play(strategy, grid, 2, strategy.arrays)
    assert [row["round"] for row in rows(tmp_path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("selector", [Rota, "rota", None])
def test_a_selector_is_an_object_that_selects(selector: Any) -> None:
    with pytest.raises(ValueError, match=r"selector: .* is not allowed; allowed: an object with a `select`"):
        fair(selector)


def test_distances_take_less_memory_than_by_default(tmp_path: Path) -> None:
    def limit(selector: Any) -> int:
        chosen: Any = FairSelection(FedAvg(), selector, k=2).selector
        return int(getattr(chosen, "inner", chosen).memory_limit)

    assert limit(SubTrunc()) == limit(UnionFL()) == 2**27
    assert limit(DivFL(memory_limit=2**31)) == 2**31
    play(fair(SubTrunc(), folder=tmp_path), grid_of(), 1)
    recorded = json.loads((tmp_path / "config.json").read_text())["config"]["selectors"]["subtrunc"]
    assert recorded["memory_limit"] == 2**30  # as it was given
