"""What Flower says of a node: its key or name, and whether these outlive the node."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

_NOBODY = "<id:none>"  # the account of whoever registers a node without one
# A SuperNode without a key of its own makes one and, as it starts, registers and activates it by two requests, one
# after the other. One whose key was registered for it starts later: the start of its process alone takes longer.
_AT_ONCE = 1.0  # seconds


def key_of(node: Any) -> str:
    """A digest of the node's public key; empty without one. Flower's simulation has random bytes where it would be."""
    key = bytes(getattr(node, "public_key", b""))
    return hashlib.sha256(key).hexdigest()[:32] if key.startswith((b"-----BEGIN", b"ssh-", b"ecdsa-")) else ""


def name_of(node: Any) -> str:
    """The name that the node was registered with; empty without one."""
    return str(getattr(node, "name", "") or "")


def was_registered_for(node: Any) -> bool | None:
    """Whether the node's key, or name, was registered for it before it started, and so outlives it; None: unclear.

    Flower has no field for that. Only who registers a key for a node gives it a name, a place or an account. Otherwise
    times tell: a key that was made for this start was activated in the moment of its registration, and never again,
    unless the connection broke in between.
    """
    if not key_of(node):
        return bool(name_of(node))
    if name_of(node) or getattr(node, "location", "") or getattr(node, "owner_aid", "") not in ("", _NOBODY):
        return True
    registered, activated = registered_at(node), _time(getattr(node, "last_activated_at", ""))
    if activated is None or registered is None:
        return True
    if (activated - registered).total_seconds() <= _AT_ONCE:
        return False
    return None if getattr(node, "last_deactivated_at", "") else True


def registered_at(node: Any) -> datetime | None:
    """When the node was registered, where Flower says so."""
    return _time(getattr(node, "registered_at", ""))


def order_of_registration(node: Any) -> tuple[datetime, int]:
    """A key to sort nodes by: when they were registered, then their ids."""
    return registered_at(node) or datetime.min.replace(tzinfo=UTC), node.node_id


def _time(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
