import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedYogi,
)

from equifl import PowerOfChoice, Rota, Selector, SubTrunc, Uniform
from tests.flower.federation import initial_arrays
from tests.flower.pretend_grid import (
    ALL,
    Fault,
    PretendGrid,
    failing,
    fair,
    grid_of,
    play,
    rows,
    saying,
    silent,
    twice,
    weighing,
    without,
)
from tests.own_selector import Plain

pytestmark = pytest.mark.usefixtures("inside_a_run")


def test_losses_are_read_from_the_metric_named() -> None:
    strategy = fair(PowerOfChoice(), k=8)
    play(strategy, grid_of(), 1)
    assert (strategy.clients.signals(1, []).losses > 0).all()


def test_a_missing_loss_is_named_with_what_is_there() -> None:
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, without("train_loss"))
    with pytest.raises(ValueError, match=r"no metric `train_loss` \(there: `num-examples`, `partition-id`\)"):
        play(fair(SubTrunc()), grid, 1)
    play(fair(Rota()), grid, 1)  # and who needs no loss does not ask for one


@pytest.mark.parametrize("lacking", [1, 7])
def test_replies_without_a_loss_are_set_aside_from_the_first_round_on(lacking: int, tmp_path: Path) -> None:
    grid, strategy = grid_of(), fair(SubTrunc(), k=8, folder=tmp_path)
    nodes = sorted(grid.partitions, key=grid.partitions.__getitem__)
    grid.faults = dict.fromkeys(nodes[:lacking], without("train_loss"))
    play(strategy, grid, 2)
    assert [row["set_aside"] for row in rows(tmp_path)] == [list(range(lacking))] * 2
    assert strategy.clients.signals(2, []).knows_loss.tolist() == [i >= lacking for i in range(8)]


def test_a_loss_that_is_missing_later_is_set_aside() -> None:
    grid, strategy = grid_of(), fair(SubTrunc())
    play(strategy, grid, 3)
    grid.faults = dict.fromkeys(grid.partitions, without("train_loss"))
    play(strategy, grid, 1, strategy.arrays)
    assert strategy.rounds_played == 4


@pytest.mark.parametrize("loss", [[0.5, 0.4], -3.0], ids=["a list", "below 0"])
def test_a_loss_that_is_not_needed_may_be_anything(loss: Any, tmp_path: Path) -> None:
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, saying(train_loss=loss))
    inner = FedAvg(train_metrics_aggr_fn=lambda records, key: MetricRecord())
    assert play(fair(Rota(), inner, folder=tmp_path), grid, 2).arrays is not None


def test_who_trains_a_part_of_the_model_has_an_update_too() -> None:
    def head_only(question: Message, reply: Message) -> list[Message]:
        for record in reply.content.array_records.values():
            del record["0"]
        return [reply]

    class KeepsTheRest(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            _, metrics = super().aggregate_train(server_round, replies)
            return None, metrics

    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, head_only)
    strategy = fair(Rota(), KeepsTheRest(), k=8)
    play(strategy, grid, 1)
    assert strategy.clients.signals(1, []).knows_update.all()


def grid_of_others() -> PretendGrid:
    def renamed(question: Message, reply: Message) -> list[Message]:
        if reply.content.array_records:
            reply.content["arrays"] = ArrayRecord({"tree": reply.content["arrays"]["0"]})
        return [reply]

    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, renamed)
    return grid


def test_who_needs_nothing_looks_at_nothing() -> None:
    def other(question: Message, reply: Message) -> list[Message]:
        if reply.content.array_records:
            reply.content["arrays"] = ArrayRecord([np.frombuffer(b"a tree", np.uint8)])
        return [reply]

    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, other)
    untested = FedAvg(fraction_evaluate=0.0)  # nobody can evaluate a tree here
    assert play(fair(Uniform(), untested), grid, 1).train_metrics_clientapp
    with pytest.raises(ValueError, match="it returned none of the floating-point arrays that were sent"):
        play(fair(Rota()), grid_of_others(), 1)


def test_updates_kept_are_those_sent_and_kept_short() -> None:
    grid, strategy = grid_of(), fair(Rota(), k=8)
    play(strategy, grid, 1)
    sketches = strategy.clients.signals(1, []).updates
    assert sketches is not None
    assert sketches.shape == (8, 256)
    after = initial_arrays()
    from tests.flower.federation import data_of, loss_and_gradient

    weights = [array.numpy() for array in after.values()]
    x, y = data_of(5)
    for _ in range(5):
        weights = [
            (w - 0.5 * g).astype(np.float32) for w, g in zip(weights, loss_and_gradient(weights, x, y)[1], strict=True)
        ]
    np.testing.assert_allclose(sketches[5], strategy.sketch([-w for w in weights]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (saying(train_loss=float("nan")), "train_loss is nan"),
        (saying(train_loss=float("inf")), "train_loss is inf"),
        (weighing(float("nan")), "its weights are not finite"),
        (saying(**{"num-examples": 0}), "num-examples is 0"),
    ],
    ids=["nan loss", "inf loss", "nan weights", "no examples"],
)
def test_what_is_no_number_is_set_aside_and_named(fault: Any, word: str, caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = grid_of(), fair(SubTrunc(), k=8)
    play(strategy, grid, 1)
    before = strategy.clients.signals(1, [])
    node = next(node for node, partition in grid.partitions.items() if partition == 5)
    grid.faults[node] = fault
    with caplog.at_level(logging.WARNING, "flwr"):
        result = play(strategy, grid, 1, strategy.arrays)
    after = strategy.clients.signals(2, [])
    assert f"node {node} (partition-id:5) is set aside: {word}" in caplog.text
    assert after.losses[5] == before.losses[5]
    assert before.updates is not None
    assert after.updates is not None
    assert after.losses[4] != before.losses[4]
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())


@pytest.mark.parametrize("size", [float("inf"), 0.0, -5.0])
def test_an_evaluation_by_no_examples_does_not_count(size: float, tmp_path: Path) -> None:
    def fault(question: Message, reply: Message) -> list[Message]:
        return list(saying(**{"num-examples": size})(question, reply)) if not reply.content.array_records else [reply]

    grid = grid_of()
    grid.faults[next(iter(grid.partitions))] = fault
    play(fair(Rota(), FedAvg(evaluate_metrics_aggr_fn=lambda records, key: MetricRecord()), folder=tmp_path), grid, 1)
    assert rows(tmp_path)[0]["client_accuracy"][0] is None


def test_silent_failing_and_doubled_replies(caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = grid_of(), fair(Rota(), k=8)
    nodes = sorted(grid.partitions, key=grid.partitions.__getitem__)
    grid.faults = {nodes[0]: silent, nodes[1]: failing, nodes[2]: twice}
    with caplog.at_level(logging.WARNING, "flwr"):
        result = play(strategy, grid, 2)
    signals = strategy.clients.signals(2, [])
    assert signals.knows_update.tolist() == [False, False] + [True] * 6
    assert signals.times_selected.tolist() == [2] * 8, "who was asked was selected, whatever came back"
    assert f"a reply of node {nodes[2]} came late or twice" in caplog.text
    assert result.arrays is not None


@pytest.mark.filterwarnings("ignore:no client has sent")  # nobody has
def test_when_none_replies_the_model_stays(caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = grid_of(), fair(Rota())
    grid.faults = dict.fromkeys(grid.partitions, silent)
    with caplog.at_level(logging.WARNING, "flwr"):
        result = play(strategy, grid, 1)
    assert result.train_metrics_clientapp == {}
    assert "none of 3 nodes sent a usable reply; the model is unchanged" in caplog.text
    grid.faults = {}
    assert play(strategy, grid, 1).train_metrics_clientapp != {}


def test_other_arrays_than_those_sent_are_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    def short(question: Any, reply: Any) -> list[Any]:
        if reply.content.array_records:
            reply.content["arrays"] = ArrayRecord([np.zeros(3, np.float32), np.zeros(10, np.float32)])
        return [reply]

    grid = grid_of()
    grid.faults[next(iter(grid.partitions))] = short
    with caplog.at_level(logging.WARNING, "flwr"):
        result = play(fair(Rota(), k=8), grid, 1)
    assert "its array 0 has shape (3,), not (20, 10)" in caplog.text
    assert result.arrays is not None


def test_after_a_resume_a_missing_loss_is_set_aside_too(tmp_path: Path) -> None:
    play(fair(SubTrunc(), folder=tmp_path), grid_of(), 3)
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, without("train_loss"))
    resumed = fair(SubTrunc(), folder=tmp_path, resume=True)
    play(resumed, grid, 1, resumed.arrays)
    assert resumed.rounds_played == 4


def spoilt(change: Callable[[Any], Any]) -> Fault:
    """The honest reply to training, but for this change of its content."""

    def fault(question: Message, reply: Message) -> list[Message]:
        if question.metadata.message_type == "train":
            change(reply.content)
        return [reply]

    return fault


def stored(**fields: Any) -> Fault:
    """The first array stored otherwise."""

    def change(content: Any) -> None:
        array = content["arrays"]["0"]
        whole: Any = {"dtype": "float32", "shape": (20, 10), "stype": array.stype, "data": array.data} | fields
        content["arrays"]["0"] = Array(**whole)

    return spoilt(change)


def array_of(dtype: str, shape: tuple[int, ...] = (20, 10)) -> Fault:
    return stored(data=Array(np.zeros(shape).astype(dtype)).data)


def header(text: str) -> Fault:
    return stored(data=b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(800))


def metrics_as(**values: Any) -> Fault:
    return spoilt(lambda content: next(iter(content.metric_records.values())).update(values))


UNUSABLE: dict[str, tuple[Fault, str]] = {
    "no bytes": (stored(data=b""), "is not as NumPy writes it"),
    "half of the bytes": (
        stored(data=Array(np.zeros((20, 10), np.float32)).data[:300]),
        "it cannot be read: ValueError",
    ),
    "a header alone": (stored(data=Array(np.zeros((20, 10), np.float32)).data[:128]), "it cannot be read: ValueError"),
    "no array": (stored(data=b"not an array" * 9), "is not as NumPy writes it"),
    "a length of -1": (
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 10)}"),
        "impossible shape (-1, 10)",
    ),
    "1e12 numbers": (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}"), "ValueError"),
    "deep brackets": (header("-" * 5000 + "1"), "it cannot be read: "),
    "other serialisation": (stored(stype="torch.tensor"), "serialisation type 'torch.tensor'"),
    "text": (array_of("<U3"), "its array 0 is of type <U3"),
    "complex": (array_of("complex64"), "its array 0 is of type complex64"),
    "objects": (header("{'descr': '|O', 'fortran_order': False, 'shape': (20, 10)}"), "it cannot be read: ValueError"),
    "longdouble": (array_of("longdouble"), "its array 0 is of type"),
    "empty": (array_of("float32", (0,)), "its array 0 has shape (0,), not (20, 10)"),
    "arrays in another order": (
        spoilt(lambda content: content.update(arrays=ArrayRecord(dict(reversed(content["arrays"].items()))))),
        "other arrays than were sent",
    ),
    "an array too many": (
        spoilt(lambda content: content["arrays"].update({"2": Array(np.zeros(1))})),
        "other arrays than were sent",
    ),
    "two array records": (
        spoilt(lambda content: content.update(more=content["arrays"])),
        "2 array records instead of 1",
    ),
    "two metric records": (
        spoilt(lambda content: content.update(more=MetricRecord({"a": 1}))),
        "2 metric records instead of 1",
    ),
    "metrics as a configuration": (
        spoilt(lambda content: content.update(metrics=ConfigRecord({"num-examples": b"60"}))),
        "no metric `num-examples` (there: none)",
    ),
    "a metric too many": (metrics_as(more=1.0), "metrics ("),
    "a list for a number": (metrics_as(train_loss=[1.0, 2.0]), "metrics ("),
    "an integer beyond the floats": (metrics_as(train_loss=10**400), "it cannot be read: OverflowError"),
    "an integer of 5000 digits": (metrics_as(**{"partition-id": 10**5000}), "it cannot be read: "),
    "examples below 0": (metrics_as(**{"num-examples": -5}), "num-examples is -5"),
    "examples without end": (metrics_as(**{"num-examples": 1e300}), "num-examples is 1e+300"),
    "weights that overflow": (weighing(3e38), "its weights are not finite, or beyond 1e+18"),
    "weights whose squares do": (weighing(1e20), "its weights are not finite, or beyond 1e+18"),
    "an error": (failing, "it reports an error: out of memory"),
}


@pytest.mark.parametrize("first_round", [True, False], ids=["at once", "later"])
@pytest.mark.parametrize(("fault", "why"), UNUSABLE.values(), ids=UNUSABLE)
def test_one_reply_ends_nothing(
    fault: Fault, why: str, first_round: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are averaged as FedAvg does without it, and its sender is named."""

    def result(fault: Fault) -> Any:
        folder = tmp_path / fault.__name__
        strategy, grid = fair(Rota(), k=8, folder=folder), grid_of()
        sent = initial_arrays()
        if not first_round:
            sent = play(strategy, grid, 1).arrays
        node = next(node for node, partition in grid.partitions.items() if partition == 5)
        grid.faults[node] = lambda question, reply: (
            fault(question, reply) if question.metadata.message_type == "train" else [reply]
        )
        return play(strategy, grid, 1, sent).arrays, rows(folder)[-1]["set_aside"]

    with caplog.at_level(logging.WARNING, "flwr"):
        arrays, aside = result(fault)
    assert aside == [5]
    assert re.search(rf"a reply of node \d+( \(partition-id:5\))? is set aside: .*{re.escape(why)}", caplog.text)
    expected, nobody = result(silent)
    assert nobody == []
    assert [array.data for array in arrays.values()] == [array.data for array in expected.values()]


def test_a_round_without_a_usable_reply_leaves_the_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = fair(SubTrunc(), folder=tmp_path), grid_of()
    before = play(strategy, grid, 1).arrays
    grid.faults = dict.fromkeys(grid.partitions, UNUSABLE["two metric records"][0])
    with caplog.at_level(logging.WARNING, "flwr"):
        assert play(strategy, grid, 2, before).train_metrics_clientapp == {}
    assert strategy.arrays == before
    assert [sorted(row["cohort"]) for row in rows(tmp_path)[1:]] == [row["set_aside"] for row in rows(tmp_path)[1:]]
    grid.faults = {}
    assert play(strategy, grid, 1, before).train_metrics_clientapp


def test_replies_are_of_the_kind_that_they_were_before_the_server_stopped(tmp_path: Path) -> None:
    """Weights near 0, after a while, are no differences."""
    ones = ArrayRecord([np.ones((20, 10), np.float32), np.ones(10, np.float32)])
    play(fair(Rota(), folder=tmp_path), grid_of(), 1, ones)
    again, grid = fair(Rota(), folder=tmp_path, resume=True), grid_of()
    grid.faults = dict.fromkeys(grid.partitions, weighing(1e-3))
    play(again, grid, 1, again.arrays)
    assert again.rounds_played == 2
    with pytest.raises(ValueError, match="all replies look like differences"):
        play(fair(Rota()), grid, 1, ones)


def test_differences_are_noticed_among_the_first_k_of_many() -> None:
    grid = grid_of(12)
    grid.faults = dict.fromkeys(grid.partitions, weighing(1e-3))
    grid.looks = dict.fromkeys(list(grid.partitions)[2:], 9)  # the first two are fast
    ones = ArrayRecord([np.ones((20, 10), np.float32), np.ones(10, np.float32)])
    with pytest.raises(ValueError, match="all replies look like differences"):
        play(fair(Uniform(), k=2, extra=10), grid, 1, ones)


def test_a_minority_of_those_asked_does_not_say_of_which_kind_replies_are() -> None:
    grid, strategy = grid_of(), fair(Uniform(), k=8)
    ones = ArrayRecord([np.ones((20, 10), np.float32), np.ones(10, np.float32)])
    grid.faults = dict.fromkeys(grid.partitions, weighing(1e-3))
    grid.faults |= dict.fromkeys(list(grid.partitions)[:4], weighing(float("nan")))
    play(strategy, grid, 1, ones)
    assert strategy.rounds_played == 1


@pytest.mark.filterwarnings("ignore:no client has sent")  # nobody has
def test_one_reply_does_not_say_how_the_client_is_written() -> None:
    grid, strategy = grid_of(), fair(SubTrunc(), k=8)
    grid.faults = dict.fromkeys(grid.partitions, silent)
    grid.faults[next(iter(grid.partitions))] = without("train_loss")
    play(strategy, grid, 1)
    grid.faults = {}
    assert play(strategy, grid, 1).train_metrics_clientapp


def test_a_reply_to_another_message_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def stray(question: Message, reply: Message) -> list[Message]:
        reply.metadata.__dict__["_reply_to_message_id"] = "another"
        return [reply]

    grid = grid_of()
    node = next(node for node, partition in grid.partitions.items() if partition == 5)
    grid.faults[node] = stray
    with caplog.at_level(logging.WARNING, "flwr"):
        play(fair(Rota(), k=8, folder=tmp_path), grid, 1)
    assert f"a reply of node {node} came late or twice" in caplog.text
    assert rows(tmp_path)[0]["set_aside"] == [5]


EVALUATIONS: dict[str, Callable[[MetricRecord], Any]] = {
    "lacks the examples": lambda metrics: metrics.pop("num-examples"),
    "examples as a list": lambda metrics: metrics.update({"num-examples": [1, 2]}),
    "nan examples": lambda metrics: metrics.update({"num-examples": float("nan")}),
    "a metric too many": lambda metrics: metrics.update(more=0.5),
    "an accuracy as a list": lambda metrics: metrics.update(eval_acc=[0.5]),
    "an integer beyond the floats": lambda metrics: metrics.update(eval_acc=10**400),
}


@pytest.mark.parametrize("change", EVALUATIONS.values(), ids=EVALUATIONS)
def test_one_evaluation_ends_nothing(
    change: Callable[[MetricRecord], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(question: Message, reply: Message) -> list[Message]:
        if question.metadata.message_type == "evaluate":
            change(next(iter(reply.content.metric_records.values())))
        return [reply]

    def accuracy(fault: Fault) -> Any:
        grid, folder = grid_of(), tmp_path / fault.__name__
        grid.faults[next(node for node, partition in grid.partitions.items() if partition == 5)] = fault
        result = play(fair(Rota(), k=8, folder=folder), grid, 1)
        return result.evaluate_metrics_clientapp[1]["eval_acc"], rows(folder)[0]

    def unevaluated(question: Message, reply: Message) -> list[Message]:
        return [] if question.metadata.message_type == "evaluate" else [reply]

    with caplog.at_level(logging.WARNING, "flwr"):
        found, row = accuracy(fault)
    assert row["set_aside"] == [5]
    assert row["client_accuracy"][5] is None
    assert re.search(r"an evaluation of node \d+ \(partition-id:5\) is set aside: ", caplog.text)
    assert found == accuracy(unevaluated)[0]


@pytest.mark.parametrize("selector", ALL, ids=lambda selector: type(selector).__name__)
def test_who_never_sent_a_usable_reply_is_asked_ever_more_seldom_where_replies_are_looked_at(
    selector: Selector,
) -> None:
    grid = grid_of(10)
    node = next(iter(grid.partitions))
    grid.faults[node] = only("train", weighing(float("nan")))
    play(fair(selector), grid, 40)
    asked = grid.asked_to("train").count(node)
    assert asked > 6 if isinstance(selector, Uniform | Plain) else asked <= 6  # these two look at nothing
    assert grid.asked_to("evaluate").count(node) == 40


@pytest.mark.parametrize("kind", [FedAvg, FedMedian])
def test_two_colluders_in_the_first_cohort_do_not_decide_what_arrays_others_send(
    kind: type[FedAvg], tmp_path: Path
) -> None:
    """Most replies of a round decide; what was sent is always fit, whatever replies agreed on before."""
    integers = spoilt(
        lambda content: content["arrays"].update({"1": Array(content["arrays"]["1"].numpy().astype("int64"))})
    )
    grid = grid_of(9)
    play(fair(Rota()), grid, 1)
    liars = grid.asked_to("train")[:2]
    grid, strategy = grid_of(9), fair(Rota(), kind(), folder=tmp_path)
    grid.faults = dict.fromkeys(liars, integers)
    play(strategy, grid, 12)
    of_liars = set(strategy.clients.of(liars).tolist())
    outvoted = [row for row in rows(tmp_path) if not of_liars >= set(row["set_aside"])]
    assert all(of_liars <= set(row["cohort"]) for row in outvoted), "only where they are most of a cohort"
    assert 1 <= len(outvoted) <= 4
    assert strategy.arrays is not None
    assert [array.numpy().dtype for array in strategy.arrays.values()] == [np.float32] * 2


def mean_of(metric: str) -> Callable[..., MetricRecord]:
    """A user's function, which a reply without this metric would make raise KeyError."""

    def mean(records: Any, key: str) -> MetricRecord:
        found = [next(iter(record.metric_records.values()))[metric] for record in records]
        return MetricRecord({f"mean-{metric}": float(np.mean(found))})

    return mean


def only(kind: str, fault: Fault) -> Fault:
    return lambda question, reply: fault(question, reply) if question.metadata.message_type == kind else [reply]


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("lacking", [1, 2])
def test_the_only_replies_of_a_round_lack_what_a_function_of_the_user_reads(
    lacking: int, resumed: bool, tmp_path: Path
) -> None:
    inner = partial(FedAvg, train_metrics_aggr_fn=mean_of("train_loss"))
    grid, strategy = grid_of(6), fair(Rota(), inner(), folder=tmp_path)
    play(strategy, grid, 3)
    nodes = list(grid.partitions)
    grid.faults = dict.fromkeys(nodes[:lacking], only("train", without("train_loss")))
    grid.faults |= dict.fromkeys(nodes[lacking:], only("train", silent))
    if resumed:
        strategy = fair(Rota(), inner(), folder=tmp_path, resume=True)
    play(strategy, grid, 5, strategy.arrays)
    aside = {client for row in rows(tmp_path)[3:] for client in row["set_aside"]}
    assert aside == set(strategy.clients.of(nodes[:lacking]).tolist())


def test_the_only_evaluation_of_a_round_lacks_what_a_function_of_the_user_reads(tmp_path: Path) -> None:
    inner = FedAvg(evaluate_metrics_aggr_fn=mean_of("eval_acc"), fraction_evaluate=0.01, min_evaluate_nodes=1)
    grid, strategy = grid_of(6), fair(Rota(), inner, folder=tmp_path)
    play(strategy, grid, 5)
    liar = next(iter(grid.partitions))
    grid.faults[liar] = only("evaluate", without("eval_acc"))
    play(strategy, grid, 25, strategy.arrays)
    asked = grid.asked_to("evaluate")[5:].count(liar)
    assert sum(bool(row["set_aside"]) for row in rows(tmp_path)) == asked > 0


@pytest.mark.parametrize(("lacking", "ends"), [(1, False), (2, False), (3, True)])
def test_replies_without_a_bit_that_adaptive_clipping_reads_are_set_aside(
    lacking: int, ends: bool, tmp_path: Path
) -> None:
    def with_bit(question: Message, reply: Message) -> list[Message]:
        next(iter(reply.content.metric_records.values()))["norm_bit"] = 1
        return [reply]

    grid = grid_of(3)
    grid.faults = dict.fromkeys(list(grid.partitions)[lacking:], only("train", with_bit))
    inner = DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(), 0.01, 3)
    strategy = fair(Uniform(), inner, folder=tmp_path)
    if ends:
        with pytest.raises(ValueError, match="no reply can be used: no metric `norm_bit`"):
            play(strategy, grid, 2)
        return
    play(strategy, grid, 2)
    assert [row["set_aside"] for row in rows(tmp_path)] == [list(range(lacking))] * 2


def test_a_reply_in_half_precision_does_not_decide_for_the_model() -> None:
    grid, strategy = grid_of(), fair(Uniform(), k=8)
    play(fair(Uniform(), k=8), grid, 1)
    grid.faults = {grid.asked_to("train")[0]: array_of("float16")}  # the first to be averaged
    assert [array.numpy().dtype for array in play(strategy, grid, 1).arrays.values()] == [np.float32, np.float32]


def test_losses_near_the_largest_number_are_recorded(tmp_path: Path) -> None:
    grid = grid_of()
    grid.faults = dict.fromkeys(grid.partitions, saying(train_loss=1.7e308))
    play(fair(Rota(), folder=tmp_path), grid, 1)
    assert np.isfinite(rows(tmp_path)[0]["local_loss"])


@pytest.mark.parametrize("kind", [FedAdam, FedYogi, FedAdagrad, partial(FedAvgM, server_momentum=0.9)])
def test_no_reply_makes_moments_infinite_for_good(kind: Callable[..., FedAvg]) -> None:
    """Adam divides by a mean of squares: where that is infinite, an array would never change again."""

    for weight in (1e17, 1e30):
        inner, grid = kind(min_train_nodes=1, min_available_nodes=1), grid_of()
        strategy = fair(Uniform(), inner, k=8)  # which looks at no update
        grid.faults = {next(iter(grid.partitions)): weighing(weight)}
        play(strategy, grid, 2)
        assert strategy.arrays is not None
        found = [array.numpy() for array in strategy.arrays.values()]
        for kept in (getattr(inner, name, None) for name in ("m_t", "v_t", "momentum_vector")):
            found += kept.values() if isinstance(kept, dict) else kept or []
        assert len(found) > len(strategy.arrays)
        assert all(np.isfinite(array).all() for array in found)


def test_an_average_that_is_not_finite_leaves_the_model(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, metrics = super().aggregate_train(server_round, replies)
            return ArrayRecord([np.full_like(array.numpy(), np.nan) for array in arrays.values()]), metrics  # type: ignore[union-attr]

    strategy = fair(Rota(), Broken())
    with caplog.at_level(logging.WARNING, "flwr"):
        play(strategy, grid_of(), 1)
    assert strategy.arrays == initial_arrays()
    assert "the average is not finite; the model is unchanged" in caplog.text
