"""ClusterSelector: a selector's choice, computed on the workers that hold the updates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from equifl._numerics.checks import generator, integer, require
from equifl._numerics.distances import GIBIBYTE
from equifl.cluster.expression import with_locations
from equifl.cluster.population import Population, SpreadFacilityLocation
from equifl.cluster.session import connect, resource
from equifl.cluster.workers import WAIT_LIMIT, check_wait_limit
from equifl.maximizers import lazy_greedy
from equifl.objectives import FacilityLocation, SetFunction
from equifl.selectors.base import HasObjective, Rng, Selector, check_call, needs, objective_of, sample_of
from equifl.selectors.greedy_selection import maximise
from equifl.selectors.rota import Rota
from equifl.selectors.unknown_clients import unknown_first
from equifl.signals import Ints, Signals

_LEAST = 1024  # clients in a shard by default: for fewer, the call costs more than the work


@dataclass(frozen=True)
class ClusterSelector:
    """Selects as `selector` does, with the clients' updates in shards on the workers of a Ray cluster.

    Stochastic greedy (`sample=r`): the choice of one machine with the same seed. The same candidates are drawn from
    `rng`; at each step their r updates go to every shard, and r sums come back, however many clients there are. The
    sums are those of one machine up to rounding (shards add up in float64, one machine in float32), so the choice is
    the same unless two candidates tie within about 1e-5 of their gains.

    Lazy greedy (`sample=None`): GreeDi in two rounds (Mirzasoleiman, Karbasi, Sarkar, Krause 2013). Every shard
    chooses k of its clients by lazy greedy, then lazy greedy chooses k among all that were chosen, by the objective
    over all clients; if the k of one shard have a larger value, it returns these. For a monotone objective the second
    round is within 1 - 1/e of the best k among those chosen. If the shards too used the objective over all clients,
    the cohort would be within max((1 - 1/e) / shards, 1 / k) of the best k of all, for any partition into shards; but
    each shard takes its own clients as a sample of all. With one shard it is lazy greedy itself.

    Rota: the cohort of one machine with the same seed, unless clients tie within rounding. The shards average the
    updates. A large cohort that is planned in several parts is planned by the workers, one part each at a time, from
    the inner products of its at most 2,048 clients (docs/scale.md says why these are not their own).

    If the selector uses no updates, or the signals have `distances`, there is nothing to distribute: `selector` then
    runs in this process. If a worker dies, or a node with its workers, others take over, and the choice is the same.

    Args:
        selector: the selector to distribute.
        address: of the Ray cluster, "auto" for the one this machine is in; None = start one here, unless
            this process is in one already.
        shards: number of parts of the clients; None = one for each CPU of the cluster, each of at least 1,024
            clients.
        memory_limit: bytes that each worker may take for distances.
        wait_limit: seconds to wait for free CPUs, one a worker, where workers have to be started. A warning says
            after a few seconds what is waited for; after `wait_limit` there is a `TimeoutError`.

    Raises (`select`):
        ClusterLostError: the head of the cluster is gone for half a minute, or the node of this process is. This
            process has left the cluster then; the next call joins it anew, or starts another.

    >>> from equifl import DivFL
    >>> ClusterSelector(DivFL(sample=10), shards=4)  # doctest: +ELLIPSIS
    ClusterSelector(selector=DivFL(sample=10, ...), address=None, shards=4, ...)
    """

    selector: Selector
    address: str | None = None
    shards: int | None = None
    memory_limit: int = GIBIBYTE
    wait_limit: float = WAIT_LIMIT

    def __post_init__(self) -> None:
        require("selector", self.selector, isinstance(self.selector, Selector), "an object with a `select`")
        integer("memory_limit", self.memory_limit, least=1)
        check_wait_limit(self.wait_limit)
        if self.shards is not None:
            integer("shards", self.shards, least=1)

    @property
    def needs(self) -> frozenset[str]:
        """The signals that the selector uses."""
        return needs(self.selector)

    def select(self, signals: Signals, k: int, *, rng: Rng) -> Ints:
        """K distinct ids of available clients, in the order of choice; `rng` is a generator or a seed."""
        check_call(signals, k)
        rng = generator(rng)
        spreads = isinstance(self.selector, HasObjective | Rota)
        if not spreads or signals.distances is not None or not signals.knows_update.any():
            return self.selector.select(signals, k, rng=rng)
        population = self._population(signals)
        try:
            return self._select(population, signals, k, rng)
        finally:
            population.close()

    def _select(self, population: Population, signals: Signals, k: int, rng: np.random.Generator) -> Ints:
        if isinstance(self.selector, Rota):
            return self.selector.select_around(
                (population.bounds, population.mean), signals, k, rng=rng, each=population.each
            )
        assert isinstance(self.selector, HasObjective)
        function = spread(self.selector, signals, k, population)
        sample = sample_of(self.selector)
        if sample is not None:
            return maximise(function, signals, k, sample=sample, rng=rng)

        def choose(candidates: Ints, places: int) -> Ints:
            return self._greedi(function, signals, population, places) if places else candidates[:0]

        return unknown_first(signals, k, known=function.known, rng=rng, choose=choose)

    def _population(self, signals: Signals) -> Population:
        connect(self.address)
        count = int(signals.knows_update.sum())
        shards = min(resource("CPU"), count // _LEAST) if self.shards is None else min(self.shards, count)
        return Population(signals, max(1, shards), self.memory_limit, self.wait_limit)

    def _greedi(self, function: SetFunction, signals: Signals, population: Population, k: int) -> Ints:
        ranges = [slice(part.first, part.last) for part in population.parts]
        names = ("losses", "last_selected", "times_selected", "sizes", "available")
        fields = [{name: getattr(signals, name)[r] for name in names} | {"round": signals.round} for r in ranges]
        for field, part in zip(fields, population.parts, strict=True):
            field["history"] = _history_of(signals, part.first, part.last)
        picked = population.ask("pick", self.selector, fields, k, population.count)
        if len(picked) == 1:
            return picked[0]
        union = np.sort(np.concatenate(picked))
        function.foresee([union])
        chosen = lazy_greedy(function, k, candidates=union)
        return max([chosen, *(ids for ids in picked if len(ids) == k)], key=function)  # the first of equals


def _history_of(signals: Signals, first: int, last: int) -> Ints | None:
    """The selections of clients first to last - 1, numbered from 0."""
    if signals.history is None:
        return None
    clients = signals.history[:, 1]
    return signals.history[(clients >= first) & (clients < last)] - np.array([0, first])


def spread(selector: HasObjective, signals: Signals, k: int, population: Population) -> SetFunction:
    """The selector's objective, with facility location computed by the shards."""

    def on_shards(location: FacilityLocation) -> SetFunction:
        return SpreadFacilityLocation(population, location.scale)

    # Without updates building it costs nothing; only the structure of the expression is used.
    return with_locations(objective_of(selector, replace(signals, updates=None), k), on_shards)
