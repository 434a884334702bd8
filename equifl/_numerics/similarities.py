"""Cosine similarities and angles between clients' updates."""

from __future__ import annotations

import numpy as np

from equifl._numerics.distances import centred_products
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
        rows = signals.updates[ids].astype(np.float32)
        rows /= _above_zero(np.abs(rows).max(axis=1, initial=0))[:, None]  # squares neither overflow nor vanish
        rows /= _above_zero(np.sqrt(np.einsum("ij,ij->i", rows, rows)))[:, None]
        found = rows @ rows.T
    elif signals.lengths is not None:
        lengths = _above_zero(signals.lengths[ids])
        ratios = lengths[:, None] / lengths
        apart = signals.distances[np.ix_(ids, ids)]
        found = (ratios + 1 / ratios - (apart / lengths[:, None]) * (apart / lengths)) / 2
        zero = signals.lengths[ids] == 0
        found[zero], found[:, zero] = 0.0, 0.0
    else:
        products = centred_products(signals)(ids, ids)
        roots = np.sqrt(_above_zero(np.diagonal(products)))
        found = products / roots[:, None] / roots
    np.clip(found, -1.0, 1.0, out=found)
    np.fill_diagonal(found, 1.0)
    return found


def angles(signals: Signals, ids: Ints) -> Floats:
    """(m, m) angles between the updates of these clients, from 0 to pi."""
    found = cosines(signals, ids)
    return np.arccos(found, out=found)


def _above_zero(values: Floats) -> Floats:
    """The values, with 1 in place of what nothing can be divided by."""
    return np.where(values > 0, values, 1)
