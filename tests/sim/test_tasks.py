"""Tasks as values that engines take, held to the reference; and what a run on each records, shows and writes."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from equifl.experiment.records import read_record, record_line
from equifl.experiment.results import Results, load_results
from equifl.experiment.task_table import TaskTable
from equifl.sim.data.dataset import Dataset
from equifl.sim.engines.base import Job
from equifl.sim.engines.choose import choose_engine
from equifl.sim.engines.compiled.engine import CompiledEngine
from equifl.sim.engines.local_training import LocalTraining
from equifl.sim.engines.reference import Reference
from equifl.sim.engines.torch.engine import TorchEngine
from equifl.sim.engines.torch.stacked_model import StackedModel
from equifl.sim.models.trained_weights import as_row
from equifl.sim.simulation import simulate
from equifl.sim.tasks import CLASSIFICATION, make_task

OURS = "tests.sim.test_tasks"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(130, 4)).astype(np.float32)
TOKENS = RNG.integers(0, 7, (130, 5))


def huber(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.huber_loss(outputs.flatten(), targets, reduction="none")


def below_zero(outputs: Tensor, targets: Tensor) -> Tensor:
    return huber(outputs, targets) - 100


def within_one(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.flatten() - targets).abs() < 1


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


def likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    mean, log_variance = outputs.unbind(dim=1)
    return 0.5 * (log_variance + (targets - mean).square() / log_variance.exp())


def scored_likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    return -likelihood(outputs, targets)


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return likelihood(outputs, targets).mean()


def of_the_batch(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.flatten() - targets).square() / targets.var(correction=0).clamp(min=1e-3)


def fails(outputs: Tensor, targets: Tensor) -> Tensor:
    raise RuntimeError("it cannot")


def detached(outputs: Tensor, targets: Tensor) -> Tensor:
    return huber(outputs.detach(), targets)


class Two(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


class Positions(nn.Module):
    """A class at every position, from the token there and the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.look_up, self.last = nn.Embedding(7, 4), nn.Linear(8, 7)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.look_up(x)
        before = nn.functional.pad(seen, (0, 0, 1, 0))[:, :-1]
        logits: Tensor = self.last(torch.cat([seen, before], dim=2))
        return logits


def of(y: Any, classes: int | None, x: Any = X, owners: Any = None) -> Dataset:
    whose = (None, None) if owners is None else (owners[:90], owners[90:])
    return Dataset("made up", x[:90], y[:90], x[90:], y[90:], classes, *whose)


SUM = X.sum(axis=1) + 0.1 * RNG.normal(size=130)
CASES: dict[str, tuple[TaskTable, Dataset, nn.Module]] = {
    "regression": (TaskTable(name="regression"), of(SUM, None), nn.Linear(4, 1)),
    "flat outputs": (
        TaskTable(name="regression", score="neg_squared_error"),
        of(SUM, None),
        nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)),
    ),
    "two targets": (TaskTable(name="regression"), of(np.stack([SUM, X[:, 0]], axis=1), None), Two()),
    "own loss": (TaskTable(loss=f"{OURS}:smoothed"), of(np.arange(130) % 3, 3), nn.Linear(4, 3)),
    "own loss and score": (
        TaskTable(name="regression", loss=f"{OURS}:likelihood", score=f"{OURS}:scored_likelihood"),
        of(SUM, None),
        Two(),
    ),
    "positions": (TaskTable(), of(np.roll(TOKENS, -1, axis=1), 7, TOKENS), Positions()),
}


@pytest.mark.parametrize("case", CASES)
def test_the_torch_engine_is_the_reference(case: str) -> None:
    table, dataset, module = CASES[case]
    task, shape = make_task(table, dataset), dataset.x_train.shape[1:]
    examples = torch.from_numpy(dataset.x_train[:6])
    engine = TorchEngine(Job(StackedModel.of(module, shape, examples), dataset, "cpu", task), budget=400)
    reference = Reference(copy.deepcopy(module).double(), dataset, task)
    weights = torch.stack([as_row(module) + 0.1 * seed for seed in range(3)])
    sgd = LocalTraining(lr=0.05, batch_size=8, steps=4, momentum=0.5)
    batches = np.stack([sgd.batches(90, np.random.default_rng(m)) for m in range(3)])
    batches[1, 2, 5:] = -1
    trained, (losses, gradients) = engine.train(weights, batches, sgd), engine.gradients(weights, batches[:, 0])
    scores = engine.scores(weights)
    for row in range(3):
        expected, last_loss, _ = reference.train(weights[row], batches[row], sgd)
        torch.testing.assert_close(trained.weights[row].double(), expected, rtol=1e-4, atol=1e-5)
        assert float(trained.last_loss[row]) == pytest.approx(last_loss, rel=1e-4)
        loss, gradient = reference.gradient(weights[row], batches[row, 0])
        assert float(losses[row]) == pytest.approx(loss, rel=1e-4)
        torch.testing.assert_close(gradients[row].double(), gradient, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(scores[row], reference.scores(weights[row]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_compiled_engine_says_what_it_does_not_do(case: str) -> None:
    table, dataset, module = CASES[case]
    task = make_task(table, dataset)
    model = StackedModel.of(module, dataset.x_train.shape[1:], torch.from_numpy(dataset.x_train[:6]))
    job = Job(model, dataset, "cpu", task)
    assert f"it does classification by cross-entropy only, not {task.name}" in CompiledEngine.supports(job)
    assert choose_engine(job)[0].name == "torch"


def test_the_mean_of_its_scores_is_r2() -> None:
    dataset = of(SUM, None)
    task = make_task(TaskTable(name="regression"), dataset)
    predicted = torch.from_numpy(dataset.y_test + RNG.normal(size=40).astype(np.float32))
    residual = ((predicted.numpy() - dataset.y_test) ** 2).sum()
    expected = 1 - residual / ((dataset.y_test - dataset.y_test.mean()) ** 2).sum()
    assert float(task.score(predicted[:, None], torch.from_numpy(dataset.y_test)).mean()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("table", "dataset", "message"),
    [
        (
            TaskTable(),
            of(SUM, None),
            "'classification' does not fit made up, whose targets are numbers; write task = 're",
        ),
        (TaskTable(name="regression"), of(np.arange(130) % 3, 3), "'regression' does not fit .* a class each; write"),
        (TaskTable(name="next_character"), of(np.arange(130) % 3, 3), "'next_character' does not fit"),
        (TaskTable(name="regression"), CASES["positions"][1], "a class at every position; write task = 'next_char"),
        (TaskTable(name="regression"), of(np.ones(130), None), "task.score: R² is not defined, as all test targets"),
        (TaskTable(loss="subprocess:call"), of(np.arange(130) % 3, 3), "task.loss: 'subprocess:call' is of the stand"),
        (
            TaskTable(loss=f"{OURS}:Two"),
            of(np.arange(130) % 3, 3),
            f"task.loss: '{OURS}:Two' is not allowed; allowed: a f",
        ),
        (TaskTable(score=f"{OURS}:nothing"), of(np.arange(130) % 3, 3), "task.score: .* cannot be found"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(table: TaskTable, dataset: Dataset, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_task(table, dataset)


RUN: dict[str, Any] = {"rounds": 3, "per_round": 2, "seeds": 2, "evaluate_every": 1, "selectors": ["uniform", "rota"]}
OWNERS = np.arange(130) % 5


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        (
            {"loss": mean_loss, "score": within_one},
            Two,
            r"'.*:mean_loss' returned shape \(\) for 6 examples; expected: a f",
        ),
        ({"loss": fails}, "linear", r"task.loss: '.*:fails' fails on outputs of shape \(6, 1\) .* \(it cannot\)"),
        ({"loss": of_the_batch}, "linear", "task.loss: '.*:of_the_batch' depends on the other examples of a batch"),
        ({"loss": detached}, "linear", "task.loss: '.*:detached' has no gradient"),
        ({"score": fails}, "linear", "task.score: '.*:fails' fails on outputs"),
        ({"loss": likelihood}, Two, r"must return shape \(examples, 1\), but returned \(4, 2\)"),
    ],
)
def test_a_function_of_ones_own_is_tried_out(task: dict[str, Any], model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(data=of(SUM, None, owners=OWNERS), model=model, task={"name": "regression"} | task, **RUN)


def test_arrays_with_numbers_are_for_regression() -> None:
    with pytest.raises(ValueError, match=r"data: y.*: .* numbers to predict are for task = 'regression'"):
        simulate(data=(X, SUM, OWNERS), model="linear", **RUN)
    found = simulate(data=(X, 50 + 9 * SUM, OWNERS), model="linear", task="regression", **(RUN | {"rounds": 30}))
    assert found.final()["score"].min() > 0.9  # the numbers were standardised, or lr would not fit
    assert found.to_target(score=0.5)["reached"].tolist() == [1.0, 1.0]
    assert simulate(data=(X, SUM), model="linear", task="regression", partition="iid", clients=4, **RUN).finished


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("runs") / "numbers"
    return simulate(data=of(SUM, None, owners=OWNERS), model="linear", task="regression", out=out, **RUN)


def test_records_of_another_score_say_so(regression: Results) -> None:
    for record in regression.records:
        assert "accuracy" not in record
        assert "jain" not in record
        by_client = np.array(record["client_score"])
        assert record["score_mean"] == pytest.approx(by_client.mean(), abs=1e-5)
        gaps = np.abs(by_client[:, None] - by_client)
        assert record["dissimilarity"] == pytest.approx(gaps.sum() / 20, abs=1e-5)
        assert record["worst10"] == pytest.approx(by_client.min(), abs=1e-5)
        assert record["score"] <= 1
    assert regression.folder is not None
    again = load_results(regression.folder)
    assert again.records == regression.records
    assert again.score.title == "R²"


def test_a_table_of_another_score(regression: Results) -> None:
    table = regression.table()
    assert [measure.title for measure in table.measures][:3] == ["R²", "dissimilarity", "worst 10 %"]
    assert "R$^2$ $\\uparrow$" in table.to_latex()
    assert "| R² |" in table.to_markdown()
    assert table.to_csv().startswith("selector,score,score_half_width")
    assert [m.title for m in regression.table(measures=["score", "std"]).measures] == ["R²", "deviation"]
    with pytest.raises(ValueError, match="measures: 'accuracy' is not allowed; allowed: score, dissimilarity"):
        regression.table(measures=["accuracy"])


def test_frames_of_another_score(regression: Results) -> None:
    assert regression.clients()["score"].notna().all()
    assert "score" in regression.to_pandas().columns
    assert regression.to_target(score=-100)["rounds"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"as in to_target\(score=0.5\)"):
        regression.to_target()


def test_functions_without_a_name_work_in_memory() -> None:
    named = {"loss": huber, "score": within_one}
    unnamed: dict[str, Any] = {"score": lambda outputs, targets: within_one(outputs, targets)}
    unnamed["loss"] = lambda outputs, targets: huber(outputs, targets)
    found = [
        simulate(data=of(SUM, None, owners=OWNERS), model="linear", task={"name": "regression"} | task, **RUN)
        for task in (named, unnamed)
    ]
    assert found[0].records == found[1].records
    assert [one.score.title for one in found] == ["within_one", "score"]
    task = {"name": "regression", "score": lambda outputs, targets: outputs.mean()}
    with pytest.raises(ValueError, match=r"task.score: .*<lambda>' returned shape \(\) for 6 examples"):
        simulate(data=of(SUM, None, owners=OWNERS), model="linear", task=task, **RUN)


def test_a_report_of_another_score(regression: Results, tmp_path: Path) -> None:
    page = regression.report(tmp_path / "page.html").read_text()
    text = page[: page.index("<script")] + page[page.index('<figure id="score"') :]
    assert "R² over rounds" in text
    assert "Mean difference between two clients' R²; lower is fairer" in text.replace("&#39;", "'")
    assert "Best R²: " in text
    assert "accura" not in text.partition('<h2 id="again"')[0].lower()
    assert regression.plot("score").layout.yaxis.title.text == "R²"


def test_results_of_two_tasks_are_not_joined(regression: Results, tmp_path: Path) -> None:
    assert regression.folder is not None
    simulate(data=of(np.arange(130) % 3, 3, owners=OWNERS), model="logistic", out=tmp_path / "classes", **RUN)
    with pytest.raises(
        ValueError, match=r"folders: their scores differ \(R² and accuracy %\); join those of one task"
    ):
        load_results(regression.folder, tmp_path / "classes")


def test_a_folder_of_another_score_grows_to_the_same_bytes(tmp_path: Path) -> None:
    data, run = of(SUM, None, owners=OWNERS), RUN | {"evaluate_every": 2, "model": "linear", "task": "regression"}
    simulate(data=data, out=tmp_path / "grown", **(run | {"rounds": 3, "seeds": 1}))
    grown = simulate(data=data, out=tmp_path / "grown", **(run | {"rounds": 5}))
    at_once = simulate(data=data, out=tmp_path / "at once", **(run | {"rounds": 5}))
    assert grown.records == at_once.records
    assert [("score" in record) for record in grown.records[:16:4]] == [False, True, False, True]
    fewer = simulate(data=data, out=tmp_path / "grown", **(run | {"rounds": 4}))
    assert fewer.records == at_once.records[:16]


def test_a_record_whose_score_is_no_number_is_damaged(regression: Results, tmp_path: Path) -> None:
    record, config = regression.records[0], regression.config
    key = (0, "uniform", 0)
    assert read_record(record_line(record), key, config, required=True)["score"] == record["score"]
    for field, value in (("score", "high"), ("dissimilarity", -1.0), ("client_score", [1.0]), ("worst10", None)):
        with pytest.raises(ValueError, match=f"is damaged .*`{field}`"):
            read_record(record_line(record | {field: value}), key, config, required=True)


def test_own_functions_by_name_or_as_they_are() -> None:
    given = {"loss": huber, "score": within_one}
    named = {"loss": f"{OURS}:huber", "score": f"{OURS}:within_one"}
    first, second = (
        simulate(data=of(SUM, None, owners=OWNERS), model="linear", task={"name": "regression"} | task, **RUN)
        for task in (given, named)
    )
    assert first.records == second.records
    assert first.table().measures[0].title == "within_one"
    assert all(0 <= record["score"] <= 1 for record in first.records)


def test_a_loss_below_zero_is_refused_where_a_selector_looks_at_it() -> None:
    run = RUN | {"model": "linear", "task": {"name": "regression", "loss": below_zero}}
    data = of(SUM, None, owners=OWNERS)
    assert simulate(data=data, **run).records[-1]["local_loss"] < 0
    with pytest.raises(
        ValueError, match=r"round \d+, power_of_choice, seed 0: a client's loss is -.*; add a constant"
    ):
        simulate(data=data, **(run | {"selectors": ["power_of_choice"]}))


def test_steps_with_a_loss_of_ones_own_are_not_recorded() -> None:
    assert make_task(CASES["regression"][0], CASES["regression"][1]).recordable
    assert not make_task(CASES["own loss"][0], CASES["own loss"][1]).recordable
    assert make_task(TaskTable(score=f"{OURS}:within_one"), CASES["own loss"][1]).recordable


def test_a_loss_of_ones_own_keeps_accuracies() -> None:
    found = simulate(data=of(np.arange(130) % 3, 3, owners=OWNERS), model="logistic", task={"loss": smoothed}, **RUN)
    assert found.table().measures[0].title == "accuracy %"
    assert CLASSIFICATION.loss is not smoothed
