import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from equifl import DivFL, PowerOfChoice, Rota, Signals, SignalStore, SubTrunc, Uniform, UnionFL
from equifl.cluster import ClusterSelector
from equifl.cluster.population import Population
from equifl.cluster.workers import worker
from equifl.objectives import FacilityLocation, Modular, SetFunction
from equifl.selectors.base import HasObjective, Selector
from equifl.signals import Floats, Ints
from equifl.sketch import CountSketch
from equifl.testing import SelectorContract, random_signals, reorder

STOCHASTIC = [
    DivFL(sample=5),
    DivFL(sample=8, scale="relative"),
    SubTrunc(lam=20.0, b=5.0, sample=10),
    UnionFL(mu=3.0, inner=SubTrunc(lam=20.0, b=5.0, sample=6)),
]


class TestContractStochastic(SelectorContract):
    random = True
    draws = 100  # a selection is some fourteen calls, and a call takes a millisecond or two, however few the clients

    def make(self) -> ClusterSelector:
        return ClusterSelector(SubTrunc(sample=5), shards=2)


class TestContractRota(SelectorContract):
    random = True
    draws = 100

    def make(self) -> ClusterSelector:
        return ClusterSelector(Rota(), shards=2)


class TestContractUniform(SelectorContract):
    random = True
    unknown_first = False

    def make(self) -> ClusterSelector:
        return ClusterSelector(Uniform(), shards=2)


class TestContractLazy(SelectorContract):
    def make(self) -> ClusterSelector:
        return ClusterSelector(UnionFL())  # so few clients are one shard


class TestContractGreeDi(SelectorContract):
    """Two shards: all of the contract but one."""

    def make(self) -> ClusterSelector:
        return ClusterSelector(UnionFL(), shards=2)

    def test_labels_do_not_matter(self) -> None:
        """Only as far as they do not say who is in which shard: each shard chooses among its own.

        Renumbering within the shards renumbers the choice, and so does exchanging whole shards.
        """
        signals = random_signals(12)
        rng = np.random.default_rng(5)
        within = np.concatenate([rng.permutation(6), 6 + rng.permutation(6)])
        for order in (within, np.roll(within, 6)):
            assert (
                order[self.choose(reorder(signals, order), 4, seed=0)].tolist() == self.choose(signals, 4, 0).tolist()
            )


def choose(selector: Selector, signals: Signals, k: int, seed: int = 0) -> Ints:
    return selector.select(signals, k, rng=np.random.default_rng(seed))


def same_up_to_ties(selector: Any, signals: Signals, alone: Ints, together: Ints) -> bool:
    """Whether they are the same; if not, it must be because two candidates tied within rounding."""
    differ = np.flatnonzero(alone != together)
    if not len(differ):
        return True
    function = selector.objective(signals)
    state = function.init()
    for element in alone[: differ[0]]:
        state = function.update(state, int(element))
    rivals = function.gains(state, np.array([alone[differ[0]], together[differ[0]]]))
    assert rivals[0] == pytest.approx(rivals[1], rel=1e-5)
    return False


@pytest.mark.parametrize("selector", STOCHASTIC, ids=repr)
def test_stochastic_greedy_chooses_what_one_machine_chooses(selector: Selector) -> None:
    same = []
    for seed in range(6):
        signals = random_signals(700, seed=seed, unknown=5 * (seed % 3), offline=0.2, d=16)
        alone = choose(selector, signals, 34, seed)
        together = choose(ClusterSelector(selector, shards=1 + seed % 4), signals, 34, seed)
        same.append(same_up_to_ties(selector, signals, alone, together))
    assert np.mean(same) > 0.8, "ties within rounding are rare among random updates"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_updates_with_a_large_common_part_and_in_any_type(dtype: Any) -> None:
    """As on one machine, distances survive it; shards have means of their own."""
    rng = np.random.default_rng(0)
    kinds = np.sort(rng.integers(4, size=300))  # shards are unlike each other
    updates = (30 + 5 * kinds[:, None] + rng.normal(size=(300, 12))).astype(dtype)
    signals = Signals(updates=updates)
    alone = choose(DivFL(sample=20), signals, 30)
    together = choose(ClusterSelector(DivFL(sample=20), shards=3), signals, 30)
    same_up_to_ties(DivFL(sample=20), signals, alone, together)


@pytest.mark.parametrize("selector", [DivFL(sample=8), SubTrunc(lam=20.0, b=5.0, sample=10), Rota()], ids=repr)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_an_outlier_in_one_shard_is_bounded_as_on_one_machine(selector: Selector, scale: float) -> None:
    updates = np.random.default_rng(0).normal(size=(60, 5))
    updates[7] *= 1e6
    signals = Signals(updates=scale * updates, losses=np.linspace(0.1, 2, 60))
    assert choose(ClusterSelector(selector, shards=3), signals, 9).tolist() == choose(selector, signals, 9).tolist()


def test_the_generator_is_left_as_one_machine_leaves_it() -> None:
    signals, ours, theirs = random_signals(100), np.random.default_rng(1), np.random.default_rng(1)
    DivFL(sample=4).select(signals, 10, rng=ours)
    ClusterSelector(DivFL(sample=4), shards=2).select(signals, 10, rng=theirs)
    assert ours.integers(10**9) == theirs.integers(10**9)


@pytest.mark.parametrize("selector", [DivFL(sample=4), Rota()], ids=repr)
def test_messages_do_not_grow_with_the_clients(monkeypatch: pytest.MonkeyPatch, selector: Selector) -> None:
    weights: dict[int, list[int]] = {300: [], 3000: []}
    start, ask = Population.start, Population.ask

    def starting(self: Population, method: str, *arguments: Any, **options: Any) -> list[Any]:
        weights[len(self.known)].append(len(pickle.dumps(arguments)))
        return start(self, method, *arguments, **options)

    def asking(self: Population, method: str, *arguments: Any, **options: Any) -> list[Any]:
        answers = ask(self, method, *arguments, **options)
        weights[len(self.known)].append(len(pickle.dumps(answers)))
        return answers

    monkeypatch.setattr(Population, "start", starting)
    monkeypatch.setattr(Population, "ask", asking)
    for n in weights:
        choose(ClusterSelector(selector, shards=2), random_signals(n), 5)
    few, many = weights.values()
    assert len(few) == len(many)
    assert max(few) == pytest.approx(max(many), rel=0.05)


def killing(kill: Callable[[int], None]) -> Callable[..., list[Any]]:
    """`Population.start`, which kills a worker now and then."""
    start, calls = Population.start, iter(range(10**6))

    def deadly(self: Population, method: str, *arguments: Any, **options: Any) -> list[Any]:
        if method == "gains" and next(calls) in (3, 11):
            kill(len(self.parts) - 1)
        return start(self, method, *arguments, **options)

    return deadly


def by_ray(index: int) -> None:
    ray.kill(worker(index))


def process(index: int) -> int:
    return int(ray.get(worker(index).process.remote()))


def from_outside(index: int) -> None:
    """As the system does when memory runs out."""
    os.kill(process(index), signal.SIGKILL)


@pytest.mark.parametrize("kill", [by_ray, from_outside])
@pytest.mark.parametrize("memory_limit", [2**30, 1])
def test_a_worker_that_dies_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, kill: Callable[[int], None], memory_limit: int
) -> None:
    signals = random_signals(500, d=16)
    selector = ClusterSelector(SubTrunc(sample=6), shards=2, memory_limit=memory_limit)
    expected = choose(selector, signals, 20)
    monkeypatch.setattr(Population, "start", killing(kill))
    assert choose(selector, signals, 20).tolist() == expected.tolist()


def test_sketches_in_a_file_are_read_there_also_by_a_worker_that_took_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = SignalStore(400, sketch=CountSketch(length=8), memory_map=tmp_path / "sketches.npy")
    heard = np.arange(50, 390)
    store.observe(heard, losses=np.ones(340), updates=np.random.default_rng(0).normal(size=(340, 8)))
    signals = store.signals(0, available=np.arange(400) >= 50)
    monkeypatch.setattr(ray, "put", None)  # nothing is put into the object store
    monkeypatch.setattr(Population, "start", killing(by_ray))
    chosen = choose(ClusterSelector(DivFL(sample=6), shards=2), signals, 30)
    same_up_to_ties(DivFL(sample=6), signals, choose(DivFL(sample=6), signals, 30), chosen)


@pytest.mark.parametrize("selector", [DivFL(), SubTrunc(lam=5.0, b=4.0), UnionFL(mu=2.0)], ids=repr)
def test_greedi_is_nearly_as_good_as_lazy_greedy(selector: Any) -> None:
    signals = random_signals(600, offline=0.3, d=4)
    function = selector.objective(signals)
    best = function(choose(selector, signals, 12))
    assert function(choose(ClusterSelector(selector, shards=1), signals, 12)) == best
    chosen = choose(ClusterSelector(selector, shards=3), signals, 12)
    assert signals.available[chosen].all()
    assert len(set(chosen.tolist())) == 12
    assert function(chosen) > 0.95 * best


def test_greedi_keeps_what_each_kind_of_client_needs() -> None:
    """Shards that are unlike each other: one cohort represents them all."""
    centres = np.repeat(10 * np.eye(4), 50, axis=0)
    signals = Signals(updates=centres + np.random.default_rng(0).normal(size=centres.shape))
    assert sorted(choose(ClusterSelector(DivFL(), shards=4), signals, 4) // 50) == [0, 1, 2, 3]


def test_greedi_takes_everyone_of_shards_smaller_than_the_cohort() -> None:
    signals = random_signals(20)
    assert sorted(choose(ClusterSelector(DivFL(), shards=5), signals, 20)) == list(range(20))


def test_rota_plays_what_one_machine_plays() -> None:
    for seed in range(8):
        signals = random_signals(200, seed=seed, unknown=seed, offline=0.2)
        assert (
            choose(ClusterSelector(Rota(), shards=3), signals, 9, seed).tolist()
            == choose(Rota(), signals, 9, seed).tolist()
        )


@pytest.mark.parametrize("kill", ["nobody", "by Ray", "from outside"])
def test_rotas_tables_are_planned_by_workers(monkeypatch: pytest.MonkeyPatch, kill: str) -> None:
    """300 seats are three tables: two are planned at a time."""
    start, told = Population.start, []

    def watched(self: Population, method: str, *arguments: Any, **options: Any) -> list[Any]:
        told.append(method)
        calls = start(self, method, *arguments, **options)
        if told.count("call") == 2 and kill == "by Ray":  # it has half a second's work before it
            by_ray(1)
        if told.count("call") == 2 and kill == "from outside":
            os.kill(before, signal.SIGKILL)
        return calls

    updates = np.random.default_rng(0).normal(size=(4500, 5))
    updates[::1500] = np.nan  # three unknown clients are selected first
    signals = Signals(updates=updates, available=np.arange(4500) % 9 > 0)
    expected = choose(Rota(), signals, 300)
    before = process(1)
    monkeypatch.setattr(Population, "start", watched)
    assert choose(ClusterSelector(Rota(), shards=2), signals, 300).tolist() == expected.tolist()
    assert told == ["survey", "call", "call", "call", "forget"]
    assert (process(1) == before) == (kill == "nobody")


@pytest.mark.parametrize("selector", [Uniform(), PowerOfChoice()], ids=repr)
def test_what_needs_no_updates_is_chosen_here(selector: Selector) -> None:
    signals = random_signals(30)
    assert choose(ClusterSelector(selector), signals, 5).tolist() == choose(selector, signals, 5).tolist()
    assert ClusterSelector(selector).needs == frozenset(selector.needs)  # type: ignore[attr-defined]


class Squared(SetFunction):
    """Of somebody else."""

    monotone = True

    def __init__(self, n: int) -> None:
        self.n, self.known = n, np.ones(n, bool)

    def __call__(self, subset: Any) -> float:
        return 0.0

    def init(self) -> None: ...

    def gains(self, state: Any, candidates: Ints) -> Floats:
        return np.zeros(len(candidates))

    def update(self, state: Any, element: int) -> None: ...


class Own(DivFL):
    def objective(self, signals: Signals) -> SetFunction:
        return FacilityLocation(signals) + Squared(signals.n) + Modular(np.ones(signals.n))


def test_refuses_by_name_what_it_cannot_spread() -> None:
    assert isinstance(Own(), HasObjective)
    with pytest.raises(ValueError, match="objective: a Squared cannot be spread over a cluster; allowed: Facility"):
        choose(ClusterSelector(Own()), random_signals(10), 2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"selector": 3}, "selector: 3 is not allowed; allowed: an object with a `select`"),
        ({"shards": 0}, "shards: 0 is not allowed; allowed: an integer of 1 or more"),
        ({"memory_limit": 0}, "memory_limit: 0"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ClusterSelector(DivFL()), **parameters)
