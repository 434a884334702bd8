import itertools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from equifl import PowerOfChoice, Rota, Selector, Uniform
from equifl.flower import FairSelection
from tests.flower.conftest import Clock
from tests.flower.federation import initial_arrays
from tests.flower.pretend_grid import (
    Fault,
    PretendGrid,
    cohorts,
    failing,
    fair,
    grid_of,
    play,
    rows,
    saying,
    silent,
    weighing,
    without,
)

pytestmark = pytest.mark.usefixtures("inside_a_run")


def nodes_of(grid: PretendGrid, *partitions: int) -> list[int]:
    return [node for node, partition in grid.partitions.items() if partition in partitions]


def test_the_first_k_replies_end_the_round(clock: Clock, tmp_path: Path) -> None:
    grid = grid_of()
    grid.looks = dict.fromkeys(nodes_of(grid, 1, 6), 10**9)  # these need for ever
    strategy = fair(Uniform(), k=6, extra=2, folder=tmp_path)
    result = play(strategy, grid, 1)
    (row,) = rows(tmp_path)
    assert sorted(row["cohort"]) == list(range(8))
    assert sorted(row["late"]) == [1, 6]
    assert row["set_aside"] == []
    assert strategy.clients.signals(1, []).times_selected.tolist() == [1] * 8, "who was asked was selected"
    without = grid_of()
    without.faults = dict.fromkeys(nodes_of(without, 1, 6), silent)
    expected = play(fair(Uniform(), k=8), without, 1).arrays
    for mine, theirs in zip(result.arrays.values(), expected.values(), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


def shaped(question: Message, reply: Message) -> list[Message]:
    """Arrays of another shape than were sent."""
    reply.content["arrays"] = ArrayRecord([np.zeros(3, np.float32)])
    return [reply]


def bare(question: Message, reply: Message) -> list[Message]:
    """No arrays."""
    del reply.content["arrays"]
    return [reply]


@pytest.mark.parametrize(
    "fault",
    [
        failing,
        weighing(float("nan")),
        without("num-examples"),
        without("train_loss"),
        saying(train_loss=-1.0),
        shaped,
        bare,
    ],
    ids=["error", "nan", "no examples", "no loss", "loss below 0", "other shapes", "no arrays"],
)
def test_unusable_replies_are_not_among_the_first_k(fault: Fault, tmp_path: Path) -> None:
    grid = grid_of()
    grid.faults = {
        node: lambda question, reply: fault(question, reply) if question.metadata.message_type == "train" else [reply]
        for node in nodes_of(grid, 0, 1)
    }
    grid.looks = dict.fromkeys(nodes_of(grid, 2, 3, 4), 3)
    play(fair(PowerOfChoice(), k=5, extra=3, folder=tmp_path), grid, 1)
    assert sorted(rows(tmp_path)[0]["set_aside"]) == [0, 1]
    assert rows(tmp_path)[0]["late"] == []


def test_a_late_reply_to_an_earlier_round_does_not_count(tmp_path: Path) -> None:
    grid = grid_of()
    grid.looks = dict.fromkeys(nodes_of(grid, 1, 6), 3)
    play(fair(Uniform(), k=6, extra=2, folder=tmp_path), grid, 3)
    assert [sorted(row["late"]) for row in rows(tmp_path)] == [[1, 6]] * 3


def test_a_deadline_ends_a_round_without_the_others(clock: Clock, tmp_path: Path) -> None:
    grid = grid_of()
    grid.looks = dict.fromkeys(nodes_of(grid, 0, 1, 2, 3), 10**9)
    play(fair(Uniform(), k=6, extra=2, deadline=30.0, folder=tmp_path), grid, 1)
    assert 30 <= clock.now < 32
    assert rows(tmp_path)[0]["late"] == [], "these are silent: they had their time"
    assert ("evaluate", 30.0) in grid.timeouts


@pytest.mark.parametrize(
    ("timeout", "deadline", "expected"), [(100.0, 30.0, 30.0), (10.0, 30.0, 10.0), (5.0, None, 5.0)]
)
def test_the_shorter_of_timeout_and_deadline_counts(timeout: float, deadline: float | None, expected: float) -> None:
    grid = grid_of()
    strategy = fair(Uniform(), deadline=deadline, probe="newcomers")
    strategy.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=1, timeout=timeout)
    assert grid.timeouts == [("query.equifl", 0.5), ("train", expected), ("evaluate", expected)]


def test_where_fewer_are_online_all_of_them_are_asked(tmp_path: Path) -> None:
    play(fair(Rota(), k=6, extra=4, folder=tmp_path), grid_of(), 2)
    assert [len(cohort) for cohort in cohorts(tmp_path)] == [8, 8]


def test_a_node_that_went_mute_is_asked_ever_more_seldom(tmp_path: Path) -> None:
    """It has the highest loss known, so that Power-of-Choice would ask it in every round."""
    grid, strategy = grid_of(4), fair(PowerOfChoice(candidates=4), k=2, folder=tmp_path, identity="partition-id")
    play(strategy, grid, 6)
    losses = strategy.clients.signals(None, []).losses
    grid.faults = dict.fromkeys(nodes_of(grid, int(np.argmax(losses))), silent)
    play(strategy, grid, 16, strategy.arrays)
    asked = [round for round, cohort in enumerate(cohorts(tmp_path)) if int(np.argmax(losses)) in cohort]
    waits = np.diff([round for round in asked if round >= 6])
    assert waits.tolist() == [1, 2, 4, 8][: len(waits)]
    assert len(waits) == 4


def test_a_mute_node_is_not_waited_for_in_evaluations_either() -> None:
    grid = grid_of()
    (mute,) = nodes_of(grid, 3)
    grid.faults[mute] = silent
    play(fair(Rota(), k=7), grid, 8)
    evaluated = [node for node in grid.asked_to("evaluate") if node == mute]
    assert 2 <= len(evaluated) < 8
    assert grid.asked_to("evaluate").count(nodes_of(grid, 4)[0]) == 8


def silent_to(kind: str) -> Fault:
    return lambda question, reply: [] if question.metadata.message_type == kind else [reply]


@pytest.mark.parametrize("selector", [Rota(), Uniform(), PowerOfChoice()], ids=lambda one: type(one).__name__)
def test_a_mute_node_among_many_delays_few_evaluations(selector: Selector) -> None:
    """It is seldom chosen to train, so that its silence in training alone would hardly count."""
    grid = grid_of(40)
    (mute,) = nodes_of(grid, 7)
    grid.faults[mute] = silent
    play(fair(selector, k=4), grid, 40)
    assert grid.asked_to("evaluate").count(mute) <= 6
    assert grid.asked_to("evaluate").count(nodes_of(grid, 8)[0]) == 40


def test_somebody_evaluates_although_all_rest() -> None:
    """Where a strategy asks for no least number of nodes."""
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, silent_to("evaluate"))
    inner = FedAvg(min_train_nodes=1, min_evaluate_nodes=0, min_available_nodes=0)
    strategy, asked = fair(Rota(), inner, k=4), 0
    for _ in range(6):
        play(strategy, grid, 1, strategy.arrays)
        assert len(grid.asked_to("evaluate")) > asked
        asked = len(grid.asked_to("evaluate"))


def test_who_is_silent_to_evaluations_alone_trains_as_ever() -> None:
    grid = grid_of()
    (mute,) = nodes_of(grid, 3)
    grid.faults[mute] = silent_to("evaluate")
    strategy = fair(Rota(), k=4)
    play(strategy, grid, 16)
    assert grid.asked_to("evaluate").count(mute) == 5, "in rounds 1, 2, 4, 8 and 16"
    assert grid.asked_to("train").count(mute) == 8
    grid.faults = {}
    play(strategy, grid, 20, strategy.arrays)
    assert grid.asked_to("evaluate").count(mute) == 5 + 5, "from round 32 on"


@pytest.mark.parametrize("selector", [Rota(), Uniform(), PowerOfChoice()], ids=lambda one: type(one).__name__)
def test_with_extra_mute_nodes_rest_and_late_ones_do_not(selector: Selector, tmp_path: Path) -> None:
    grid = grid_of(20)
    mute, slow = nodes_of(grid, 3, 7), nodes_of(grid, 5)
    grid.faults = dict.fromkeys(mute, silent)
    grid.looks = dict.fromkeys(slow, 10**9)
    strategy = fair(selector, k=4, extra=2, folder=tmp_path)
    play(strategy, grid, 40)
    assert any(row["late"] for row in rows(tmp_path))
    assert all(grid.asked_to(kind).count(node) <= 6 for node in mute for kind in ("train", "evaluate"))
    (client,) = strategy.clients.of(slow)
    assert client not in strategy.clients.back_off
    assert grid.asked_to("evaluate").count(slow[0]) == 40


def test_a_run_that_is_resumed_knows_who_was_mute(tmp_path: Path) -> None:
    def mute() -> PretendGrid:
        grid = grid_of()
        grid.faults = dict.fromkeys(nodes_of(grid, 2, 5), silent)
        grid.faults |= dict.fromkeys(nodes_of(grid, 1), silent_to("evaluate"))
        return grid

    def evaluators(folder: Path) -> list[list[bool]]:
        return [[value is not None for value in row["client_accuracy"]] for row in rows(folder)]

    options: dict[str, Any] = {"probe": "newcomers", "k": 5}
    play(fair(Rota(), folder=tmp_path / "whole", **options), mute(), 12)
    play(fair(Rota(), folder=tmp_path / "parts", **options), mute(), 5)
    second = FairSelection.resume(
        tmp_path / "parts", FedAvg(), Rota(), identity="partition-id", patience=0.5, **options
    )
    play(second, mute(), 7, second.arrays)
    assert cohorts(tmp_path / "parts") == cohorts(tmp_path / "whole")
    assert evaluators(tmp_path / "parts") == evaluators(tmp_path / "whole")
    assert second.clients.evaluating.state()["evaluating.silences"].max() == 4, "asked in rounds 1, 2, 4 and 8"
    seats = np.bincount(list(itertools.chain(*cohorts(tmp_path / "whole"))), minlength=8)
    assert seats[6:].tolist() == [4, 4], "the two that nobody knows yet"
    assert seats[:6].min() > 7


@pytest.mark.filterwarnings("ignore:no client has sent")  # nobody has
def test_nobody_is_mute_when_all_are_silent(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, silent)
    with caplog.at_level(logging.WARNING, "flwr"):
        play(fair(Rota(), k=8, folder=tmp_path), grid, 4)
    assert [len(cohort) for cohort in cohorts(tmp_path)] == [8] * 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"extra": -1}, "extra: -1 is not allowed"),
        ({"deadline": 0}, "deadline: 0 is not allowed; allowed: above 0 seconds, or None"),
    ],
)
def test_bad_settings_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fair(Rota(), **options)


def test_noise_for_k_replies_takes_no_more() -> None:
    private = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.01, 5.0, num_sampled_clients=3)
    with pytest.raises(
        ValueError, match=r"extra: 2 is not allowed; allowed: 0 with DifferentialPrivacy.*for k replies"
    ):
        fair(Rota(), private, extra=2)
