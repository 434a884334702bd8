"""The form of replies: FedAvg and its kind average replies, so these must be alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from flwr.app import RecordDict
from numpy.typing import NDArray

# The record, name and shape of each array, in order. A vector of uint8 is an object as bytes, of any length.
Layout: TypeAlias = tuple[tuple[str, str, tuple[int, ...] | None], ...]
Arrays: TypeAlias = Mapping[str, Mapping[str, NDArray[Any]]]  # by record and name


class Form(NamedTuple):
    """What must be the same in replies that are averaged."""

    odd: tuple[Any, ...]  # how it differs from what a strategy of Flower expects; empty: not at all
    records: tuple[str, ...]
    kinds: str
    metrics: tuple[tuple[str, int | None], ...]  # with the lengths of lists

    def unlike(self, common: Form | None) -> str:
        """In which way it differs."""
        if self.odd or common is None or common.odd:
            return "; ".join(map(str, self.odd)) or "other replies hold other arrays than were sent"
        differ = [name for name in ("records", "kinds", "metrics") if getattr(self, name) != getattr(common, name)]
        return "; ".join(f"{name} {getattr(self, name)} instead of {getattr(common, name)}" for name in differ)


def layout_of(arrays: Arrays) -> Layout:
    """The record, name and shape of each array."""
    return tuple(
        (record, name, None if array.dtype == "uint8" and array.ndim == 1 else array.shape)
        for record, named in arrays.items()
        for name, array in named.items()
    )


def form_of(content: RecordDict, arrays: Arrays, sent: Layout | None) -> Form:
    """The form of a reply to a message that held the arrays `sent` (None: arrays do not matter)."""
    metrics = content.metric_records
    odd: list[Any] = [] if len(metrics) == 1 else [f"{len(metrics)} metric records instead of 1"]
    kinds = ""
    if sent is not None:
        layout = layout_of(arrays)
        if len(arrays) != 1:
            odd.append(f"{len(arrays)} array records instead of 1")
        if [entry[1:] for entry in layout] != [entry[1:] for entry in sent]:
            odd += ["other arrays than were sent", layout]
        kinds = "".join(
            "f" if array.dtype.kind in "fc" else "i" for named in arrays.values() for array in named.values()
        )
    named = {name: value for record in metrics.values() for name, value in record.items()}
    lengths = sorted((name, len(value) if isinstance(value, list) else None) for name, value in named.items())
    names = sorted([*metrics, *(arrays if sent is not None else ())])
    return Form(tuple(odd), tuple(names), kinds, tuple(lengths))


def common_form(forms: Iterable[Form], agreed: Form | None) -> Form | None:
    """The form of most replies; None if none can be used.

    An odd form is how a client is written only if two nodes at least send it, and no other was `agreed` on before: one
    reply never decides.
    """
    counts = Counter(forms)

    def fits(form: Form) -> bool:
        if agreed is None:
            return not form.odd or counts[form] > 1
        grown = len(form.kinds) != len(agreed.kinds)  # the strategy may send other arrays than before
        return form.odd == agreed.odd and (grown or form.kinds == agreed.kinds)

    return max(filter(fits, counts), key=lambda form: (counts[form], form == agreed, not form.odd), default=None)
