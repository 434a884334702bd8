"""synthetic(alpha, beta) of FedProx: clients whose models and inputs differ by alpha and beta."""

from __future__ import annotations

import numpy as np

from equifl._numerics.checks import integer, is_number, require
from equifl.sim.data.dataset import Dataset, cut, every_nth, standardised
from equifl.sim.memory import Part, require_room

_MEAN = 453  # examples of a client, where `largest` takes none away


def make_synthetic(
    *,
    clients: int = 30,
    alpha: float = 1.0,
    beta: float = 1.0,
    iid: bool = False,
    largest: int = 2000,
    seed: int = 0,
) -> Dataset:
    """synthetic(alpha, beta) of FedProx: client k labels x with argmax(W_k x + b_k).

    W_k, b_k ~ N(u_k, 1) with u_k ~ N(0, alpha): how much their models differ. x ~ N(v_k, diag(j^-1.2)) with
    v_k ~ N(B_k, 1), B_k ~ N(0, beta): how much their inputs do. If `iid`, all share one W and b, and v = 0.
    Nobody has more than `largest` examples. A client stays the same when others are added.
    """
    integer("clients", clients, least=1)
    integer("seed", seed, least=0)
    integer("largest", largest, least=5)  # every fifth is for testing
    for field, value in (("alpha", alpha), ("beta", beta)):
        require(field, value, is_number(value) and 0 <= value <= 1e30, "0 or more, up to 1e30")
    require("iid", iid, isinstance(iid, bool), "True or False")
    require_room([Part("the data", clients * (1500 + 770 * min(_MEAN, largest)), "clients, data.largest")])
    features, classes = 60, 10
    parts = []
    for client in range(clients):
        rng = np.random.default_rng([seed, 1 + client])
        u, B = (0.0, 0.0) if iid else rng.normal(0, [alpha, beta])
        v = np.zeros(features) if iid else rng.normal(B, 1, features)
        models = np.random.default_rng([seed, 0]) if iid else rng
        W, b = models.normal(u, 1, (features, classes)), models.normal(u, 1, classes)
        size = min(int(rng.lognormal(4, 2)) + 50, largest)
        x = rng.normal(v, np.arange(1, features + 1) ** -0.6, (size, features))
        parts.append((x.astype(np.float32), (x @ W + b).argmax(axis=1), np.full(size, client)))
    x, y, owners = (np.concatenate(part) for part in zip(*parts, strict=True))
    return standardised(cut("synthetic", x, y, every_nth(5, owners), classes=classes, owners=owners))
