import numpy as np

from equifl import DivFL, Signals, SignalStore, Uniform, UnionFL
from equifl.hosts.choice import choose, frugal, name_of


def test_the_choice_depends_on_seed_and_round_alone() -> None:
    def cohort(seed: int, round: int) -> list[int]:
        signals = SignalStore(50).signals(round)
        found, why = choose(Uniform(), signals, 5, seed=seed)
        assert why == {}
        return found.tolist()

    assert cohort(0, 3) == cohort(0, 3)
    assert cohort(0, 3) != cohort(0, 4)
    assert cohort(0, 3) != cohort(1, 3)


def test_a_selector_with_an_objective_says_what_its_cohort_is_worth() -> None:
    signals = Signals(updates=np.random.default_rng(0).normal(size=(9, 4)))
    _, why = choose(DivFL(), signals, 3, seed=0)
    assert list(why["objective"]) == ["G"]


def test_memory_is_lower_where_it_was_not_set() -> None:
    limit = DivFL().memory_limit
    assert frugal(DivFL()).memory_limit == limit // 8
    assert frugal(DivFL(memory_limit=5 * limit)).memory_limit == 5 * limit
    inner = frugal(UnionFL(inner=DivFL())).inner
    assert inner.memory_limit == limit // 8
    assert frugal(Uniform()) == Uniform()


def test_names() -> None:
    class Mine(Uniform):
        pass

    assert name_of(DivFL()) == "divfl"
    assert name_of(Mine()) == "mine"
