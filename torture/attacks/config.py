"""Configurations with wrong keys, types, sizes, nesting and text: each is taken, or refused in one short sentence."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import signal
import tomllib
import typing
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from equifl.experiment.config import SELECTORS, Config
from equifl.experiment.run_folder import RunFolder
from equifl.sim import memory
from equifl.sim.data.dataset import Dataset
from equifl.sim.loop.environment import data_options
from equifl.sim.loop.federation import Federation
from equifl.sim.simulation import load_data

QUICK = 4
MACHINE = 2**29  # bytes that this machine pretends to have
GROWTH = 2**30  # bytes that a configuration may take
SECONDS = 20.0  # of all cores together that one may take
WORK = 2 * 10**9  # products in a round; above it no round is played
FILES = Path(__file__).parents[2] / "configs"
FILE = Path("started")  # what code in a configuration would make

BASES = {
    "small": """
        rounds = 2
        clients = 10
        per_round = 2
        seeds = [0]
        train = { model = "logistic", steps = 2 }
    """,
    "natural": """
        rounds = 2
        seeds = [0]
        train = { model = "mlp", epochs = 1 }
        data = { name = "synthetic", largest = 30, partition = { kind = "natural" } }
        selectors = { rota = {}, both = { class = "unionfl", inner = { class = "subtrunc", lam = 0.5 } } }
    """,
    "dirichlet": """
        rounds = 2
        seeds = [0]
        signal = "gradient"
        signal_examples = 5
        train = { model = "logistic" }
        data = { name = "digits", partition = { kind = "dirichlet", alpha = 0.1, least = 2 } }
    """,
    "sizes": """
        rounds = 2
        seeds = [0]
        train = { model = "mlp", model_options = { hidden = 8 } }
        data = { name = "mnist", partition = { kind = "iid", sizes = "lognormal", size_sigma = 1.0 } }
    """,
    "availability": """
        rounds = 2
        seeds = [0]
        sketch = 8
        availability = { online = 0.5, dropout = 0.1 }
        server = { aggregate = "loss", average_last = 2, guard = true }
        selectors = { subtrunc = {}, power_of_choice = {} }
    """,
} | {path.stem: re.sub("seeds = .*", "seeds = [0]", path.read_text()) for path in sorted(FILES.glob("*.toml"))}

SMALL = [1, 1, 2, 3, 4, 5, 7, 8, 10, 20, 64]
INTEGERS = [-(2**63), -1, 0, *SMALL, 300, 1000, 10**6, 10**9, 10**12, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62]
INTEGERS += [2**63 - 1, 2**63, 2**64, 10**400]
ODD = "0.0 -0.0 5e-324 1e-300 1e-30 1.0 1.5 7.5 1e30 1e308 1e400 inf -inf nan 0.1e-999 1e-9 1000.0"
FLOATS = [*ODD.split(), "0.001", "0.1", "0.5", "0.999"]
WORDS = "update gradient auto torch compiled fast digits mnist synthetic arrays heart-disease iid classes dirichlet"
WORDS += " shards natural lenet mlp logistic mean size loss equal lognormal identity log1p relative uniform rota"
WORDS += " subtrunc unionfl divfl power_of_choice /dev/zero /etc/passwd . .. equifl:Rota equifl.selectors:DivFL"
WORDS += (
    " torch.nn:Linear torch.nn:Flatten torch:os sys:exit subprocess:Popen builtins:exec equifl.metrics:fairness a:b :"
)
TEXTS = [*WORDS.split(), "", " ", "\u00e9\u4e16", "\\u0000", "\\n", "x" * 300, "\U0001f600", "a'b"]
LISTS = "[] {} [[]] [0,1] [1,2,3] [2] [0,0] [0.5] [true] ['a'] [1,'a',[2]]"
DATES = "1979-05-27 07:32:00 1979-05-27T07:32:00Z"
OTHERS = ["true", "false", *DATES.split(), *LISTS.split(), "0x" + "f" * 4000, "1_000", "0b1", "1" * 5000, "''"]
OTHERS += ["{ a = 1, b = { c = 2 } }", '"""a\nb"""', "{ class = 'subprocess:Popen', args = ['touch', 'started'] }"]
DAMAGE = ["\0", "\ufeff", "\r", "\n", "=", "[", "]", "{", "}", '"', "'", "#", ".", ",", "\\", "\x7f", "  ", "[[x]]\n"]


def keys() -> dict[str, list[str]]:
    """Every key there is, and some that there are not, each with values that it might take."""
    pools = {"int": [*map(str, SMALL), *map(str, INTEGERS)], "float": FLOATS, "bool": ["true", "false"]}
    pools |= {"tuple": LISTS.split(), "str": [f"'{word}'" for word in WORDS.split()]}

    def values(hint: object) -> list[str]:
        words = [repr(word) for word in re.findall(r"'(\w+)'", str(hint)) if "Literal" in str(hint)]
        return words or [value for name, pool in pools.items() if name in str(hint) for value in pool]

    def of(cls: type, path: str) -> Iterator[tuple[str, list[str]]]:
        for name, hint in typing.get_type_hints(cls).items():
            if "ClassVar" not in str(hint):
                yield path + name, values(hint)
            if dataclasses.is_dataclass(hint):
                yield from of(typing.cast(type, hint), f"{path}{name}.")

    found = dict(of(Config, ""))
    for name, cls in SELECTORS.items():
        found |= {f"selectors.{name}": ["{}"], **dict(of(cls, f"selectors.{name}."))}
    texts = ["selectors.x.class", "selectors.unionfl.inner.class"]
    integers = [f"train.model_options.{name}" for name in ("hidden", "in_features", "out_features")]
    unknown = ["round", "data.partition.partition", "a b"]
    return found | dict.fromkeys(texts, pools["str"]) | dict.fromkeys(integers + unknown, pools["int"])


KEYS = keys()


def make(rng: np.random.Generator) -> list[Any]:
    def one(items: Any) -> Any:
        return items[rng.integers(len(items))]

    def value(key: Any) -> Any:
        if isinstance(key, str) and KEYS[key] and rng.random() < 0.85:
            return one(KEYS[key])
        kind = rng.random()
        if kind < 0.35:
            return str(one(INTEGERS))
        if kind < 0.5:
            return one(FLOATS)
        if kind < 0.75:
            return json.dumps(one(TEXTS), ensure_ascii=False).replace("\\\\", "\\")
        if kind < 0.95:
            return one(OTHERS)
        # What is long is written as parts, each with how often it is repeated: cases stay small.
        return one(
            [
                [["[", 3000], ["]", 3000]],
                [["[", 60], ["]", 60]],
                [["{a=", 80], ["1", 1], ["}", 80]],
                [["'", 1], ["x", 100_000], ["'", 1]],
                [["[", 1], ["1,", 20_000], ["]", 1]],
                [["1", 400]],
                [["0.", 1], ["1", 10_000]],
            ]
        )

    def key() -> Any:
        kind = rng.random()
        if kind < 0.97:
            return one(list(KEYS))
        return (
            [[one("xa_-"), int(rng.integers(1, 5))]] if kind < 0.985 else [["a.", int(one([40, 60, 9000]))], ["a", 1]]
        )

    steps = []
    for _ in range(20):
        step: dict[str, Any] = {"base": one(list(BASES))}
        how = rng.random()
        changed = [key() for _ in range(int(rng.choice([1, 1, 2, 3])))]
        changes = [[name, value(name)] for name in changed]
        if how < 0.45:
            step["put"] = changes
        elif how < 0.85:
            step["set"] = changes
        else:
            step["damage"] = [
                [float(rng.random()), int(one([0, 1, 3, 30])), one(DAMAGE)] for _ in range(int(rng.integers(1, 5)))
            ]
            if rng.random() < 0.2:
                step["bytes"] = [float(rng.random()), int(rng.integers(128, 256))]
        steps.append(step)
    return steps


def play(steps: list[Any], folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for number, step in enumerate(steps):
        path = folder / f"{number}.toml"
        path.write_bytes(written(step))
        overrides = [f"{text(key)}={text(value)}" for key, value in step.get("set", [])]
        try:
            with limited(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.simplefilter("error", RuntimeWarning)  # of numpy: something is no number any more
                counts[outcome(path, overrides, folder / f"run{number}")] += 1
        except ValueError as error:
            if len(str(error)) > 500 or not str(error).isprintable():
                raise RuntimeError(f"{len(str(error))} characters from {json.dumps(step)}: {error!r:.2000}") from None
            counts["refused"] += 1
        except BaseException as error:
            raise RuntimeError(f"{type(error).__name__} from {json.dumps(step)}") from error
        assert not FILE.exists(), "a configuration ran code that is no selector"
        counts["configurations"] += 1
    return counts


def outcome(path: Path, overrides: list[str], folder: Path) -> str:
    """Read, build and begin what a configuration asks for; in words how far that went."""
    config = Config.load(path, overrides)
    again = Config.from_table(config.as_dict())
    assert "nan" in repr(config) or again == config, "another configuration from its own values"
    memory.machine_memory = lambda: (MACHINE, MACHINE)
    dataset = data_of(config)
    federation = Federation(config, dataset, device="cpu")
    with RunFolder.open(folder, federation.config.as_dict(), {}):
        pass
    sizes = [len(ids) for run in federation.runs for ids in run.environment.partition.train]
    assert min(sizes) > 0, "a client without examples"
    train, models = config.train, len(federation.runs) * config.largest_cohort + len(sizes)
    steps = train.steps or (train.epochs or 1) * max(sizes)
    if models * steps * train.batch_size * federation.model.parameters > WORK:
        return "prepared"
    federation.play()
    return "prepared and played"


def data_of(config: Config) -> Dataset:
    """The data that are asked for; random ones in the place of those that would be downloaded."""
    shape = {"mnist": (1, 28, 28), "fashion-mnist": (1, 28, 28), "cifar10": (3, 32, 32), "heart-disease": (13,)}
    if config.data.name == "digits":
        assert data_options(config) == {}
        return digits()
    if config.data.name not in shape:
        return load_data(config, None)
    data_options(config)
    return random_data(shape[config.data.name])


@lru_cache
def digits() -> Dataset:
    return load_data(Config(), None)


@lru_cache
def random_data(shape: tuple[int, ...]) -> Dataset:
    x, y = np.random.default_rng(0).random((1500, *shape), np.float32), np.arange(1500) % 10
    return Dataset("random", x[:1000], y[:1000], x[1000:], y[1000:], 10, y[:1000] % 4, y[1000:] % 4)


def text(parts: Any) -> str:
    """Text, from itself or from parts, each with how often it is repeated."""
    return parts if isinstance(parts, str) else "".join(part * times for part, times in parts)


def written(step: dict[str, Any]) -> bytes:
    """The file of a step."""
    content = BASES[step["base"]]
    if "put" in step:
        table, lines = tomllib.loads(content), []
        for key, value in step["put"]:
            if not isinstance(key, str):
                lines.append(f"{text(key)} = {text(value)}\n")
                continue
            *path, last = key.split(".")
            inner = table
            for part in path:
                inner[part] = inner = inner[part] if isinstance(inner.get(part), dict) else {}
            inner[last] = Raw(text(value))
        content = "".join([*lines, *(f"{json.dumps(name)} = {toml(part)}\n" for name, part in table.items())])
    for place, cut, new in step.get("damage", []):
        at = int(place * len(content))
        content = content[:at] + new + content[at + cut :]
    found = content.encode("utf-8", "surrogateescape")
    if "bytes" in step:
        place, byte = step["bytes"]
        found = found[: int(place * len(found))] + bytes([byte]) + found[int(place * len(found)) :]
    return found


class Raw(str):
    """A value as the file has it, which may be none."""

    __slots__ = ()


def toml(value: Any) -> str:
    """A value, with all tables inline."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(name)} = {toml(part)}' for name, part in value.items())} }}"
    return value if isinstance(value, Raw) else json.dumps(value)


class Limit(BaseException):
    """A configuration took too long; no handler of errors must stop it."""


@contextmanager
def limited() -> Iterator[None]:
    """Fail if what is done takes more time or memory than it may."""

    def late(number: int, frame: FrameType | None) -> None:
        raise Limit(f"it takes more than {SECONDS:g} s")

    before, room, log = signal.signal(signal.SIGPROF, late), memory.machine_memory, logging.getLogger("equifl")
    level, resident = log.level, held()
    log.setLevel(logging.ERROR)  # notes on memory and old forms are not of interest
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        memory.machine_memory = room
        log.setLevel(level)
        if resident is not None and held("VmHWM") - resident > GROWTH:
            raise Limit(f"it took {(held('VmHWM') - resident) / 2**20:.0f} MiB")


def held(what: str = "VmRSS") -> Any:
    """Bytes of this process, now or (VmHWM) at most since the last time; None where that is not known."""
    try:
        if what == "VmRSS":
            Path("/proc/self/clear_refs").write_text("5")  # the highest so far is the present
        return 1024 * int(re.findall(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())[0])
    except OSError:
        return None
