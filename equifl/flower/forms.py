"""The form of replies: FedAvg and its kind average replies, so these must be alike."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from equifl.hosts.usable import SetAsideError

# The record, name, shape and kind of each array, in order. A vector of uint8 is an object as bytes, of any length.
Layout: TypeAlias = tuple[tuple[str, str, tuple[int, ...] | None, str], ...]
Arrays: TypeAlias = Mapping[str, Mapping[str, NDArray[Any]]]  # by record and name
_KEY = "forms"


class Form(NamedTuple):
    """What must be the same in replies that are averaged."""

    odd: tuple[Any, ...]  # how it differs from what a strategy of Flower expects; empty: not at all
    records: tuple[str, ...]
    kinds: str
    metrics: tuple[tuple[str, int | None], ...]  # with the lengths of lists
    weight: float | None = None  # where a strategy takes only equal ones

    @property
    def names(self) -> frozenset[str]:
        """Of the metrics."""
        return frozenset(name for name, _ in self.metrics)

    def unlike(self, common: Form | None) -> str:
        """In which way it differs."""
        if self.odd or common is None or common.odd:
            return "; ".join(map(str, self.odd)) or "other replies hold other arrays than were sent"
        differ = [name for name in self._fields[1:] if getattr(self, name) != getattr(common, name)]
        return "; ".join(f"{name} {getattr(self, name)} instead of {getattr(common, name)}" for name in differ)


def layout_of(arrays: Arrays) -> Layout:
    """The record, name, shape and kind of each array: real numbers, or integers."""
    return tuple(
        (
            record,
            name,
            None if array.dtype == "uint8" and array.ndim == 1 else array.shape,
            "f" if array.dtype.kind in "fc" else "i",
        )
        for record, named in arrays.items()
        for name, array in named.items()
    )


def kinds_of(layout: Layout) -> str:
    """The kinds of the arrays."""
    return "".join(kind for *_, kind in layout)


def form_of(content: RecordDict, arrays: Arrays, sent: Layout | None) -> Form:
    """The form of a reply to a message that held the arrays `sent` (None: arrays do not matter)."""
    metrics = content.metric_records
    odd: list[Any] = [] if len(metrics) == 1 else [f"{len(metrics)} metric records instead of 1"]
    kinds = ""
    if sent is not None:
        layout = layout_of(arrays)
        if len(arrays) != 1:
            odd.append(f"{len(arrays)} array records instead of 1")
        if [entry[1:3] for entry in layout] != [entry[1:3] for entry in sent]:
            odd += ["other arrays than were sent", layout]
        kinds = kinds_of(layout)
    named = {name: value for record in metrics.values() for name, value in record.items()}
    lengths = sorted((name, len(value) if isinstance(value, list) else None) for name, value in named.items())
    names = sorted([*metrics, *(arrays if sent is not None else ())])
    return Form(tuple(odd), tuple(names), kinds, tuple(lengths))


def common_form(forms: Iterable[Form], agreed: Form | None, *, wanted: int | None, sent: str) -> Form | None:
    """The form of most replies to arrays of the kinds `sent`; None if none can be used.

    An odd form is how a client is written only if two nodes at least send it, and no other was `agreed` on before: one
    reply never decides. Nor does it where metrics are read by their names: a form that lacks some of those agreed on
    is how clients are written now only if two nodes send it, and more than two thirds of the replies that are `wanted`
    (None: names do not matter). Arrays of the kinds that were sent are always fit.
    """
    counts = Counter(forms)

    def fits(form: Form) -> bool:
        if agreed is None:
            return not form.odd or counts[form] > 1
        grown = len(form.kinds) != len(agreed.kinds)  # the strategy may send other arrays than before
        kinds = grown or form.kinds in (agreed.kinds, sent)
        names = wanted is None or form.names >= agreed.names or 3 * counts[form] > max(2 * wanted, 3)
        return form.odd == agreed.odd and kinds and names

    def rank(form: Form) -> tuple[int, bool, bool, bool]:
        return counts[form], form.kinds == sent, form == agreed, not form.odd

    return max(filter(fits, counts), key=rank, default=None)


class Agreed:
    """The forms that two nodes or more agreed on, by what they replied to.

    Where few reply, rounds in a row agree, too, if all of their replies had one form: two rounds and nodes where there
    is no agreement yet; three where all lack metrics of those agreed on, and as many nodes as one round needs.
    """

    def __init__(self) -> None:
        self._forms: dict[str, Form] = {}
        self._insist: dict[str, tuple[Form, list[int], int]] = {}  # the only form of rounds in a row, of which nodes

    def sort_out(
        self, kind: str, forms: Mapping[int, Form], *, wanted: int | None, sent: str
    ) -> tuple[list[int], dict[int, SetAsideError]]:
        """The nodes whose replies can be averaged, and why those of the others cannot; of so many `wanted`."""
        agreed, insist = self._forms.get(kind), False
        common = common_form(forms.values(), agreed, wanted=wanted, sent=sent)
        if agreed is None:
            insist = self._insists(kind, forms, common, rounds=2, nodes=2)
        elif common is None:
            anyhow = common_form(forms.values(), agreed._replace(metrics=()), wanted=wanted, sent=sent)
            insist = self._insists(kind, forms, anyhow, rounds=3, nodes=max(2, 2 * (wanted or 0) // 3 + 1))
            common = anyhow if insist else None
        else:
            self._insist.pop(kind, None)
        alike = [node for node, form in forms.items() if form == common]
        aside = {
            node: SetAsideError(f"it cannot be averaged with the others: {form.unlike(common or agreed)}")
            for node, form in forms.items()
            if form != common
        }
        if common is not None and (len(alike) > 1 or insist):
            if agreed is not None and common.names > agreed.names:  # what some send beside is not asked of all
                common = common._replace(metrics=tuple(entry for entry in common.metrics if entry[0] in agreed.names))
            self._forms[kind] = common
            self._insist.pop(kind, None)
        return alike, aside

    def state(self) -> dict[str, NDArray[Any]]:
        """All of it, as an array of a checkpoint."""
        return {_KEY: np.array(json.dumps([self._forms, self._insist]))}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned; earlier versions kept nothing of it."""
        if _KEY not in state:
            return
        try:
            forms, insist = json.loads(str(state[_KEY]))
            self._forms = {str(kind): _form(form) for kind, form in forms.items()}
            self._insist = {
                str(kind): (_form(form), list(map(int, nodes)), int(rounds))
                for kind, (form, nodes, rounds) in insist.items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"checkpoint: `{_KEY}` cannot be read: {error}") from None

    def _insists(self, kind: str, forms: Mapping[int, Form], form: Form | None, *, rounds: int, nodes: int) -> bool:
        """Whether all replies of so many rounds in a row had this form, and so many nodes sent it."""
        if form is None or set(forms.values()) != {form}:
            self._insist.pop(kind, None)
            return False
        before, senders, count = self._insist.get(kind, (form, [], 0))
        senders, count = (senders, count) if before == form else ([], 0)
        senders = sorted({*senders, *forms})[:nodes]  # more are not needed
        self._insist[kind] = form, senders, count + 1
        return count + 1 >= rounds and len(senders) == nodes


def _form(saved: Any) -> Form:
    return Form(*map(_tuples, saved))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
