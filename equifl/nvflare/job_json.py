"""What a job can carry: NVFlare writes the arguments of a controller as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

import numpy as np

from equifl._numerics.checks import numbers, require
from equifl.aggregators import Aggregator
from equifl.experiment.rule_tables import WHERE, make_rule, rule_table
from equifl.experiment.selector_tables import selector_table
from equifl.selectors import Selector


def table_of(selector: str | Mapping[str, Any] | Selector) -> dict[str, Any]:
    """A selector as the table that a job can carry.

    >>> table_of("rota")
    {'class': 'rota'}
    """
    if isinstance(selector, str):
        return {"class": selector}
    table = dict(selector) if isinstance(selector, Mapping) else selector_table(selector, "selector")
    try:
        json.dumps(table)
    except TypeError as error:
        raise ValueError(
            f"selector: {error}, and a job is JSON; write a class that has it built in, and name that: "
            "{'class': 'package.module:Name'}"
        ) from None
    return table


def rule_of(given: str | Mapping[str, Any] | Aggregator) -> tuple[str | dict[str, Any], Aggregator]:
    """A server rule in the form that a job can carry, and as the object that it stands for.

    >>> rule_of({"class": "memory", "q": 1.0})
    ({'class': 'memory', 'q': 1.0}, Memory(q=1.0, keep='whole'))
    """
    try:
        table = rule_table(given)
        return table, make_rule(table)
    except ValueError as error:
        raise ValueError(f"server_rule{str(error).removeprefix(WHERE)}") from None


def arguments_of(kind: type) -> list[str]:
    """The names of what a class and its bases take, by keyword, as they are made.

    >>> from nvflare.app_common.workflows.fedavg import FedAvg
    >>> {"stop_cond", "num_rounds", "persistor_id"} <= set(arguments_of(FedAvg))
    True
    """
    makers = [vars(each)["__init__"] for each in kind.__mro__ if each is not object and "__init__" in vars(each)]
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    found = [p.name for make in makers for p in list(signature(make).parameters.values())[1:] if p.kind in named]
    return list(dict.fromkeys(found))


def plain_model(model: Mapping[str, Any]) -> dict[str, Any]:
    """A model as nested lists of finite numbers."""
    lists = {str(key): numbers(f"model[{key!r}]", value, np.float32) for key, value in model.items()}
    for key, array in lists.items():
        require(f"model[{key!r}]", array, bool(np.isfinite(array).all()), "finite numbers")
    return {key: array.tolist() for key, array in lists.items()}
