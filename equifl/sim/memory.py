"""How much memory an experiment will take, and whether this machine has it: asked before any of it is taken."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from equifl._numerics.threads import cores
from equifl.aggregators.base import rule_bytes
from equifl.experiment.config import Config, make_selector
from equifl.experiment.rule_tables import make_rule
from equifl.selectors.base import needs
from equifl.signals import Floats

AT_A_TIME = 2**24  # numbers of weights, examples and batches, where all clients report

log = logging.getLogger(__name__)


class Part(NamedTuple):
    """What memory is taken for, how many bytes, and which keys decide it."""

    what: str
    bytes: int
    keys: str


def require_room(parts: Sequence[Part]) -> None:
    """Raise ValueError if this machine cannot have so much memory; log it if that is over half of what is free."""
    size, room = sum(part.bytes for part in parts), machine_memory()
    if room is None:
        return
    total, free = room
    most = max(parts, key=lambda part: part.bytes)
    takes = f"this takes about {in_words(size)} of memory, {in_words(most.bytes)} of it for {most.what}"
    if size > total:
        raise ValueError(
            f"{most.keys}: {takes}; allowed: {in_words(total)}, which this machine has; lower one of them"
        )
    if 2 * size > free:
        log.warning("%s, which depends on %s; %s are free", takes, most.keys, in_words(free))


def run_memory(config: Config, sizes: Floats, parameters: int, examples: int, *, device: str = "cpu") -> list[Part]:
    """What `Federation` takes on this machine, beside the data: an estimate, with a model's activations left out.

    Args:
        config: every selector with every seed.
        sizes: training examples of each client.
        parameters: the length of an update.
        examples: how many there are, for training and testing.
        device: models and updates are not in this machine's memory if it is "cuda".
    """
    n, seeds, runs = len(sizes), len(config.seeds), len(config.selectors) * len(config.seeds)
    cohort, train, largest = min(n, config.largest_cohort), config.train, int(sizes.max())
    informed = seeds * sum("updates" in needs(make_selector(*item)) for item in config.selectors.items())
    steps = train.steps or (train.epochs or 1) * -(-largest // min(train.batch_size, largest))
    batch = steps * train.batch_size
    together = max(runs * cohort, min(n, max(1, AT_A_TIME // (parameters + largest + batch))))  # models
    kept = runs * (2 + 2 * min(config.server.average_last, config.rounds))
    evaluated = -(-config.rounds // config.evaluate_every) + (config.evaluate_last or 0)
    records = runs * (config.rounds * (1500 + 40 * cohort) + (evaluated + 2) * (1500 + 80 * n))
    parts = [
        Part("batches", 8 * batch * (2 * together + 3), f"train.batch_size, {_epochs(config)}, per_round, seeds"),
        Part("records", records, "rounds, per_round, clients, seeds"),
        Part("partitions and scores", 8 * (seeds + runs) * examples, "seeds, clients"),
    ]
    if device == "cpu":
        workspace = 24 if config.engine == "torch" else 4  # of each core
        models = 4 * parameters * (kept + 4 * together + workspace * cores() + 8)
        parts.append(Part("models", models, "train.model, server.average_last, per_round, seeds"))
        remembered = runs * rule_bytes(make_rule(config.server.aggregate), n, parameters)
        keys = "server.aggregate, clients, train.model, seeds"
        if remembered:
            copied = 3 * remembered // 2  # for a checkpoint once more, in memory alone not
            parts.append(Part("the server rule's memory", copied, keys))
    if config.sketch is not None:
        each = 4 * informed * n + 24 * together
        parts.append(Part("sketches", config.sketch * each, "sketch, clients, seeds"))
    elif informed:
        distances = 4 * (informed + 8) * n * n
        parts.append(Part("distances between clients", distances, "clients (or set sketch), seeds"))
        if device == "cpu":
            parts.append(Part("updates", 4 * informed * n * parameters, "clients (or set sketch), train.model, seeds"))
    return parts


def machine_memory() -> tuple[int, int] | None:
    """Bytes that this machine, or container, has and that are free; None if it does not say."""
    try:
        lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
        found = {words[0]: 1024 * int(words[1]) for words in lines}
        total, free = found["MemTotal:"] + found["SwapTotal:"], found["MemAvailable:"] + found["SwapFree:"]
    except (OSError, KeyError, ValueError, IndexError):
        try:
            total = free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, OSError, ValueError):
            return None
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            allowed = int(Path(limit).read_text())
        except (OSError, ValueError):  # there is none, or "max"
            continue
        total, free = min(total, allowed), min(free, allowed)
    return total, free


def _epochs(config: Config) -> str:
    return "train.steps" if config.train.epochs is None else "train.epochs"


def in_words(size: int) -> str:
    """Bytes in words.

    >>> in_words(3 * 2**29), in_words(10**30)
    ('1.5 GiB', '8.67e+11 EiB')
    """
    power = min(6, max(2, (size.bit_length() - 1) // 10))
    return f"{size / 2 ** (10 * power):.3g} {'KMGTPE'[power - 1]}iB"
