"""A federation of processes, with TLS and keys: one node dies and returns, the server is stopped and resumed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from equifl.experiment.run_folder import RunFolder
from tests.flower.certificates import make_key
from tests.flower.deployment import Deployment
from tests.flower.processes import kill, until

pytestmark = pytest.mark.deployment
NODES = [f"node{partition}" for partition in range(6)]
Nodes = dict[str, Popen[bytes]]
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path_factory.mktemp("deployment"))
    try:
        deployment.wait()
        yield deployment
    finally:
        deployment.processes.end()


@pytest.fixture(scope="module")
def nodes(federation: Deployment) -> Nodes:
    """Six nodes online, registered in the order of their partitions: so client 3 is who trains on partition 3."""
    started = {}
    for partition, name in enumerate(NODES):
        make_key(federation.home, name)
        federation.register(name)
        started[name] = federation.start_node(name, partition)
    until(lambda: all(federation.times_admitted(name) for name in NODES), "that all nodes are online", 180)
    return started


def test_a_key_that_is_not_registered_is_refused(federation: Deployment, nodes: Nodes) -> None:
    make_key(federation.home, "unregistered")
    assert federation.start_node("unregistered", 6).wait(120) != 0
    assert "Failed to activate SuperNode" in federation.processes.log("unregistered")
    assert not federation.times_admitted("unregistered")
    assert federation.nodes() == ["online"] * 6


def test_one_node_dies_and_returns_and_the_server_is_stopped_and_resumed(federation: Deployment, nodes: Nodes) -> None:
    folder, diary = federation.home / "records", federation.home / "diary"

    first = federation.start_run(folder=str(folder), diary=str(diary))
    lost = until(lambda: read(diary), "that a client trains", 90)[0]["partition"]
    kill(nodes[NODES[lost]])
    until(lambda: replied_again(folder, 1), "that training goes on without the node that was killed", 120)
    federation.stop_run(first)
    stopped = rows_of(folder)

    federation.start_run(folder=str(folder), diary=str(diary), resume=True)
    until(lambda: replied_again(folder, len(stopped)), "that the resumed run trains", 120)
    return_of(federation, lost)
    until(lambda: trained(diary, lost), "that the node that was killed trains again", 180)
    played = until(lambda: read_up_to(folder, trained(diary, lost)[0]), "that this round ends", 60)

    assert played[: len(stopped)] == stopped
    assert [row["round"] for row in played] == list(range(len(played)))
    assert {"partition": lost, "round": 1, "done": True} not in read(diary)
    assert any("client_accuracy" in row for row in played)
    for note in read(diary):  # who trained is who was chosen: a client has the same number before and after
        assert note["round"] > len(played) or note["partition"] in played[note["round"] - 1]["cohort"]
    assert_fair(played, absent=lost)
    assert_remembered(folder)


def read(diary: Path) -> Rows:
    """What the clients have noted so far."""
    return [json.loads(line) for line in diary.read_text().splitlines()] if diary.exists() else []


def trained(diary: Path, partition: int) -> list[int]:
    """The rounds in which this client has finished its training."""
    return [note["round"] for note in read(diary) if note["partition"] == partition and note["done"]]


def rows_of(folder: Path) -> Rows:
    return RunFolder(folder).rows() if (folder / "config.json").exists() else []


def replied_again(folder: Path, round: int) -> bool:
    """Whether somebody replied in this round or a later one."""
    return any(row["local_loss"] is not None for row in rows_of(folder)[round:])


def read_up_to(folder: Path, rounds: int) -> Rows:
    rows = rows_of(folder)
    return rows[:rounds] if len(rows) >= rounds else []


def return_of(federation: Deployment, partition: int) -> None:
    """Start a killed node again: the SuperLink admits it when it has noticed that it is gone, within a minute."""
    name = NODES[partition]

    def admitted() -> bool:
        node = federation.start_node(name, partition)
        until(lambda: node.poll() is not None or federation.times_admitted(name) == 2, "an answer to the node", 60)
        return node.poll() is None

    until(admitted, "that the node that was killed is admitted again", 120)


def assert_fair(rows: Rows, absent: int) -> None:
    """Of those who were always there, nobody is chosen before all who were chosen less often: Rota remembers."""
    times = Counter(dict.fromkeys(range(len(NODES)), 0))
    for row in rows:
        least = sorted(count for client, count in times.items() if client != absent)
        chosen = sorted(times[client] for client in row["cohort"] if client != absent)
        assert chosen == least[: len(chosen)], f"round {row['round']}: {row['cohort']}, after {dict(times)}"
        times.update(row["cohort"])


def assert_remembered(folder: Path) -> None:
    """The server counts six clients, and each as often as the rows say."""
    state = RunFolder(folder).load_checkpoint()
    assert state is not None
    times = Counter(client for row in rows_of(folder)[: int(state["rounds_played"])] for client in row["cohort"])
    assert state["store.times_selected"].tolist() == [times[client] for client in range(len(NODES))]
