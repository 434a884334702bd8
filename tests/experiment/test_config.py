import json
from pathlib import Path
from typing import Any

import pytest

from equifl import DivFL, PowerOfChoice, Rota, SubTrunc, Uniform, UnionFL
from equifl.aggregators import AGGREGATORS
from equifl.experiment.config import Availability, Config, Data, Partition, Server, Train
from equifl.experiment.endpoint import cycle, last_evaluations
from equifl.experiment.selector_tables import make_selector
from equifl.selectors import SELECTORS
from tests.own_selector import Mine

SIX = ["uniform", "power_of_choice", "divfl", "subtrunc", "unionfl", "rota"]
CONFIGS = Path(__file__).parents[2] / "configs"

DOCUMENTED = """
rounds = 70                      # K
clients = 100                    # |N|
per_round = 10                   # kappa
seeds = [0, 1, 2, 3, 4]
signal = "update"                # or "gradient"
data  = { name = "mnist", partition = { kind = "classes", classes_per_client = 3 } }
train = { model = "lenet", steps = 20, batch_size = 32, lr = 0.005 }
[selectors]
uniform = {}
power_of_choice = { candidates = 20 }
divfl = { sample = 10 }
subtrunc = { lam = 0.5, b = 1.1, sample = 10 }
unionfl = { mu = 1.0, window = 5, sample = 10 }
rota = {}
mine = { class = "tests.own_selector:Mine", anything = 3 }
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.toml"


def load(path: Path, text: str, *overrides: str) -> Config:
    path.write_text(text)
    return Config.load(path, overrides)


def selectors_of(config: Config) -> dict[str, object]:
    return {name: make_selector(name, options) for name, options in config.selectors.items()}


def test_the_documented_example_says_what_it_looks_like(path: Path) -> None:
    config = load(path, DOCUMENTED)
    assert (config.rounds, config.clients, config.per_round) == (70, 100, 10)
    assert config.seeds == (0, 1, 2, 3, 4)
    assert config.signal == "update"
    assert config.data == Data(name="mnist", partition=Partition(kind="classes", classes_per_client=3))
    assert config.train == Train(model="lenet", steps=20, batch_size=32, lr=0.005)
    assert (config.server, config.availability) == (Server(), Availability())
    assert selectors_of(config) == {
        "uniform": Uniform(),
        "power_of_choice": PowerOfChoice(candidates=20),
        "divfl": DivFL(sample=10),
        "subtrunc": SubTrunc(lam=0.5, b=1.1, sample=10),
        "unionfl": UnionFL(mu=1.0, window=5, sample=10),
        "rota": Rota(),
        "mine": Mine(anything=3),
    }


def test_plain_values_go_to_json_and_back(path: Path) -> None:
    plain = load(path, DOCUMENTED).as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["seeds"] == [0, 1, 2, 3, 4]
    assert plain["train"]["steps"] == 20
    assert plain["selectors"]["mine"] == {"class": "tests.own_selector:Mine", "anything": 3}


def test_the_defaults_are_the_digits_with_all_six_selectors() -> None:
    config = Config()
    assert config.data == Data(name="digits", partition=Partition(kind="classes", classes_per_client=2))
    six = {name: type(selector) for name, selector in selectors_of(config).items()}
    assert six == {name: SELECTORS[name] for name in SIX}
    assert config.train.steps == 10
    assert Config.load() == config
    assert list(Config.load().selectors) == SIX


def test_an_empty_file_is_the_defaults(path: Path) -> None:
    assert load(path, "") == Config()


def test_defaults_are_never_shared() -> None:
    Config().selectors["subtrunc"]["lam"] = 9.0
    Config.load(overrides=["selectors.subtrunc.lam=8.0", "train.model_options.hidden=3"])
    assert Config().selectors["subtrunc"]["lam"] == 0.5
    assert Config().train.model_options == {}


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda file: file.name)
def test_every_file_that_we_ship_can_be_read(file: Path) -> None:
    assert set(Config.load(file).selectors) == set(SIX)


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda file: file.name)
def test_shipped_evaluations_do_not_only_come_after_whole_turns(file: Path) -> None:
    """Else Rota and Reshuffle are always seen where everybody has just had a turn, and the others are not."""
    config = Config.load(file)
    turns = cycle({"clients": config.clients or 99, "per_round": config.per_round})  # 99 speakers of Shakespeare
    assert config.evaluate_every % turns


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_the_late_figures_of_the_papers_experiments_are_those_of_one_turn(name: str) -> None:
    config = Config.load(CONFIGS / f"{name}.toml")
    rows = [{"round": round} for round in range(config.rounds) if config.evaluates(round)]
    late = last_evaluations({"rota": {0: rows}}, cycle(config.as_dict()))["rota"][0]
    assert [row["round"] for row, _ in late] == list(range(config.rounds - 10, config.rounds))


def test_the_shipped_digits_are_the_defaults_in_the_same_order() -> None:
    shipped = Config.load(CONFIGS / "digits.toml")
    assert shipped == Config()
    assert list(shipped.selectors) == list(Config().selectors)


def test_whole_numbers_are_numbers_too(path: Path) -> None:
    config = load(path, "train = { lr = 1 }\nserver = { lr = 2 }")
    assert (config.train.lr, config.server.lr) == (1.0, 2.0)
    assert json.dumps(config.as_dict()["train"]["lr"]) == "1.0"  # the same as for lr = 1.0, so a run goes on


def test_epochs_in_the_place_of_steps(path: Path) -> None:
    train = load(path, "train = { epochs = 3 }").train
    assert (train.steps, train.epochs) == (None, 3)


# --set


@pytest.mark.parametrize(
    ("override", "where", "value"),
    [
        ("rounds=3", "rounds", 3),
        (" rounds = 3 ", "rounds", 3),
        ("train.lr=0.5", "train.lr", 0.5),
        ("train.lr=1e-3", "train.lr", 0.001),
        ("train.model=mlp", "train.model", "mlp"),
        ("train.model= mlp ", "train.model", "mlp"),
        ('train.model="mlp"', "train.model", "mlp"),
        ("train.model_options={hidden = 7}", "train.model_options", {"hidden": 7}),
        ("train.model_options.hidden=7", "train.model_options", {"hidden": 7}),
        ("data.path=/some/where/a=b.npz", "data.path", "/some/where/a=b.npz"),
        ("data.iid=true", "data.iid", True),
        ("seeds=[7, 3]", "seeds", [7, 3]),
        ("seeds=3", "seeds", [0, 1, 2]),
        ("signal=gradient", "signal", "gradient"),
        ("server.aggregate=size", "server.aggregate", "size"),
        ("server.aggregate={class='memory', q=1}", "server.aggregate", {"class": "memory", "q": 1.0}),
        ("availability.online=0.5", "availability.online", 0.5),
        ("selectors.subtrunc.lam=0.9", "selectors.subtrunc", {"lam": 0.9, "b": 1.1, "sample": 10}),
        ("selectors.subtrunc={lam = 0.9}", "selectors.subtrunc", {"lam": 0.9}),
        ("selectors.new.class=rota", "selectors.new", {"class": "rota"}),
        ("selectors.mine.class=tests.own_selector:Mine", "selectors.mine", {"class": "tests.own_selector:Mine"}),
        ("selectors={rota = {}, uniform = {}}", "selectors", {"rota": {}, "uniform": {}}),
    ],
)
def test_an_override_changes_one_thing_and_leaves_the_rest(override: str, where: str, value: object) -> None:
    found: Any = Config.load(overrides=[override]).as_dict()
    expected: Any = Config().as_dict()
    *path, last = where.split(".")
    inner = expected
    for part in path:
        inner = inner[part]
    inner[last] = value
    assert found == expected


def test_the_last_override_of_a_key_counts(path: Path) -> None:
    assert load(path, "rounds = 3", "rounds=4", "rounds=5").rounds == 5


def test_overrides_come_on_top_of_a_file(path: Path) -> None:
    config = load(path, DOCUMENTED, "train.steps=2", "selectors.unionfl.mu=3", "selectors.mine.anything=4")
    assert config.train == Train(model="lenet", steps=2, batch_size=32, lr=0.005)
    assert config.selectors["unionfl"] == {"mu": 3, "window": 5, "sample": 10}
    assert make_selector("mine", config.selectors["mine"]) == Mine(anything=4)
    assert config.data.name == "mnist"


def test_overrides_come_on_top_of_what_a_file_leaves_out(path: Path) -> None:
    config = load(path, "rounds = 3", "selectors.subtrunc.lam=0.9", "data.partition.sizes=lognormal")
    assert list(config.selectors) == SIX
    assert config.selectors["subtrunc"] == {"lam": 0.9, "b": 1.1, "sample": 10}
    assert config.data.partition == Partition(classes_per_client=2, sizes="lognormal")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["kind=dirichlet", "alpha=0.3"], Partition(kind="dirichlet", alpha=0.3)),
        (["kind=classes"], Partition(classes_per_client=2)),
        (["kind=iid", "classes_per_client=2"], Partition(kind="iid", classes_per_client=2)),
    ],
)
def test_another_partition_leaves_the_default_classes_behind(overrides: list[str], expected: Partition) -> None:
    assert Config.load(overrides=[f"data.partition.{override}" for override in overrides]).data.partition == expected


def test_the_default_classes_are_of_the_default_data() -> None:
    assert Config.load(overrides=["data={ name = 'mnist' }"]).data == Data(name="mnist")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rounds", "--set: 'rounds' is not allowed; allowed: key=value, for instance train.lr=0.1"),
        ("=3", "--set: '=3' is not allowed; allowed: key=value, for instance train.lr=0.1"),
        ("rounds.x=3", "--set: 'rounds.x=3' is not allowed; allowed: a key that is a table where rounds stands"),
        ("rounds=", "rounds: '' is not allowed; allowed: an integer"),
        ("rounds=many", "rounds: 'many' is not allowed; allowed: an integer"),
        ("rounds=3\nclients=5", r"rounds: '3\nclients=5' is not allowed; allowed: an integer"),
        ("train.=3", "train.: unknown key; known: "),
        ("train=3", "train: 3 is not allowed; allowed: a table"),
        ("data=3", "data: 3 is not allowed; allowed: a table"),
        ("data.partition=3", "data.partition: 3 is not allowed; allowed: a table"),
    ],
)
def test_refuses_an_override_that_makes_no_sense(override: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        Config.load(overrides=["rounds=3", override])
    assert str(refused.value).startswith(message)


# Refusals


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("round = 3", "round: unknown key; did you mean `rounds`?"),
        ("[sever]\nlr = 1.0", "sever: unknown key; did you mean `server`?"),
        ("data = { nam = 'digits' }", "data.nam: unknown key; did you mean `name`?"),
        ("data.partition.kin = 'iid'", "data.partition.kin: unknown key; did you mean `kind`?"),
        ("data.partition.beta = 1.0", "data.partition.beta: unknown key; known: kind, classes_per_client, "),
        ("train = { learning_rate = 0.1 }", "train.learning_rate: unknown key; known: model, model_options, steps, "),
        ("server = { average = 3 }", "server.average: unknown key; did you mean `average_last`?"),
        ("availability = { drop_out = 0.1 }", "availability.drop_out: unknown key; did you mean `dropout`?"),
        ("selectors.subtrunc.lamb = 0.5", "selectors.subtrunc.lamb: unknown key; did you mean `lam`?"),
        ("selectors.uniform.lam = 0.5", "selectors.uniform.lam: unknown key; known: none"),
        (
            "selectors.s = { class = 'subtrunc', windows = 3 }",
            "selectors.s.windows: unknown key; known: lam, b, b_factor, phi, sample, scale, memory_limit",
        ),
        (
            "selectors.unionfl.inner = { class = 'subtrunc', lamb = 1 }",
            "selectors.unionfl.inner.lamb: unknown key; did ",
        ),
        (
            "selectors.mine = { class = 'tests.own_selector:Mine', anythin = 3 }",
            "selectors.mine.anythin: unknown key; did you mean `anything`?",
        ),
    ],
)
def test_an_unknown_key_is_refused_at_every_level_with_a_suggestion(path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        load(path, text)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = 3.0", "rounds: 3.0 is not allowed; allowed: an integer"),
        ("rounds = '3'", "rounds: '3' is not allowed; allowed: an integer"),
        ("rounds = true", "rounds: True is not allowed; allowed: an integer"),
        ("seeds = 0", "seeds: 0 is not allowed; allowed: 1 to 100,000, or a list of seeds"),
        ("seeds = true", "seeds: True is not allowed; allowed: a list of integers"),
        ("seeds = [0, 0.5]", "seeds: [0, 0.5] is not allowed; allowed: a list of integers"),
        ("seeds = [false, true]", "seeds: [False, True] is not allowed; allowed: a list of integers"),
        ("signal = 'loss'", "signal: 'loss' is not allowed; allowed: 'update' or 'gradient'"),
        ("sketch = 0", "sketch: 0 is not allowed; allowed: 1 or more, below 2**31"),
        ("sketch = 2147483648", "sketch: 2147483648 is not allowed; allowed: 1 or more, below 2**31"),
        ("signal_examples = 0.5", "signal_examples: 0.5 is not allowed; allowed: an integer"),
        ("data = 'mnist'", "data: 'mnist' is not allowed; allowed: a table"),
        ("data = { name = 3 }", "data.name: 3 is not allowed; allowed: text"),
        ("data = { alpha = 'x' }", "data.alpha: 'x' is not allowed; allowed: a number"),
        ("data = { iid = 1 }", "data.iid: 1 is not allowed; allowed: true or false"),
        ("data.partition.alpha = 'x'", "data.partition.alpha: 'x' is not allowed; allowed: a number"),
        ("train = { lr = true }", "train.lr: True is not allowed; allowed: a number"),
        ("train = { model_options = 3 }", "train.model_options: 3 is not allowed; allowed: a table"),
        (
            "server = { aggregate = 'sum' }",
            f"server.aggregate: unknown server rule; known: {', '.join(AGGREGATORS)}; "
            'or say class = "package.module:Name"',
        ),
        ("selectors = ['rota']", "selectors: ['rota'] is not allowed; allowed: a table"),
        (
            "selectors = { rota = 3 }",
            'selectors.rota: 3 is not allowed; allowed: an object, or a table: {"class": ...} with its parameters',
        ),
        (
            "selectors = { rota = 'rota' }",
            'selectors.rota: \'rota\' is not allowed; allowed: an object, or a table: {"class": "rota"}',
        ),
        (
            "server.aggregate = { class = 'momentum', inner = 'memory' }",
            'server.aggregate.inner: \'memory\' is not allowed; allowed: an object, or a table: {"class": "memory"}',
        ),
        ("selectors.subtrunc.lam = 'high'", "selectors.subtrunc.lam: 'high' is not allowed; allowed: a number"),
        ("selectors.subtrunc.lam = true", "selectors.subtrunc.lam: True is not allowed; allowed: a number"),
        ("selectors.subtrunc.phi = 2", "selectors.subtrunc.phi: 2 is not allowed; allowed: text"),
        ("selectors.divfl.sample = 2.5", "selectors.divfl.sample: 2.5 is not allowed; allowed: an integer"),
    ],
)
def test_the_wrong_type_is_refused_with_the_right_one(path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        load(path, text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = 0", "rounds: 0 is not allowed; allowed: 1 or more"),
        ("clients = -5", "clients: -5 is not allowed; allowed: 1 or more"),
        ("per_round = 0", "per_round: 0 is not allowed; allowed: 1 or more"),
        ("clients = 4", "per_round: 5 is not allowed; allowed: at most clients, which is 4"),
        ("evaluate_every = 0", "evaluate_every: 0 is not allowed; allowed: 1 or more"),
        ("signal_examples = 0", "signal_examples: 0 is not allowed; allowed: 1 or more"),
        ("seeds = []", "seeds: [] is not allowed; allowed: different numbers of 0 or more, at least one"),
        (
            "seeds = [1, 2, 1]",
            "seeds: [1, 2, 1] is not allowed; allowed: different numbers of 0 or more, at least one",
        ),
        ("seeds = [-1]", "seeds: [-1] is not allowed; allowed: different numbers of 0 or more, at least one"),
        ("selectors = {}", "selectors: {} is not allowed; allowed: at least one"),
        ("train = { steps = 0 }", "train.steps: 0 is not allowed; allowed: 1 or more"),
        ("train = { epochs = 0 }", "train.epochs: 0 is not allowed; allowed: 1 or more"),
        ("train = { steps = 5, epochs = 1 }", "train.epochs: 1 is not allowed; allowed: steps or epochs, not both"),
        ("train = { batch_size = 0 }", "train.batch_size: 0 is not allowed; allowed: 1 or more"),
        ("train = { lr = 0 }", "train.lr: 0.0 is not allowed; allowed: above 0"),
        ("train = { lr = inf }", "train.lr: inf is not allowed; allowed: above 0 and finite"),
        ("train = { lr = nan }", "train.lr: nan is not allowed; allowed: above 0"),
        ("train = { weight_decay = inf }", "train.weight_decay: inf is not allowed; allowed: 0 or more and finite"),
        ("server = { lr = inf }", "server.lr: inf is not allowed; allowed: above 0 and finite"),
        ("train = { momentum = 1.0 }", "train.momentum: 1.0 is not allowed; allowed: from 0 to below 1"),
        ("train = { weight_decay = -0.1 }", "train.weight_decay: -0.1 is not allowed; allowed: 0 or more"),
        (
            "server.aggregate = { class = 'loss', q = -1 }",
            "server.aggregate.q: -1.0 is not allowed; allowed: 0 or more",
        ),
        ("server = { lr = 0 }", "server.lr: 0.0 is not allowed; allowed: above 0"),
        ("server = { average_last = 0 }", "server.average_last: 0 is not allowed; allowed: 1 or more"),
        ("availability = { online = 0 }", "availability.online: 0.0 is not allowed; allowed: above 0, up to 1"),
        ("availability = { online = 1.5 }", "availability.online: 1.5 is not allowed; allowed: above 0, up to 1"),
        ("availability = { dropout = 1.0 }", "availability.dropout: 1.0 is not allowed; allowed: from 0 to below 1"),
        ("selectors.subtrunc.lam = -1", "selectors.subtrunc.lam: -1.0 is not allowed; allowed: 0 or more"),
        (
            "selectors.unionfl.window = 0",
            "selectors.unionfl.window: 0 is not allowed; allowed: an integer of 1 or more",
        ),
    ],
)
def test_what_is_out_of_range_is_refused(path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        load(path, text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("text", "clients"),
    [
        ("", 30),
        ("data = { name = 'heart-disease', partition = 'iid' }", 30),
        ("data = { name = 'synthetic', partition = 'natural' }", 30),
        ("data = { name = 'heart-disease', partition = 'natural' }", None),  # as many as there are
        ("clients = 7\ndata = { name = 'heart-disease', partition = 'natural' }", 7),
    ],
)
def test_natural_clients_are_counted_when_the_data_are_there(path: Path, text: str, clients: int | None) -> None:
    assert load(path, text).clients == clients


def test_the_largest_cohort_is_everybody(path: Path) -> None:
    assert load(path, "clients = 5\nper_round = 5").per_round == 5


def test_a_file_that_is_not_toml_is_named_with_the_line(path: Path) -> None:
    with pytest.raises(ValueError, match=r"some\.toml: is not TOML \(.*line 2.*\)$"):
        load(path, "rounds = 3\nclients =\n")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"some\.toml: is not TOML \(.*codec can't decode.*\)$"):
        Config.load(path)


def test_text_is_read_as_utf8_wherever_it_is_read(path: Path) -> None:
    path.write_bytes("data = { path = 'gar\u00e7on.npz' }".encode())
    assert Config.load(path).data.path == "gar\u00e7on.npz"


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing\.toml: cannot be read \(No such file or directory\)$"):
        Config.load(tmp_path / "missing.toml")
    with pytest.raises(ValueError, match=r": cannot be read \(Is a directory\)$"):
        Config.load(tmp_path)


# Selectors


def test_one_selector_many_times_under_names_of_ones_own(path: Path) -> None:
    text = "[selectors]\nlight = { class = 'subtrunc', lam = 0.1 }\nheavy = { class = 'subtrunc', lam = 9 }"
    assert selectors_of(load(path, text)) == {"light": SubTrunc(lam=0.1), "heavy": SubTrunc(lam=9.0)}


def test_a_price_on_any_objective(path: Path) -> None:
    config = load(path, "selectors.unionfl = { mu = 2, inner = { class = 'subtrunc', lam = 3, scale = 'relative' } }")
    expected = UnionFL(mu=2.0, inner=SubTrunc(lam=3.0, scale="relative"))
    assert make_selector("unionfl", config.selectors["unionfl"]) == expected
    within = "selectors.unionfl.inner="
    twice = Config.load(overrides=[f"{within}{{ class = 'unionfl', inner = {{ class = 'divfl', sample = 3 }} }}"])
    inner = UnionFL(inner=DivFL(sample=3))
    assert make_selector("unionfl", twice.selectors["unionfl"]) == UnionFL(mu=1.0, window=5, sample=10, inner=inner)


def test_switching_partition_or_epochs_on_the_command_line_drops_what_no_longer_fits() -> None:
    mnist = Path(__file__).parents[2] / "configs" / "mnist.toml"
    config = Config.load(mnist, ["data.partition.kind=dirichlet", "data.partition.alpha=0.1", "train.epochs=1"])
    assert config.data == Data(name="mnist", partition=Partition(kind="dirichlet", alpha=0.1))
    assert (config.train.epochs, config.train.steps) == (1, None)


def test_tf32_is_off_said_or_not() -> None:
    """So that runs begun before there was such a key go on."""
    assert Config.load(overrides=["train.tf32=false"]) == Config.load()
    assert Config.load(overrides=["train.tf32=true"]).train.tf32
    with pytest.raises(ValueError, match=r"train\.tf32: 1 is not allowed; allowed: true or false"):
        Config.load(overrides=["train.tf32=1"])


def test_per_round_may_be_a_list(path: Path) -> None:
    config = load(path, "per_round = [3, 1, 2]")
    assert [config.cohort_size(round) for round in range(5)] == [3, 1, 2, 2, 2]
    assert config.largest_cohort == 3
    assert load(path, "per_round = 4").cohort_size(9) == 4
    with pytest.raises(ValueError, match=r"per_round: \[3, 0\] is not allowed; allowed: 1 or more"):
        load(path, "per_round = [3, 0]")
    with pytest.raises(ValueError, match=r"per_round: .* allowed: at most clients, which is 4"):
        load(path, "clients = 4\nper_round = [3, 5]")
    with pytest.raises(
        ValueError, match="per_round: 'five' is not allowed; allowed: an integer or a list of integers"
    ):
        load(path, "per_round = 'five'")


def test_a_window_may_be_a_list_of_offsets(path: Path) -> None:
    options = load(path, "selectors.unionfl.window = [5, 1]").selectors["unionfl"]
    assert make_selector("unionfl", options) == UnionFL(window=(1, 5))


# The partition, once among the options of the data set


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        (
            "data = { name = 'mnist', partition = 'dirichlet', alpha = 0.1 }",
            [],
            Partition(kind="dirichlet", alpha=0.1),
        ),
        ("data = { classes_per_client = 4 }", [], Partition(classes_per_client=4)),
        ("", ["data.partition=dirichlet", "data.alpha=0.1"], Partition(kind="dirichlet", alpha=0.1)),
        ("", ["data.sizes=lognormal"], Partition(classes_per_client=2, sizes="lognormal")),
        (
            "data = { partition = 'dirichlet', alpha = 0.1 }",
            ["data.alpha=0.3", "data.least=5"],
            Partition(kind="dirichlet", alpha=0.3, least=5),
        ),
        (
            "data = { partition = 'dirichlet', alpha = 0.1 }",
            ["data.partition.alpha=0.3"],
            Partition(kind="dirichlet", alpha=0.3),
        ),
        ("data = { partition = 'dirichlet', alpha = 0.1 }", ["data.partition=iid"], Partition(kind="iid")),
        ("data = { partition = 'dirichlet', alpha = 0.1 }", ["data.partition.kind=iid"], Partition(kind="iid")),
        (
            "data.partition = { kind = 'classes', sizes = 'lognormal' }",
            ["data.sizes=equal"],
            Partition(kind="classes", sizes="equal"),
        ),
    ],
)
def test_a_flat_data_section_is_read_with_one_warning(
    path: Path, text: str, overrides: list[str], expected: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    config = load(path, text, *overrides)
    assert config.data.partition == expected
    assert config.data.alpha is None
    (warning,) = caplog.messages
    assert warning.startswith("data: the partition is a table of its own now; write data.partition = { ")


def test_the_warning_shows_the_new_form(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = load(path, "data = { name = 'mnist', partition = 'dirichlet', alpha = 0.1, least = 3 }")
    (warning,) = caplog.messages
    form = warning.partition("write ")[2]
    assert form == 'data.partition = { kind = "dirichlet", alpha = 0.1, least = 3 }'
    assert load(path, f"data.name = 'mnist'\n{form}") == old
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("overrides", [["data.partition=iid"], ["data.partition=classes", "data.partition.kind=iid"]])
def test_a_kind_alone_stands_for_its_table(path: Path, overrides: list[str], caplog: pytest.LogCaptureFixture) -> None:
    expected = Data(partition=Partition(kind="iid"))
    assert load(path, "data.partition = 'iid'").data == expected
    assert load(path, "data.partition = { kind = 'dirichlet', alpha = 0.1 }", *overrides).data == expected
    assert Config.from_table({"data": {"partition": "iid"}}).data == expected
    assert caplog.messages == []


def test_an_alpha_that_data_set_and_partition_could_take_is_refused_in_the_flat_form_alone(path: Path) -> None:
    flat = "data = { name = 'synthetic', partition = 'dirichlet', alpha = 0.1 }"
    message = r"^data\.alpha: 0\.1 could be meant for the data set 'synthetic' or for the partition 'dirichlet'; write"
    with pytest.raises(ValueError, match=message):
        load(path, flat)
    with pytest.raises(ValueError, match=message):
        load(path, "", "data.name=synthetic", "data.partition=dirichlet", "data.alpha=0.1")
    found = load(
        path, "data = { name = 'synthetic', alpha = 2, partition = { kind = 'dirichlet', alpha = 0.1 } }"
    ).data
    assert (found.alpha, found.partition.alpha) == (2.0, 0.1)
    natural = load(path, "data = { name = 'synthetic', partition = 'natural', alpha = 0.1 }").data
    assert (natural.alpha, natural.partition) == (0.1, Partition(kind="natural"))


def test_reading_a_table_leaves_it_as_it_was() -> None:
    table = {"data": {"partition": "dirichlet", "alpha": 0.1}}
    assert Config.from_table(table).data.partition.alpha == 0.1
    assert table == {"data": {"partition": "dirichlet", "alpha": 0.1}}
