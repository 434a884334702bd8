"""Tiny Shakespeare: the next character in the plays, with speakers as clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from equifl._numerics.checks import integer
from equifl.signals import Ints
from equifl.sim.data.dataset import Dataset


def read_shakespeare(folder: Path, *, length: int = 64, characters: int = 2000) -> Dataset:
    """Lines of the speakers who have `characters` or more (99 of 309), cut into examples of `length` characters.

    An example's targets are the characters that follow each of its own. The last fifth of a speaker's examples is for
    testing: what is said later in the play. A character is its place in the alphabet of the whole text.
    """
    integer("length", length, least=2)
    integer("characters", characters, least=2)
    text = (folder / "input.txt").read_text(encoding="utf-8")
    numbers = {letter: place for place, letter in enumerate(sorted(set(text)))}
    parts = []
    for speaker, said in speeches(text).items():
        line = np.array([numbers[letter] for letter in said], np.int64)
        windows = _windows(line, length)
        if len(said) >= characters and len(windows) >= 2:
            tested = np.arange(len(windows)) >= len(windows) - max(1, len(windows) // 5)
            parts.append((windows, tested, np.full(len(windows), speaker)))
    if not parts:
        raise ValueError(
            f"data.characters: {characters} is not allowed; allowed: fewer, as nobody says so many in examples of "
            f"{length}"
        )
    windows, test, owners = (np.concatenate(part) for part in zip(*parts, strict=True))
    x, y = windows[:, :-1], windows[:, 1:]
    whose = owners[~test], owners[test]
    return Dataset("shakespeare", x[~test], y[~test], x[test], y[test], len(numbers), *whose)


def speeches(text: str) -> Mapping[str, str]:
    r"""All that each speaker says, in the order of the text: a speech is "NAME:", its lines, and an empty line.

    >>> speeches("FIRST:\nSpeak.\n\nALL:\nSpeak,\nspeak.\n\n\nFIRST:\nNo.\n")
    {'FIRST': 'Speak.\nNo.', 'ALL': 'Speak,\nspeak.'}
    """
    found: dict[str, list[str]] = {}
    for speech in re.split(r"\n{2,}", text.strip("\n")):
        name, _, lines = speech.partition(":\n")
        found.setdefault(name, []).append(lines)
    return {name: "\n".join(lines) for name, lines in found.items()}


def _windows(line: Ints, length: int) -> Ints:
    """(n, length + 1) parts of a text that overlap by one character: what is predicted last is what comes next."""
    count = max(0, (len(line) - 1) // length)
    starts = length * np.arange(count)
    return line[starts[:, None] + np.arange(length + 1)]
