"""Power-of-Choice (Cho, Wang, Joshi 2020): the largest losses among a few clients drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equifl._numerics.checks import generator, integer, require
from equifl.selectors.base import Rng, check_call
from equifl.selectors.unknown_clients import unknown_first
from equifl.signals import Ints, Signals


@dataclass(frozen=True, kw_only=True)
class PowerOfChoice:
    """The k largest losses among d clients drawn without replacement, with probability proportional to size.

    Which of its authors' variants runs is decided by what losses are reported, not here: fresh ones of all clients
    (`signal = "gradient"`, a probe on Flower) make it pow-d; the same from a part of each client's examples
    (`signal_examples`) cpow-d; those of the last selection (the default) rpow-d. `variant` has the name. With fresh
    losses the simulator asks all clients; the authors' pow-d asks the d drawn ones, and would send less.

    Clients whose loss is unknown come first, in random order.

    Reference: Y. J. Cho, J. Wang, G. Joshi, *Client Selection in Federated Learning: Convergence Analysis and
    Power-of-Choice Selection Strategies*, 2020.

    Args:
        candidates: d, at least k; None = 2k.

    >>> signals = Signals(losses=[0.1, 0.9, 0.5, 0.3])
    >>> PowerOfChoice(candidates=4).select(signals, 2, rng=0).tolist()
    [1, 2]
    """

    needs: ClassVar[tuple[str, ...]] = ("losses",)

    candidates: int | None = None

    def __post_init__(self) -> None:
        if self.candidates is not None:
            integer("candidates", self.candidates, least=1)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        draws = generator(rng)
        d = 2 * k if self.candidates is None else self.candidates
        require("candidates", d, d >= k, f"at least k, which is {k}")

        def choose(candidates: Ints, places: int) -> Ints:
            # The first d arrivals of exponential clocks with these rates: successive draws without replacement.
            arrivals = draws.exponential(size=len(candidates)) / signals.sizes[candidates]
            drawn = np.sort(candidates[np.argsort(arrivals)[:d]])
            return drawn[np.argsort(-signals.losses[drawn], kind="stable")[:places]]

        return unknown_first(signals, k, known=signals.knows_loss, rng=draws, choose=choose, needs=self.needs)


def variant(*, fresh: bool, subsample: bool) -> str:
    """The authors' name of what runs: pow-d, cpow-d or rpow-d.

    Args:
        fresh: losses are those of the current model; else those of each client's last selection.
        subsample: losses are computed from a part of each client's examples.

    >>> variant(fresh=True, subsample=False), variant(fresh=False, subsample=False)
    ('pow-d', 'rpow-d')
    """
    return ("cpow-d" if subsample else "pow-d") if fresh else "rpow-d"
