"""Cosine similarities and angles between clients' updates."""

from __future__ import annotations

import numpy as np

from equifl._numerics.distances import centred_products
from equifl._numerics.threads import tiles
from equifl.signals import Floats, Ints, Signals


def cosines(signals: Signals, ids: Ints) -> Floats:
    """(m, m) cosines of the angles between the updates of these clients.

    An update of 0 has a right angle to all others. From distances they follow if `lengths` are given; else they are
    those of the updates less their mean, since distances do not say where 0 is.

    >>> cosines(Signals(updates=[[1.0, 0.0], [2.0, 2.0], [0.0, 0.0]]), np.arange(3)).astype(float).round(1).tolist()[1]
    [0.7, 1.0, 0.0]
    """
    if signals.distances is None:
        assert signals.updates is not None
        return row_cosines(signals.updates, ids)
    if signals.lengths is not None:
        found = _from_lengths(signals.distances[np.ix_(ids, ids)], signals.lengths[ids])
    else:
        products = centred_products(signals)(ids, ids)
        roots = np.sqrt(_above_zero(np.diagonal(products)))
        found = products / roots[:, None] / roots
    return _bounded(found)


def row_cosines(rows: Floats, ids: Ints) -> Floats:
    """(m, m) cosines of the angles between these rows, in float32; a row of 0 has a right angle to all others.

    >>> row_cosines(np.array([[1e300, 0.0], [1e-300, 1e-300]]), np.arange(2)).astype(float).round(1).tolist()
    [[1.0, 0.7], [0.7, 1.0]]
    """
    units = np.empty((len(ids), rows.shape[1]), np.float32)
    for tile in tiles(range(len(ids)), rows.itemsize * rows.shape[1]):
        part = rows[ids[tile]]
        part = part.astype(np.result_type(part, np.float32), copy=False)
        # Before float32, so that nothing overflows there; and squares neither overflow nor vanish.
        units[tile] = part / _above_zero(np.abs(part).max(axis=1, initial=0))[:, None]
    units /= _above_zero(np.sqrt(np.einsum("ij,ij->i", units, units)))[:, None]
    return _bounded(units @ units.T)


def angles(signals: Signals, ids: Ints) -> Floats:
    """(m, m) angles between the updates of these clients, from 0 to pi."""
    found = cosines(signals, ids)
    return np.arccos(found, out=found)


def _from_lengths(apart: Floats, lengths: Floats) -> Floats:
    """Cosines from distances and lengths, by the law of cosines."""
    divisors = _above_zero(lengths)
    with np.errstate(
        divide="ignore", over="ignore", invalid="ignore"
    ):  # ratios of lengths may be extreme: see `again`
        ratios = divisors[:, None] / divisors
        found = (ratios + 1 / ratios - (apart / divisors[:, None]) * (apart / divisors)) / 2
        again = np.nonzero(~np.isfinite(found))
        a, b = divisors[again[0]], divisors[again[1]]
        longer, shorter, d = np.maximum(a, b), np.minimum(a, b), apart[again]
        # a^2 - d^2 = (a - d) (a + d): a product that may be infinite, but not 0 times infinity.
        found[again] = ((longer - d) / shorter * (1 + d / longer) + shorter / longer) / 2
    zero = lengths == 0
    found[zero], found[:, zero] = 0.0, 0.0
    return found


def _bounded(found: Floats) -> Floats:
    """Cosines without what rounding adds."""
    np.clip(found, -1.0, 1.0, out=found)
    np.fill_diagonal(found, 1.0)
    return found


def _above_zero(values: Floats) -> Floats:
    """The values, with 1 in place of what nothing can be divided by."""
    return np.where(values > 0, values, 1)
