"""Oort (Lai et al. 2021): clients with a high loss on much data that are fast, and some that were never tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.bounds import scaled_products
from equifl._numerics.checks import generator, integer, number
from equifl.selectors.base import Rng, cohort_size
from equifl.selectors.unknown_clients import asked_again, must_wait, warn_if_uninformed, warn_without
from equifl.signals import Floats, Ints, Signals


@dataclass(frozen=True, kw_only=True)
class Oort:
    """Exploits clients by utility, which is statistical and of speed, and explores some that were never tried.

    utility_i = (U_i + sqrt(0.1 ln t / t_i)) (T / d_i)^alpha, the last factor only where the client is slower than T.

    U_i = n_i loss_i, clipped at a percentile and scaled to 0 to 1 over the known clients; t is the round, t_i that of
    the last selection, both from 1; d_i the seconds that the client took. T is a percentile of all d, which is raised
    every `pace` rounds. A share epsilon of the cohort, rounded up, explores: epsilon falls from `explore` by 2 % a
    round to `explore_least`. The rest is drawn in proportion to utility from those that have at least 95 % of the
    utility of the last that would be chosen.

    What differs: the paper's n_i sqrt(mean of squared losses) needs the loss of every example; of clients the mean is
    known. Paper and code disagree on scaling U: this is the code's, without which the second term has no effect; but
    the code divides by the range before clipping, here it is that after it, so that one outlier does not make all
    others alike. The code can drop clients that were selected too often, which is off by default, and not done here.
    Their pacer raises T when utility stops growing, which needs a memory of past rounds; a selector has none, so T is
    raised by the clock alone. Their code prefers fast unexplored clients by their hardware; here they come by chance.

    Unknown clients, whose loss nobody knows, are those that are explored: they do not all come first, unless too few
    are known. Without `durations` speed is ignored, with a warning; a client of unknown duration counts as fast
    enough.

    Use it where time to accuracy counts and clients differ in speed. Reference: F. Lai, X. Zhu, H. V. Madhyastha,
    M. Chowdhury, *Oort: Efficient Federated Learning via Guided Participant Selection*, OSDI 2021.

    Args:
        alpha: exponent of the penalty of slow clients, 0 or more.
        explore: share of a cohort that explores in round 0, from 0 to 1.
        explore_least: the share that it falls to, from 0 to 1.
        clip: percentile at which U is clipped, above 0, up to 100.
        slow: percentile of durations that is T in the first rounds, above 0, up to 100.
        pace: rounds after which T goes up by 5 percentiles.

    >>> signals = Signals(losses=[0.1, 9.0, 0.5, 0.3], durations=[1.0, 1.0, 1.0, 1.0])
    >>> Oort(explore=0.0, explore_least=0.0).select(signals, 1, rng=0).tolist()
    [1]
    """

    needs: ClassVar[tuple[str, ...]] = ("losses", "durations")

    alpha: float = 2.0
    explore: float = 0.9
    explore_least: float = 0.2
    clip: float = 95.0
    slow: float = 30.0
    pace: int = 20

    def __post_init__(self) -> None:
        number("alpha", self.alpha, "0 or more", lambda alpha: 0 <= alpha < np.inf)
        for name in ("explore", "explore_least"):
            number(name, getattr(self, name), "from 0 to 1", lambda share: 0 <= share <= 1)
        for name in ("clip", "slow"):
            number(name, getattr(self, name), "above 0, up to 100", lambda percentile: 0 < percentile <= 100)
        integer("pace", self.pace, least=1)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        k, draws = cohort_size(signals, k), generator(rng)
        known = signals.knows_loss
        warn_if_uninformed(signals, known, ("losses",))
        available = np.flatnonzero(signals.available)
        tried, untried = available[known[available]], draws.permutation(available[~known[available]])
        waits = must_wait(signals, untried, k, known)
        waiting, untried = untried[waits], untried[~waits]
        epsilon = max(self.explore * 0.98**signals.round, self.explore_least)
        exploit = min(max(int((1 - epsilon) * k + 1e-9), k - len(untried)), len(tried))
        chosen = self._exploited(signals, tried, exploit, draws)
        explored = untried[: k - exploit]
        last = waiting[np.argsort(asked_again(signals, waiting), kind="stable")][: k - exploit - len(explored)]
        return np.concatenate([chosen, explored, last])

    def _exploited(self, signals: Signals, tried: Ints, places: int, draws: np.random.Generator) -> Ints:
        if places in (0, len(tried)):
            return tried[:places]
        utility = self.utility(signals)[tried]
        least = 0.95 * np.partition(utility, len(tried) - places)[len(tried) - places]
        pool, worth = tried[utility >= least], utility[utility >= least]
        # Successive draws in proportion to utility: the first arrivals of exponential clocks with these rates.
        arrivals = draws.exponential(size=len(pool)) / np.maximum(worth, 1e-12)
        return pool[np.argsort(arrivals)[:places]]

    def utility(self, signals: Signals) -> Floats:
        """(N,) the utility of every client; nan where the loss is unknown."""
        known = signals.knows_loss
        worth = scaled_products(signals.sizes, signals.losses)
        if known.any():
            low, high = worth[known].min(), np.percentile(worth[known], self.clip, method="higher")
            worth = (np.minimum(worth, high) - low) / max(high - low, 1e-300)
        now, last = signals.round + 1, np.maximum(signals.last_selected, 0) + 1
        worth = worth + np.sqrt(0.1 * np.log(now) / last)
        if warn_without(signals, "durations", "it took no account of speed") or signals.durations is None:
            return worth
        timed = signals.knows("durations")
        percentile = min(100.0, self.slow + 5 * (signals.round // self.pace))
        limit = np.percentile(signals.durations[timed], percentile)
        late = timed & (np.where(timed, signals.durations, 0) > limit)
        worth[late] *= (limit / signals.durations[late]) ** self.alpha
        return worth
