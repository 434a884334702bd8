"""The update in what a client sent: of which arrays it is made, and whether they are weights or differences."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equifl.hosts.usable import LONGEST, MisfitError, SetAsideError
from equifl.sketch import CountSketch

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

# The names that PyTorch and Keras give to the running statistics of batch normalisation.
RUNNING_STATISTICS = r"(^|[./_])(running_mean|running_var|num_batches_tracked|moving_mean|moving_variance)$"


_PIECE = 2**18  # numbers subtracted at a time


class Updates:
    """Reads updates w_k - w_k^(i): from arrays of real numbers that were sent and came back.

    Args:
        leave_out: a regular expression of the names of arrays that are no part of an update; None = there are none.
        difference: what comes back is w_k^(i) - w_k already, and not w_k^(i).

    >>> Updates().names({"w": np.zeros(2), "bn.running_var": np.ones(2), "step": np.array(3)})
    ['w']
    """

    def __init__(self, leave_out: str | None = RUNNING_STATISTICS, *, difference: bool = False) -> None:
        try:
            self._others = None if leave_out is None else re.compile(leave_out)
        except (re.error, TypeError) as error:
            raise ValueError(f"leave_out: {leave_out!r} is not a regular expression ({error})") from None
        self.difference = difference

    def names(self, model: Arrays, *others: Arrays) -> list[str]:
        """The arrays of a model that make up an update, and are in the others as well."""
        found = [key for key in model if self._others is None or not self._others.search(key)]
        # An integer in one of them is enough: Flower's average turns counters into real numbers.
        return [key for key in found if all(key in one and one[key].dtype.kind == "f" for one in (model, *others))]

    def left_out(self, model: Arrays) -> list[str]:
        """The other arrays of a model."""
        mine = set(self.names(model))
        return [key for key in model if key not in mine]

    def pairs(self, sent: Arrays, trained: Arrays) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """What to subtract from what, array by array; some clients train only a part of the model."""
        keys = self.names(sent, trained)
        if not any(sent[key].size for key in keys):
            raise MisfitError(
                "it returned none of the floating-point arrays that were sent, from which updates are computed"
            )
        for key in keys:
            if trained[key].shape != sent[key].shape:
                raise MisfitError(f"its array {key} has shape {trained[key].shape}, not {sent[key].shape}")
        return [(np.zeros((), sent[key].dtype) if self.difference else sent[key], trained[key]) for key in keys]

    def sketch(self, sent: Arrays, trained: Arrays, sketch: CountSketch) -> NDArray[np.float32]:
        """The sketch of an update, computed piece by piece, so that no whole tensor of it is ever in memory."""
        update = sketch(
            np.subtract(before, after, dtype=np.result_type(before, np.float32))
            for pair in self.pairs(sent, trained)
            for before, after in _pieces(*pair)
        )
        if not np.abs(update).max() < LONGEST:
            raise SetAsideError("its update is too long")
        return update

    def of_the_other_kind(self, sent: Arrays, trained: Arrays) -> bool | None:
        """Whether weights look like differences, or differences like weights; None if the model is 0: nothing tells.

        Differences are not half as long as the model that they were made from; weights are not half as far from it.
        """
        model, found = 0.0, 0.0
        for key in self.names(sent, trained):
            for left, right in _pieces(sent[key], trained[key]) if sent[key].size == trained[key].size else ():
                before, after = left.astype(np.float64), right.astype(np.float64)
                other = after - before if self.difference else after
                model, found = model + float(before @ before), found + float(other @ other)
        return None if model == 0 else found < model / 4


def _pieces(before: NDArray[Any], after: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Both, flat, cut into pieces of the same lengths; a `before` of one number stands for as many as there are."""
    one, other = before.reshape(-1), after.reshape(-1)
    for start in range(0, len(other), _PIECE):
        part = other[start : start + _PIECE]
        yield (one[start : start + _PIECE] if before.ndim or not after.ndim else one), part


_OF_THE_OTHER_KIND = (
    "equifl: replies='weights', but all replies look like differences w_i - w: weights are not so "
    "much shorter than the model; pass replies='delta' to FairSelection, or let clients return their weights",
    "equifl: replies='delta', but all replies look like weights: differences are not so "
    "close to the model; leave replies='weights', or let clients return w_i - w",
)


class KindOfReplies:
    """Looks whether the first replies are of the kind they are read as, and names the arrays that are not in updates.

    Differences are looked at in the first round alone: from a model that began at 0 they may be like the model later.
    `advice` is the error, where it is not Flower's.

    Attributes:
        known: whether replies are looked at no more.
    """

    def __init__(self, updates: Updates, log: logging.Logger, advice: str = "") -> None:
        self._updates, self._log, self.known, self._told = updates, log, False, False
        self._advice = advice or _OF_THE_OTHER_KIND[updates.difference]

    def check(self, sent: Arrays, replies: Sequence[Arrays]) -> None:
        """Raise ValueError if all of the first replies, two at least, look like those of the other kind."""
        left_out = [] if self._told else self._updates.left_out(sent)
        if left_out:
            names = f"{', '.join(left_out[:8])}{f' and {len(left_out) - 8} more' if left_out[8:] else ''}"
            self._log.info("equifl: integers and running statistics are not in the updates of selection: %s", names)
        self._told = True
        self.decide([] if self.known else [self._updates.of_the_other_kind(sent, reply) for reply in replies])

    def decide(self, found: Sequence[bool | None], asked: int = 0) -> None:
        """The same, from what `Updates.of_the_other_kind` says of each reply, for who does not keep them.

        It raises only for replies of more than half of those `asked`.
        """
        self.known = self.known or False in found or self._updates.difference
        if len(found) > 1 and 2 * len(found) > asked and all(found):
            raise ValueError(self._advice)
