"""Server rules to and from the configuration: a name, or a table with a class and its parameters."""

from __future__ import annotations

import json
import logging
import typing
from collections.abc import Mapping
from typing import Any

from equifl._numerics.checks import require
from equifl.aggregators import AGGREGATORS, Aggregator
from equifl.experiment.object_tables import Kind, make_object, table_of

WHERE = "server.aggregate"

log = logging.getLogger("equifl")

_KIND = Kind(
    what="server rule",
    classes=AGGREGATORS,
    method="step",
    form="needs and step(replies, memory)",
    fits=lambda thing: isinstance(thing, Aggregator),
)


def make_rule(given: str | Mapping[str, Any]) -> Aggregator:
    """The server rule that a configuration names, or gives as a table.

    >>> make_rule("mean"), make_rule({"class": "memory", "q": 1.0})
    (Mean(), Memory(q=1.0, keep='whole'))
    """
    if isinstance(given, str):
        return typing.cast(Aggregator, make_object(given, {}, _KIND, WHERE))
    require(WHERE, given, isinstance(given, Mapping) and "class" in given, "a name, or a table with a class")
    return typing.cast(Aggregator, make_object("", given, _KIND, WHERE))


def rule_table(given: Any) -> str | dict[str, Any]:
    """The shortest form of a rule, a table or a name: without what is at its default, and a name if nothing is left.

    >>> from equifl.aggregators import Memory
    >>> rule_table(Memory(q=2.0)), rule_table({"class": "memory", "q": 0.0})
    ({'class': 'memory', 'q': 2.0}, 'memory')
    """
    if isinstance(given, Aggregator):
        table = table_of(given, _KIND, WHERE)
    else:
        made = make_rule(given)
        own = type(made) not in AGGREGATORS.values()
        table = ({"class": given} if isinstance(given, str) else dict(given)) if own else table_of(made, _KIND, WHERE)
    return str(table["class"]) if len(table) == 1 else table


def separate_rule(server: Any, *, stored: bool = False) -> None:
    """Put `q` among the parameters of the rule, in place; without one nothing changes.

    Earlier versions had `aggregate = "loss", q = 2.0`, and a `q` that other rules did not look at: that is read with a
    warning. A rule given as an object becomes its table.

    Args:
        server: the section, as TOML or JSON gives it.
        stored: it is that of a run: no warning.
    """
    if not isinstance(server, dict):
        return  # rejected later, as any wrong type
    given = server.get("aggregate", "mean")
    if not isinstance(given, str | Mapping) and isinstance(given, Aggregator):
        given = server["aggregate"] = rule_table(given)
    if "q" not in server:
        return
    q = server.pop("q")
    named = given if isinstance(given, str) else None
    if stored:  # of which only "loss" looked at it, and whose default is still the same
        if named == "loss" and q != 1.0:
            server["aggregate"] = {"class": named, "q": q}
    elif named in ("loss", "memory", "q_fedavg"):
        server["aggregate"] = {"class": named, "q": q}
        log.warning("server: q is a parameter of the rule now; write aggregate = %s", _toml(server["aggregate"]))
    else:
        log.warning("server.q: %s has no effect; the parameters of a rule are in its own table", json.dumps(q))


def open_table(server: Any) -> None:
    """Give a rule that is a name its table, in place, so that its parameters can be set one by one."""
    if isinstance(server, dict) and isinstance(server.get("aggregate"), str):
        server["aggregate"] = {"class": server["aggregate"]}


def _toml(table: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value, default=str)}" for key, value in table.items()) + " }"
