"""Who trains next? Every selector on the same random clients, and why it chose them.

    python examples/choose.py [--clients 24] [--per-round 4] [--rounds 12] [--seed 0]

Twenty-four clients of four kinds: one kind is common, one rare with the highest losses. Each selector
plays some rounds with its own memory. Then its last cohort is explained, and the whole history shown: a fair
selector leaves nobody out.
"""

from __future__ import annotations

import argparse

import numpy as np

from equifl import DivFL, PowerOfChoice, Rota, Selector, SignalStore, SubTrunc, Uniform, UnionFL
from equifl.objectives import explain
from equifl.selectors.base import HasObjective
from equifl.signals import Ints, Signals

KINDS = "ABCD"
SHARES = (0.5, 0.25, 0.15, 0.1)
SELECTORS: dict[str, Selector] = {
    "Uniform": Uniform(),
    "PowerOfChoice": PowerOfChoice(),
    "DivFL": DivFL(),
    "SubTrunc": SubTrunc(lam=5.0),
    "UnionFL": UnionFL(mu=1.0, window=3),
    "UnionFL(SubTrunc)": UnionFL(mu=1.0, window=3, inner=SubTrunc(lam=5.0)),
    "Rota": Rota(),
}


def random_clients(n: int, rng: np.random.Generator) -> tuple[Ints, SignalStore]:
    """A kind for each client, and a store that knows all but two of them."""
    bounds = np.cumsum(SHARES)[:-1] * n
    kind = np.searchsorted(bounds, np.arange(n), side="right")
    updates = 3 * np.eye(len(KINDS))[kind] + rng.normal(scale=0.6, size=(n, len(KINDS)))
    losses = 0.4 + 0.5 * kind + rng.exponential(0.2, size=n)
    store = SignalStore(n, sizes=rng.integers(50, 500, size=n))
    known = rng.permutation(n)[: max(1, n - 2)]
    store.observe(known, losses=losses[known], updates=updates[known])
    return kind, store


def train(cohort: Ints, signals: Signals, store: SignalStore, rng: np.random.Generator) -> None:
    """Pretend that training lowers the losses of those who took part and leaves their updates as they are."""
    known = cohort[signals.knows_update[cohort]]
    store.observe(known, losses=0.9 * signals.losses[known])
    unknown = cohort[~signals.knows_update[cohort]]
    store.observe(unknown, losses=np.ones(len(unknown)), updates=rng.normal(size=(len(unknown), len(KINDS))))
    store.observe(cohort, round=signals.round)


def reasons(selector: Selector, signals: Signals, cohort: Ints) -> list[str]:
    """For each member of the cohort, why it is there."""
    if isinstance(selector, HasObjective):
        function = selector.objective(signals)
        table = explain(function, cohort)
        why = [" ".join(f"{gain:+7.2f}" for gain in row) for row in table]
        return [text if function.known[i] else "unknown" for text, i in zip(why, cohort, strict=True)]
    times = [f"selected {count} times before" for count in signals.times_selected[cohort]]
    return [f"loss {loss:.2f}, {text}" for loss, text in zip(signals.losses[cohort], times, strict=True)]


def show(name: str, selector: Selector, n: int, k: int, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind, store = random_clients(n, rng)
    for round in range(rounds):
        signals = store.signals(round)
        cohort = selector.select(signals, k, rng=rng)
        train(cohort, signals, store, rng)
    print(f"\n{name}: {selector}")
    for i, why in zip(cohort, reasons(selector, signals, cohort), strict=True):
        print(f"  client {i:3d} (kind {KINDS[kind[i]]})  {why}")
    times = store.signals(rounds).times_selected
    by_kind = "  ".join(f"{KINDS[c]}: {' '.join(map(str, times[kind == c]))}" for c in range(len(KINDS)))
    print(f"  selections in {rounds} rounds  {by_kind}")
    print(f"  least {times.min()}, most {times.max()}, never {np.sum(times == 0)} of {n}")


def main() -> None:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=summary, epilog=details.split("\n\n", 1)[1])
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--per-round", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("What each client added to each term of the objective when it was chosen:")
    print("  DivFL  G, how well the cohort represents all clients;  SubTrunc  G and H, the bonus for high losses;")
    print("  UnionFL  G (and H) and the penalty for recent selection.")
    for name, selector in SELECTORS.items():
        show(name, selector, options.clients, options.per_round, options.rounds, options.seed)


if __name__ == "__main__":
    main()
