from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from equifl.flower.node_keys import key_of, name_of, order_of_registration, was_registered_for

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
