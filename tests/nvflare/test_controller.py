import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator

from equifl import Rota, SubTrunc
from equifl.aggregators import Memory, Momentum
from equifl.experiment.results import load_results
from equifl.nvflare import FairFedAvg
from equifl.selectors import SELECTORS
from tests.nvflare.pretend_server import (
    MODEL,
    PretendServer,
    Site,
    changed,
    model_in,
    numbers,
    play,
    rows,
    site,
    sites,
)


@pytest.mark.filterwarnings("ignore:no client has sent")  # in the first round nobody has
@pytest.mark.parametrize("name", [*SELECTORS, {"class": "tests.own_selector:Plain", "first": 1}], ids=str)
def test_every_selector_chooses_and_a_resumed_run_goes_on_as_an_unbroken_one(name: Any, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options: dict[str, Any] = {"selector": name, "evaluate_every": 1}
    unbroken = play(sites(8), whole, num_rounds=6, **options)
    assert all(len(set(cohort)) == 3 for cohort in unbroken.cohorts)
    folder = str(tmp_path / "run")
    first = play(sites(8), parts, num_rounds=3, folder=folder, **options)
    second = play(sites(8), parts, num_rounds=6, folder=folder, resume=True, **options)
    assert second.logged("goes on after round 2")
    assert sorted(rows(Path(folder))[0]["names"].values()) == [f"site-{i}" for i in range(1, 9)]
    assert not any("names" in row for row in rows(Path(folder))[1:])
    assert first.cohorts + second.cohorts == unbroken.cohorts
    assert [row["cohort"] for row in rows(Path(folder))] == [row["cohort"] for row in rows(whole / "equifl")]
    for key, array in model_in(whole).items():
        np.testing.assert_allclose(model_in(parts)[key], array, rtol=1e-6)
    again = play(sites(8), parts, num_rounds=6, folder=folder, resume=True, **options)
    assert again.logged("all 6 rounds are played already")
    assert again.sent == []


def test_the_average_is_weighted_by_steps_and_in_the_model_s_types(tmp_path: Path) -> None:
    server = play(sites(3), tmp_path, num_rounds=1)
    results = [site(i)(FLModel(params=MODEL), "train") for i in (1, 2, 3)]
    expected = np.average([one.params["w"] for one in results if one], axis=0, weights=[11, 12, 13])
    model = model_in(tmp_path)
    np.testing.assert_allclose(model["w"], expected, rtol=1e-5)
    assert {array.dtype for array in model.values()} == {np.dtype(np.float32)}
    assert model["steps"] == [1.0]
    assert sorted(numbers(server.cohorts[0])) == [1, 2, 3]


def test_a_run_is_recorded_for_tables_and_reports(tmp_path: Path) -> None:
    server = play(sites(6), tmp_path, num_rounds=4, evaluate_every=2)
    validated = [targets for task, targets, _ in server.sent if task == "validate"]
    assert [len(targets) for targets in validated] == [6, 6]
    records = rows(tmp_path / "equifl")
    assert [row["round"] for row in records] == [0, 1, 2, 3]
    assert ["accuracy" in row for row in records] == [False, True, False, True]
    assert records[-1]["participation"]["gini"] == pytest.approx(0)
    assert len(records[-1]["client_accuracy"]) == 6
    sent = sum(array.nbytes for array in MODEL.values())
    assert (records[0]["bytes_down"], records[0]["bytes_up"]) == (3 * sent, 3 * sent)
    results = load_results(tmp_path / "equifl")
    assert "rota" in results.table().to_csv()
    page = results.report().read_text()
    assert "recorded by <code>equifl.nvflare.FairFedAvg</code>" in page


def test_without_evaluation_accuracies_of_the_cohort_count_for_the_model_they_were_sent(tmp_path: Path) -> None:
    play(sites(4), tmp_path, num_rounds=2, num_clients=2)
    first = rows(tmp_path / "equifl")[0]
    known = [value for value in first["client_accuracy"] if value is not None]
    assert len(known) == 2
    one = site(first["cohort"][0] + 1)(FLModel(params=MODEL), "validate")
    assert one is not None
    assert first["client_accuracy"][first["cohort"][0]] == pytest.approx(100 * one.metrics["accuracy"], abs=1e-3)


def test_a_run_without_accuracies_warns_once_and_tables_say_what_to_do(tmp_path: Path) -> None:
    def no_accuracy(result: FLModel) -> FLModel:
        del result.metrics["accuracy"]
        return result

    there: dict[str, Site] = {f"site-{i}": changed(i, no_accuracy) for i in (1, 2, 3)}
    server = play(there, tmp_path, num_rounds=3)
    assert len(server.logged("round 0: no training result has `accuracy`, so the report will have no figures")) == 1
    assert len(server.logged("no figures: set evaluate_every=1, or send it")) == 1
    with pytest.raises(ValueError, match=r"no round was evaluated; .*evaluate_every=1"):
        load_results(tmp_path / "equifl").table()
    assert not play(sites(3), tmp_path / "sent", num_rounds=1).logged("no training result has")
    assert not play(there, tmp_path / "asked", num_rounds=2, evaluate_every=2).logged("no training result has")


def nan(result: FLModel) -> FLModel:
    result.params["w"] = result.params["w"] * np.nan
    return result


def short(result: FLModel) -> FLModel:
    result.params["w"] = result.params["w"][:2]
    return result


def renamed(result: FLModel) -> FLModel:
    result.params["v"] = result.params.pop("w")
    return result


def endless(result: FLModel) -> FLModel:
    result.meta["NUM_STEPS_CURRENT_ROUND"] = float("inf")
    return result


def no_table(result: FLModel) -> FLModel:
    result.params = [1.0, 2.0]
    return result


def of_text(result: FLModel) -> FLModel:
    result.params["w"] = np.array(["a"] * 6)
    return result


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (nan, "its weights are not finite"),
        (short, "its array w has shape (2,), not (6,)"),
        (renamed, "it holds other arrays than were sent: v"),
        (endless, "NUM_STEPS_CURRENT_ROUND is inf"),
        (no_table, "its parameters are of type list"),
        (of_text, "its array w is of type <U1, not of numbers"),
    ],
)
def test_a_result_that_cannot_be_used_is_set_aside_and_named(wrong: Any, why: str, tmp_path: Path) -> None:
    server = play(sites(3, site_2=changed(2, wrong)), tmp_path, num_rounds=2)
    assert server.logged(f"round 0: a result of site-2 is set aside: {why}")
    assert [row["set_aside"] for row in rows(tmp_path / "equifl")] == [[1], [1]]
    assert [row["cohort"] for row in rows(tmp_path / "equifl")], "who was asked counts as selected"
    honest = play(sites(3, site_2=lambda received, task: None), tmp_path / "honest", num_rounds=2)
    assert honest.logged("round 0: no result of site-2 (silent, late or failed)")
    for key, array in model_in(tmp_path / "honest").items():
        np.testing.assert_array_equal(model_in(tmp_path)[key], array)


def test_differences_and_whole_parameters_can_be_mixed(tmp_path: Path) -> None:
    def as_difference(result: FLModel) -> FLModel:
        # In the first round the model is MODEL.
        params = {key: array - MODEL[key] for key, array in result.params.items()}
        return FLModel(ParamsType.DIFF, params, metrics=result.metrics, meta=result.meta)

    play(sites(3), tmp_path / "full", num_rounds=1)
    play(sites(3, site_1=changed(1, as_difference)), tmp_path / "first", num_rounds=1)
    play(sites(3, site_3=changed(3, as_difference)), tmp_path / "last", num_rounds=1)
    every: dict[str, Site] = {f"site-{i}": changed(i, as_difference) for i in (1, 2, 3)}
    play(every, tmp_path / "diff", num_rounds=1)
    for other in ("first", "last", "diff"):
        for key, array in model_in(tmp_path / "full").items():
            np.testing.assert_allclose(model_in(tmp_path / other)[key], array, rtol=1e-5, atol=1e-6)


def test_differences_that_are_sent_as_whole_parameters_end_the_job(tmp_path: Path) -> None:
    model = {"w": np.ones(6, np.float32), "b": np.ones(2, np.float32), "steps": np.ones(1, np.float32)}

    def as_difference(result: FLModel) -> FLModel:
        result.params = {key: 0.1 * (array - model[key]) for key, array in result.params.items()}
        return result

    def said_so(result: FLModel) -> FLModel:
        result.params_type = ParamsType.DIFF
        return as_difference(result)

    every: dict[str, Site] = {f"site-{i}": changed(i, as_difference) for i in (1, 2, 3)}
    server = play(every, tmp_path, model=model)
    assert len(server.cohorts) == 1
    assert "equifl: all results are sent as whole parameters (FULL), but look like differences" in server.log[-1]
    assert rows(tmp_path / "equifl") == []
    assert len(play(sites(3, site_2=every["site-2"]), tmp_path / "one", model=model, num_rounds=2).cohorts) == 2
    right: dict[str, Site] = {f"site-{i}": changed(i, said_so) for i in (1, 2, 3)}
    assert len(play(right, tmp_path / "right", model=model, num_rounds=2).cohorts) == 2


def no_loss(result: FLModel) -> FLModel:
    del result.metrics["train_loss"]
    return result


def tiny(result: FLModel) -> FLModel:
    result.params = {key: 1e-3 * array for key, array in result.params.items()}
    return result


class OnlyTwoInTime(PretendServer):
    """The results of the others come after `grace`."""

    def broadcast_model(self, data: FLModel, task_name: str, targets: list[str], **options: Any) -> list[FLModel]:
        in_time = [name for name in targets if task_name != "train" or name in ("site-1", "site-2")]
        return super().broadcast_model(data, task_name, in_time, **options)


def test_two_odd_sites_of_six_do_not_end_the_job(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "model": {key: np.ones_like(array) for key, array in MODEL.items()},
        "num_rounds": 2,
        "num_clients": 6,
        "selector": "uniform",
    }
    odd: dict[str, Site] = {f"site-{i}": changed(i, tiny) for i in (1, 2)}
    fast = OnlyTwoInTime(sites(6) | odd, tmp_path / "fast", min_responses=2, **options)
    fast.run()
    assert len(rows(tmp_path / "fast" / "equifl")) == 2
    unusable: dict[str, Site] = {f"site-{i}": changed(i, nan) for i in (3, 4, 5, 6)}
    play(odd | unusable, tmp_path / "unusable", **options)
    assert [row["set_aside"] for row in rows(tmp_path / "unusable" / "equifl")] == [[2, 3, 4, 5]] * 2
    most: dict[str, Site] = {f"site-{i}": changed(i, tiny) for i in (1, 2, 3, 4)}
    server = play(most | {f"site-{i}": unusable[f"site-{i}"] for i in (5, 6)}, tmp_path / "most", **options)
    assert "look like differences" in server.log[-1]


def test_results_that_an_aggregator_cannot_take_are_not_looked_at(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": {key: np.ones_like(array) for key, array in MODEL.items()}, "num_clients": 4}
    odd: dict[str, Site] = {f"site-{i}": changed(i, tiny) for i in (1, 2)}
    odd |= {"site-3": changed(3, lambda result: no_loss(tiny(result))), "site-4": changed(4, nan)}
    play(odd, tmp_path, num_rounds=2, aggregator=ByLoss(), selector="uniform", **options)
    assert [row["set_aside"] for row in rows(tmp_path / "equifl")] == [[2, 3], [2, 3]]


def test_a_site_may_train_a_part_of_the_model(tmp_path: Path) -> None:
    def only_w(result: FLModel) -> FLModel:
        return FLModel(ParamsType.FULL, {"w": result.params["w"]}, metrics=result.metrics, meta=result.meta)

    every: dict[str, Site] = {f"site-{i}": changed(i, only_w) for i in (1, 2, 3)}
    play(every, tmp_path, num_rounds=1)
    model = model_in(tmp_path)
    assert list(model) == ["w", "b", "steps"]
    np.testing.assert_array_equal(model["b"], MODEL["b"])
    assert model["w"].any()
    frozen = tmp_path / "frozen"
    play(sites(3), frozen, num_rounds=1, exclude_vars="^w$")
    np.testing.assert_array_equal(model_in(frozen)["w"], MODEL["w"])


def test_where_no_result_is_usable_the_model_and_the_run_stay(tmp_path: Path) -> None:
    every: dict[str, Site] = {f"site-{i}": lambda received, task: None for i in (1, 2, 3)}
    with pytest.warns(UserWarning, match="no client has sent updates yet"):
        server = play(every, tmp_path, num_rounds=2)
    assert server.logged("round 1: no result is usable; the model is unchanged")
    np.testing.assert_array_equal(model_in(tmp_path)["b"], MODEL["b"])
    assert len(rows(tmp_path / "equifl")) == 2


def test_a_loss_that_no_script_sends_ends_the_job_with_what_to_do(tmp_path: Path) -> None:
    def silent_on_loss(result: FLModel) -> FLModel:
        return FLModel(ParamsType.FULL, result.params, meta=result.meta)

    every: dict[str, Site] = {f"site-{i}": changed(i, silent_on_loss) for i in (1, 2, 3)}
    server = play(every, tmp_path, selector="power_of_choice", num_rounds=5)
    assert len(server.cohorts) == 1
    assert re.search(
        r"equifl: no result can be used: no metric `train_loss` .*name its metric \(loss=\)", server.log[-1]
    )


def test_one_site_without_a_loss_beside_others_with_nan_does_not_end_the_job(tmp_path: Path) -> None:
    every: dict[str, Site] = {"site-1": changed(1, no_loss)} | {f"site-{i}": changed(i, nan) for i in (2, 3)}
    with pytest.warns(UserWarning, match="no client has sent losses yet"):
        play(every, tmp_path, selector="power_of_choice", num_rounds=2, num_clients=3)
    assert [row["set_aside"] for row in rows(tmp_path / "equifl")] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("nothing", [None, {}])
def test_scripts_that_send_no_parameters_end_the_job_with_what_to_do(nothing: Any, tmp_path: Path) -> None:
    def without(result: FLModel) -> FLModel:
        empty = FLModel(metrics=result.metrics, meta=result.meta)
        empty.params = nothing
        return empty

    every: dict[str, Site] = {f"site-{i}": changed(i, without) for i in (1, 2, 3)}
    server = play(every, tmp_path, num_rounds=5)
    assert len(server.cohorts) == 1
    assert "equifl: no result can be used: it holds no parameters, which a script sends as" in server.log[-1]
    assert not server.logged("silent")
    nothing_else = play(every, tmp_path / "uniform", num_rounds=5, selector="uniform")
    assert nothing_else.log[-1].endswith("it holds no parameters, which a script sends as flare.FLModel(params=...)")
    one = play(sites(3, site_2=changed(2, without)), tmp_path / "one", num_rounds=1)
    assert one.logged("round 0: a result of site-2 is set aside: it holds no parameters")


def test_waits_are_bounded_and_a_cohort_is_never_everybody_by_mistake(tmp_path: Path) -> None:
    options: dict[str, Any] = {"timeout": 7, "min_responses": 2, "grace": 3, "evaluate_every": 1}
    server = play(sites(4), tmp_path, num_rounds=1, evaluation_timeout=9, **options)
    (_, _, train), (_, _, validate) = server.sent
    assert (train["timeout"], train["min_responses"], train["wait_time_after_min_received"]) == (7, 2, 3)
    assert validate["timeout"] == 9
    nobody = PretendServer(sites(2), tmp_path / "nobody", num_rounds=1)
    nobody.gone = {"site-1", "site-2"}
    nobody.run()
    assert nobody.sent == []
    assert nobody.logged("rota chooses nobody")


def test_a_site_that_is_gone_is_not_chosen_and_keeps_its_history(tmp_path: Path) -> None:
    server = PretendServer(sites(5), tmp_path, num_rounds=9)
    server.after_round = lambda played: server.gone.update({"site-2"}) if played == 2 else server.gone.clear()
    server.run()
    assert "site-2" not in server.cohorts[3]
    assert any("site-2" in cohort for cohort in server.cohorts[4:])
    assert rows(tmp_path / "equifl")[-1]["participation"]["gini"] < 0.1


class Largest(ModelAggregator):  # type: ignore[misc]
    """Takes the result with the largest norm."""

    def __init__(self) -> None:
        super().__init__()
        self.reset_stats()

    def accept_model(self, model: FLModel) -> None:
        self.seen.append(model)

    def aggregate_model(self) -> FLModel:
        return max(self.seen, key=lambda model: float(np.linalg.norm(model.params["w"])))

    def reset_stats(self) -> None:
        self.seen: list[Any] = []


def test_a_site_that_went_mute_is_asked_ever_more_seldom(tmp_path: Path) -> None:
    """It has the highest loss known, so that Power-of-Choice would ask it in every round."""
    options: dict[str, Any] = {"selector": {"class": "power_of_choice", "candidates": 4}, "num_clients": 2}
    folder, answers = str(tmp_path / "run"), sites(4)
    first = play(answers, tmp_path, num_rounds=6, folder=folder, **options)
    mute = first.cohorts[-1][0]
    dumb = answers | {mute: changed(int(mute[-1]), lambda result: None)}
    later = play(dumb, tmp_path, num_rounds=22, folder=folder, resume=True, **options)
    asked = [round for round, cohort in enumerate(later.cohorts) if mute in cohort]
    assert np.diff(asked).tolist() == [1, 2, 4, 8]


def test_a_mute_site_is_not_waited_for_by_evaluations_until_it_has_answered(tmp_path: Path) -> None:
    awake = False

    def mute(received: FLModel, task: str) -> FLModel | None:
        return site(5)(received, task) if awake else None

    def wake(played: int) -> None:
        nonlocal awake
        awake = played >= 6

    server = PretendServer(sites(6, site_5=mute), tmp_path, num_rounds=12, num_clients=2, evaluate_every=1)
    server.after_round = wake
    server.run()
    waited = [round for round, targets in enumerate(_validated(server)) if "site-5" in targets]
    asked = [round for round, cohort in enumerate(server.cohorts) if "site-5" in cohort]
    first = next(round for round in asked if round > 6)
    assert waited == [*range(asked[0] > 0), *range(first, 12)]
    assert any(round <= 6 for round in asked), "it is asked to train all the same"


def _validated(server: PretendServer) -> list[list[str]]:
    return [targets for task, targets, _ in server.sent if task == "validate"]


def test_an_aggregator_of_one_s_own_sees_the_usable_results_alone(tmp_path: Path) -> None:
    def huge(result: FLModel) -> FLModel:
        result.params["w"] = np.full(6, np.inf, np.float32)
        return result

    play(sites(3, site_2=changed(2, huge)), tmp_path, num_rounds=1, aggregator=Largest())
    results = [site(i)(FLModel(params=MODEL), "train") for i in (1, 3)]
    largest = max((one.params["w"] for one in results if one), key=lambda w: float(np.linalg.norm(w)))
    np.testing.assert_array_equal(model_in(tmp_path)["w"], largest)
    config = json.loads((tmp_path / "equifl" / "config.json").read_text())["config"]
    assert config["nvflare"]["aggregator"] == "Largest"


class ByLoss(Largest):
    """Takes the result with the lowest loss."""

    def accept_model(self, model: FLModel) -> None:
        self.seen.append((model.metrics["train_loss"], model))

    def aggregate_model(self) -> FLModel:
        return min(self.seen, key=lambda pair: pair[0])[1]


def test_one_site_does_not_end_the_job_through_an_aggregator_of_one_s_own(tmp_path: Path) -> None:
    server = play(sites(3, site_2=changed(2, no_loss)), tmp_path / "one", num_rounds=2, aggregator=ByLoss())
    assert len(server.cohorts) == 2
    why = "aggregator: ByLoss.accept_model raised KeyError: 'train_loss'"
    assert server.logged(f"round 1: a result of site-2 is set aside: {why}")
    assert [row["set_aside"] for row in rows(tmp_path / "one" / "equifl")] == [[1], [1]]
    every: dict[str, Site] = {f"site-{i}": changed(i, no_loss) for i in (1, 2, 3)}
    wrong = play(every, tmp_path / "all", num_rounds=2, aggregator=ByLoss())
    assert len(wrong.cohorts) == 1
    assert wrong.log[-1] == f"equifl: {why}"


def test_the_rule_that_the_average_is_changes_nothing(tmp_path: Path) -> None:
    def difference(result: FLModel) -> FLModel:
        result.params = {key: array - MODEL[key] for key, array in result.params.items() if key != "b"}
        result.params_type = ParamsType.DIFF
        return result

    there = sites(3, site_2=changed(2, difference))
    play(there, tmp_path / "average", num_rounds=1)
    play(there, tmp_path / "rule", num_rounds=1, server_rule="size")
    for key, array in model_in(tmp_path / "average").items():
        np.testing.assert_allclose(model_in(tmp_path / "rule")[key], array, rtol=1e-5, atol=1e-6)
    play(there, tmp_path / "kept", num_rounds=1, server_rule="size", exclude_vars="^w$")
    np.testing.assert_array_equal(model_in(tmp_path / "kept")["w"], MODEL["w"])


@pytest.mark.parametrize("rule", ["memory", {"class": "memory", "q": 1.0}, "selector", Momentum(inner=Memory())])
def test_a_resumed_run_makes_the_model_of_an_unbroken_one(rule: Any, tmp_path: Path) -> None:
    whole, parts, options = tmp_path / "whole", tmp_path / "parts", {"selector": "divfl", "server_rule": rule}
    play(sites(8), whole, num_rounds=6, **options)
    for rounds in (3, 6):
        play(sites(8), parts, num_rounds=rounds, folder=str(tmp_path / "run"), resume=True, **options)
    for key, array in model_in(whole).items():
        np.testing.assert_array_equal(model_in(parts)[key], array)
    other = play(sites(8), parts, num_rounds=9, folder=str(tmp_path / "run"), resume=True, selector="divfl")
    assert other.logged("nvflare.server_rule")


def test_a_rule_that_needs_losses_sets_results_without_aside(tmp_path: Path) -> None:
    server = play(sites(3, site_2=changed(2, no_loss)), tmp_path, num_rounds=2, server_rule="loss")
    assert server.logged("a result of site-2 is set aside: no metric `train_loss`")
    assert np.isfinite(model_in(tmp_path)["w"]).all()


def test_a_run_is_not_overwritten_nor_resumed_with_another_model(tmp_path: Path) -> None:
    play(sites(3), tmp_path, num_rounds=1)
    assert "holds a run; resume=True continues it" in play(sites(3), tmp_path, num_rounds=1).log[-1]
    other = MODEL | {"w": np.zeros(7)}
    server = play(sites(3), tmp_path, num_rounds=2, resume=True, model=other)
    assert "its global model is another one (w is (6,) there and (7,) here)" in server.log[-1]
    settings = play(sites(3), tmp_path, num_rounds=2, resume=True, num_clients=2)
    assert "per_round: 3 there, 2 here" in settings.log[-1]


@pytest.mark.parametrize("option", [{"exclude_vars": "^w$"}, {"aggregation_weights": {"site-1": 2.0}}])
def test_a_run_is_not_resumed_with_another_average(option: dict[str, Any], tmp_path: Path) -> None:
    for given, other in (({}, option), (option, {})):
        folder = str(tmp_path / str(bool(given)))
        play(sites(3), tmp_path, num_rounds=1, folder=folder, **given)
        refused = play(sites(3), tmp_path, num_rounds=2, folder=folder, resume=True, **other)
        assert f"nvflare.{next(iter(option))}" in refused.log[-1]
        assert play(sites(3), tmp_path, num_rounds=2, folder=folder, resume=True, **given).logged("goes on after")


def test_a_folder_that_ends_with_the_job_cannot_be_resumed_and_says_so(tmp_path: Path) -> None:
    text = "which is within the results of this job; give an absolute path as folder"
    assert play(sites(3), tmp_path / "job", num_rounds=1, resume=True).logged(text)
    assert not play(sites(3), tmp_path / "job", num_rounds=2, resume=True).logged(text)
    assert not play(sites(3), tmp_path, num_rounds=1, resume=True, folder=str(tmp_path / "run")).logged(text)
    assert not play(sites(3), tmp_path / "new", num_rounds=1).logged(text)


def test_a_folder_that_cannot_be_made_ends_the_job_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = play(sites(3), tmp_path, num_rounds=1, folder=str(tmp_path / "file" / "run"))
    assert "equifl: folder: " in server.log[-1]
    assert "file/run cannot be used ([Errno" in server.log[-1]
    assert server.log[-1].endswith("give one that the server may write")


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    play(sites(3), tmp_path, num_rounds=1, folder="", save_filename="")
    assert list(tmp_path.iterdir()) == []


def test_fairness_can_end_a_run(tmp_path: Path) -> None:
    server = play(sites(6), tmp_path, num_rounds=9, evaluate_every=1, stop_cond="dissimilarity <= 100")
    assert len(server.cohorts) == 1
    assert server.logged("Early stop condition satisfied")


def test_early_stopping_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")  # after two rounds everybody was selected: from then on nothing improves
    options: dict[str, Any] = {"stop_cond": "participation-never < 0", "patience": 3, "folder": folder, "resume": True}
    play(sites(6), tmp_path, num_rounds=3, **options)
    server = play(sites(6), tmp_path, num_rounds=9, **options)
    assert len(rows(Path(folder))) == 5
    assert server.logged("Exceeded the number of FL rounds")
    again = play(sites(6), tmp_path, num_rounds=9, **options)
    assert again.sent == []
    assert again.logged("stopped early after round 4 already")
    other = play(sites(6), tmp_path, num_rounds=6, **options | {"stop_cond": "participation-gini < -1"})
    assert len(other.cohorts) == 1  # another metric begins anew


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selector": "rotta"}, "FairFedAvg.selector.class: unknown selector; did you mean `rota`?"),
        ({"selector": {"class": "subtrunc", "lamb": 1}}, "FairFedAvg.selector.lamb: unknown key; did you mean `lam`?"),
        ({"selector": SubTrunc(phi=np.sqrt)}, "a job is JSON; write a class that has it built in"),
        ({"server_rule": "memry"}, "server_rule: unknown server rule; did you mean `memory`?"),
        ({"server_rule": {"class": "memory", "keep": "file"}}, "aggregator.keep: 'file' is not allowed"),
        ({"server_rule": "size", "aggregator": Largest()}, "server_rule: 'size' is not allowed; allowed: '' with an"),
        ({"stop_con": "accuracy > 1"}, "FairFedAvg: 'stop_con' is not known; did you mean 'stop_cond'?"),
        ({"exclude_vars": "("}, "exclude_vars: '(' is not a regular expression (missing )"),
        ({"num_clients": 0}, "num_clients: 0 is not allowed"),
        ({"min_responses": 4}, "min_responses: 4 is not allowed; allowed: at most num_clients = 3"),
        ({"timeout": 0}, "timeout: 0 is not allowed"),
        ({"model": {"w": [float("nan")]}}, "model['w']"),
    ],
)
def test_wrong_arguments_are_refused_when_the_job_is_written(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        FairFedAvg(**{"num_clients": 3, **options})


def test_a_selector_is_given_by_name_table_or_object() -> None:
    assert FairFedAvg(selector=Rota()).selector == {"class": "rota"}
    assert FairFedAvg(selector=SubTrunc(lam=0.9)).selector == {"class": "subtrunc", "lam": 0.9}
    assert FairFedAvg(selector={"class": "subtrunc", "lam": 0.9}).selector == {"class": "subtrunc", "lam": 0.9}
