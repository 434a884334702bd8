"""Keywords of `simulate`: every key of a file, objects of Python, and refusals in the words of the user."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import equifl
from equifl import DivFL, Rota, Signals, SubTrunc, Uniform, UnionFL, simulate
from equifl.experiment.config import Config
from equifl.sim.data.dataset import Dataset
from equifl.sim.settings import SECTIONS, Settings

CONFIG = Config.load(
    None,
    [
        *("rounds=1", "clients=10", "per_round=2", "seeds=[0]", "train.model=logistic", "train.steps=1"),
        *("evaluate_every=1", "selectors={uniform={}}", "data.partition=iid"),
    ],
)
RNG = np.random.default_rng(0)
X, Y, OWNERS = RNG.normal(size=(120, 4)), np.arange(120) % 3, np.arange(120) // 20
GIVEN = Dataset("mine", X, Y, X, Y, 3, OWNERS, OWNERS)  # type: ignore[arg-type]
MINE: dict[str, Any] = {"model": "logistic", "per_round": 2, "rounds": 1, "seeds": 1, "selectors": ["uniform"]}


def test_every_key_of_a_file_is_a_keyword_and_the_docstring_has_it() -> None:
    keys = {field.name for field in dataclasses.fields(Config)}
    assert set(Settings.__annotations__) == keys | {"model", "partition", "aggregate"}
    for key in Settings.__annotations__:
        assert f"`{key}" in (simulate.__doc__ or ""), key
    assert {type(getattr(Config(), key)) for key in ("train", "task", "server", "availability", "speed", "data")} | {
        type(Config().data.partition)
    } == set(SECTIONS.values())


def test_a_call_without_keywords_is_the_file_without_keys() -> None:
    results = simulate(rounds=1, model="logistic", selectors={"uniform": {}}, seeds=1)
    expected = Config.load(None, ["rounds=1", "train.model=logistic", "selectors={uniform={}}", "seeds=[0]"])
    assert results.config == expected.as_dict()


def test_short_forms_say_the_same_as_a_file() -> None:
    chosen = {"divfl": DivFL(sample=3), "both": UnionFL(window={1, 3}, inner=SubTrunc(lam=0.9))}  # type: ignore[arg-type]
    results = simulate(
        selectors=chosen,
        data="digits",
        partition="iid",
        model="logistic",
        clients=np.int64(10),  # type: ignore[arg-type]
        per_round=(2, 3),
        rounds=1,
        seeds=range(2),
        train={"lr": np.float32(0.5)},
        device="cpu",
    )
    assert results.config["seeds"] == [0, 1]
    assert (results.config["clients"], results.config["per_round"]) == (10, (2, 3))
    assert results.config["data"]["partition"]["kind"] == "iid"
    assert (results.config["train"]["model"], results.config["train"]["lr"]) == ("logistic", 0.5)
    assert results.config["selectors"] == {
        "divfl": {"sample": 3},
        "both": {"class": "unionfl", "window": (1, 3), "inner": {"class": "subtrunc", "lam": 0.9}},
    }


def test_selectors_may_be_a_list() -> None:
    results = simulate(CONFIG, selectors=["uniform", Rota(), Plain()])
    assert list(results.config["selectors"]) == ["uniform", "rota", "Plain"]
    assert results.config["selectors"]["Plain"] == {"class": f"{__name__}:Plain"}
    with pytest.raises(ValueError, match=r"selectors: 'rota' is not allowed; allowed: each name once; give a dict"):
        simulate(CONFIG, selectors=[Rota(), "rota"])


class Plain:
    """A selector of one's own that is no dataclass."""

    def select(self, signals: Signals, k: int, *, rng: Any) -> Any:
        return np.arange(k)


class Counting(Plain):
    """One that keeps something."""

    def __init__(self) -> None:
        self.calls = 0


def test_a_section_is_put_over_the_one_that_is_there() -> None:
    results = simulate(CONFIG, train={"epochs": 1})
    assert results.config["train"]["model"] == "logistic"
    assert (results.config["train"]["steps"], results.config["train"]["epochs"]) == (None, 1)
    assert results.config["clients"] == 10
    more = simulate(CONFIG, data={"partition": {"kind": "dirichlet", "alpha": 1.0}})
    assert more.config["data"]["name"] == "digits"
    options = dataclasses.replace(CONFIG.train, model="mlp", model_options={"hidden": 4})
    other = simulate(dataclasses.replace(CONFIG, train=options), model="logistic")
    assert other.config["train"]["model_options"] == {}  # they were of the other model


@pytest.mark.parametrize(
    "data",
    [
        (X, Y, OWNERS),
        (X, Y.astype(str), OWNERS.astype(str)),
        (X.tolist(), Y.tolist(), OWNERS.tolist()),
        (torch.tensor(X), torch.tensor(Y), torch.tensor(OWNERS)),
        (X[::2], Y[::2], X[1::2], Y[1::2], OWNERS[::2], OWNERS[1::2]),
        GIVEN,
        {"name": (X, Y, OWNERS), "standardise": False},
    ],
    ids=["arrays", "text", "lists", "tensors", "splits", "Dataset", "table"],
)
def test_owners_of_arrays_are_the_clients(data: Any) -> None:
    before = X.copy()
    results = simulate(data=data, **MINE)
    assert (results.config["clients"], results.config["data"]["partition"]["kind"]) == (6, "natural")
    assert len(results.records[-1]["client_accuracy"]) == 6
    np.testing.assert_array_equal(X, before)  # standardised, but not in place


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"config": {"rounds": 2}}, "config: {'rounds': 2} is not allowed; allowed: a Config; give keywords by name"),
        ({"out": 5}, "out: 5 is not allowed; allowed: a path, or None"),
        ({"data_dir": 5}, "data_dir: 5 is not allowed; allowed: a path, or None"),
        ({"sweep": "train.lr"}, "sweep: 'train.lr' is not allowed; allowed: a table of keys and lists of values"),
    ],
)
def test_refuses_other_types_by_keyword(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        simulate(**given)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("data", [(X, Y), (X, Y, X, Y)], ids=["examples", "splits"])
def test_arrays_without_owners_are_divided(data: Any) -> None:
    results = simulate(data=data, partition={"kind": "dirichlet", "alpha": 5.0}, clients=4, **MINE)
    assert results.config["data"]["partition"]["alpha"] == 5.0
    assert simulate(CONFIG, data=data).config["data"]["partition"]["kind"] == "iid"  # that of the configuration


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:-1], OWNERS), r"data: y: shape \(119,\) is not allowed; allowed: \(120,\), .* each example of x$"),
        ((X, Y, OWNERS[:-3]), r"data: owners: shape \(117,\) is not allowed; .* each example of x$"),
        (
            (np.where(np.arange(120)[:, None] == 77, np.nan, X), Y, OWNERS),
            r"data: x: not all finite: 1 of 120 examples .* first x\[77\]",
        ),
        ((X, Y + 1, OWNERS), r"data: y: \[1, 2, 3\] are not allowed; .*subtract 1 from y$"),
        ((X, Y), r"$^"),
        ((X,), r"data: 1 arrays are not allowed; allowed: \(x, y\), \(x, y, owners\), \(x_train"),
        ((X, Y, X, Y, OWNERS), r"data: 5 arrays are not allowed"),
        ((X, Y, X[:, :2], Y), r"data: x_test: shape \(120, 2\) is not allowed; allowed: \(120, 4\)"),
        ((X, Y, np.arange(120)), r"data: owners: none has two examples"),
        (
            (X, Y, np.where(OWNERS, OWNERS, np.arange(120))),
            r"data: owners: 1\d of 2\d clients are in one split only",
        ),
        (X, r"data: 'ndarray' is not allowed; allowed: a name, a Dataset, or arrays"),
        ({"name": GIVEN, "standardise": True}, r"data: \['standardise'\] is not allowed; .* as it is"),
        ((X, np.eye(3)[Y], OWNERS), r"data: y: is one-hot; allowed: the class of each example, y.argmax\(axis=1\)$"),
        ((torch.tensor(X, requires_grad=True), Y), r"data: x: cannot be read as numbers \(.*detach"),
        ({"name": "synthetic", "alpha": -1.0}, r"^data.alpha: -1.0 is not allowed; allowed: 0 or more"),
        ({"name": "arrays", "path": "/none.npz"}, r"^data.path: '/none.npz' is not allowed; allowed: the path of an"),
        ({"partition": {"kind": "dirichlet", "alpha": -1.0}}, r"^data.partition.alpha: -1.0 is not allowed"),
        ("minst", r"data: 'minst' is not known; did you mean 'mnist'"),
    ],
)
def test_refusals_of_data_name_what_was_written(data: Any, message: str) -> None:
    if message == r"$^":
        simulate(data=data, clients=4, **MINE)
        return
    with pytest.raises(ValueError, match=message):
        simulate(data=data, **MINE)


class Net(nn.Module):
    """A network of one's own."""

    def __init__(self, hidden: int = 5) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


def small() -> nn.Module:
    return Net(3)


def losses(results: equifl.Results) -> list[float]:
    return [record["global_loss"] for record in results.records]


def test_a_model_may_be_a_class_a_function_or_a_module(tmp_path: Path) -> None:
    by_name = simulate(CONFIG, model=f"{__name__}:Net", seeds=2)
    by_class = simulate(CONFIG, model=Net, seeds=2, out=tmp_path / "class")
    assert by_class.config["train"]["model"] == f"{__name__}:Net"
    assert losses(by_name) == losses(by_class) == losses(simulate(CONFIG, model=lambda: Net(), seeds=2))
    fewer = simulate(CONFIG, model=Net, train={"model_options": {"hidden": 3}}, seeds=2)
    assert losses(fewer) == losses(simulate(CONFIG, model=small, seeds=2)) != losses(by_name)


def test_every_seed_starts_from_the_weights_of_a_module(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    module = Net()
    with torch.no_grad():
        for weight in module.parameters():
            weight.zero_()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    still = {"lr": 1e-30}
    with caplog.at_level("INFO", "equifl"):
        results = simulate(CONFIG, model=module, seeds=2, train=still, out=tmp_path / "run")
    assert "every seed starts from the weights of the Net that was given" in caplog.text
    assert losses(results) == pytest.approx([np.log(10)] * 2)  # of all outputs zero
    assert all(torch.equal(module.state_dict()[name], tensor) for name, tensor in before.items())
    again = simulate(CONFIG, model=module, seeds=2, train=still, out=tmp_path / "run")
    assert again.records == results.records
    with pytest.raises(ValueError, match=r"holds a run with another configuration \(train.model: \"Net \(weights"):
        simulate(CONFIG, model=Net(), seeds=2, train=still, out=tmp_path / "run")


def test_what_a_folder_could_not_know_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model: .*<lambda> has no name by which a folder could know it again"):
        simulate(CONFIG, model=lambda: Net(), out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"task.score: .*<lambda> has no name by which a folder could know it again"):
        simulate(CONFIG, task={"score": lambda outputs, targets: outputs[:, 0]}, out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"sweep: 'task.score' is not allowed; .* leave out task=\{'score': ...\}"):
        simulate(CONFIG, task={"score": lambda outputs, targets: outputs[:, 0]}, sweep={"task.score": ["a:b"]})
    assert not (tmp_path / "run").exists()
    simulate(data=(X, Y, OWNERS), out=tmp_path / "run", **MINE)
    assert simulate(data=(X, Y, OWNERS), out=tmp_path / "run", **MINE).finished
    with pytest.raises(ValueError, match=r"holds a run with another configuration \(data.digest: "):
        simulate(data=(X + 1, Y[::-1], OWNERS), out=tmp_path / "run", **MINE)


def test_other_data_than_those_of_the_digest_are_refused(tmp_path: Path) -> None:
    results = simulate(data=(X, Y, X, Y), clients=4, out=tmp_path / "run", **MINE)
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y, x_test=X, y_test=Y)
    np.savez(tmp_path / "b.npz", x_train=X[:-1], y_train=Y[:-1], x_test=X, y_test=Y)
    known = {"name": "arrays", "digest": results.config["data"]["digest"]}
    assert simulate(data=known | {"path": tmp_path / "a.npz"}, clients=4, **MINE).finished
    with pytest.raises(ValueError, match=r"data.digest: '.{16}' is not that of these data, which is '.{16}'"):
        simulate(data=known | {"path": tmp_path / "b.npz"}, clients=4, **MINE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 0.1}, r"lr: unknown keyword; it is in a table: train={'lr': ...} or server={'lr': ...}"),
        ({"alpha": 0.1}, r"alpha: unknown keyword; it is in a table: data={'alpha': ...} or partition={'alpha': ...}"),
        ({"selector": {}}, r"selector: unknown keyword; did you mean `selectors`"),
        ({"folder": "runs"}, r"folder: unknown keyword; known: selectors, data, "),
        ({"outt": "runs"}, r"outt: unknown keyword; did you mean `out`"),
        ({"model": "lenett"}, r"^model: 'lenett' is not allowed; allowed: lenet"),
        ({"model": 3}, r"^model: 3 is not allowed; allowed: a name, a torch.nn.Module, or a class"),
        ({"model": nn.Linear(3, 2)}, r"^model: 'Linear \(weights .*\)' does not take inputs of shape"),
        ({"model": "mlp", "train": {"model": "mlp"}}, r"^model: 'mlp' is not allowed; allowed: once"),
        (
            {"model": Net(), "sweep": {"train.model": ["mlp"]}},
            r"^sweep: 'train.model' is not allowed; .* leave out model=",
        ),
        ({"partition": "idd"}, r"^partition: 'idd'"),
        ({"clients": 10**9}, r"^clients: 1000000000 is not allowed; allowed: at most"),
        ({"partition": {"kind": "iid", "alfa": 1}}, r"^partition.alfa: unknown key; did you mean `alpha`"),
        ({"partition": "iid", "data": {"partition": "iid"}}, r"^partition: 'iid' is not allowed; allowed: once"),
        ({"seeds": 0}, r"seeds: 0 is not allowed; allowed: 1 to 100,000, or a list"),
        ({"seeds": [1, 1]}, r"seeds: \[1, 1\] is not allowed"),
        ({"train": {"lr": "fast"}}, r"train.lr: 'fast' is not allowed; allowed: a number"),
        ({"train": 3}, r"train: 3 is not allowed; allowed: a table"),
        ({"rounds": 1.5}, r"rounds: 1.5 is not allowed; allowed: an integer"),
        ({"selectors": {"mine": Uniform}}, r"selectors.mine: is the class Uniform; allowed: an object, Uniform\(\)"),
        ({"selectors": {"mine": Counting()}}, r"selectors.mine: .* allowed: an object of a dataclass, or a table"),
        ({"selectors": {"mine": Uniform(), "other": {"lam": 1}}}, r"selectors.other: unknown selector"),
        ({"selectors": 3}, r"selectors: 3 is not allowed; allowed: objects or tables by name, .* or a list"),
        ({"selectors": Uniform()}, r"selectors: Uniform\(\) is not allowed; allowed: objects or tables by name"),
        ({"selectors": [Uniform]}, r"selectors.uniform: is the class Uniform; allowed: an object, Uniform\(\)"),
        ({"device": "gpu"}, r"device: 'gpu' is not known; .*allowed: auto, cpu, cuda"),
        ({"progress": "yes"}, r"progress: 'yes' is not allowed; allowed: True, False or None"),
        ({"callbacks": [print]}, r"callbacks: .* allowed: objects with on_start, on_round and on_end"),
    ],
)
def test_a_refusal_names_the_keyword_as_it_was_written(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(CONFIG, **settings)


def test_a_selector_within_a_function_is_refused() -> None:
    class Inside(Plain):
        """Not at the top level."""

    with pytest.raises(ValueError, match=r"selectors.mine: .*Inside is within another class or function"):
        simulate(CONFIG, selectors={"mine": Inside()})


def test_editors_know_the_keywords() -> None:
    assert inspect.signature(simulate).parameters["settings"].annotation == "Unpack[Settings]"
