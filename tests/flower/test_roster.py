import logging
from collections import Counter
from datetime import timedelta
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.serverapp.strategy import FedAvg

from equifl import DivFL, Rota
from equifl.flower.roster import Roster
from tests.flower.pretend_grid import START, Fault, PretendGrid, cohorts, fair, grid_of, play, rows, saying, silent

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


def node_on(grid: PretendGrid, partition: int) -> int:
    return next(node for node, theirs in grid.partitions.items() if theirs == partition)


def seats(grid: PretendGrid, node: int) -> int:
    return grid.asked_to("train").count(node)


def calling_itself(partition: int) -> Fault:
    return saying(**{"partition-id": partition})


def test_two_nodes_of_one_name_are_two_clients_and_stay_two(caplog: pytest.LogCaptureFixture) -> None:
    """The keys are missing, and the second of them restarts later: it is the second of that name again."""
    strategy, grid = fair(Rota(), k=3), grid_of(6)
    play(strategy, grid, 2)
    first = node_on(grid, 4)
    grid.partitions[9999] = 4
    with caplog.at_level(logging.WARNING, "flwr"):
        play(strategy, grid, 6, strategy.arrays)
    assert caplog.text.count("node 9999 says it is partition-id:4, which another node is") == 1
    assert strategy.clients.of([first, 9999]).tolist() == [4, 6]
    signals = strategy.clients.signals(None, [])
    assert (signals.times_selected[4], signals.times_selected[6]) == (seats(grid, first), seats(grid, 9999))
    assert seats(grid, first) >= 3
    assert seats(grid, 9999) >= 2
    grid.offline = {9999}
    grid.partitions[12345] = 4
    play(strategy, grid, 4, strategy.arrays)
    assert strategy.clients.of([first, 12345]).tolist() == [4, 6]


def test_a_node_that_restarts_while_flower_still_shows_the_old_one_is_the_same(tmp_path: Path) -> None:
    strategy, grid = fair(Rota(), k=3, folder=tmp_path), grid_of(6)
    play(strategy, grid, 2)
    old = node_on(grid, 4)
    grid.faults[old] = silent  # it was killed; Flower notices after a while
    grid.partitions[9999] = 4
    play(strategy, grid, 4, strategy.arrays)
    assert strategy.clients.of([9999]).tolist() == [6], "it may be a second one"
    grid.offline = {old}
    play(strategy, grid, 1, strategy.arrays)
    assert strategy.clients.of([9999]).tolist() == [4]
    assert rows(tmp_path)[-1]["names"] == {"6": ""}
    assert rows(tmp_path)[-1]["participants"] == 6


@pytest.mark.parametrize("goes_silent", [False, True])
def test_a_name_that_was_taken_while_its_node_was_away_is_given_back(
    goes_silent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Without keys. The honest node had none of 40 seats after that; nor does it rest for a taker that went silent."""
    strategy, grid = fair(Rota(), k=3), grid_of(6)
    play(strategy, grid, 4)
    honest, liar = node_on(grid, 4), 9999
    before = seats(grid, honest)
    grid.offline = {honest}
    grid.partitions[liar] = 4
    play(strategy, grid, 4, strategy.arrays)
    assert strategy.clients.of([liar]).tolist() == [4], "it looks like a restart"
    if goes_silent:
        grid.faults[liar] = silent
        play(strategy, grid, 20, strategy.arrays)
        assert 4 in strategy.clients.back_off
        assert 4 in strategy.clients.evaluating
    grid.offline = set()
    grid.faults = {}
    with caplog.at_level(logging.WARNING, "flwr"):
        play(strategy, grid, 14, strategy.arrays)
    assert "node 9999 says it is partition-id:4, which another node is" in caplog.text
    assert strategy.clients.of([honest, liar]).tolist()[0] == 4
    assert strategy.clients.of([liar]).tolist() != [4]
    assert seats(grid, honest) - before >= 14 * 3 // 7 - 1


@pytest.mark.parametrize("new_name", [True, False])
@pytest.mark.parametrize(("liars", "a_round"), [(1, 1), (3, 1), (6, 2)])
def test_who_comes_under_a_new_id_in_every_round_gets_the_share_of_newcomers(
    new_name: bool, liars: int, a_round: int
) -> None:
    """Without keys, of 20 nodes and 4 seats: ceil(4 * liars / (20 + liars)) seats a round for all of them."""
    strategy, grid = fair(Rota(), k=4), grid_of(20)
    play(strategy, grid, 6)
    honest, ids = dict(grid.partitions), iter(range(50000, 60000))
    for round in range(20):
        new = [next(ids) for _ in range(liars)]
        grid.partitions = honest | {node: 1000 + i + liars * round * new_name for i, node in enumerate(new)}
        play(strategy, grid, 1, strategy.arrays)
        assert sum(seats(grid, node) for node in new) <= a_round
    of_honest = [seats(grid, node) for node in honest]
    assert max(of_honest) - min(of_honest) <= 1
    assert sum(of_honest) >= 6 * 4 + 20 * (4 - a_round)


def test_who_gets_a_number_that_is_free_again_begins_anew(tmp_path: Path) -> None:
    """It was lent to a node that was silent until it said which client it is."""
    strategy, grid = fair(Rota(), k=3, folder=tmp_path, patience=0), grid_of(6)
    play(strategy, grid, 4)
    grid.offline = {node_on(grid, 4)}
    grid.partitions[9999], grid.faults[9999] = 4, silent
    play(strategy, grid, 6, strategy.arrays)
    assert strategy.clients.of([9999]).tolist() == [6]
    assert 6 in strategy.clients.back_off
    assert 6 in strategy.clients.evaluating
    grid.faults = {}
    while strategy.clients.of([9999]).tolist() == [6]:
        play(strategy, grid, 1, strategy.arrays)
    assert rows(tmp_path)[-1]["names"]["6"] == ""
    assert rows(tmp_path)[-1]["joined"] == [4]
    assert rows(tmp_path)[-1]["left"] == [], "nobody was client 6"
    assert 6 not in strategy.clients.back_off
    assert 6 not in strategy.clients.evaluating
    grid.partitions[7777] = 9
    play(strategy, grid, 1, strategy.arrays)
    assert strategy.clients.of([7777]).tolist() == [6]
    assert rows(tmp_path)[-1]["joined"] == [6]


@pytest.mark.parametrize("keyed", [True, False])
def test_who_was_mute_and_restarts_is_asked_at_once(keyed: bool) -> None:
    strategy = fair(Rota(), k=3)
    grid = PretendGrid({100 + i: i for i in range(6)}, **({"public_key": by_key} if keyed else {}))
    play(strategy, grid, 4)
    grid.faults[104] = silent
    play(strategy, grid, 20, strategy.arrays)
    assert 4 in strategy.clients.back_off
    del grid.partitions[104]
    grid.partitions[204] = 4
    if keyed:
        strategy.clients.meet(grid)
        assert 4 not in strategy.clients.back_off, "its key says who it is, before it has replied"
    play(strategy, grid, 6, strategy.arrays)
    assert seats(grid, 204) >= 2
    assert strategy.clients.of([204]).tolist() == [4]


@pytest.mark.parametrize("liar_has_a_key", [True, False])
def test_where_nodes_have_keys_a_metric_only_names_them(
    liar_has_a_key: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keyed = PretendGrid({100 + i: i for i in range(6)}, public_key=by_key)
    keyed.about["public_key"] = lambda partition: by_key(partition) if partition != 5 or liar_has_a_key else b""
    liar, honest = 105, 104
    keyed.faults[liar] = calling_itself(4)
    strategy = fair(Rota(), k=2, folder=tmp_path)
    with caplog.at_level(logging.WARNING, "flwr"):
        play(strategy, keyed, 6)
        keyed.offline = {honest}
        play(strategy, keyed, 4, strategy.arrays)
        keyed.offline = set()
        play(strategy, keyed, 12, strategy.arrays)
    assert seats(keyed, honest) >= 18 * 2 // 6 - 1
    assert strategy.clients.of([100, 101, 102, 103, honest, liar]).tolist() == [0, 1, 2, 3, 4, 5]
    assert caplog.text.count("several nodes say they are partition-id:4") == 1
    assert "each is a client of its own" in caplog.text
    names = named(tmp_path)
    assert names[4].startswith("partition-id:4, key:")
    assert names[5].startswith("partition-id:4, key:" if liar_has_a_key else "partition-id:4")
    assert names[4] != names[5]


@pytest.mark.parametrize("metric", ["key", "name", "node", "key:x"])
def test_a_metric_cannot_be_taken_for_a_key(metric: str) -> None:
    roster = Roster(metric)
    roster.online([1, 2])
    honest = SimpleNamespace(node_id=1, public_key=by_key(0))
    roster.meet([honest, SimpleNamespace(node_id=2)])
    own = roster.identities[0].partition(":")[2]
    assert roster.clients([1, 2]).tolist() == [0, 1]
    roster.recognise(2, {metric: own})
    assert roster.clients([1, 2]).tolist() == [0, 1]
    assert roster.identities[1] == f"metric {metric}:{own}"
    assert roster.knows(2)


def named(folder: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    for row in rows(folder):
        found |= {int(client): name for client, name in row.get("names", {}).items()}
    return found


STARTED = {"last_activated_at": lambda partition: (START + timedelta(seconds=partition + 0.05)).isoformat()}


@pytest.mark.parametrize("identity", [None, "partition-id"])
def test_keys_that_are_made_at_each_start_are_no_identity(
    identity: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each SuperNode registers a key of its own as it starts; four of six restart."""
    strategy, starts = fair(Rota(), identity=identity, folder=tmp_path), 0
    grid = PretendGrid({100 + i: i for i in range(6)}, **STARTED)
    grid.about["public_key"] = lambda partition: by_key(100 * starts + partition)
    with caplog.at_level(logging.WARNING, "flwr"):
        play(strategy, grid, 3)
        starts = 1
        grid.partitions = {100: 0, 101: 1} | {200 + i: i for i in range(2, 6)}
        play(strategy, grid, 3, strategy.arrays)
    if identity:
        assert rows(tmp_path)[-1]["participants"] == 6
        assert (
            "nodes have no keys that outlive them, so clients are who they say they are (partition-id)" in caplog.text
        )
        assert named(tmp_path)[3] == "partition-id:3"
    else:
        assert rows(tmp_path)[-1]["participants"] == 10
        assert (
            "nodes have keys that their SuperNodes made as they started: a node that restarts becomes" in caplog.text
        )
    assert caplog.text.count("--auth-supernode-private-key") == 1


@pytest.mark.parametrize(
    "about",
    [
        {"last_activated_at": lambda partition: (START + timedelta(hours=1)).isoformat()},
        STARTED | {"location": lambda partition: "37.4056,-122.0775"},
        STARTED | {"owner_aid": lambda partition: "account 3"},
        STARTED | {"name": lambda partition: f"clinic {partition}"},
    ],
    ids=["time", "location", "account", "name"],
)
def test_keys_that_were_registered_beforehand_are(
    about: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = fair(Rota(), folder=tmp_path)
    with caplog.at_level(logging.WARNING, "flwr"):
        play(strategy, PretendGrid({100 + i: i for i in range(6)}, public_key=by_key, **about), 2)
    assert "key:" in named(tmp_path)[0]
    assert ("clinic 0, " in named(tmp_path)[0]) == ("name" in about)
    assert "--auth-supernode-private-key" not in caplog.text


@pytest.mark.parametrize("others_make_keys", [True, False])
def test_a_key_of_which_times_tell_nothing_is_taken_for_what_the_others_are(
    others_make_keys: bool, tmp_path: Path
) -> None:
    """Node 3 was offline for a while: either it restarted, with its key, or its connection broke."""
    active = {3: 3600.0} | ({} if others_make_keys else {0: 9.0, 1: 9.0, 2: 9.0, 4: 9.0, 5: 9.0})
    grid = PretendGrid({100 + i: i for i in range(6)}, public_key=by_key)
    grid.about["last_activated_at"] = lambda i: (START + timedelta(seconds=i + active.get(i, 0.1))).isoformat()
    grid.about["last_deactivated_at"] = lambda i: (START + timedelta(seconds=60)).isoformat() if i == 3 else ""
    play(fair(Rota(), folder=tmp_path), grid, 2)
    by_keys = {client: "key:" in name for client, name in named(tmp_path).items()}
    assert by_keys == dict.fromkeys(range(6), not others_make_keys)


@pytest.mark.parametrize("identity", [None, "partition-id"])
def test_a_resumed_server_knows_keys_on_other_node_ids(identity: str | None, tmp_path: Path) -> None:
    play(
        fair(Rota(), folder=tmp_path, identity=identity),
        PretendGrid({100 + i: i for i in range(6)}, public_key=by_key),
        3,
    )
    again = fair(Rota(), folder=tmp_path, identity=identity, resume=True)
    grid = PretendGrid({200 + i: (i + 3) % 6 for i in range(6)}, public_key=by_key)
    play(again, grid, 1, again.arrays)
    assert again.clients.of(grid.partitions).tolist() == list(grid.partitions.values())


def test_a_resumed_server_knows_who_is_who(tmp_path: Path) -> None:
    """Also where a name was taken while its node was away, and the server restarted in between."""
    strategy, grid = fair(Rota(), folder=tmp_path), grid_of(6)
    play(strategy, grid, 3)
    honest = node_on(grid, 4)
    grid.offline = {honest}
    grid.partitions[9999] = 4
    play(strategy, grid, 3, strategy.arrays)
    again = fair(Rota(), folder=tmp_path, resume=True)
    assert again.clients.of([9999]).tolist() == [4]
    grid.offline = set()
    play(again, grid, 4, again.arrays)
    assert again.clients.of([honest]).tolist() == [4]
    assert again.clients.of([9999]).tolist() == [6]


def test_without_anything_stable_there_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flwr"):
        play(fair(Rota(), identity=None), grid_of(), 3)
    assert caplog.text.count("a node that restarts becomes a new client") == 1


def test_ids_do_not_matter_only_the_seed(tmp_path: Path) -> None:
    for name, first, seed in (("a", 1000, 0), ("b", 5000, 0), ("c", 1000, 1)):
        play(fair(DivFL(), folder=tmp_path / name, seed=seed), grid_of(first=first), 4)
    assert cohorts(tmp_path / "a") == cohorts(tmp_path / "b")
    assert cohorts(tmp_path / "a") != cohorts(tmp_path / "c")
