"""FairSelection around strategies of the older API, on clients that are functions."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from flwr.common import (
    Code,
    EvaluateRes,
    FitRes,
    Parameters,
    Scalar,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAdam, FedAvg, FedAvgM, FedMedian, FedXgbBagging
from flwr.serverapp.strategy import FedAvg as NewerFedAvg

from equifl import Rota, Selector, Uniform
from equifl import flower as newer
from equifl.experiment.results import load_results
from equifl.flower.legacy import FairSelection
from tests.flower.pretend_grid import ALL, rows

START = [np.zeros(6, np.float32), np.ones(2, np.float32)]
OK = Status(Code.OK, "")


class PretendClient(ClientProxy):
    """Moves the model towards its own, which its partition decides; `change` may spoil the result."""

    def __init__(self, node: int, partition: int, change: Callable[[FitRes], FitRes] | None = None) -> None:
        super().__init__(str(node))
        self.partition, self.change = partition, change
        self.own = np.random.default_rng(partition).normal(size=6).astype(np.float32)

    def fit(self, ins: Any, timeout: float | None, group_id: int | None) -> FitRes:
        w, b = parameters_to_ndarrays(ins.parameters)
        trained = [(w + 0.3 * (self.own - w)).astype(np.float32), b]
        metrics: dict[str, Scalar] = {"train_loss": float(np.abs(w - self.own).mean()), "partition-id": self.partition}
        result = FitRes(OK, ndarrays_to_parameters(trained), 10 + self.partition, metrics)
        return self.change(result) if self.change else result

    def evaluate(self, ins: Any, timeout: float | None, group_id: int | None) -> EvaluateRes:
        w = parameters_to_ndarrays(ins.parameters)[0]
        distance = float(np.abs(w - self.own).mean())
        return EvaluateRes(OK, distance, 5, {"accuracy": 1 / (1 + distance)})

    def get_properties(self, *args: Any) -> Any:
        raise NotImplementedError

    def get_parameters(self, *args: Any) -> Any:
        raise NotImplementedError

    def reconnect(self, *args: Any) -> Any:
        raise NotImplementedError


def federation(count: int = 8, *, first: int = 100, **changes: Callable[[FitRes], FitRes]) -> SimpleClientManager:
    """Clients with node ids from `first` on; client_2=... spoils the results of partition 2."""
    manager = SimpleClientManager()
    for partition in range(count):
        manager.register(PretendClient(first + partition, partition, changes.get(f"client_{partition}")))
    return manager


def fair(selector: Selector, inner: Any = None, **options: Any) -> FairSelection:
    inner = inner or FedAvg(initial_parameters=ndarrays_to_parameters(START))
    defaults: dict[str, Any] = {"k": 3, "identity": "partition-id", "patience": 0.0}
    return FairSelection(inner, selector, **(defaults | options))


def play(strategy: FairSelection, manager: SimpleClientManager, rounds: int) -> Any:
    history, _ = Server(client_manager=manager, strategy=strategy).fit(rounds, None)
    strategy.close()
    return history


@pytest.mark.filterwarnings("ignore:no client has sent")  # in the first round nobody has
@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_every_selector_chooses_and_a_resumed_run_goes_on_as_an_unbroken_one(
    selector: Selector, tmp_path: Path
) -> None:
    play(fair(selector, folder=tmp_path / "whole"), federation(), 6)
    play(fair(selector, folder=tmp_path / "parts"), federation(), 3)
    second = fair(selector, folder=tmp_path / "parts", resume=True)
    assert second.rounds_played == 3
    play(second, federation(), 3)
    whole, parts = rows(tmp_path / "whole"), rows(tmp_path / "parts")
    assert [row["cohort"] for row in parts] == [row["cohort"] for row in whole]
    assert all(len(set(row["cohort"])) == 3 for row in whole)
    assert parts[-1]["accuracy"] == pytest.approx(whole[-1]["accuracy"], rel=1e-5)


def test_fairness_is_in_the_history_and_in_the_folder(tmp_path: Path) -> None:
    history = play(fair(Rota(), folder=tmp_path), federation(), 4)
    row = rows(tmp_path)[-1]
    assert history.metrics_distributed["dissimilarity"][-1] == (4, row["dissimilarity"])
    assert row["participation"]["gini"] < 0.2
    assert len(row["client_accuracy"]) == 8
    assert row["bytes_up"] == 3 * 4 * 8
    assert "equifl.flower" in load_results(tmp_path).report().read_text()


@pytest.mark.parametrize("inner", [FedAdam, FedMedian])
def test_other_strategies_aggregate_as_they_do(inner: Any, tmp_path: Path) -> None:
    strategy = fair(Rota(), inner(initial_parameters=ndarrays_to_parameters(START)), folder=tmp_path)
    play(strategy, federation(), 3)
    first, last = rows(tmp_path)[0], rows(tmp_path)[-1]
    assert last["accuracy"] != first["accuracy"]


KEEPING = {"adam": FedAdam, "momentum": partial(FedAvgM, server_momentum=0.9)}


@pytest.mark.parametrize("make", KEEPING.values(), ids=KEEPING)
def test_a_strategy_goes_on_with_what_it_kept(make: Any, tmp_path: Path) -> None:
    for name, lengths in (("whole", [6]), ("parts", [3, 3])):
        for length in lengths:
            inner = make(initial_parameters=ndarrays_to_parameters(START))
            strategy = fair(Rota(), inner, folder=tmp_path / name, resume=True)
            play(strategy, federation(), length)
    whole, parts = rows(tmp_path / "whole"), rows(tmp_path / "parts")
    assert [row["cohort"] for row in parts] == [row["cohort"] for row in whole]
    assert parts[-1]["client_accuracy"] == pytest.approx(whole[-1]["client_accuracy"], abs=2e-3)


def test_with_fewer_checkpoints_a_run_is_saved_as_it_is_closed_but_not_within_a_round(tmp_path: Path) -> None:
    one = fair(Rota(), folder=tmp_path, checkpoint_every=10)
    play(one, federation(), 3)
    one = fair(Rota(), folder=tmp_path, resume=True, checkpoint_every=10)
    assert one.rounds_played == 3
    play(one, federation(), 2)
    assert one.parameters is not None
    one.configure_fit(6, one.parameters, federation())
    one.close()
    assert fair(Rota(), folder=tmp_path, resume=True).rounds_played == 5


def test_other_hyper_parameters_and_shapes_are_refused_by_name(tmp_path: Path) -> None:
    play(fair(Rota(), folder=tmp_path), federation(), 1)
    with pytest.raises(ValueError, match=r"FedAvg\.fraction_evaluate: 1\.0 there, 0\.5 here"):
        fair(Rota(), FedAvg(fraction_evaluate=0.5), folder=tmp_path, resume=True)
    other = FedAvg(initial_parameters=ndarrays_to_parameters([START[0], START[1][:1]]))
    with pytest.raises(ValueError, match=r"FedAvg\.initial_parameters: 1 is \(2,\) there and \(1,\) here"):
        fair(Rota(), other, folder=tmp_path, resume=True)


def nan(result: FitRes) -> FitRes:
    result.parameters = ndarrays_to_parameters([np.full(6, np.nan, np.float32), START[1]])
    return result


def short(result: FitRes) -> FitRes:
    result.parameters = ndarrays_to_parameters([np.zeros(5, np.float32), START[1]])
    return result


def bytes_that_are_no_array(result: FitRes) -> FitRes:
    result.parameters = Parameters([b"no array", b""], "numpy.ndarray")
    return result


def empty(result: FitRes) -> FitRes:
    result.num_examples = 0
    return result


@pytest.mark.parametrize("wrong", [nan, short, bytes_that_are_no_array, empty])
@pytest.mark.parametrize("selector", [Uniform(), Rota()], ids=["uniform", "rota"])
def test_a_result_that_cannot_be_used_is_set_aside_and_named(
    selector: Selector, wrong: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = fair(selector, k=4, folder=tmp_path)
    play(strategy, federation(4, client_2=wrong), 2)
    assert [row["set_aside"] for row in rows(tmp_path)] == [[2], [2]]
    assert strategy.parameters is not None
    assert all(np.isfinite(array).all() for array in parameters_to_ndarrays(strategy.parameters))


def test_metrics_that_nobody_reads_may_differ(tmp_path: Path) -> None:
    def chatty(result: FitRes) -> FitRes:
        result.metrics = {"partition-id": result.metrics["partition-id"], "note": "no loss here", "flag": True}
        return result

    play(fair(Rota(), k=4, folder=tmp_path), federation(4, client_1=chatty), 2)
    assert [row["set_aside"] for row in rows(tmp_path)] == [[], []]


def test_who_reports_no_accuracy_or_loss_is_left_out_of_figures_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def no_loss(result: FitRes) -> FitRes:
        del result.metrics["train_loss"]
        return result

    caplog.set_level(logging.WARNING, "flwr")
    manager = federation(6, client_1=no_loss)
    mute, texting = list(manager.all().values())[2:4]
    mute.evaluate = lambda *_, **__: EvaluateRes(OK, 0.5, 5, {})  # type: ignore[method-assign]
    play(fair(Rota(), k=6, folder=tmp_path), manager, 1)
    row = rows(tmp_path)[0]
    assert (row["evaluated"], row["client_accuracy"][2], row["set_aside"]) == (5, None, [])
    assert row["local_loss"] == pytest.approx(
        np.mean([np.abs(np.random.default_rng(i).normal(size=6)).mean() for i in (0, 2, 3, 4, 5)])
    )
    text = "equifl: round 1: 1 evaluations do not count for fairness: no metric `accuracy` (there: `num-examples`)"
    assert [record.getMessage() for record in caplog.records].count(text) == 1
    texting.evaluate = lambda *_, **__: EvaluateRes(OK, 0.5, 5, {"accuracy": "good"})  # type: ignore[method-assign]
    play(fair(Rota(), k=6, folder=tmp_path / "text"), manager, 1)
    assert rows(tmp_path / "text")[0]["evaluated"] == 4
    assert "1 evaluations do not count for fairness: accuracy is 'good'" in caplog.text


def test_a_misspelt_accuracy_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    play(fair(Rota(), accuracy="acc", folder=tmp_path), federation(), 1)
    assert "8 evaluations do not count for fairness: no metric `acc` (there: `accuracy`" in caplog.text
    assert "accuracy" not in rows(tmp_path)[0]


def test_a_loss_that_is_not_finite_is_set_aside_also_where_none_is_needed(tmp_path: Path) -> None:
    def endless(result: FitRes) -> FitRes:
        result.metrics["train_loss"] = float("nan")
        return result

    play(fair(Rota(), k=4, folder=tmp_path), federation(4, client_1=endless), 1)
    assert rows(tmp_path)[0]["set_aside"] == [1]
    assert rows(tmp_path)[0]["local_loss"] > 0


def test_a_client_is_known_again_by_its_identity(tmp_path: Path) -> None:
    play(fair(Rota(), folder=tmp_path), federation(6), 4)
    again = fair(Rota(), folder=tmp_path, resume=True)
    play(again, federation(6, first=900), 6)  # all nodes restarted, with other ids
    assert {client for row in rows(tmp_path)[-3:] for client in row["cohort"]} == set(range(6))
    assert rows(tmp_path)[-1]["participation"]["gini"] < 0.1


def test_a_report_counts_the_clients_and_not_the_ids_that_restarted_nodes_had(tmp_path: Path) -> None:
    def evaluated(result: EvaluateRes, partition: int) -> EvaluateRes:
        result.metrics["partition-id"] = partition
        return result

    for first in (100, 900):
        manager = federation(10, first=first)
        for proxy in manager.all().values():
            one = cast(PretendClient, proxy)
            one.evaluate = lambda *given, one=one, **named: evaluated(  # type: ignore[method-assign]
                PretendClient.evaluate(one, *given, **named), one.partition
            )
        play(fair(Rota(), folder=tmp_path, resume=True), manager, 2)
    assert [len(row["client_accuracy"]) for row in rows(tmp_path)] == [10, 10, 10, 10]
    assert "10 clients" in load_results(tmp_path).report().read_text()
    assert "20 clients" not in load_results(tmp_path).report().read_text()


def test_without_a_metric_a_client_is_known_by_its_node_s_name(tmp_path: Path) -> None:
    for first in (100, 900):  # the nodes restart, with other ids
        manager = federation(6, first=first)
        nodes = [SimpleNamespace(node_id=first + i, name=f"hospital-{i}", public_key=b"") for i in range(6)]
        for proxy in manager.all().values():
            proxy.grid = SimpleNamespace(get_nodes=lambda nodes=nodes: nodes)  # type: ignore[attr-defined]
        play(fair(Rota(), identity=None, folder=tmp_path, resume=True), manager, 2)
    assert len(rows(tmp_path)[-1]["client_accuracy"]) == 6
    assert rows(tmp_path)[-1]["participation"]["gini"] == pytest.approx(0)


def test_too_few_clients_do_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inner = FedAvg(initial_parameters=ndarrays_to_parameters(START), min_available_clients=3, min_fit_clients=3)
    play(fair(Rota(), inner, folder=tmp_path), federation(2), 2)
    assert [row["cohort"] for row in rows(tmp_path)] == [[], []]


def test_without_evaluation_rounds_are_recorded_all_the_same(tmp_path: Path) -> None:
    inner = FedAvg(initial_parameters=ndarrays_to_parameters(START), fraction_evaluate=0.0)
    play(fair(Rota(), inner, folder=tmp_path), federation(), 3)
    assert [row["round"] for row in rows(tmp_path)] == [0, 1, 2]
    assert "accuracy" not in rows(tmp_path)[0]


class Adds(FedAvg):
    """A strategy for clients that send differences."""

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> Any:
        self.sent = parameters_to_ndarrays(parameters)
        return super().configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        made, metrics = super().aggregate_fit(server_round, results, failures)
        assert made is not None
        moves = parameters_to_ndarrays(made)
        return ndarrays_to_parameters([w + move for w, move in zip(self.sent, moves, strict=True)]), metrics


def test_clients_may_send_differences(tmp_path: Path) -> None:
    def difference(result: FitRes) -> FitRes:
        trained = parameters_to_ndarrays(result.parameters)
        result.parameters = ndarrays_to_parameters([w - start for w, start in zip(trained, START, strict=True)])
        return result

    start = ndarrays_to_parameters(START)
    there: dict[str, Any] = {f"client_{i}": difference for i in range(4)}
    strategy = fair(Rota(), Adds(initial_parameters=start), k=4, replies="delta", folder=tmp_path)
    play(strategy, federation(4, **there), 1)
    weights = fair(Rota(), FedAvg(initial_parameters=start), k=4)
    play(weights, federation(4), 1)
    assert strategy.parameters is not None
    assert weights.parameters is not None
    for mine, theirs in zip(*map(parameters_to_ndarrays, (strategy.parameters, weights.parameters)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    with pytest.raises(ValueError, match=r"replies: 'delta' is not allowed; allowed: 'weights', because FedAvg would"):
        fair(Rota(), FedAvg(), replies="delta")
    with pytest.raises(ValueError, match=r"flower\.replies"):
        fair(Rota(), Adds(initial_parameters=start), k=4, folder=tmp_path, resume=True)


def test_what_cannot_be_wrapped_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"FedAvg\.fraction_fit: 0\.5 is not allowed; allowed: 1\.0"):
        fair(Rota(), FedAvg(fraction_fit=0.5))
    with pytest.raises(ValueError, match=r"FedAvg\.min_fit_clients: 5 is not allowed; allowed: at most k = 3"):
        fair(Rota(), FedAvg(min_fit_clients=5, min_available_clients=5))
    for trees in (Parameters([], ""), Parameters([b"{}"], "")):
        with pytest.raises(ValueError, match=r"FedXgbBagging\.initial_parameters\.tensor_type: '' is not allowed"):
            fair(Rota(), FedXgbBagging(initial_parameters=trees))
    with pytest.raises(
        ValueError, match=r"^parameters\.tensor_type: 'tree' is not allowed; allowed: 'numpy\.ndarray'"
    ):
        fair(Rota()).configure_fit(1, Parameters([b"{}"], "tree"), federation())
    with pytest.raises(ValueError, match=r"for those of flwr\.serverapp\.strategy there is equifl\.flower\.Fair"):
        fair(Rota(), NewerFedAvg())
    with pytest.raises(ValueError, match=r"for those of flwr\.server\.strategy there is equifl\.flower\.legacy"):
        newer.FairSelection(cast(Any, FedAvg()), Rota(), k=3)
