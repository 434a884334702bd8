"""Partitions of a data set into clients, iid or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl._numerics.checks import integer, is_number, keywords, known, require
from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset, Ids, incomplete_clients
from equifl.sim.data.strata import Strata, strata

_NOBODY = -1
_LEAST = 10  # training examples that `sizes="lognormal"` leaves a client
_STEPS = 10  # test examples with which an accuracy has steps of 10 points


@dataclass(frozen=True, eq=False)
class Partition:
    """The examples of each client; no two clients share one, and some examples may be left over.

    Args:
        train: for each client the indices of its training examples, in order.
        test: for each client those of its test examples, of the classes that it trains on.

    >>> from equifl.sim.data import load_dataset
    >>> digits = load_dataset("digits")
    >>> partition = split("classes", digits, 20, classes_per_client=2, rng=np.random.default_rng(0))
    >>> np.unique(digits.y_train[partition.train[0]]), np.unique(digits.y_test[partition.test[0]])
    (array([1, 4]), array([1, 4]))
    """

    train: tuple[Ints, ...]
    test: tuple[Ints, ...]


def split(kind: str, dataset: Dataset, clients: int, *, rng: np.random.Generator, **options: Any) -> Partition:
    """Partition the data set into this many clients.

    Args:
        kind: one of `KINDS`. "classes": everybody has `classes_per_client` (3) classes, in equal shards of each.
            "dirichlet": the clients' shares of each class are drawn from Dirichlet(`alpha` = 0.5), nobody has
            fewer than `least` (10) examples. "shards": sorted by label, cut into equal shards, and
            `shards_per_client` (2) dealt to everyone. "iid": equal parts at random. "natural": the data set's own,
            with `drop_incomplete` (False) without those who have no training or no test examples. Where numbers are
            predicted, classes are the tenths that these are in (`strata`).
        dataset: what to cut.
        clients: how many.
        rng: decides who gets what.
        options: as above; and for "classes" and "iid" `sizes`, which is "equal" or, to leave some with fewer
            training examples than others, "lognormal" with deviation `size_sigma` (1.0).
    """
    known(f"{kind} option", options, options_of(kind))
    n = integer("clients", clients, least=1)
    owners = KINDS[kind](strata(kind, dataset), n, rng, **options)
    return Partition(*(_by_owner(owner, n) for owner in owners))


def options_of(kind: str) -> tuple[str, ...]:
    """The options that `split` takes for this kind."""
    known("partition", [kind], KINDS)
    return keywords(KINDS[kind])


def _classes(
    dataset: Strata,
    clients: int,
    rng: np.random.Generator,
    *,
    classes_per_client: int = 3,
    sizes: str = "equal",
    size_sigma: float = 1.0,
) -> tuple[Ints, Ints]:
    c, classes = integer("classes_per_client", classes_per_client, least=1), dataset.classes
    require("classes_per_client", c, c <= classes, f"1 to {classes}, the number of classes")
    step = classes // gcd(c, classes)
    even = f"a multiple of {step}, so that {classes} classes come out even at {c} a client"
    require("clients", clients, clients % step == 0, even)
    shards = clients * c // classes  # of every class
    splits = []
    for name, y in (("training", dataset.y_train), ("test", dataset.y_test)):
        members = np.bincount(y, minlength=classes)
        fewest = int(members.argmin())
        most = f"at most {members[fewest] * classes // c}, as class {fewest} has {members[fewest]} {name} examples"
        require("clients", clients, shards <= members[fewest], most)
        splits.append((y, members // shards))
    has = _dealt_classes(clients, classes, c, rng)
    train, test = (_dealt_examples(y, has * each, rng) for y, each in splits)
    return _sized(train, dataset, clients, rng, sizes, size_sigma, least=max(c, _LEAST)), test


def _dealt_classes(clients: int, classes: int, c: int, rng: np.random.Generator) -> Ints:
    """(clients, classes) 1 where a client has a class: c in every row, the same number in every column.

    Like dealing from a shuffled pack without giving anyone a class twice, but a class with as many shards left
    as clients are still to be served must go to each of them. That is enough never to get stuck: then no
    class has more shards left than there are clients, and so at least c classes have some.
    """
    has = np.zeros((clients, classes), np.int64)
    left = np.full(classes, clients * c // classes)
    for served, client in enumerate(rng.permutation(clients)):
        arrivals = rng.exponential(size=classes) / np.maximum(left, 1)  # in proportion to what is left of each
        arrivals[left == 0] = np.inf
        arrivals[left == clients - served] = -1
        chosen = np.argsort(arrivals)[:c]
        has[client, chosen] = 1
        left[chosen] -= 1
    return has


def _dirichlet(
    dataset: Strata, clients: int, rng: np.random.Generator, *, alpha: float = 0.5, least: int = 10
) -> tuple[Ints, Ints]:
    require("alpha", alpha, is_number(alpha) and 0 < alpha < 1e100, "above 0, below 1e100")
    integer("least", least, least=1)
    examples = len(dataset.y_train)
    most = f"at most {examples // least}, as there are {examples} training examples for at least {least} each"
    require("clients", clients, clients * least <= examples, most)
    shares = rng.dirichlet(np.full(clients, alpha), dataset.classes).T
    counts = _apportioned(np.bincount(dataset.y_train, minlength=dataset.classes), shares)
    _top_up(counts, least, wishes=shares)
    return _dealt_examples(dataset.y_train, counts, rng), _test_like(counts, dataset, rng)


def _shards(
    dataset: Strata, clients: int, rng: np.random.Generator, *, shards_per_client: int = 2
) -> tuple[Ints, Ints]:
    """Of McMahan et al. 2017; the remainder that is left over is a random one, so that no class pays for it."""
    each, y = integer("shards_per_client", shards_per_client, least=1), dataset.y_train
    most = f"at most {len(y) // each}, as there are {len(y)} training examples for {each} shards each"
    require("clients", clients, clients * each <= len(y), most)
    size = len(y) // (clients * each)
    used = rng.permutation(len(y))[: clients * each * size]
    by_label = used[np.argsort(y[used], kind="stable")]
    owner = np.full(len(y), _NOBODY)
    owner[by_label] = np.repeat(rng.permutation(np.repeat(np.arange(clients), each)), size)
    pairs = owner[used] * dataset.classes + y[used]
    counts = np.bincount(pairs, minlength=clients * dataset.classes).reshape(clients, dataset.classes)
    return owner, _test_like(counts, dataset, rng)


def _iid(
    dataset: Strata, clients: int, rng: np.random.Generator, *, sizes: str = "equal", size_sigma: float = 1.0
) -> tuple[Ints, Ints]:
    owners = []
    for name, y in (("training", dataset.y_train), ("test", dataset.y_test)):
        require("clients", clients, clients <= len(y), f"at most {len(y)}, the number of {name} examples")
        size = len(y) // clients
        owner = np.full(len(y), _NOBODY)
        owner[rng.permutation(len(y))[: clients * size]] = np.repeat(np.arange(clients), size)
        owners.append(owner)
    train, test = owners
    return _sized(train, dataset, clients, rng, sizes, size_sigma, least=_LEAST), test


def _natural(
    dataset: Strata, clients: int, rng: np.random.Generator, *, drop_incomplete: bool = False
) -> tuple[Ints, Ints]:
    names = natural_clients(dataset, drop_incomplete=drop_incomplete)
    allowed = f"{len(names)}, the natural clients of {dataset.name}; or leave clients out"
    require("clients", clients, clients == len(names), allowed)
    train, test = (_place(owners, names) for owners in (dataset.owners_train, dataset.owners_test))
    return train, test


def natural_clients(dataset: Dataset | Strata, *, drop_incomplete: bool = False) -> Ids:
    """The ids of a data set's own clients, in order: those with training and test examples, if not all have both."""
    require("drop_incomplete", drop_incomplete, isinstance(drop_incomplete, bool), "True or False")
    if dataset.owners_train is None or dataset.owners_test is None:
        raise ValueError(f"partition: 'natural' is not allowed for {dataset.name}, which has no natural clients")
    incomplete = incomplete_clients(dataset.owners_train, dataset.owners_test)
    complete: Ids = np.intersect1d(dataset.owners_train, dataset.owners_test)
    if incomplete and not (drop_incomplete and len(complete)):
        raise ValueError(incomplete)
    return complete


def few_tested(tests: Sequence[Ints]) -> str:
    """How many clients have too few test examples to distinguish accuracies, in words; "" if none has.

    Args:
        tests: how many test examples each client has, for every seed.

    >>> few_tested([np.array([9, 20, 30]), np.array([5, 5, 49])])
    '1 to 2 of 3 clients have fewer than 10 test examples: each scores in steps of more than 10 points'
    """
    counts = sorted({int((sizes < _STEPS).sum()) for sizes in tests})
    if not counts[-1]:
        return ""
    some = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    have = "has" if some == "1" else "have"
    steps = f"each scores in steps of more than {100 // _STEPS} points"
    return f"{some} of {len(tests[0])} clients {have} fewer than {_STEPS} test examples: {steps}"


def _place(owners: Ids | None, names: Ids) -> Ints:
    """Where each owner is among the sorted names; nobody's if it is not there."""
    assert owners is not None, "natural_clients refuses a data set without owners"
    place = np.minimum(np.searchsorted(names, owners), len(names) - 1)
    return np.where(names[place] == owners, place, _NOBODY)


KINDS: dict[str, Callable[..., tuple[Ints, Ints]]] = {
    "classes": _classes,
    "dirichlet": _dirichlet,
    "shards": _shards,
    "iid": _iid,
    "natural": _natural,
}


def _by_owner(owner: Ints, clients: int) -> tuple[Ints, ...]:
    order = np.argsort(owner, kind="stable")
    cuts = np.searchsorted(owner[order], np.arange(clients + 1))
    return tuple(order[start:stop] for start, stop in pairwise(cuts))


def _dealt_examples(y: Ints, counts: Ints, rng: np.random.Generator) -> Ints:
    """Whose each example is, at random, if client i is to have counts[i, k] of class k."""
    owner = np.full(len(y), _NOBODY)
    for label, column in enumerate(counts.T):
        whose = np.repeat(np.arange(len(counts)), column)
        owner[rng.permutation(np.flatnonzero(y == label))[: len(whose)]] = whose
    return owner


def _test_like(train_counts: Ints, dataset: Strata, rng: np.random.Generator) -> Ints:
    """Cut the test split in the proportions of the training split, class by class, with one example each at least."""
    counts = _apportioned(np.bincount(dataset.y_test, minlength=dataset.classes), train_counts)
    clients, examples = len(counts), counts.sum()
    most = f"at most {examples}, the number of test examples of the classes trained on"
    require("clients", clients, clients <= examples, most)
    _top_up(counts, 1, wishes=train_counts)
    return _dealt_examples(dataset.y_test, counts, rng)


def _apportioned(members: Ints, shares: NDArray[Any]) -> Ints:
    """(clients, classes) how many of each class everyone gets; a client without a share of a class gets none of it."""
    ends = np.cumsum(shares, axis=0)
    ends = ends / np.where(ends[-1] > 0, ends[-1], 1)  # the last is exactly 1
    counts: Ints = np.floor(ends * members).astype(np.int64)
    counts[1:] -= counts[:-1].copy()
    return counts


def _top_up(counts: Ints, least: int, *, wishes: NDArray[Any]) -> None:
    """Move examples to those with fewer than `least` from those with more, of the class they would have most of.

    Drawing again until nobody has too few would never end with many clients; this always does, and touches nobody
    but the poorest and their donors. Who wishes for what nobody can spare gets something else.
    """
    sizes = counts.sum(axis=1)
    for poor in np.flatnonzero(sizes < least):
        while sizes[poor] < least:
            spare = np.where((sizes > least)[:, None], counts, 0)
            label = np.where(spare.any(axis=0), wishes[poor], -1).argmax()
            rich = spare[:, label].argmax()
            moved = min(least - sizes[poor], sizes[rich] - least, counts[rich, label])
            counts[[poor, rich], label] += [moved, -moved]
            sizes[[poor, rich]] += [moved, -moved]


def _sized(
    owner: Ints, dataset: Strata, clients: int, rng: np.random.Generator, sizes: str, sigma: float, *, least: int
) -> Ints:
    """If sizes are to be lognormal, leave every client a part of its examples, and the largest client all."""
    require("sizes", sizes, sizes in ("equal", "lognormal"), "'equal' or 'lognormal'")
    require("size_sigma", sigma, is_number(sigma) and 0 < sigma < 1e6, "above 0, below 1e6")
    if sizes == "equal":
        return owner
    logs = sigma * rng.normal(size=clients)
    has = np.bincount(owner[owner != _NOBODY], minlength=clients)
    keep = np.maximum(np.rint(np.exp(logs - logs.max()) * has), least)
    order = rng.permutation(np.flatnonzero(owner != _NOBODY))
    later = np.ones(len(order), bool)  # one example of each class comes first, so that no client loses a class
    later[np.unique(owner[order] * dataset.classes + dataset.y_train[order], return_index=True)[1]] = False
    order = order[np.lexsort((later, owner[order]))]
    whose = owner[order]
    rank = np.arange(len(order)) - np.searchsorted(whose, whose)
    fewer = np.full_like(owner, _NOBODY)
    fewer[order[rank < keep[whose]]] = whose[rank < keep[whose]]
    return fewer
