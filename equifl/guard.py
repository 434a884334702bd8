"""The guard: what clients say of themselves buys them only so much of the seats.

A client that multiplies its update, its loss or its size looks important to selectors that look for unlike updates,
high losses or large clients. Two rules limit what that is worth, for selection alone:

1. An update longer than `LONGEST` times the typical one counts as typical: its direction stays, its length does not.
   Typical is the median of updates of about the same age, since honest ones become shorter as the model learns.
2. A client that had more than `SHARE` times its share of the seats, and one seat, is not taken at its word until its
   share has fallen. Its loss, its size and a length that is reported by itself count as the least reported, if a share
   is the mean or that of the median client, whichever is less; its update is no longer than typical, if a share is the
   mean. (Some clients are selected often because their updates represent many others. That is no claim, so updates are
   limited later.) So a claim buys nobody more than `SHARE` times the mean, and two seats.

Directions are not judged: see docs/attacks.md for what that leaves open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from equifl._numerics.mapped import own_copy
from equifl._numerics.threads import tiles
from equifl.outliers import clip_outliers, lower_median
from equifl.signals import Bools, Floats, Ints, Signals

LONGEST = 2.0  # times the typical length
SHARE = 1.6  # times the fair share of the seats
_AGES = 5  # groups of updates, from the oldest to the newest, each with a typical length
_FEW = 20  # updates that such a group has at least: of fewer a few false ones would be the median
_TURNS = 20  # of the last seats, as many as select everybody so many times, a share is counted
_LOST = 1e-6  # of a squared distance: what float32 rounds away


def guarded(signals: Signals, *, given_sizes: Floats | None = None) -> Signals:
    """The signals as a selector should see them if some clients exaggerate.

    Updates are copied where any is too long; of a memory-mapped file only the pages that these are in.

    Args:
        signals: as clients reported them.
        given_sizes: (N,) sizes that the server has from elsewhere, nan where it has none. Those are no claims: they
            stay, and a client that is larger than the mean has a larger share.

    >>> signals = Signals(losses=[0.5, 0.6, 0.9, 1e9], updates=[[1.0], [-1.0], [1.5], [1e9]])
    >>> seen = guarded(signals)
    >>> seen.losses.tolist(), seen.updates.tolist()
    ([0.5, 0.6, 0.9, 0.9], [[1.0], [-1.0], [1.5], [1.0]])
    """
    known = np.zeros(signals.n, bool) if given_sizes is None else given_sizes == signals.sizes
    weights = np.where(known, np.maximum(1.0, signals.sizes / signals.sizes.mean()), 1.0)
    over = over_share(signals, weights)
    changed: dict[str, Any] = {
        "losses": _limited(signals.losses, over),
        "sizes": _limited(signals.sizes, over, claimed=~known & (signals.sizes != 1.0)),  # 1 is the default: unknown
    }
    norms = signals.norms
    if norms is not None:
        typical = typical_lengths(norms, signals.last_selected)
        much = over_share(signals, weights, np.mean)
        target = np.where(much | (norms > LONGEST * typical), np.minimum(norms, typical), norms)
        if (target < norms).any():
            changed |= _shortened(signals, norms, target)
        if signals.lengths is not None and signals.updates is None and signals.distances is None:  # a claim by itself
            changed["lengths"] = _lowered(target, ~np.isnan(target), over)
    return replace(signals, **changed)


def median_or_mean(counts: Floats) -> float:
    """Whichever is less: clients that are selected very often raise the mean, clients that never are the median.

    >>> median_or_mean(np.array([1.0, 2.0, 9.0])), median_or_mean(np.array([0.0, 4.0, 5.0]))
    (2.0, 3.0)
    """
    return float(min(np.median(counts), np.mean(counts)))


def over_share(signals: Signals, weights: Floats, typical: Callable[[Floats], Any] = median_or_mean) -> Bools:
    """(N,) who had more than `SHARE` times a fair share of the last seats, and one seat more.

    A fair share is the `typical` number of selections of the clients that are available now, in proportion to the
    rounds since a client joined, times `weights`.

    >>> history = [(0, 1), (1, 1), (0, 0), (1, 2)]
    >>> over_share(Signals(losses=[1.0, 1.0, 1.0], history=history, round=4), np.ones(3)).tolist()
    [False, False, False]
    >>> over_share(Signals(losses=[1.0, 1.0, 1.0], history=[*history, (4, 1)], round=5), np.ones(3)).tolist()
    [False, True, False]
    """
    counts, first = signals.times_selected, 0
    if signals.history is not None:
        recent = signals.history[-_TURNS * signals.n :]
        counts = np.bincount(recent[:, 1], minlength=signals.n)
        first = int(recent[:, 0].min(initial=signals.round))
    rounds = max(1, signals.round - first)
    present = np.clip((signals.round - np.maximum(signals.joined, first)) / rounds, 1 / rounds, 1.0)
    among = signals.available if signals.available.any() else np.ones(signals.n, bool)
    fair = float(typical((counts / present)[among]))
    return counts > SHARE * fair * present * weights + 1


def typical_lengths(norms: Floats, last_selected: Ints) -> Floats:
    """(N,) the lower median of the lengths of updates of about the same age; infinity if it is 0 or unknown.

    >>> typical_lengths(np.array([1.0, 3.0, 2.0, np.nan]), np.array([0, 1, 2, -1])).tolist()
    [2.0, 2.0, 2.0, inf]
    """
    typical = np.full(len(norms), np.inf)
    ids = np.flatnonzero(norms > 0)
    ids = ids[np.argsort(last_selected[ids], kind="stable")]
    ends = np.append(np.flatnonzero(np.diff(last_selected[ids])) + 1, len(ids))  # those of one age stay together
    least, start = max(_FEW, len(ids) // _AGES), 0
    for end in ends.tolist():
        if end == len(ids) or min(end - start, len(ids) - end) >= least:
            group, start = ids[start:end], end
            typical[group] = lower_median(norms[group]) if len(group) else np.inf
    return typical


def _limited(values: Floats, over: Bools, claimed: Bools | None = None) -> Floats:
    """The values with outliers clipped, and those of clients over their share lowered to the least."""
    claims = ~np.isnan(values) if claimed is None else claimed
    limited = values.copy()
    if claims.any():
        limited[claims] = clip_outliers(values[claims])
    return _lowered(limited, claims, over)


def _lowered(values: Floats, claims: Bools, over: Bools) -> Floats:
    """The values, those of clients over their share lowered to the least of the claims."""
    least = values[claims].min(initial=np.inf)
    return np.where(claims & over, least, values)


def _shortened(signals: Signals, norms: Floats, target: Floats) -> dict[str, Any]:
    """Updates, their distances and what else goes with them, after lengths were reduced to `target`."""
    far = np.flatnonzero(target < norms)
    factor = np.ones(signals.n)
    factor[far] = target[far] / norms[far]
    changed: dict[str, Any] = {}
    for name in ("updates", "bias_updates"):
        rows = getattr(signals, name)
        if rows is not None:
            changed[name] = own_copy(rows)
            for tile in tiles(range(len(far)), 8 * rows.shape[1]):
                changed[name][far[tile]] = rows[far[tile]] * factor[far[tile], None]
    if signals.lengths is not None:
        changed["lengths"] = target
    if signals.distances is not None:
        changed["distances"] = shortened_distances(signals.distances, norms, factor, far)
    return changed


def shortened_distances(distances: Floats, norms: Floats, factor: Floats, far: Ints) -> Floats:
    """Distances between updates of these lengths after those of the clients `far` were multiplied by their factors.

    |s u - t v|^2 = s t |u - v|^2 + s (s - t) |u|^2 + t (t - s) |v|^2. Where `distances` have lost the angle, because
    one update is very much longer, a right angle is assumed.

    >>> corner = np.array([[0.0, 10.0], [10.0, 0.0]])  # of (6, 0) and (0, 8)
    >>> shortened_distances(corner, np.array([6.0, 8.0]), np.array([0.5, 0.5]), np.array([0, 1])).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    s, t = factor[far, None], factor
    mine, others = (factor * norms)[far, None], factor * norms
    scaled = s * t * distances[far].astype(np.float64) ** 2
    with np.errstate(invalid="ignore"):  # of unknown clients
        squared = scaled + s * (s - t) * norms[far, None] ** 2 + t * (t - s) * norms**2
        squared = np.where(_LOST * scaled > mine * others, mine**2 + others**2, squared)
    found = np.sqrt(np.clip(squared, (mine - others) ** 2, (mine + others) ** 2))
    found[np.arange(len(far)), far] = 0.0
    shortened = distances.copy()
    shortened[far] = found
    shortened[:, far] = found.T
    return shortened
