"""Signals: what the server knows about its clients at the start of a round, as one frozen value.

Longer than 300 lines because every field has its check beside it, which the store uses for reports, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equifl._numerics.checks import integer, integers, numbers, plain, require_each, shaped
from equifl._numerics.lengths import lengths
from equifl._numerics.threads import on_all_cores, tiles

Floats: TypeAlias = NDArray[np.floating[Any]]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

OPTIONAL = ("durations", "label_counts", "lengths", "bias_updates")  # signals that few selectors need

LAST_ROUND = 2**62  # and the largest count: sums of two fit int64

_DEFAULT = cast(Any, None)  # filled in by Signals, so that no field is ever None but updates and distances


@dataclass(frozen=True, kw_only=True, eq=False)
class Signals:
    """Everything a selector may use, for clients 0 .. N-1.

    It is checked here, once, and trusted everywhere else. At least one signal, such as `losses` or `updates`, must be
    given. The arrays are kept as read-only views, not copied. nan means unknown.

    Args:
        losses: (N,) most recent local loss f_i(w), 0 or more; nan = unknown.
        updates: (N, d) gradient, local update or a sketch of it; a row of nan = unknown.
        last_selected: (N,) round of the last selection, before `round`; -1 = never (the default).
        times_selected: (N,) how often selected so far (default 0).
        missed_turns: (N,) turns that passed while a client was absent or before it joined, and that count as had
            (default 0; a `SignalStore` counts them).
        waited: (N,) rounds in which a client was present and not selected, since its last selection (default 0; a
            `SignalStore` counts them).
        joined: (N,) the round before which a client was first registered; 0 = there from the start (the default).
        history: (M, 2) every selection so far as (round, client), for selectors that need more than
            `last_selected`; None = unknown.
        sizes: (N,) training examples, above 0 (default 1).
        available: (N,) who can be selected now (default all clients).
        round: the round to select for, from 0.
        distances: (N, N) symmetric pairwise distances between updates, for a caller that has them; `updates` may
            then be left out. The row and column of an unknown client are nan.
        durations: (N,) seconds that a client took when it was last selected, above 0; nan = unknown. This and what
            follows is for the few selectors that name it in `needs`, and None where nobody reports it.
        label_counts: (N, C) training examples of each class; a row of nan = unknown.
        lengths: (N,) Euclidean length of the update, 0 or more; nan = unknown. It goes with `distances`; from
            `updates` it is computed (`norms`).
        bias_updates: (N, C) the update of the output layer's bias; a row of nan = unknown.

    >>> signals = Signals(losses=[0.7, 2.3, float("nan")], updates=[[1.0, 0.0], [0.0, 1.0], [float("nan")] * 2])
    >>> signals.n, signals.knows_loss.tolist()
    (3, [True, True, False])
    """

    losses: Floats = _DEFAULT
    updates: Floats | None = None
    last_selected: Ints = _DEFAULT
    times_selected: Ints = _DEFAULT
    missed_turns: Ints = _DEFAULT
    waited: Ints = _DEFAULT
    joined: Ints = _DEFAULT
    history: Ints | None = None
    sizes: Floats = _DEFAULT
    available: Bools = _DEFAULT
    round: int = 0
    distances: Floats | None = None
    durations: Floats | None = None
    label_counts: Floats | None = None
    lengths: Floats | None = None
    bias_updates: Floats | None = None
    farthest: Floats | None = field(default=None, init=False, repr=False)  # (N,) the largest of each row of distances

    def __post_init__(self) -> None:
        n = self._count()
        now = integer("round", self.round, least=0, most=np.iinfo(np.int64).max)
        checked: dict[str, NDArray[Any] | None] = {
            "losses": check_losses(n, self.losses),
            "updates": None if self.updates is None else check_updates(n, self.updates),
            "last_selected": check_last_selected(n, self.last_selected, now),
            "times_selected": check_counts("times_selected", n, self.times_selected),
            "missed_turns": check_counts("missed_turns", n, self.missed_turns),
            "waited": check_counts("waited", n, self.waited),
            "joined": check_joined(n, self.joined, now),
            "history": None if self.history is None else check_history(n, self.history, now),
            "sizes": check_sizes(n, self.sizes),
            "available": check_available(n, self.available),
        }
        if self.distances is not None:
            checked["distances"], checked["farthest"] = check_distances(n, self.distances)
        for name in OPTIONAL:
            values = getattr(self, name)
            if values is not None:
                checked[name] = check_optional(name, n, values)
        for name, array in checked.items():
            object.__setattr__(self, name, None if array is None else _read_only(array))
        object.__setattr__(self, "round", now)

    def _count(self) -> int:
        for name in ("losses", "updates", "distances", *OPTIONAL):
            value = getattr(self, name)
            if value is not None:
                shape = plain(name, value).shape
                if not shape or shape[0] == 0:
                    raise ValueError(f"{name}: shape {shape} is not allowed; allowed: one entry a client, N >= 1")
                return int(shape[0])
        raise ValueError(
            "losses, updates, distances: all missing; expected at least one of them, with one entry a client"
        )

    @property
    def n(self) -> int:
        """N, the number of clients."""
        return len(self.losses)

    @property
    def turns(self) -> Ints:
        """(N,) turns of each client: its selections plus its missed turns."""
        return self.times_selected + self.missed_turns

    @cached_property
    def knows_loss(self) -> Bools:
        """(N,) whether the loss is known."""
        return ~np.isnan(self.losses)

    @cached_property
    def knows_update(self) -> Bools:
        """(N,) whether the update (or the distances) is known."""
        if self.distances is not None:
            return ~np.isnan(np.diagonal(self.distances))
        if self.updates is not None:
            return ~np.isnan(self.updates[:, 0]) if self.updates.shape[1] else np.ones(self.n, bool)
        return np.zeros(self.n, bool)

    def knows(self, name: str) -> Bools:
        """(N,) whether this signal is known, by its name in `needs`.

        >>> Signals(losses=[1.0, 2.0], durations=[float("nan"), 3.5]).knows("durations").tolist()
        [False, True]
        """
        if name == "losses":
            return self.knows_loss
        if name == "updates":
            return self.knows_update
        values = self.norms if name == "lengths" else getattr(self, name)
        if values is None:
            return np.zeros(self.n, bool)
        return ~np.isnan(values if values.ndim == 1 else values[:, 0])

    @cached_property
    def norms(self) -> Floats | None:
        """(N,) the length of each update: `lengths`, or computed from `updates`; None if both are missing."""
        if self.lengths is not None or self.updates is None:
            return self.lengths
        updates, norms = self.updates, np.empty(self.n)
        row_bytes = updates.itemsize * updates.shape[1]

        def work(part: range) -> None:
            for tile in tiles(part, row_bytes):
                rows = updates[tile].astype(np.float64, copy=False)
                norms[tile] = lengths(rows)

        on_all_cores(work, self.n, row_bytes)
        return norms


def check_losses(n: int, values: ArrayLike | None, *, ids: Ints | None = None) -> Floats:
    """The losses as float64, checked; with `ids` they are reports of those clients, in which nan is not allowed."""
    if values is None:
        return np.full(n, np.nan)
    losses = shaped("losses", numbers("losses", values, np.float64, booleans=False), (n,))
    ok = (losses >= 0) & (losses < np.inf)
    if ids is None:
        ok |= np.isnan(losses)
    allowed = "finite and 0 or more" + (", or nan for an unknown client" if ids is None else "")
    require_each("losses", losses, ok, allowed, ids=ids)
    return losses


def check_updates(n: int, values: ArrayLike, *, ids: Ints | None = None, dtype: type = np.float32) -> Floats:
    """The updates, checked; with `ids` they are reports of those clients, without nan and converted to `dtype`."""
    with np.errstate(over="ignore"):  # values too large become infinite and are rejected below
        updates = numbers("updates", values, None if ids is None else dtype, booleans=False)
    if updates.ndim != 2 or len(updates) != n or updates.shape[1] == 0:
        raise ValueError(f"updates: shape {updates.shape} is not allowed; allowed: ({n}, d) with d >= 1")
    sums, ok = np.empty(n), np.empty(n, bool)
    row_bytes = updates.itemsize * updates.shape[1]

    def work(part: range) -> None:
        for tile in tiles(part, row_bytes):
            # A row sums to a finite number if and only if all of it is finite: one pass, no mask of N x d.
            sums[tile] = _sums(updates[tile])
            ok[tile] = np.isfinite(sums[tile])
            left = tile.start + np.flatnonzero(~ok[tile])
            if ids is None and len(left):
                ok[left] = np.isnan(updates[left]).all(axis=1)
                left = left[~ok[left]]
            with np.errstate(invalid="ignore"):  # of infinite numbers; large finite ones overflow in float32 alone
                sums[left] = updates[left].sum(axis=1, dtype=np.float64)
            ok[left] = np.isfinite(sums[left])

    on_all_cores(work, n, row_bytes)
    most = "" if updates.dtype.itemsize > 2 else f" up to {np.finfo(updates.dtype).max:,.0f}"
    allowed = f"finite numbers{most}" + (", or a whole row of nan for an unknown client" if ids is None else "")
    require_each("updates", sums, ok, allowed, ids=ids)
    return updates


def _sums(rows: Floats) -> Floats:
    """(N,) the sum of each row; einsum adds several times as fast, but float16 in float16."""
    with np.errstate(invalid="ignore"):
        return np.einsum("ij->i", rows) if rows.itemsize > 2 else rows.sum(axis=1, dtype=np.float64)


def check_last_selected(n: int, values: ArrayLike | None, now: int) -> Ints:
    """Rounds before `now`, or -1 for never."""
    if values is None:
        return np.full(n, -1, np.int64)
    last = shaped("last_selected", integers("last_selected", values), (n,))
    ok = (last >= -1) & (last < min(now, LAST_ROUND))
    require_each("last_selected", last, ok, f"-1 for never, or a round before this one ({min(now, LAST_ROUND)})")
    return last


def check_counts(field: str, n: int, values: ArrayLike | None) -> Ints:
    """Counts of 0 or more."""
    if values is None:
        return np.zeros(n, np.int64)
    counts = shaped(field, integers(field, values), (n,))
    require_each(field, counts, (counts >= 0) & (counts < LAST_ROUND), f"0 or more, below {LAST_ROUND}")
    return counts


def check_joined(n: int, values: ArrayLike | None, now: int) -> Ints:
    """Rounds up to `now`."""
    joined = check_counts("joined", n, values)
    require_each("joined", joined, joined <= now, f"a round up to this one ({now})")
    return joined


def check_history(n: int, values: ArrayLike, now: int) -> Ints:
    """Pairs of a round before `now` and a client."""
    pairs = integers("history", values)
    pairs = pairs.reshape(-1, 2) if pairs.size == 0 else pairs
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"history: shape {pairs.shape} is not allowed; allowed: (M, 2), rows of round and client")
    rounds, clients = pairs[:, 0], pairs[:, 1]
    wrong = pairs[(rounds < 0) | (rounds >= now) | (clients < 0) | (clients >= n)]
    if len(wrong):
        raise ValueError(
            f"history: {wrong[0].tolist()} is not allowed; allowed: a round before this one ({now}) and a client "
            f"below {n}"
        )
    return pairs


def check_sizes(n: int, values: ArrayLike | None, *, ids: Ints | None = None) -> Floats:
    """Numbers of training examples."""
    if values is None:
        return np.ones(n)
    sizes = shaped("sizes", numbers("sizes", values, np.float64, booleans=False), (n,))
    allowed = "finite and above 0 (a client without data is an unavailable one)"
    require_each("sizes", sizes, (sizes > 0) & (sizes < np.inf), allowed, ids=ids)
    return sizes


def check_optional(field: str, n: int, values: ArrayLike, *, ids: Ints | None = None) -> Floats:
    """One of the `OPTIONAL` signals as float64, checked; with `ids` they are reports, in which nan is not allowed."""
    array = numbers(field, values, np.float64, booleans=False)
    wide = field in ("label_counts", "bias_updates")
    if array.ndim != 1 + wide or len(array) != n or (wide and array.shape[1] == 0):
        raise ValueError(f"{field}: shape {array.shape} is not allowed; allowed: {f'({n}, C)' if wide else f'({n},)'}")
    ok = np.isfinite(array) & {"durations": array > 0, "bias_updates": True}.get(field, array >= 0)
    unknown = np.isnan(array) if ids is None else np.zeros_like(ok)
    each = (ok.all(axis=1) | unknown.all(axis=1)) if wide else ok | unknown
    least = {"durations": " and above 0", "bias_updates": ""}.get(field, " and 0 or more")
    row = "a whole row of nan" if wide else "nan"
    allowed = f"finite{least}" + (f", or {row} for an unknown client" if ids is None else "")
    require_each(field, array, each, allowed, ids=ids)
    return array


def check_available(n: int, values: ArrayLike | None) -> Bools:
    """Booleans; integers are rejected, since they could be a list of ids."""
    if values is None:
        return np.ones(n, bool)
    available = plain("available", values)
    if available.dtype != np.bool_:
        raise ValueError(f"available: {available.dtype} is not allowed; allowed: booleans, one a client")
    return shaped("available", available, (n,))


def check_distances(n: int, values: ArrayLike) -> tuple[Floats, Floats]:
    """The distances, and the largest of each row (nan if unknown), found in the same pass."""
    distances = shaped("distances", numbers("distances", values, booleans=False), (n, n))
    if distances.dtype == np.float16:  # too narrow to add up in
        distances = distances.astype(np.float32)
    diagonal = np.diagonal(distances)
    known = ~np.isnan(diagonal)
    require_each("distances", diagonal, ~known | (diagonal == 0), "0 to oneself, or nan if unknown")
    part = distances
    if not known.all():
        if not (np.isnan(distances[~known]).all() and np.isnan(distances[:, ~known]).all()):
            raise ValueError("distances: a client with nan to itself must have nan in its whole row and column")
        part = distances[np.ix_(known, known)]
    least, most = _row_extremes(part)
    if not ((least >= 0).all() and (most < np.inf).all()):  # a nan fails both
        raise ValueError("distances: not all finite and 0 or more; allowed: distances, not similarities")
    some = np.arange(0, len(part), -(-len(part) // 64) or 1)  # enough to tell distances from another kind of matrix
    if not np.allclose(part[some], part[:, some].T, rtol=0, atol=1e-5 * most.max(initial=0.0)):
        raise ValueError("distances: not symmetric; allowed: distances[i, j] == distances[j, i], up to rounding")
    farthest = np.full(n, np.nan, distances.dtype)
    farthest[known] = most
    return distances, farthest


def _row_extremes(matrix: Floats) -> tuple[Floats, Floats]:
    """(N,) the least and the largest entry of each row, in one pass over the matrix."""
    row_bytes = matrix.itemsize * len(matrix)
    least, most = np.zeros(len(matrix), matrix.dtype), np.zeros(len(matrix), matrix.dtype)

    def work(part: range) -> None:
        for tile in tiles(part, row_bytes):
            matrix[tile].min(axis=1, out=least[tile])
            matrix[tile].max(axis=1, out=most[tile])

    on_all_cores(work, len(matrix), row_bytes)
    return least, most


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
