from pathlib import Path

import pytest

from equifl.experiment.config import Config

DIGITS = "1" * 400
HEXADECIMAL = "0x" + "f" * 10_000  # which Python reads, and does not write as a decimal number
LONG = "x" * 100_000


def refusal(text: str | bytes, path: Path) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError) as refused:
        Config.load(path)
    message = str(refused.value)
    assert len(message) < 500
    assert message.isprintable()
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"rounds = {DIGITS}", f"rounds: {DIGITS[:120]}... (400 characters) is not allowed; allowed: integers of up "),
        (f"train.lr = {DIGITS}", f"train.lr: {DIGITS[:120]}... (400 characters) is not allowed; allowed: integers of"),
        (f"seeds = [0, {DIGITS}]", f"seeds: {DIGITS[:120]}... (400 characters) is not allowed; allowed: integers of"),
        (f"train.model_options.hidden = {DIGITS}", f"train.model_options.hidden: {DIGITS[:120]}... (400 characters) "),
        (f"selectors.subtrunc.lam = {DIGITS}", f"selectors.subtrunc.lam: {DIGITS[:120]}... (400 characters) is not "),
        (f"rounds = {HEXADECIMAL}", "rounds: a very long int is not allowed; allowed: integers of up to 64 bits"),
        (f"rounds = {'1' * 5000}", "is not TOML (Exceeds the limit (4300 digits) for integer string conversion"),
        (f"rounds = {'[' * 3000}{']' * 3000}", "is not TOML (brackets more than 50 deep)"),
        (f"rounds = {'{a=' * 3000}1{'}' * 3000}", "is not TOML (brackets more than 50 deep)"),
        (f"rounds = {'[' * 60}{']' * 60}", "rounds: [[[[[[[[[["),
        (f"train.model_options.a = {'{a=' * 60}1{'}' * 60}", f"train.model_options.a{'.a' * 49}: {{'a': {{"),
        (f"a{'.a' * 100_000} = 1", "is not TOML (a key of more than 50 parts)"),
        (f"[a{'.a' * 100_000}]", "is not TOML (a key of more than 50 parts)"),
        ('"a"' + " . 'a'" * 100_000 + " = 1", "is not TOML (a key of more than 50 parts)"),
        ("#" * 2**20 + "#", "is not TOML (more than 1,048,576 characters, which no configuration needs)"),
        (f"signal = '{LONG}'", f"signal: '{LONG[:119]}... (100,002 characters) is not allowed; allowed: 'update' or "),
        (f"{LONG} = 1", f"{LONG[:120]}... (100,000 characters): unknown key; known: rounds, "),
        (f"train.{LONG} = 1", f"train.{LONG[:120]}... (100,000 characters): unknown key; known: model, "),
        (f"selectors.x.class = '{LONG}'", "selectors.x.class: unknown selector; known: uniform, "),
        (f"selectors.x.class = '{LONG}:x'", f"selectors.x.class: '{LONG[:119]}... (100,004 characters) cannot be fo"),
        (f"selectors.{LONG}.class = 'rota'", f"selectors: '{LONG[:119]}... (100,002 characters) is not allowed; all"),
        (f"selectors.{LONG} = 3", f"selectors: '{LONG[:119]}... (100,002 characters) is not allowed; allowed: names"),
        (
            "selectors.\"a\\nb\".class = 'rota'",
            "selectors: 'a\\nb' is not allowed; allowed: names of 1 to 100 printable",
        ),
        ('"a\\u0000\\nb" = 1', "a\\x00 b: unknown key; known: rounds, "),
        (b"rounds = 3\0", "is not TOML ("),
        (b"rounds = '\xff'", "is not TOML ('utf-8' codec can't decode byte 0xff in position 10: invalid start byte)"),
        ("rounds = 3\nrounds = 4", "is not TOML (Cannot overwrite a value (at "),
        ("rounds = 1979-05-27", "rounds: '1979-05-27' is not allowed; allowed: no dates and times; text is in quotes"),
        ("data = { partition = 'dirichlet', alpha = 07:32:00 }", "data.partition.alpha: '07:32:00' is not allowed; "),
        ("train.model_options.a = [1979-05-27T07:32:00Z]", "train.model_options.a: '1979-05-27 07:32:00+00:00' is "),
        ("selectors.x = { class = 'tests.own_selector:Mine', anything = 1979-05-27 }", "selectors.x.anything: '1979-"),
    ],
    ids=range(31),
)
def test_what_no_configuration_says_is_one_short_sentence(text: str | bytes, message: str, tmp_path: Path) -> None:
    assert refusal(text, tmp_path / "some.toml").startswith(message)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (f"rounds={DIGITS}", f"rounds: {DIGITS[:120]}... (400 characters) is not allowed; allowed: integers of up to"),
        (f"rounds={'[' * 3000}", f"--set rounds: '{'[' * 119}... (3,002 characters) cannot be read (brackets more "),
        (
            f"rounds={'1' * 5000}",
            f"--set rounds: '{'1' * 119}... (5,002 characters) cannot be read (Exceeds the limit",
        ),
        (f"rounds={LONG}", f"rounds: '{LONG[:119]}... (100,002 characters) is not allowed; allowed: an integer"),
        (f"{LONG}=1", f"{LONG[:120]}... (100,000 characters): unknown key; known: rounds, "),
        (
            f"rounds.{LONG}=1",
            f"--set: 'rounds.{LONG[:112]}... (100,011 characters) is not allowed; allowed: a key that",
        ),
        (
            f"a{'.a' * 1000}=1",
            f"--set: 'a{'.a' * 59}... (2,005 characters) is not allowed; allowed: a key of up to 50",
        ),
        (f"selectors.unionfl.inner{'.inner' * 60}.class=rota", "--set: 'selectors.unionfl.inner.inner"),
        ("train.lr=nan", "train.lr: nan is not allowed; allowed: above 0"),
        ("train.lr=-inf", "train.lr: -inf is not allowed; allowed: above 0"),
        ("rounds=1979-05-27", "rounds: '1979-05-27' is not allowed; allowed: no dates and times; text is in quotes"),
        ("rounds=\0", r"rounds: '\x00' is not allowed; allowed: an integer"),
        ("rounds=\udcff", r"rounds: '\udcff' is not allowed; allowed: an integer"),
        ("\udcff=1", r"\udcff: unknown key; known: rounds, "),
        ("selectors.\udcff.class=rota", r"selectors: '\udcff' is not allowed; allowed: names of 1 to 100 printable"),
    ],
    ids=range(15),
)
def test_an_override_is_held_to_the_same(override: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        Config.load(overrides=["rounds=3", override])
    assert str(refused.value).startswith(message)
    assert len(str(refused.value)) < 500


def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    with pytest.raises(ValueError, match=r"^/dev/zero: is not TOML \(more than 1,048,576 characters"):
        Config.load(Path("/dev/zero"))


def test_zero_has_no_sign() -> None:
    assert str(Config.load(overrides=["train.weight_decay=-0.0"]).train.weight_decay) == "0.0"


def test_a_path_may_have_dots_and_a_value_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text(f"seeds = {list(range(5000))}\ndata.path = '{'../' * 100}{LONG}.npz'\ntrain.lr = 0.{'1' * 500}\n")
    config = Config.load(path)
    assert len(config.seeds) == 5000
    assert config.data.path == f"{'../' * 100}{LONG}.npz"
