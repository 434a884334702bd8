"""What clients that lie gain: seats and accuracy, for every selector and attack, with and without the guard.

    python benchmarks/attacks.py  # 12 minutes; writes results/attacks.json and the tables in docs/attacks.md
    python benchmarks/attacks.py --held-out --data-dir DATA  # 32 scalings on MNIST and CIFAR-10; 12 minutes
    python benchmarks/attacks.py --selector subtrunc  # these rows alone, also with --held-out
    python benchmarks/attacks.py --tables  # the tables alone, from the stored results

100 clients of the digits of scikit-learn, two classes each, train a softmax regression; 10 of each round, 60 rounds.
10 clients attack. All clients report once before the first round, so that liars need not wait for their first seat.
Plain numpy: the server keeps a `SignalStore`, as on Flower, and sizes are what clients say.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from drawing import fill_in
from numpy.typing import NDArray

from equifl.selectors import SELECTORS
from equifl.selectors.base import needs
from equifl.store import SignalStore

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "attacks.json"
PAGE = ROOT / "docs" / "attacks.md"
CLIENTS, ATTACKERS, COHORT, ROUNDS, CLASSES = 100, 10, 10, 60, 10
STEPS, BATCH, LR = 10, 8, 0.1
SEEDS = range(3)
HELD_OUT_SEEDS = range(300, 303)  # the guard was set up with other seeds
HELD_OUT = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
FAIR = 100 * ATTACKERS / CLIENTS  # percent of the seats

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class Reports:
    """What clients send: updates (m, d), losses and sizes (m,)."""

    updates: Floats
    losses: Floats
    sizes: Floats


Attack = Callable[[Reports, np.random.Generator], Reports]


def scaled(*, updates: float = 1.0, losses: float = 1.0, sizes: float = 1.0) -> Attack:
    """Multiply what an honest client would send."""
    return lambda sent, rng: Reports(updates * sent.updates, losses * sent.losses, sizes * sent.sizes)


def everything(factor: float) -> Attack:
    return scaled(updates=factor, losses=factor, sizes=factor)


def directed(made: Callable[[Floats, np.random.Generator], Floats]) -> Attack:
    """Other directions, each update as long as the honest one."""

    def attack(sent: Reports, rng: np.random.Generator) -> Reports:
        found = made(sent.updates, rng)
        lengths = np.linalg.norm(sent.updates, axis=1) / np.maximum(np.linalg.norm(found, axis=1), 1e-12)
        return Reports(found * lengths[:, None], sent.losses, sent.sizes)

    return attack


@cache
def common_direction(d: int) -> Floats:
    """One direction that all colluding attackers agree on."""
    return np.random.default_rng(1).normal(size=d)


SCALING: Mapping[str, Attack] = {
    "updates x 3": scaled(updates=3),
    "updates x 50": scaled(updates=50),
    "loss x 50": scaled(losses=50),
    "size x 50": scaled(sizes=50),
    "all x 2": everything(2),
    "all x 50": everything(50),
    "all x 1e9": everything(1e9),
}
DIRECTIONS: Mapping[str, Attack] = {
    "flipped: the honest update backwards": directed(lambda updates, rng: -updates),
    "colluding: one direction for all": directed(
        lambda updates, rng: np.broadcast_to(common_direction(updates.shape[1]), updates.shape)
    ),
    "unique: a random direction each": directed(lambda updates, rng: rng.normal(size=updates.shape)),
    "average: near the mean of all": lambda sent, rng: Reports(
        np.broadcast_to(sent.updates.mean(axis=0), sent.updates.shape), sent.losses, sent.sizes
    ),
    "free rider: the model as received": lambda sent, rng: Reports(0 * sent.updates, sent.losses, sent.sizes),
}
FACTORS = (2, 2.5, 3, 5, 10, 50, 1e3, 1e9)
KINDS: Mapping[str, Callable[[float], Attack]] = {
    "updates": lambda factor: scaled(updates=factor),
    "losses": lambda factor: scaled(losses=factor),
    "sizes": lambda factor: scaled(sizes=factor),
    "all": everything,
}
HONEST = "honest"
ATTACKS: Mapping[str, Attack] = {HONEST: lambda sent, rng: sent, **SCALING, **DIRECTIONS}


def krum(updates: Floats) -> Floats:
    """The update nearest to its m - f - 2 nearest ones, with f = 3 of 10 taken for false (Blanchard et al. 2017)."""
    squared = np.sort(((updates[:, None] - updates) ** 2).sum(axis=2), axis=1)
    return updates[np.argmin(squared[:, 1 : len(updates) - 4].sum(axis=1))]


RULES: Mapping[str, Callable[[Floats], Floats]] = {
    "mean": lambda updates: updates.mean(axis=0),
    "median": lambda updates: np.median(updates, axis=0),
    "krum": krum,
}


@dataclass
class Data:
    """Examples with a column of ones, and the examples of each client."""

    x: Floats
    y: Ints
    x_test: Floats
    y_test: Ints
    parts: list[Ints] = field(default_factory=list)

    @classmethod
    def two_classes(cls, x: Floats, y: Ints, rng: np.random.Generator) -> Data:
        """Two shards of sorted examples for each client; every fifth example is for testing."""
        x, test = np.column_stack([x, np.ones(len(x))]), np.arange(len(y)) % 5 == 0
        data = cls(x[~test], y[~test], x[test], y[test])
        shards = np.array_split(np.argsort(data.y, kind="stable"), 2 * CLIENTS)
        dealt = rng.permutation(2 * CLIENTS).reshape(CLIENTS, 2)
        data.parts = [np.concatenate([shards[a], shards[b]]) for a, b in dealt]
        return data


@cache
def digits() -> tuple[Floats, Ints]:
    """1,797 handwritten digits of 64 pixels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.data / 8 - 1, found.target


@cache
def gaussians() -> tuple[Floats, Ints]:
    """Ten classes of normal points, which need no package."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(np.arange(CLASSES), 200))
    return rng.normal(size=(CLASSES, 16))[y] + rng.normal(size=(len(y), 16)), y


def images(name: str, data_dir: Path | None) -> tuple[Floats, Ints]:
    """4,000 images of MNIST or CIFAR-10, each value the mean of a square of 4 x 4."""
    from equifl.sim.data.catalogue import load

    found = load(name, data_dir=data_dir)
    *_, channels, height, width = found.x_train.shape
    squares = found.x_train[:4000].reshape(-1, channels, height // 4, 4, width // 4, 4)
    return squares.mean(axis=(3, 5)).reshape(len(squares), -1).astype(np.float64), found.y_train[:4000]


def gradient(model: Floats, x: Floats, y: Ints) -> tuple[Floats, Floats]:
    """(m, d, C) gradients and (m,) losses of m softmax regressions, each on its own batch."""
    scores = x @ model
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    chances = scores / scores.sum(axis=-1, keepdims=True)
    right = np.eye(CLASSES)[y]
    losses = -np.log(np.maximum((chances * right).sum(axis=-1), 1e-300)).mean(axis=-1)
    return x.swapaxes(1, 2) @ (chances - right) / y.shape[1], losses


def play(
    selector: Any,
    attack: Attack,
    *,
    guard: bool,
    rule: str = "median",
    seed: int = 0,
    rounds: int = ROUNDS,
    examples: tuple[Floats, Ints] | None = None,
) -> tuple[float, float]:
    """Percent of the seats that the attackers had, and the accuracy of the last model."""
    rng = np.random.default_rng(seed)
    data = Data.two_classes(*(examples or digits()), rng)
    sizes = np.array([len(part) for part in data.parts], float)
    attacks = rng.permutation(CLIENTS) < ATTACKERS
    model = np.zeros((data.x.shape[1], CLASSES))
    store = SignalStore(CLIENTS, guard=guard)
    seconds = rng.lognormal(size=CLIENTS)
    labels = np.array([np.bincount(data.y[part], minlength=CLASSES) for part in data.parts], float)

    def reports(ids: Ints) -> Reports:
        local = np.repeat(model[None], len(ids), axis=0)
        for _ in range(STEPS):
            batch = np.stack([rng.choice(data.parts[i], BATCH) for i in ids])
            local -= LR * gradient(local, data.x[batch], data.y[batch])[0]
        losses = [gradient(model[None], data.x[p][None], data.y[p][None])[1][0] for p in (data.parts[i] for i in ids)]
        sent = Reports((model - local).reshape(len(ids), -1), np.array(losses), sizes[ids])
        false = np.flatnonzero(attacks[ids])
        if len(false):
            lie = attack(Reports(sent.updates[false], sent.losses[false], sent.sizes[false]), rng)
            sent.updates[false], sent.losses[false], sent.sizes[false] = lie.updates, lie.losses, lie.sizes
        return sent

    def observe(ids: Ints, sent: Reports, round: int | None) -> None:
        optional = {
            "durations": seconds[ids],
            "label_counts": labels[ids],
            "lengths": np.linalg.norm(sent.updates, axis=1),
            "bias_updates": sent.updates[:, -CLASSES:],
        }
        wanted = {name: values for name, values in optional.items() if name in needs(selector)}
        store.observe(ids, updates=sent.updates, losses=sent.losses, sizes=sent.sizes, round=round, **wanted)

    everyone = np.arange(CLIENTS)
    observe(everyone, reports(everyone), None)
    for t in range(rounds):
        cohort = selector.select(store.signals(t), COHORT, rng=np.random.default_rng([seed, t]))
        sent = reports(cohort)
        observe(cohort, sent, t)
        model = model - RULES[rule](sent.updates).reshape(model.shape)
    seats = store.times_selected
    right = (data.x_test @ model).argmax(axis=1) == data.y_test
    return 100 * float(seats[attacks].sum() / seats.sum()), 100 * float(right.mean())


def measured(names: Iterable[str]) -> dict[str, Any]:
    """Every attack on these selectors: with the guard by all server rules, without it by the median."""
    rows: dict[str, Any] = {}
    for name, kind in ((name, SELECTORS[name]) for name in names):
        for label, attack in ATTACKS.items():
            cells = {}
            for guard, rule in [(True, rule) for rule in RULES] + [(False, "median")]:
                runs = [play(kind(), attack, guard=guard, rule=rule, seed=seed) for seed in SEEDS]
                seats, accuracy = (round(float(value), 1) for value in np.mean(runs, axis=0))
                cells[f"{rule}, {'guard' if guard else 'no guard'}"] = {"seats": seats, "accuracy": accuracy}
            rows.setdefault(name, {})[label] = cells
        print(name, json.dumps(rows[name]), flush=True)
    return rows


def held_out(names: Iterable[str], data: str, data_dir: Path | None) -> dict[str, Any]:
    """Seats by selector, kind of scaling and factor, with the guard, with seeds that it was not set up with."""
    examples, rows = images(data, data_dir), dict[str, Any]()

    def seats(selector: Any, attack: Attack) -> float:
        runs = [play(selector, attack, guard=True, seed=seed, examples=examples)[0] for seed in HELD_OUT_SEEDS]
        return round(float(np.mean(runs)), 1)

    for name in names:
        selector = SELECTORS[name]()
        rows[name] = {HONEST: seats(selector, ATTACKS[HONEST])}
        rows[name] |= {what: {f"{by:g}": seats(selector, made(by)) for by in FACTORS} for what, made in KINDS.items()}
        print(data, name, rows[name], flush=True)
    return rows


def limit(honest: float) -> float:
    """The most seats, in percent, that scaling may gain."""
    return max(1.3 * honest, 2 * FAIR)


def cell(row: Mapping[str, Any], what: str) -> str:
    """Seats without and with the guard, or the accuracy of the three server rules with it."""
    if what == "seats":
        return f"{row['median, no guard']['seats']:.0f} → {row['median, guard']['seats']:.0f}"
    return " / ".join(f"{row[f'{rule}, guard']['accuracy']:.0f}" for rule in RULES)


def table(rows: Mapping[str, Any], attacks: Mapping[str, Attack], what: str) -> str:
    """A row a selector, a column an attack."""
    columns = [HONEST, *(label for label in attacks)]
    short = [label.split(":")[0] for label in columns]
    lines = ["| | " + " | ".join(short) + " |", "|---|" + "---:|" * len(columns)]
    for name, row in rows.items():
        lines.append(f"| `{name}` | " + " | ".join(cell(row[label], what) for label in columns) + " |")
    return "\n".join(lines)


def held_out_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """A row a selector, a column a kind of scaling, by its worst factor; bold what is above the limit."""
    columns = [f"{HELD_OUT[data]}, {what}" for data in found for what in (HONEST, *KINDS)]
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for name in SELECTORS:
        cells = []
        for row in (rows[name] for rows in found.values()):
            cells.append(f"{row[HONEST]:.1f}")
            for what in KINDS:
                had = max(row[what].values())
                cells.append(f"{had:.1f}" if had <= limit(row[HONEST]) else f"**{had:.1f}**")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tables(found: Mapping[str, Any]) -> dict[str, str]:
    """The tables of docs/attacks.md, by their names."""
    rows = found["rows"]
    return {
        "scaling-seats": table(rows, SCALING, "seats"),
        "scaling-accuracy": table(rows, SCALING, "accuracy"),
        "directions-seats": table(rows, DIRECTIONS, "seats"),
        "directions-accuracy": table(rows, DIRECTIONS, "accuracy"),
        "held-out": held_out_table(found["held_out"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="write the tables from the stored results")
    parser.add_argument("--held-out", action="store_true", help="measure 32 scalings on other data, with other seeds")
    parser.add_argument("--selector", action="append", choices=list(SELECTORS), help="default: all")
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    names = given.selector or list(SELECTORS)
    found: dict[str, Any] = (
        json.loads(RESULT.read_text()) if RESULT.exists() else {"seeds": len(SEEDS), "rows": {}, "held_out": {}}
    )
    if given.held_out:
        for data in HELD_OUT:
            found["held_out"].setdefault(data, {}).update(held_out(names, data, given.data_dir))
    elif not given.tables:
        found["rows"] |= measured(names)
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    fill_in(PAGE, tables(json.loads(RESULT.read_text())))


if __name__ == "__main__":
    main()
