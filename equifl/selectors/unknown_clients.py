"""Clients of which a selector lacks a signal: who of them goes first, who waits, who is asked less and less often."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from equifl._numerics.checks import generator
from equifl.selectors.base import Rng, cohort_size
from equifl.signals import Bools, Ints, Signals

_HERE = Path(__file__).parent  # the selectors


def warn_if_uninformed(signals: Signals, known: Bools, needs: Collection[str] = ("losses", "updates")) -> None:
    """Warn if the choice is random because no client has sent what the selector needs, though some were asked.

    Before anybody was selected, or has sent anything, there is nothing to warn of: it is the first round.
    """
    if known.any():
        return
    sent = {name: bool(signals.knows(name).any()) for name in dict.fromkeys(("losses", "updates", *needs))}
    if any(sent.values()) or signals.times_selected.any():
        missing = " or ".join(name for name in needs if not sent[name]) or " with ".join(needs)
        _warn(f"no client has sent {missing} yet, which this selector needs: it chose at random")


def warn_without(signals: Signals, name: str, instead: str) -> bool:
    """Whether nobody has sent this signal; then a warning says what is done instead, if someone has sent another."""
    missing = not signals.knows(name).any()
    if missing and (signals.knows_loss.any() or signals.knows_update.any()):
        _warn(f"no client has sent {name} yet, which this selector needs: {instead}")
    return missing


def _warn(message: str) -> None:
    """Warn about the line that called the selector, where Python shows the same warning once."""
    level, frame = 1, inspect.currentframe()
    while frame and Path(frame.f_code.co_filename).parent == _HERE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def must_wait(signals: Signals, order: Ints, k: int, known: Bools) -> Bools:
    """(len(order),) which unknown clients lose their priority and are selected only if places are left over.

    A client that was selected n times and never replied waits 2^(n-1) rounds before it has priority again. Clients
    that joined after the first round have priority for at most their share of the k places, rounded up.

    Args:
        signals: what is known of the clients.
        order: ids of available clients, first in the queue first.
        k: places in the cohort.
        known: (N,) whether the selector has the signals it needs of a client.
    """
    unknown = ~known[order]
    asked = signals.times_selected[order]
    silent = unknown & (asked > 0) & (signals.round < asked_again(signals, order)) & known.any()
    late = unknown & (signals.joined[order] > 0)
    share = -(-k * int(late.sum()) // max(1, int(signals.available.sum())))
    over = late & ~silent
    over[np.flatnonzero(over)[:share]] = False
    return silent | over


def asked_again(signals: Signals, ids: Ints) -> Ints:
    """The round from which a client that never replied has priority again: the wait doubles with each selection."""
    wait = 2 ** np.clip(signals.times_selected[ids] - 1, 0, 40)
    return np.where(signals.times_selected[ids] > 0, signals.last_selected[ids] + 1 + wait, 0)


def unknown_first(
    signals: Signals,
    k: int,
    *,
    known: Bools,
    rng: Rng,
    choose: Callable[[Ints, int], Ints],
    needs: Collection[str] = ("losses", "updates"),
) -> Ints:
    """A cohort of unknown clients in random order, then of known ones that `choose(candidates, places)` picks.

    `known` marks the clients whose signals the selector has. The others come first, because only a client with known
    signals can be represented. Those that `must_wait` come last and fill the places that are left. `needs` are the
    signals that make a client known: if nobody has sent them, the choice is random, and a warning names them.
    """
    k = cohort_size(signals, k)
    warn_if_uninformed(signals, known, needs)
    available = np.flatnonzero(signals.available)
    unknown = generator(rng).permutation(available[~known[available]])
    waits = must_wait(signals, unknown, k, known)
    first, last = unknown[~waits][:k], unknown[waits]
    candidates = available[known[available]]
    chosen = choose(candidates, min(k - len(first), len(candidates)))
    last = last[np.argsort(asked_again(signals, last), kind="stable")]
    return np.concatenate([first, chosen, last[: k - len(first) - len(chosen)]])
