"""Plays attacks until the time is over, and cuts a failing case down to the steps that matter."""

from __future__ import annotations

import importlib.util
import json
import logging
import pkgutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from torture import attacks as found

CASES = Path(__file__).parent / "cases"


class Attack(Protocol):
    """What a file in `attacks` has to have. It may have `NEEDS`, the name of a package that it cannot do without."""

    QUICK: int

    def make(self, rng: np.random.Generator) -> list[Any]: ...

    def play(self, steps: list[Any], folder: Path) -> Counter[str]: ...


@dataclass
class Tally:
    """What an attack did: cases, what they counted, and the failing ones, cut down."""

    cases: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)


def attacks() -> dict[str, Attack]:
    """All attacks, by the names of their files."""
    names = sorted(module.name for module in pkgutil.iter_modules(found.__path__))
    return {name: importlib.import_module(f"torture.attacks.{name}") for name in names}


def lacks(attack: Attack) -> str:
    """Why an attack cannot be played here, or "".

    >>> lacks(attacks()["store"])
    ''
    """
    package = getattr(attack, "NEEDS", "json")
    return "" if importlib.util.find_spec(package) else f"{package} is not installed"


def planned(attack: Attack, name: str, seed: int) -> list[Any]:
    """The case of a seed, as JSON gives it back: the same on every machine."""
    rng = np.random.default_rng([seed, *name.encode()])
    return json.loads(json.dumps(attack.make(rng)))


def failure_of(attack: Attack, steps: list[Any]) -> str:
    """How a case fails; empty if it does not."""
    return played(attack, steps)[1]


def played(attack: Attack, steps: list[Any]) -> tuple[Counter[str], str]:
    """What a case counted, and how it failed."""
    log = logging.getLogger("equifl")
    level = log.level
    log.setLevel(logging.CRITICAL)  # a thousand cases would have a thousand warnings
    with tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as folder:
        try:
            return attack.play(steps, Path(folder)), ""
        except Exception:
            return Counter(), traceback.format_exc()
        finally:
            log.setLevel(level)


def reduced(attack: Attack, steps: list[Any], *, tries: int = 200) -> list[Any]:
    """A shorter case that still fails: parts are left out, halves first, single steps last."""
    size = len(steps) // 2
    while size >= 1 and tries > 0:
        start, shorter = 0, False
        while start < len(steps) and tries > 0:
            rest = steps[:start] + steps[start + size :]
            tries -= 1
            if rest and failure_of(attack, rest):
                steps, shorter = rest, True
            else:
                start += size
        size = size if shorter and size == 1 else size // 2
    return steps


def tortured(chosen: dict[str, Attack], *, seconds: float, seed: int, most: int = 3) -> Iterator[tuple[str, Tally]]:
    """Play cases until the time is over, each attack an equal share of it; yields each attack's tally at its end.

    An attack that has failed `most` times stops: more of the same tells nothing new.
    """
    end = time.monotonic() + seconds
    left = list(chosen)
    while left:
        name = left.pop(0)
        attack, tally, start = chosen[name], Tally(), time.monotonic()
        share = max(0.0, end - start) / (len(left) + 1)
        while tally.cases == 0 or (time.monotonic() - start < share and len(tally.failures) < most):
            steps = planned(attack, name, seed + tally.cases)
            counts, failure = played(attack, steps)
            if failure:
                shortest = reduced(attack, steps)
                error = failure_of(attack, shortest) or failure
                tally.failures.append({"attack": name, "seed": seed + tally.cases, "steps": shortest, "error": error})
            tally.counts += counts
            tally.cases += 1
        tally.seconds = time.monotonic() - start
        yield name, tally


def keep(failure: dict[str, Any]) -> Path:
    """Write a failing case where the tests find it; they play it again from then on."""
    CASES.mkdir(exist_ok=True)
    path = CASES / f"{failure['attack']}-{failure['seed']}.json"
    path.write_text(json.dumps({"attack": failure["attack"], "steps": failure["steps"]}, indent=1) + "\n")
    return path
