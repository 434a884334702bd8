"""How evenly a model serves its clients, how evenly they take part, and the traffic of a round.

Longer than 300 lines because every measure has its formula and an example here, in one place.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equifl._numerics.checks import integer, integers, require, require_each, vector
from equifl.signals import OPTIONAL

Values: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]


def fairness(values: ArrayLike, *, percent: bool = True) -> dict[str, float]:
    """Fairness of performance, from one accuracy in [0, 1] a client; in points of a percent, but for `jain`.

    Where they are no accuracies (`percent=False`), any scores are taken, more is better, and all is in their unit.

    >>> {name: round(value, 2) for name, value in fairness([0.5, 0.75, 1.0]).items()}
    {'accuracy_mean': 75.0, 'dissimilarity': 33.33, 'std': 20.41, 'gap': 50.0, 'worst10': 50.0, 'best10': 100.0,
     'jain': 0.93}
    """
    given = _per_client("values", values)
    if percent:
        require_each("values", given, (given >= 0) & (given <= 1), "accuracies from 0 to 1")
    scores = 100 * given if percent else given
    found = {
        "accuracy_mean" if percent else "score_mean": float(scores.mean()),
        "dissimilarity": dissimilarity(scores),
        "std": std(scores),
        "gap": gap(scores),
        "worst10": worst(scores),
        "best10": best(scores),
    }
    return found | ({"jain": jain(given)} if percent else {})


def participation(counts: ArrayLike, cohorts: Sequence[ArrayLike]) -> dict[str, float]:
    """Fairness of participation, from how often each client was selected and from each round's cohort.

    >>> participation([2, 1, 1, 0], [[0, 1], [0, 2]])
    {'gini': 0.375, 'jain': 0.6666666666666666, 'entropy': 0.75, 'never': 1.0, 'longest_wait': 2.0}
    """
    selected = _counts(counts)
    return {
        "gini": gini(selected),
        "jain": jain(selected),
        "entropy": entropy(selected),
        "never": float(never(selected)),
        "longest_wait": float(longest_wait(cohorts, len(selected))),
    }


def dissimilarity(values: ArrayLike) -> float:
    """Mean absolute difference between two clients: 2 / (N (N - 1)) * sum over i < j of |a_i - a_j|; 0 for one client.

    >>> dissimilarity([1, 7, 4])
    4.0
    """
    given = _per_client("values", values)
    n = len(given)
    return 2 * _sum_over_pairs(given) / (n * (n - 1)) if n > 1 else 0.0


def std(values: ArrayLike) -> float:
    """Standard deviation over all clients: sqrt(1/N * sum_i (a_i - mean)^2).

    >>> std([1, 1, 5, 5])
    2.0
    """
    return float(_per_client("values", values).std())


def gap(values: ArrayLike) -> float:
    """From the worst client to the best: max_i a_i - min_i a_i.

    >>> gap([1, 7, 4])
    6.0
    """
    return float(np.ptp(_per_client("values", values)))


def worst(values: ArrayLike, share: float = 0.1) -> float:
    """Mean of the lowest floor(share * N) values, of one at least.

    >>> worst([5, 1, 3, 9]), worst([5, 1, 3, 9], share=0.5)
    (1.0, 2.0)
    """
    given = np.sort(_per_client("values", values))
    return float(given[: _part(share, len(given))].mean())


def best(values: ArrayLike, share: float = 0.1) -> float:
    """Mean of the highest floor(share * N) values, of one at least.

    >>> best([5, 1, 3, 9]), best([5, 1, 3, 9], share=0.5)
    (9.0, 7.0)
    """
    given = np.sort(_per_client("values", values))
    return float(given[-_part(share, len(given)) :].mean())


def variance(values: ArrayLike) -> float:
    """Variance over all clients: 1/N * sum_i (a_i - mean)^2.

    >>> variance([1, 1, 5, 5])
    4.0
    """
    return float(_per_client("values", values).var())


def quantile(values: ArrayLike, share: float) -> float:
    """What a share of the clients are below: between the sorted values around place share * (N - 1), in proportion.

    >>> quantile([5, 1, 3, 9], share=0.5), quantile([5, 1, 3, 9], share=0)
    (4.0, 1.0)
    """
    require("share", share, 0 <= share <= 1, "from 0 to 1")
    return float(np.quantile(_per_client("values", values), share))


def angle(values: ArrayLike) -> float:
    """Angle in degrees between the values and (1, ..., 1): arccos(sum_i a_i / sqrt(N * sum_i a_i^2)); 0 = equal.

    It is that of Jain's index: its cosine squared. All 0 counts as equal.

    >>> round(angle([1, 0]), 6), angle([3, 3])
    (45.0, 0.0)
    """
    return math.degrees(math.acos(min(1.0, math.sqrt(jain(values)))))


def value_entropy(values: ArrayLike) -> float:
    """Entropy of values of 0 or more: sum_i p_i ln(1 / p_i) / ln N with p_i = a_i / sum_j a_j; 1 = equal.

    0 = one has all. One client, or all at 0, counts as equal.

    >>> value_entropy([0.5, 0.5, 0, 0]), value_entropy([0.9, 0.9])
    (0.5, 1.0)
    """
    given = _per_client("values", values)
    require_each("values", given, given >= 0, "0 or more")
    if len(given) == 1 or not given.any():
        return 1.0
    p = given / given.max()
    p = p[p > 0] / p.sum()
    return min(1.0, max(0.0, -float((p * np.log(p)).sum())) / math.log(len(given)))


def expected_values(mixtures: ArrayLike, by_class: ArrayLike) -> Values:
    """(N,) sum_c m_ic a_c / sum_c m_ic: what client i has where its classes are scored on everybody's test examples.

    Its own test examples are few, so that its accuracy on them is noisy; that of a class over all of them hardly is.

    Args:
        mixtures: (N, C) how many test examples of each class each client has, one at least.
        by_class: (C,) the accuracy of each class over the whole test set; nan for a class that nobody has.

    >>> expected_values([[1, 1], [0, 4]], [0.5, 1.0]).tolist()
    [0.75, 1.0]
    """
    scores, counts = np.asarray(by_class, np.float64), np.asarray(mixtures, np.float64)
    fits = counts.ndim == 2 and scores.shape == counts.shape[1:] and len(counts) > 0
    require("mixtures", counts.shape, fits, f"(N, C) for the C = {scores.size} numbers of by_class, N >= 1")
    right = bool((counts >= 0).all()) and bool((counts.sum(axis=1) > 0).all())
    require("mixtures", "a client without test examples, or with less than none", right, "0 or more, one at least")
    known = np.isfinite(scores)
    require("by_class", scores.tolist(), not counts[:, ~known].any(), "a number for every class that a client has")
    return counts[:, known] @ scores[known] / counts.sum(axis=1)


def noise_floor(accuracy: float, sizes: ArrayLike) -> float:
    """The dissimilarity that sampling noise alone gives, in units of the accuracy, which is from 0 to 1.

    If the model were right with probability a for every example of every client, the accuracies of clients i and j, on
    n_i and n_j test examples, would differ by sqrt(2 / pi) sqrt(a (1 - a) (1 / n_i + 1 / n_j)) on average (with the
    normal distribution in the place of the binomial). The floor is the mean of that over all pairs; 0 for one client.

    >>> round(100 * noise_floor(0.87, [99] * 100), 1)  # points, at 87 % and 99 test examples a client
    3.8
    """
    require("accuracy", accuracy, 0 <= accuracy <= 1, "from 0 to 1")
    given = _per_client("sizes", sizes)
    require_each("sizes", given, given > 0, "above 0")
    different, counts = np.unique(given, return_counts=True)
    n = len(given)
    if n == 1:
        return 0.0
    apart = np.sqrt(1 / different[:, None] + 1 / different)
    pairs = counts[:, None] * counts - np.diag(counts)  # each pair twice, no client with itself
    return float(math.sqrt(2 / math.pi * accuracy * (1 - accuracy)) * (pairs * apart).sum() / (n * (n - 1)))


def jain(values: ArrayLike) -> float:
    """Jain's index of values of 0 or more: (sum_i x_i)^2 / (N * sum_i x_i^2); 1 = equal, 1/N = one has all.

    >>> jain([1, 3]), jain([0, 0])
    (0.8, 1.0)
    """
    given = _per_client("values", values)
    require_each("values", given, given >= 0, "0 or more")
    if not given.any():
        return 1.0
    _, exponent = np.frexp(given.max())
    scaled = np.ldexp(given, -exponent)  # by a power of 2: the same index, and no square overflows or vanishes
    return float(scaled.sum() ** 2 / (len(scaled) * np.square(scaled).sum()))


def gini(counts: ArrayLike) -> float:
    """Gini coefficient: sum over i < j of |c_i - c_j| / (N * sum_i c_i); 0 = equal, (N - 1)/N = one has all.

    >>> gini([3, 0, 1, 0]), gini([2, 2])
    (0.625, 0.0)
    """
    selected = _counts(counts)
    total = int(selected.sum())
    return _sum_over_pairs(selected.astype(np.float64)) / (len(selected) * total) if total else 0.0


def entropy(counts: ArrayLike) -> float:
    """Entropy of who is selected: sum_i p_i ln(1 / p_i) / ln N with p_i = c_i / sum_j c_j; 1 = equal, 0 = one has all.

    One client, or nobody selected yet, counts as equal.

    >>> entropy([5, 5, 0, 0])
    0.5
    """
    selected = _counts(counts)
    total = selected.sum()
    if total == 0 or len(selected) == 1:
        return 1.0
    p = selected[selected > 0] / total
    return min(1.0, float((p * np.log(1 / p)).sum()) / math.log(len(selected)))


def never(counts: ArrayLike) -> int:
    """Number of clients never selected.

    >>> never([3, 0, 1, 0])
    2
    """
    return int((_counts(counts) == 0).sum())


def longest_wait(cohorts: Sequence[ArrayLike], clients: int) -> int:
    """Most rounds in a row that any one client went without selection, from the first round to the last.

    >>> longest_wait([[0], [0, 1], [1], [1]], clients=2)  # client 0 waits for rounds 2 and 3, client 1 for round 0
    2
    """
    n = integer("clients", clients, least=1)
    last, longest = np.full(n, -1), 0
    for round, cohort in enumerate(cohorts):
        ids = integers(f"cohorts[{round}]", cohort)
        wrong = ids[(ids < 0) | (ids >= n)]
        require(f"cohorts[{round}]", wrong.tolist(), not len(wrong), f"ids from 0 to {n - 1}")
        longest = max(longest, int((round - 1 - last[ids]).max(initial=0)))
        last[ids] = round
    return max(longest, int((len(cohorts) - 1 - last).max()))


def round_bytes(
    *,
    clients: int,
    cohort: int,
    parameters: int,
    replied: int | None = None,
    needs: Collection[str] = (),
    fresh: bool = False,
    sketch: int | None = None,
    number_bytes: int = 4,
    classes: int = 0,
) -> tuple[int, int]:
    """Bytes that one round moves down to the clients and up from them: (down, up).

    With N clients, a cohort of k of whom m reply, P parameters, and [x] = 1 if x is needed, else 0, in numbers:
    training alone:  down = k P;  up = m P + m [losses]; the updates are those that training sends anyway.
    fresh signals:   down = N P;  up = m P + N [losses] + N P [updates]; the cohort keeps the model it was asked with.
    Updates that are sent for the selection alone, as fresh ones are, may be sketches: then s instead of P there.
    Where whole updates are not sent, N [lengths] + N C [bias_updates] are added to fresh signals. The server measures
    durations itself; label counts are sent once, and not counted here.
    A selector that needs no signal causes no traffic of its own, fresh or not.

    Args:
        clients: N, those who are asked where signals are fresh.
        cohort: k, those who are to train.
        parameters: P.
        replied: m, those who train and send their update (default all of the cohort).
        needs: the signals that the selector reads, by their names in `Signals`.
        fresh: whether every client is asked at the current model before each selection.
        sketch: s, the length of a sketch; None = whole updates.
        number_bytes: size of a number.
        classes: C, the outputs of the model, for "bias_updates".

    >>> round_bytes(clients=100, cohort=10, parameters=1000)
    (40000, 40000)
    >>> round_bytes(clients=100, cohort=10, parameters=1000, needs={"losses", "updates"}, fresh=True)
    (400000, 440400)
    """
    n = integer("clients", clients, least=1)
    k = integer("cohort", cohort, least=0)
    size = integer("parameters", parameters, least=0)
    width = integer("number_bytes", number_bytes, least=1)
    m = k if replied is None else integer("replied", replied, least=0)
    require("cohort", k, k <= n, f"at most {n}, the number of clients")
    require("replied", m, m <= k, f"at most {k}, the cohort")
    allowed = ("losses", "updates", *OPTIONAL)
    require("needs", needs, set(needs) <= set(allowed), ", ".join(map(repr, allowed)))
    if not (fresh and set(needs) - {"durations", "label_counts"}):
        return width * k * size, width * m * (size + ("losses" in needs))
    signal = size if sketch is None else integer("sketch", sketch, least=1)
    each = ("losses" in needs) + signal * ("updates" in needs)
    if "updates" not in needs or sketch is not None:
        each += ("lengths" in needs) + classes * ("bias_updates" in needs)
    signals = n * each
    return width * n * size, width * (m * size + signals)


def _sum_over_pairs(values: Values) -> float:
    """Sum over i < j of |a_i - a_j|, in O(N log N).

    In ascending order it is sum_k (2k - N + 1) a_k. The factors of a_k and a_{N-1-k} are opposite, so both
    are taken as one difference: never below 0, and exactly 0 where all are equal.
    """
    ascending = np.sort(values)
    n = len(ascending)
    outer = np.arange(n // 2)
    return float(((n - 1 - 2 * outer) * (ascending[n - 1 - outer] - ascending[outer])).sum())


def _part(share: float, n: int) -> int:
    require("share", share, 0 < share <= 1, "above 0 and at most 1")
    return max(1, math.floor(share * n + 1e-9))  # 0.29 * 100 is 28.999999999999996


def _per_client(field: str, values: ArrayLike) -> Values:
    given = vector(field, values, "one value a client, N >= 1")
    require_each(field, given, np.isfinite(given), "finite numbers")
    return given


def _counts(counts: ArrayLike) -> Counts:
    vector("counts", counts, "one count a client, N >= 1")
    selected = integers("counts", counts)
    require_each("counts", selected, selected >= 0, "0 or more")
    return selected
