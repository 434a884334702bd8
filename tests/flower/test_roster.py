import logging
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from flwr.serverapp.strategy import FedAvg

from equifl import DivFL, Rota
from equifl.flower.roster import Roster
from tests.flower.pretend_grid import PretendGrid, cohorts, fair, grid_of, play

pytestmark = pytest.mark.usefixtures("inside_a_run")


def by_key(partition: int) -> bytes:
    return f"-----BEGIN PUBLIC KEY-----\n{partition}".encode()


@pytest.mark.parametrize(
    "about", [{"public_key": by_key}, {"name": lambda partition: f"clinic {partition}"}], ids=["key", "name"]
)
def test_a_key_or_a_name_outlives_the_node_id(about: dict[str, Any], tmp_path: Path) -> None:
    strategy = fair(Rota(), identity=None, folder=tmp_path)
    grid = PretendGrid({100 + i: i for i in range(6)}, **about)
    play(strategy, grid, 3)
    before = strategy.clients.signals(3, [])
    grid.partitions = {200 + (5 * i) % 6: i for i in range(6)}  # all restart, and come back in another order
    play(strategy, grid, 1)
    after = strategy.clients.signals(4, [])
    assert after.n == 6
    assert (after.times_selected - before.times_selected).sum() == 3
    assert grid.asked_to("train")[-3:] == [
        node for client in cohorts(tmp_path)[-1] for node, partition in grid.partitions.items() if partition == client
    ]


def test_a_metric_outlives_the_node_id_once_it_is_reported() -> None:
    strategy, grid = fair(Rota()), grid_of(6)
    play(strategy, grid, 2)
    node = next(node for node, partition in grid.partitions.items() if partition == 4)
    before = strategy.clients.signals(2, [])
    del grid.partitions[node]
    grid.partitions[9999] = 4
    play(strategy, grid, 1)
    after = strategy.clients.signals(3, [])
    assert strategy.clients.of([9999]).tolist() == [4]
    assert after.times_selected[4] >= before.times_selected[4]
    assert after.n == 7, "a number was lent until it was known who it is"
    assert after.times_selected[6] == 0, "and is free again"


def test_who_drops_out_and_returns_is_still_the_same(tmp_path: Path) -> None:
    grid = grid_of(10)
    flaky = next(iter(grid.partitions))

    class Evaluates(FedAvg):
        def configure_evaluate(self, *args: Any) -> Any:
            grid.offline = {flaky}
            try:
                return super().configure_evaluate(*args)
            finally:
                grid.offline = set()

    strategy = fair(Rota(), Evaluates(), folder=tmp_path)
    play(strategy, grid, 20)
    counts = Counter(chain(*cohorts(tmp_path)))
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(("value", "written"), [(1000001.0, "1000001"), (0.25, "0.25"), (-3, "-3"), ("a", "a")])
def test_an_identity_is_written_whole(value: Any, written: str) -> None:
    assert Roster("id").value({"id": value}) == written


@pytest.mark.parametrize("value", [float("nan"), [1, 2], None, "", "x" * 129, 1e200, "a\nb", "a\x00", "\x1b[31m"])
def test_what_is_no_identity(value: Any) -> None:
    assert Roster("id").value({"id": value}) is None


def test_two_nodes_cannot_be_one_client(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = fair(Rota(), k=6), grid_of(6)
    play(strategy, grid, 1)
    grid.partitions[9999] = 4
    with caplog.at_level(logging.WARNING, "flwr"):
        play(strategy, grid, 1)
    assert "node 9999 says it is partition-id:4, which another node is" in caplog.text
    assert strategy.clients.of([9999]).tolist() == [6]


def test_without_anything_stable_there_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flwr"):
        play(fair(Rota(), identity=None), grid_of(), 3)
    assert caplog.text.count("a node that restarts becomes a new client") == 1


def test_ids_do_not_matter_only_the_seed(tmp_path: Path) -> None:
    for name, first, seed in (("a", 1000, 0), ("b", 5000, 0), ("c", 1000, 1)):
        play(fair(DivFL(), folder=tmp_path / name, seed=seed), grid_of(first=first), 4)
    assert cohorts(tmp_path / "a") == cohorts(tmp_path / "b")
    assert cohorts(tmp_path / "a") != cohorts(tmp_path / "c")
