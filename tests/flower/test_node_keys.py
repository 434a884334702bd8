"""What Flower says of nodes' keys, in this process and on a real SuperLink that admits nodes with and without them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from equifl.experiment.run_folder import RunFolder
from equifl.flower.node_keys import key_of, name_of, order_of_registration, was_registered_for
from tests.flower.certificates import make_key
from tests.flower.deployment import Deployment
from tests.flower.processes import until

PEM = b"-----BEGIN PUBLIC KEY-----\nabc"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def node(**about: Any) -> Any:
    return SimpleNamespace(node_id=7, **about)


def times(seconds: float) -> dict[str, str]:
    return {"registered_at": NOON.isoformat(), "last_activated_at": (NOON + timedelta(seconds=seconds)).isoformat()}


def test_a_key_is_one_that_the_superlink_can_check() -> None:
    assert key_of(node(public_key=PEM)) == key_of(node(public_key=PEM)) != key_of(node(public_key=PEM + b"d"))
    assert [key_of(node(public_key=b"\x07" * 32)), key_of(node(public_key=b"")), key_of(node())] == ["", "", ""]
    assert [name_of(node(name="clinic")), name_of(node(name=None)), name_of(node())] == ["clinic", "", ""]


@pytest.mark.parametrize(
    ("about", "registered"),
    [
        ({}, False),
        ({"name": "clinic"}, True),
        ({"public_key": b"\x07" * 32, "owner_aid": "<id:none>", **times(60)}, False),
        ({"public_key": PEM}, True),  # an older Flower tells no times
        ({"public_key": PEM, "owner_aid": "<id:none>", **times(0.2)}, False),
        ({"public_key": PEM, "owner_aid": "<id:none>", **times(5)}, True),
        ({"public_key": PEM, "last_deactivated_at": NOON.isoformat(), **times(5)}, None),
        ({"public_key": PEM, "name": "clinic", "last_deactivated_at": NOON.isoformat(), **times(5)}, True),
        ({"public_key": PEM, "owner_aid": "account", **times(0.2)}, True),
        ({"public_key": PEM, "location": "37.4,-122.1", **times(0.2)}, True),
        ({"public_key": PEM, "name": "clinic", **times(0.2)}, True),
    ],
)
def test_a_key_that_was_registered_for_a_node_is_told_from_one_that_it_made(
    about: dict[str, Any], registered: bool | None
) -> None:
    assert was_registered_for(node(**about)) is registered


def test_nodes_are_sorted_by_the_time_of_their_registration() -> None:
    late, early, unknown = node(**times(0)), node(registered_at=(NOON - timedelta(1)).isoformat()), node()
    assert sorted([late, early, unknown], key=order_of_registration) == [unknown, early, late]


@pytest.fixture
def open_federation(tmp_path: Any) -> Iterator[Deployment]:
    """A SuperLink that admits everybody."""
    deployment = Deployment(tmp_path, open_to_all=True)
    try:
        deployment.wait()
        yield deployment
    finally:
        deployment.processes.end()


@pytest.mark.deployment
def test_on_a_superlink_that_admits_nodes_without_keys(open_federation: Deployment) -> None:
    """One node has a key, one has none and restarts, and one without a key claims to be the first."""
    federation, folder = open_federation, open_federation.home / "records"
    make_key(federation.home, "owner")
    federation.register("owner")
    federation.start_node("owner", 0)
    first = federation.start_node("guest", 1, keyless=True)
    federation.start_node("liar", 0, keyless=True)
    names = ["owner", "guest", "liar"]
    until(lambda: all(map(federation.times_admitted, names)), "that all nodes are online", 120)
    federation.start_run(folder=str(folder), diary=str(federation.home / "diary"), identity="partition-id")

    def clients() -> list[str]:
        """The names of all clients, once there are as many and each is known by more than its node."""
        rows = RunFolder(folder).rows() if (folder / "config.json").exists() else []
        found = {int(client): name for row in rows for client, name in row.get("names", {}).items()}
        known = len(found) >= 3 and not any(name.startswith("node:") for name in found.values())
        return [found[client] for client in sorted(found)] if known else []

    before = until(clients, "that all clients are known", 120)
    owner = next(name for name in before if "key:" in name)
    assert sorted(before) == sorted([owner, "partition-id:0", "partition-id:1"])
    assert owner.startswith("partition-id:0, key:")

    first.terminate()
    federation.start_node("guest", 1, keyless=True)  # with another key
    until(lambda: federation.times_admitted("guest") == 2, "that the node is back", 60)
    guest, played = before.index("partition-id:1"), len(RunFolder(folder).rows())

    def trained_again() -> bool:
        rows = RunFolder(folder).rows()[played + 1 :]
        return any(guest in row["cohort"] and row["local_loss"] is not None for row in rows)

    until(trained_again, "that it trains as the client that it was", 120)
    after = until(clients, "that all clients are known", 60)
    assert [name for name in after if name] == before
