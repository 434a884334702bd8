import logging
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.common import ndarrays_to_parameters
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from equifl import Rota
from equifl.experiment.checkpoint import read_checkpoint
from equifl.flower.strategy_state import StrategyState
from tests.flower.pretend_grid import cohorts, failing, fair, grid_of, play, rows, saying, silent, weighing

pytestmark = pytest.mark.usefixtures("inside_a_run")


class HalfAsFarEachRound(FedAvg):
    """State in plain attributes, of which Flower knows nothing."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale, self._steps, self.losses = scale, 0, list[float]()

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = cast(Any, super().aggregate_train(server_round, replies))
        self.scale /= 2
        self._steps += 1
        self.losses.append(float(metrics["train_loss"]))
        return ArrayRecord([self.scale * array.numpy() for array in arrays.values()]), metrics


class SavesItself(HalfAsFarEachRound):
    """State that the strategy names itself."""

    def state_dict(self) -> dict[Any, Any]:
        return {"scale": self.scale, 3: (np.float32(self.scale), None, b"bytes")}

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        assert state[3][1:] == (None, b"bytes")
        self.scale = float(state[3][0])


KEEPING = {
    "adam": lambda: flower.FedAdam(),
    "adagrad": lambda: flower.FedAdagrad(),
    "yogi": lambda: flower.FedYogi(),
    "momentum": lambda: flower.FedAvgM(server_momentum=0.9, server_learning_rate=0.5),
    "prox": lambda: flower.FedProx(proximal_mu=0.1),
    "median": lambda: flower.FedMedian(),
    "clipping": lambda: flower.DifferentialPrivacyServerSideFixedClipping(flower.FedAdam(), 0.0, 5.0, 3),
    "adaptive": lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(
        flower.FedYogi(), 0.0, num_sampled_clients=3, clipped_count_stddev=0.0
    ),
    "attributes": lambda: HalfAsFarEachRound(),
    "itself": lambda: SavesItself(),
}


@pytest.mark.parametrize("make", KEEPING.values(), ids=KEEPING)
def test_a_strategy_goes_on_with_what_it_kept(make: Any, tmp_path: Path) -> None:
    """To the last bit: noise is 0 where there is any."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    unbroken = play(fair(Rota(), make(), folder=whole), grid_of(), 6)
    play(fair(Rota(), make(), folder=parts), grid_of(), 3)
    again = fair(Rota(), make(), folder=parts, resume=True)
    result = play(again, grid_of(), 3, again.arrays)
    assert cohorts(parts) == cohorts(whole)
    for ours, theirs in zip(result.arrays.values(), unbroken.arrays.values(), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def accounted(accountant: Any) -> Any:
    return flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 5.0, 3, accountant=accountant)


def accountant_of(max_epsilon: float) -> Any:
    """One that takes 1 for every release, so that what is spent can be told by counting."""
    private = pytest.importorskip("flwr.supercore.privacy_accounting", reason="this Flower has no accountants")
    config = private.PrivacyConfig(
        target_delta=1e-5,
        population_size=8,
        neighboring_relation=private.NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=private.SamplingMethod.NO_AMPLIFICATION,
        max_epsilon=max_epsilon,
    )

    class CountsReleases:
        def __init__(self) -> None:
            self.config, self.num_releases = config, 0

        def compose(self, event: Any, count: int = 1) -> None:
            self.num_releases += count

        def get_privacy_spent(self, delta: float | None = None) -> Any:
            return private.PrivacySpent(float(self.num_releases), 1e-5, self.num_releases, "counted")

        def would_exceed(self, event: Any, max_epsilon: float | None = None, count: int = 1) -> bool:
            return self.num_releases + count > self.config.max_epsilon

        def state_dict(self) -> dict[str, Any]:
            return {"releases": self.num_releases, "max_epsilon": self.config.max_epsilon}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            if state["max_epsilon"] != self.config.max_epsilon:
                raise ValueError("the privacy configuration is another one")
            self.num_releases = state["releases"]

    return CountsReleases()


def test_a_resumed_run_has_spent_what_it_spent_and_ends_at_the_same_budget(tmp_path: Path) -> None:
    first = accountant_of(5)
    from flwr.serverapp.exception import PrivacyBudgetExhausted  # which older Flower lacks, as accountants

    play(fair(Rota(), accounted(first), folder=tmp_path), grid_of(), 3)
    inner = accounted(accountant_of(5))
    again = fair(Rota(), inner, folder=tmp_path, resume=True)
    assert inner.privacy_spent().epsilon == 3
    with pytest.raises(PrivacyBudgetExhausted):
        play(again, grid_of(), 3, again.arrays)
    assert len(rows(tmp_path)) == 5
    with pytest.raises(ValueError, match="cannot be restored: the privacy configuration is another one"):
        fair(Rota(), accounted(accountant_of(50)), folder=tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"accountant: \".*CountsReleases\" there, null here"):
        fair(Rota(), accounted(None), folder=tmp_path, resume=True)


def test_flowers_own_accountant_goes_on_with_what_was_spent(tmp_path: Path) -> None:
    """It composes by Renyi divergences: what is spent is no sum."""
    pytest.importorskip("dp_accounting", reason="Flower's accountant needs dp-accounting")
    config = accountant_of(1e6).config
    from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

    def inner() -> Any:
        return accounted(RdpAccountant(config))

    whole, first, second = inner(), inner(), inner()
    play(fair(Rota(), whole, folder=tmp_path / "whole"), grid_of(), 5)
    play(fair(Rota(), first, folder=tmp_path / "parts"), grid_of(), 3)
    again = fair(Rota(), second, folder=tmp_path / "parts", resume=True)
    assert second.privacy_spent() == first.privacy_spent()
    play(again, grid_of(), 2, again.arrays)
    assert second.privacy_spent() == whole.privacy_spent()
    assert whole.privacy_spent().epsilon > first.privacy_spent().epsilon > 0


@pytest.mark.parametrize("round", [3, 1])
def test_a_round_that_was_cut_off_is_played_again_and_both_count(round: int, tmp_path: Path) -> None:
    """Its model was sent out."""

    def killed(question: Any, reply: Any) -> list[Any]:
        if question.metadata.message_type == "evaluate" and question.content["config"]["server-round"] == round:
            raise KeyboardInterrupt
        return [reply]

    grid, inner = grid_of(), accounted(accountant_of(9))
    grid.faults = dict.fromkeys(grid.partitions, killed)
    with pytest.raises(KeyboardInterrupt):
        play(fair(Rota(), inner, folder=tmp_path), grid, 4)
    inner = accounted(accountant_of(9))
    again = fair(Rota(), inner, folder=tmp_path, resume=True)
    assert again.rounds_played == round - 1
    assert inner.privacy_spent().epsilon == round
    play(again, grid_of(), 2, again.arrays)
    assert inner.privacy_spent().epsilon == round + 2
    assert [row["round"] for row in rows(tmp_path)] == list(range(round + 1))


def test_crashes_in_the_first_round_do_not_go_round_the_budget(tmp_path: Path) -> None:
    def killed(question: Any, reply: Any) -> list[Any]:
        if question.metadata.message_type == "evaluate":
            raise KeyboardInterrupt
        return [reply]

    def start() -> None:
        grid = grid_of()
        grid.faults = dict.fromkeys(grid.partitions, killed)
        play(fair(Rota(), accounted(accountant_of(2)), folder=tmp_path, resume=True), grid, 2)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            start()
    from flwr.serverapp.exception import PrivacyBudgetExhausted  # which older Flower lacks, as accountants

    with pytest.raises(PrivacyBudgetExhausted):
        start()


def test_a_first_round_that_was_interrupted_twice_can_be_resumed(tmp_path: Path) -> None:
    def interrupted(question: Any, reply: Any) -> list[Any]:
        raise KeyboardInterrupt

    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, interrupted)
    strategy = fair(Rota(), accounted(accountant_of(9)), folder=tmp_path)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            play(strategy, grid, 2)
    again = fair(Rota(), accounted(accountant_of(9)), folder=tmp_path, resume=True)
    play(again, grid_of(), 2, again.arrays)
    assert again.rounds_played == 2


def test_with_fewer_nodes_than_the_accountant_allows_the_round_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    grid, inner = grid_of(4), accounted(accountant_of(99))
    grid.offline = set(list(grid.partitions)[:2])
    strategy = fair(Rota(), inner)
    with caplog.at_level(logging.WARNING, "flwr"):
        play(strategy, grid, 2)
    assert "no train, because DifferentialPrivacyServerSideFixedClipping needs 3 nodes and 2 are online" in caplog.text
    assert grid.asked_to("train") == []
    grid.offline = set()
    play(strategy, grid, 2, strategy.arrays)
    assert len(grid.asked_to("train")) == 6
    assert inner.privacy_spent().epsilon == 2


@pytest.mark.parametrize("size", [61, 59.5])
def test_another_number_of_examples_voids_the_round_and_not_the_run(
    size: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With an accountant, Flower takes equal weights alone, and nothing of fewer than k replies."""
    grid, inner = grid_of(), accounted(accountant_of(99))
    odd = next(node for node, partition in grid.partitions.items() if partition == 2)
    grid.faults[odd] = saying(**{"num-examples": size})
    with caplog.at_level(logging.WARNING, "flwr"):
        play(fair(Rota(), inner, folder=tmp_path), grid, 8)
    voided = [row["round"] for row in rows(tmp_path) if row["set_aside"]]
    assert 0 < len(voided) < 8
    assert [row["set_aside"] for row in rows(tmp_path) if row["set_aside"]] == [[2]] * len(voided)
    assert f"it cannot be averaged with the others: weight {float(size)} instead of 60.0" in caplog.text
    made = "DifferentialPrivacyServerSideFixedClipping made no model of 2 of 3 replies; the model is unchanged"
    assert caplog.text.count(made) == len(voided)
    assert inner.privacy_spent().epsilon == 8 - len(voided)


def test_a_round_that_was_interrupted_is_begun_again_by_the_same_strategy() -> None:
    def interrupted(question: Any, reply: Any) -> list[Any]:
        raise KeyboardInterrupt

    grid, inner = grid_of(), accounted(accountant_of(99))
    strategy = fair(Rota(), inner)
    play(strategy, grid, 1)
    grid.faults = dict.fromkeys(grid.partitions, interrupted)
    with pytest.raises(KeyboardInterrupt):
        play(strategy, grid, 1, strategy.arrays)
    grid.faults = {}
    play(strategy, grid, 2, strategy.arrays)
    assert inner.privacy_spent().epsilon == 3


def test_under_a_differential_privacy_wrapper_one_error_voids_the_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its noise is for k replies: an error is passed on, unlike a reply that is set aside for another reason."""

    def warnings(inner: Any, fault: Any) -> int:
        grid = grid_of(3)
        grid.faults = {next(iter(grid.partitions)): fault}
        strategy = fair(Rota(), inner)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "flwr"):
            play(strategy, grid, 2)
        assert strategy.arrays is not None
        moved = any(array.numpy().any() for array in strategy.arrays.values())
        count = caplog.text.count("made no model of 2 of 3 replies; the model is unchanged")
        assert moved == (count == 0)
        return count

    def noisy() -> Any:
        return flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.01, 5.0, 3)

    assert warnings(noisy(), failing) == 2
    assert warnings(noisy(), silent) == warnings(noisy(), weighing(np.nan)) == 0
    assert warnings(FedAvg(), failing) == 0


def test_rounds_that_are_played_again_would_not_be_accounted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="checkpoint_every: 5 is not allowed; allowed: 1, because a strategy with a"):
        fair(Rota(), accounted(accountant_of(9)), folder=tmp_path, checkpoint_every=5)


def mean(records: Any, key: str) -> Any:
    return flower.strategy_utils.aggregate_metricrecords(records, key)


@pytest.mark.parametrize(
    ("there", "here", "name"),
    [
        (flower.FedAdam(eta=0.1), flower.FedAdam(eta=0.2), r"FedAdam\.eta: 0\.1 there, 0\.2 here"),
        (FedAvg(), FedAvg(fraction_evaluate=0.5), r"FedAvg\.fraction_evaluate: 1\.0 there, 0\.5 here"),
        (FedAvg(), flower.FedMedian(), "FedAvg"),
        (
            flower.DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0.1, 3, initial_clipping_norm=0.5),
            flower.DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0.1, 3, initial_clipping_norm=0.7),
            r"clipping_norm: 0\.5 there, 0\.7 here",
        ),
        (FedAvg(), FedAvg(train_metrics_aggr_fn=mean), r"train_metrics_aggr_fn: .* there, .*test_strategy_state:mean"),
    ],
    ids=["eta", "fraction", "strategy", "norm", "function"],
)
def test_other_hyper_parameters_are_refused_by_name(there: Any, here: Any, name: str, tmp_path: Path) -> None:
    play(fair(Rota(), there, folder=tmp_path), grid_of(), 1)
    with pytest.raises(ValueError, match=rf"flower\.strategy\..*{name}"):
        fair(Rota(), here, folder=tmp_path, resume=True)


class Given(FedAvg):
    def __init__(self, value: Any, *, name: str = "_given") -> None:
        super().__init__()
        setattr(self, name, value)


class Schedule:
    def __init__(self, rate: float) -> None:
        self.rate = rate


def scaled(records: Any, key: str, factor: float) -> Any:
    return mean(records, key)


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (partial(scaled, factor=0.1), partial(scaled, factor=0.9)),
        (partial(scaled, factor=0.1), partial(mean)),
        (partial(scaled, np.zeros(3), factor=0.1), partial(scaled, np.zeros(3), factor=0.9)),
        (partial(partial(scaled, factor=0.1), key="a"), partial(partial(scaled, factor=0.9), key="a")),
        ({"a": [partial(scaled, factor=0.1)]}, {"a": [partial(scaled, factor=0.9)]}),
        ([partial(scaled, factor=0.1), np.zeros(3)], [partial(scaled, factor=0.9), np.zeros(3)]),
    ],
)
@pytest.mark.parametrize("name", ["_given", "given"])
def test_other_values_bound_in_partial_functions_are_refused(
    there: Any, here: Any, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    play(fair(Rota(), Given(there, name=name), folder=tmp_path), grid_of(), 1)
    with pytest.raises(ValueError, match=rf"Given\.{name} had another value there; give the strategy the same one"):
        fair(Rota(), Given(here, name=name), folder=tmp_path, resume=True)
    with caplog.at_level(logging.WARNING, "flwr"):
        assert fair(Rota(), Given(there, name=name), folder=tmp_path, resume=True).rounds_played == 1
    assert "had another value" not in caplog.text
    assert "0.1" not in (tmp_path / "config.json").read_text(), "it may be a secret"


@pytest.mark.parametrize(
    ("there", "here"),
    [(0.1, 0.9), ([1, {"a": None}], [1, {"a": 2}]), (None, 0.9), (mean, scaled), ({"a", "b"}, {"a"})],
)
def test_other_private_attributes_are_named_and_the_run_goes_on(
    there: Any, here: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They may differ by construction, as times and temporary paths do."""
    play(fair(Rota(), Given(there), folder=tmp_path), grid_of(), 1)
    inner = Given(here)
    with caplog.at_level(logging.WARNING, "flwr"):
        assert fair(Rota(), inner, folder=tmp_path, resume=True).rounds_played == 1
    assert "Given._given had another value when the run began; it goes on with the present one" in caplog.text
    assert cast(Any, inner)._given == here
    assert "0.1" not in (tmp_path / "config.json").read_text(), "it may be a secret"
    caplog.clear()
    assert fair(Rota(), Given(there), folder=tmp_path, resume=True).rounds_played == 1
    assert "had another value" not in caplog.text


def test_private_attributes_of_a_strategy_that_saves_itself_are_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def made(value: float) -> Any:
        inner = cast(Any, SavesItself())
        inner._started, inner._function = value, partial(scaled, factor=value)
        return inner

    play(fair(Rota(), made(1.0), folder=tmp_path), grid_of(), 1)
    inner = made(2.0)
    with caplog.at_level(logging.WARNING, "flwr"):
        assert fair(Rota(), inner, folder=tmp_path, resume=True).rounds_played == 1
    assert inner._started == 2.0
    assert "had another value" not in caplog.text


def test_the_same_strategy_goes_on_with_the_private_list_that_it_wrote(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Listing(FedAvg):
        def __init__(self) -> None:
            super().__init__()
            self._seen: list[int] = []

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            if len(self._seen) < 2:
                self._seen.append(server_round)
            return super().aggregate_train(server_round, replies)

    inner = Listing()
    with caplog.at_level(logging.WARNING, "flwr"):
        play(fair(Rota(), inner, folder=tmp_path), grid_of(), 2)
        again = fair(Rota(), inner, folder=tmp_path, resume=True)
    assert "had another value" not in caplog.text
    play(again, grid_of(), 1, again.arrays)
    inner = Listing()
    fair(Rota(), inner, folder=tmp_path, resume=True)
    assert inner._seen == [1, 2]


def test_lists_that_hold_themselves_are_settings_as_well() -> None:
    value: list[Any] = [1]
    value += [value, {"a": value}]
    assert StrategyState(Holder(value)).settings == {"Holder": {"value": [1, "builtins:list", {"a": "builtins:list"}]}}


@pytest.mark.parametrize(("there", "here"), [(np.zeros(3), np.ones(3)), (Schedule(0.1), Schedule(0.9))])
@pytest.mark.parametrize("name", ["_given", "given"])
def test_other_arrays_and_objects_in_attributes_are_taken(there: Any, here: Any, name: str, tmp_path: Path) -> None:
    play(fair(Rota(), Given(there, name=name), folder=tmp_path), grid_of(), 1)
    assert fair(Rota(), Given(here, name=name), folder=tmp_path, resume=True).rounds_played == 1


def test_a_private_attribute_that_changed_is_state_and_no_other_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Counts(FedAvg):
        def __init__(self, given: int) -> None:
            super().__init__()
            self._given = given

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            self._given += 1
            return super().aggregate_train(server_round, replies)

    play(fair(Rota(), Counts(5), folder=tmp_path), grid_of(), 2)
    inner = Counts(5)
    again = fair(Rota(), inner, folder=tmp_path, resume=True)
    assert inner._given == 7
    play(again, grid_of(), 1, again.arrays)
    inner = Counts(6)
    with caplog.at_level(logging.WARNING, "flwr"):
        fair(Rota(), inner, folder=tmp_path, resume=True)
    assert inner._given == 8
    assert "Counts._given had another value when the run began; it goes on with the checkpoint's" in caplog.text


def test_initial_arrays_of_another_shape_are_refused_and_other_ones_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    play(fair(Rota(), folder=tmp_path), grid_of(), 2)
    other = ArrayRecord([np.zeros((20, 9), np.float32), np.zeros(9, np.float32)])
    with pytest.raises(ValueError, match=r"initial_arrays: 0 is \(20, 10\) there and \(20, 9\) here; go on with this"):
        play(fair(Rota(), folder=tmp_path, resume=True), grid_of(), 1, other)
    with caplog.at_level(logging.WARNING, "flwr"):
        again = fair(Rota(), folder=tmp_path, resume=True)
        play(again, grid_of(), 1, again.arrays)
        assert again.arrays is not None
        again = fair(Rota(), folder=tmp_path, resume=True)
        assert again.arrays is not None
        play(again, grid_of(), 1, again.arrays.copy())
        assert "begins with other arrays" not in caplog.text
        play(fair(Rota(), folder=tmp_path, resume=True), grid_of(), 1)
    assert "round 5 begins with other arrays than round 4 ended with" in caplog.text


def test_what_a_checkpoint_cannot_hold_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Draws(FedAvg):
        def __init__(self) -> None:
            super().__init__()
            self.rng, self.log, self.path = np.random.default_rng(0), logging.getLogger("mine"), Path("somewhere")

    with caplog.at_level(logging.WARNING, "flwr"):
        play(fair(Rota(), Draws(), folder=tmp_path), grid_of(), 3)
    assert caplog.text.count("checkpoints do not hold Draws.rng (Generator); if they change, give") == 1
    assert fair(Rota(), Draws(), folder=tmp_path, resume=True).rounds_played == 3


class Holder:
    def __init__(self, value: Any = None) -> None:
        self.value = value


SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=8,
)


@given(VALUES)
def test_values_come_back_as_they_were(value: Any) -> None:
    again = Holder()
    again_state = StrategyState(again)
    first = Holder()
    state = StrategyState(first)
    first.value = value
    again_state.load(state.state())
    assert again.value == value
    assert type(again.value) is type(value)


def test_arrays_come_back_as_they_were() -> None:
    first, again = Holder(), Holder()
    states = StrategyState(first), StrategyState(again)
    record = ArrayRecord({"w": ArrayRecord([np.eye(2)])["0"]})
    first.value = [np.arange(3, dtype=np.int8), record, ndarrays_to_parameters([np.ones(2)]), np.float32(0.1)]
    states[1].load(states[0].state())
    array, arrays, parameters, scalar = again.value
    np.testing.assert_array_equal(array, np.arange(3))
    assert array.dtype == np.int8
    np.testing.assert_array_equal(arrays["w"].numpy(), np.eye(2))
    assert parameters == first.value[2]
    assert (scalar, type(scalar)) == (np.float32(0.1), np.float32)


def test_arrays_that_were_there_from_the_beginning_are_kept_only_if_they_change() -> None:
    """They may be a data set to validate with."""
    first = Holder({"x": np.zeros(1000)})
    state = StrategyState(first)
    assert list(state.state()) == ["strategy", "strategy.given"]
    first.value["x"][7] = 1
    assert state.state()["strategy.0"].shape == (1000,)
    again = Holder({"x": np.zeros(1000)})
    StrategyState(again).load(state.state())
    assert again.value["x"][7] == 1


def test_a_setting_that_never_changed_is_not_in_the_checkpoint(tmp_path: Path) -> None:
    play(fair(Rota(), flower.FedAdam(), folder=tmp_path), grid_of(), 1)
    arrays = read_checkpoint(tmp_path / "checkpoint.npz")
    assert arrays is not None
    assert str(arrays["strategy"]).count('"m_t"') == str(arrays["strategy"]).count('"v_t"') == 1
    assert "eta" not in str(arrays["strategy"])
    assert "current_arrays" not in str(arrays["strategy"])
