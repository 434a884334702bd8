import logging
from typing import Any

import numpy as np
import pytest

from equifl import DivFL, Rota, Signals
from equifl.aggregators import AGGREGATORS, ByLoss, BySelector, BySize, Mean, Memory, Momentum, QFedAvg, Replies
from equifl.hosts.server_rule import Reply, ServerRule
from equifl.hosts.updates import Updates
from equifl.hosts.usable import MisfitError, SetAsideError
from equifl.selectors import weights_of

LOG = logging.getLogger("test")
RULES: dict[str, Any] = {name: rule() for name, rule in AGGREGATORS.items()} | {"q_fedavg": QFedAvg(q=1.0, L=2.0)}


def rule(one: Any, **options: Any) -> ServerRule:
    return ServerRule(one, Updates(**options), LOG)


def model(rng: np.random.Generator) -> dict[str, Any]:
    kinds: dict[str, Any] = {"w": ((3, 2), np.float32), "b": ((), np.float32), "bn.running_var": ((2,), np.float32)}
    arrays = {name: rng.random(shape).astype(kind) for name, (shape, kind) in kinds.items()}
    return {name: np.asarray(array) for name, array in arrays.items()} | {"steps": np.array([rng.integers(9)])}


def replies(rng: np.random.Generator, clients: list[int]) -> list[Reply]:
    return [Reply(client, model(rng), float(rng.integers(1, 9)), float(rng.random())) for client in clients]


def flat(arrays: Any) -> Any:
    return np.concatenate([arrays["w"].ravel(), arrays["b"].ravel()])


@pytest.mark.parametrize("name", RULES)
def test_a_step_is_that_of_the_rule_on_flat_updates(name: str) -> None:
    rng, mine, memory = np.random.default_rng(0), rule(RULES[name]), None
    sent = model(rng)
    for cohort in ([0, 2], [1, 2], [3]):  # clients join
        there = replies(rng, cohort)
        signals = Signals(losses=rng.random(4), updates=rng.random((4, 5), np.float32))
        mine.selected(DivFL(), signals, np.array(cohort))
        weights = weights_of(DivFL(), signals, np.array(cohort), "") if name == "selector" else None
        given = Replies(
            np.array(cohort),
            np.array([flat(sent) - flat(one.arrays) for one in there]),
            np.array([one.size for one in there]),
            np.array([one.loss for one in there]),
            cohort[-1] + 1,
            weights,
        )
        step, memory = RULES[name].step(given, memory)
        made = mine.step(sent, there, cohort[-1] + 1)
        np.testing.assert_allclose(flat(made), flat(sent) - step, rtol=1e-6)
        assert {key: array.dtype for key, array in made.items()} == {key: array.dtype for key, array in sent.items()}
        sent = made


def test_running_statistics_and_integers_are_averaged_by_size() -> None:
    rng = np.random.default_rng(0)
    sent, there = model(rng), replies(rng, [0, 1])
    made = rule(Memory()).step(sent, there, 2)
    for name, decimals in (("bn.running_var", 6), ("steps", 0)):
        mean = np.average([one.arrays[name] for one in there], axis=0, weights=[one.size for one in there])
        np.testing.assert_allclose(made[name], mean.round(decimals), atol=1e-6)


def test_differences_are_steps_the_other_way() -> None:
    rng = np.random.default_rng(0)
    sent, there = model(rng), replies(rng, [0, 1, 2])
    moves = [
        Reply(one.client, {name: one.arrays[name] - sent[name] for name in sent}, one.size, one.loss) for one in there
    ]
    as_weights = rule(BySize()).step(sent, there, 3)
    for name, array in rule(BySize(), difference=True).step(sent, moves, 3).items():
        np.testing.assert_allclose(array, as_weights[name], atol=1e-6)


@pytest.mark.parametrize("one", [Memory(), Memory(q=1.0, keep="float16"), Momentum(inner=Memory()), Mean()])
def test_a_restored_rule_goes_on_as_an_unbroken_one(one: Any) -> None:
    whole, parts, rng = rule(one), rule(one), np.random.default_rng(0)
    sent, rounds = model(rng), [replies(rng, cohort) for cohort in ([0, 1], [1, 2], [0, 3], [1, 3])]
    for there in rounds[:2]:
        whole.step(sent, there, 3)
        parts.step(sent, there, 3)
    again = rule(one)
    again.load({name: array.copy() for name, array in parts.state().items()})
    for there in rounds[2:]:
        made = again.step(sent, there, 4)
        for name, array in whole.step(sent, there, 4).items():
            np.testing.assert_array_equal(made[name], array)
    assert whole.state().keys() == again.state().keys()


def test_a_checkpoint_without_its_memory_is_refused() -> None:
    mine, rng = rule(Memory()), np.random.default_rng(0)
    mine.step(model(rng), replies(rng, [0]), 1)
    state = mine.state()
    for name in state:
        with pytest.raises(ValueError, match=r"checkpoint: .*rule\."):
            rule(Memory()).load({key: array for key, array in state.items() if key != name})


def test_those_who_reply_have_the_weights_of_those_who_do_not() -> None:
    rng = np.random.default_rng(0)
    signals = Signals(losses=rng.random(4), updates=rng.random((4, 5), np.float32))
    mine, sent, there = rule(BySelector()), model(rng), replies(rng, [2])
    mine.selected(DivFL(), signals, np.array([0, 2]))
    np.testing.assert_allclose(flat(mine.step(sent, there, 4)), flat(there[0].arrays), rtol=1e-6)


def test_a_selector_without_weights_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    mine, signals = rule(BySelector()), Signals(losses=np.ones(4))
    for _ in range(2):
        mine.selected(Rota(), signals, np.array([0, 2]))
    assert caplog.text.count("Rota has no weights: replies count the same under BySelector") == 1


def test_the_memory_that_a_rule_takes_is_said(caplog: pytest.LogCaptureFixture) -> None:
    mine, rng = rule(Memory()), np.random.default_rng(0)
    sent = {"w": np.zeros(2**18, np.float32)}
    with caplog.at_level(logging.INFO, "test"):
        for clients in (4, 5, 8):
            mine.step(sent, [Reply(0, {"w": np.asarray(rng.random(2**18), np.float32)}, 1.0, 1.0)], clients)
    assert "Memory keeps 4.0 MiB for 4 clients and 262144 parameters, in memory and in each checkpoint" in caplog.text
    assert "5.0 MiB" not in caplog.text, "a client more is no news"
    assert "8.0 MiB for 8 clients" in caplog.text


def test_a_model_in_float64_takes_twice_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "test"):
        rule(Memory()).step({"w": np.zeros(2**17)}, [Reply(0, {"w": np.ones(2**17)}, 1.0, 1.0)], 4)
    assert "Memory keeps 4.0 MiB for 4 clients and 131072 parameters" in caplog.text


def test_a_client_whose_number_is_free_again_is_forgotten() -> None:
    mine, rng = rule(Memory()), np.random.default_rng(0)
    mine.forget([3])  # before anything was remembered
    mine.step(model(rng), replies(rng, [0, 1, 2]), 3)
    mine.forget([1, 7])
    rows = mine.state()["rule.part.updates"]
    assert (rows[1] == 0).all()
    assert (rows[[0, 2]] != 0).any(axis=1).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("memory", r"aggregator: 'memory' is not allowed; allowed: a server rule, with needs and step"),
        (Memory, "aggregator: .* is not allowed"),
        (Memory(keep="file"), "aggregator.keep: 'file' is not allowed; allowed: 'whole' or 'float16'"),
        (QFedAvg(), r"aggregator: L: missing; give QFedAvg\(L=\.\.\.\)"),
    ],
)
def test_rules_that_cannot_work_here_are_refused_at_once(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rule(given)


def test_replies_that_a_rule_cannot_use_are_set_aside() -> None:
    mine, rng = rule(Memory()), np.random.default_rng(0)
    sent = model(rng)
    with pytest.raises(MisfitError, match="it lacks the array b, which the aggregator needs"):
        mine.require_whole(sent, {"w": sent["w"]})
    with pytest.raises(SetAsideError, match="its update is too long"):
        mine.require_whole(sent, {**sent, "w": np.full((3, 2), 1e30, np.float32)})
    mine.require_whole(sent, sent)


def test_a_table_has_the_class_and_parameters() -> None:
    inner = {"class": "ByLoss", "q": 2.0}
    assert rule(Momentum(inner=ByLoss(q=2.0))).table == {"class": "Momentum", "beta": 0.9, "inner": inner}
