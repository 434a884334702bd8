"""Draws without replacement that give every client a chosen probability of selection."""

from __future__ import annotations

import numpy as np

from equifl.signals import Floats, Ints


def inclusion_probabilities(weights: Floats, k: int) -> Floats:
    """(n,) p_i = min(1, c w_i), with c such that they sum to k: as near to proportional as probabilities can be.

    With all weights 0, or as many clients as places, all are alike.

    >>> inclusion_probabilities(np.array([6.0, 1.0, 1.0]), 2).tolist()
    [1.0, 0.5, 0.5]
    """
    n = len(weights)
    if k >= n:
        return np.ones(n)
    largest = weights.max(initial=0.0)
    shares = weights / largest if largest > 0 else np.ones(n)
    positive = int((shares > 0).sum())
    if positive <= k:  # all who weigh anything are sure; the other places are for any of the rest
        return np.where(shares > 0, 1.0, (k - positive) / max(1, n - positive))
    order = np.argsort(-shares, kind="stable")
    left = np.cumsum(shares[order][::-1])[::-1]  # the sum of a weight and of those after it
    # The first `sure` are certain if the next would still be below 1: (k - sure) w / (sum of the rest) < 1.
    sure = int(np.argmax((k - np.arange(n)) * shares[order] < left))
    found = np.ones(n)
    found[order[sure:]] = np.minimum(1.0, (k - sure) * shares[order[sure:]] / left[sure])
    return found


def pivotal(probabilities: Floats, rng: np.random.Generator) -> Ints:
    """Positions drawn with these probabilities, which sum to a whole number: so many of them.

    The ordered pivotal method (Deville and Tillé 1998; Chauvet 2012): neighbours on the line play for the sum of their
    probabilities. Lay probabilities end to end: of every unit interval one is drawn, and one that lies in two
    intervals is not drawn twice.

    >>> pivotal(np.array([0.5, 0.5, 1.0, 0.5, 0.5]), np.random.default_rng(0)).tolist()
    [0, 2, 4]
    """
    chosen, holder, held = [], -1, 0.0
    draws = rng.random(len(probabilities))
    for position, (own, draw) in enumerate(zip(probabilities.tolist(), draws.tolist(), strict=True)):
        total = held + own
        if total < 1 - 1e-9:  # one of the two keeps all, the other is out
            if draw * total >= held:
                holder = position
            held = total
        else:  # one of the two is drawn, the other keeps what is left
            rest = max(0.0, total - 1)
            wins = draw * (1 - rest) < 1 - own  # of the holder; certain if the newcomer has nothing of this unit
            first, second = (holder, position) if holder >= 0 and wins else (position, holder)
            chosen.append(first)
            holder, held = (second, rest) if rest > 1e-9 else (-1, 0.0)
    if held > 0.5:  # rounding
        chosen.append(holder)
    return np.array(chosen, np.int64)
