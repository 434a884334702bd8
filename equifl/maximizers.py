"""Four greedy algorithms that choose k elements of a set function. Ties go to the lowest index."""

from __future__ import annotations

from collections import deque

import numpy as np

from equifl._numerics.checks import generator, integer, integers
from equifl.objectives import SetFunction, State
from equifl.signals import Bools, Floats, Ints

_FIRST_BATCH = 16  # stale gains renewed at first by lazy greedy; each further batch of the step is 4 times as large
_AHEAD = 32  # steps for which stochastic greedy draws at a time, so that their gains can be prepared together


def greedy(function: SetFunction, k: int, *, candidates: Ints | None = None) -> Ints:
    """At each step the candidate with the largest gain (eq. 16): the simple version, kept as reference.

    For a monotone function its value is at least 1 - 1/e of the best k elements'. If a function is not
    monotone it still fills up to k, as all of them do but `random_greedy`.

    Args:
        function: what to maximise.
        k: how many to choose; all candidates if there are fewer.
        candidates: elements to choose from (default: the whole ground set).

    Returns:
        The chosen elements, in the order of choice.

    >>> from equifl.objectives import Modular
    >>> greedy(Modular([1.0, 3.0, 3.0]), 2).tolist()
    [1, 2]
    """
    left = _sorted(function, candidates)
    state = function.init()
    chosen: list[int] = []
    for _ in range(min(integer("k", k, least=0), len(left))):
        best = int(np.argmax(_gains(function, state, left)))  # the first of equals
        chosen.append(int(left[best]))
        state = function.update(state, chosen[-1])
        left = np.delete(left, best)
    return np.array(chosen, np.int64)


def lazy_greedy(function: SetFunction, k: int, *, candidates: Ints | None = None) -> Ints:
    """What `greedy` chooses, with a fraction of its evaluations; arguments as there.

    Gains only shrink as the set grows, so a gain computed earlier is an upper bound now (Minoux 1978).
    At each step the largest bounds are renewed, a batch at a time, until the largest of all is a fresh one.

    >>> from equifl.objectives import Modular
    >>> lazy_greedy(Modular([1.0, 3.0, 3.0]), 2).tolist()
    [1, 2]
    """
    left = _sorted(function, candidates)
    state = function.init()
    chosen: list[int] = []
    bounds = _gains(function, state, left).astype(np.float64)
    fresh = np.ones(len(left), bool)
    for _ in range(min(integer("k", k, least=0), len(left))):
        best = _renew(function, state, left, bounds, fresh)
        chosen.append(int(left[best]))
        state = function.update(state, chosen[-1])
        bounds[best] = -np.inf
        fresh[:] = False
    return np.array(chosen, np.int64)


def _renew(function: SetFunction, state: object, left: Ints, bounds: Floats, fresh: Bools) -> int:
    """Renew bounds in place until the largest is fresh; its position."""
    batch = _FIRST_BATCH
    while True:
        best = int(np.argmax(bounds))
        if fresh[best]:
            return best
        # No element below the largest fresh gain can be chosen in this step.
        floor = bounds[fresh].max(initial=-np.inf)
        stale = np.flatnonzero(~fresh & (bounds >= floor) & (bounds > -np.inf))
        if len(stale) > batch:
            stale = np.sort(stale[np.argpartition(-bounds[stale], batch)[:batch]])
        bounds[stale] = _gains(function, state, left[stale])
        fresh[stale] = True
        batch *= 4


def stochastic_greedy(
    function: SetFunction,
    k: int,
    *,
    sample: int,
    rng: np.random.Generator | int | None,
    candidates: Ints | None = None,
) -> Ints:
    """At each step the best of `sample` candidates drawn afresh from those not chosen (eq. 17).

    Only `sample` gains a step are computed. With `sample` >= the number of candidates it is `greedy`.

    >>> from equifl.objectives import Modular
    >>> stochastic_greedy(Modular([1.0, 3.0, 2.0]), 3, sample=3, rng=np.random.default_rng(0)).tolist()
    [1, 2, 0]
    """
    sample = integer("sample", sample, least=1)
    random = generator(rng)
    left = _sorted(function, candidates).copy()
    state = function.init()
    chosen: list[int] = []
    draws: deque[Ints] = deque()  # of the next steps, as positions in `left`
    sizes = range(len(left), max(0, len(left) - integer("k", k, least=0)), -1)
    for step, size in enumerate(sizes):
        if not draws:
            ahead = sizes[step : step + _AHEAD]
            draws.extend(random.choice(now, min(sample, now), replace=False, shuffle=False) for now in ahead)
        function.foresee(left[drawn] for drawn in draws)
        drawn = draws.popleft()
        drawn = drawn[np.argsort(left[drawn])]
        best = drawn[int(np.argmax(_gains(function, state, left[drawn])))]
        chosen.append(int(left[best]))
        state = function.update(state, chosen[-1])
        left[best] = left[size - 1]  # the last one moves into the gap: the first size - 1 are those left
    return np.array(chosen, np.int64)


def random_greedy(
    function: SetFunction, k: int, *, rng: np.random.Generator | int | None, candidates: Ints | None = None
) -> Ints:
    """At each step one at random of the k largest gains (Buchbinder, Feldman, Naor, Schwartz 2014).

    For a function that is not monotone it has the guarantee that greedy lacks: in expectation at least 1/e of the
    best value of at most k elements (1 - 1/e if the function is monotone). Elements that
    would lower the value are replaced by empty slots; drawing one adds nothing, so it may return fewer than k.

    >>> from equifl.objectives import Modular
    >>> 1 in random_greedy(Modular([1.0, -3.0, 2.0]), 3, rng=np.random.default_rng(0))
    False
    """
    k, random = integer("k", k, least=0), generator(rng)
    left = _sorted(function, candidates)
    state = function.init()
    chosen: list[int] = []
    for _ in range(k):
        gains = _gains(function, state, left)
        best = np.argsort(-gains, kind="stable")[:k]
        drawn = int(random.integers(k))
        if drawn < len(best) and gains[best[drawn]] > 0:
            chosen.append(int(left[best[drawn]]))
            state = function.update(state, chosen[-1])
            left = np.delete(left, best[drawn])
    return np.array(chosen, np.int64)


def _sorted(function: SetFunction, candidates: Ints | None) -> Ints:
    """The candidates by rising index, so that the first of equals is the lowest index."""
    if candidates is None:
        return np.arange(function.n)
    elements = integers("candidates", candidates)
    if not (elements[1:] > elements[:-1]).all():
        elements = np.unique(elements)
    if len(elements) and not (elements[0] >= 0 and elements[-1] < function.n):
        wrong = elements[(elements < 0) | (elements >= function.n)][0]
        raise ValueError(f"candidates: {wrong} is not allowed; allowed: 0 to {function.n - 1}")
    return elements


def _gains(function: SetFunction, state: State, candidates: Ints) -> Floats:
    """The gains; a ValueError if one is nan, since nan has no order."""
    gains = function.gains(state, candidates)
    if np.isnan(gains).any():
        raise ValueError(f"gains: nan for element {candidates[np.isnan(gains)][0]}; allowed: numbers")
    return gains
