"""Sketch files: writers killed by SIGKILL, readers meanwhile, creators that race, flipped bytes; no torn row is taken.

A case is played by a process of its own, which forks the ones that it kills.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equifl import SignalStore, sketch_file
from equifl.sketch import CountSketch
from equifl.sketch_file import read_sketches

QUICK = 2
SECONDS = 2
ROOT = Path(__file__).parents[2]
CHILDREN: list[int] = []  # that were not waited for
VERSIONS = 16  # of every row, told apart by its first number


def make(rng: np.random.Generator) -> list[Any]:
    kinds = ["kill", "kill", "kill", "grow", "read", "create", "create", "flip"]
    return [
        {
            "kind": kind,
            "seed": int(rng.integers(2**32)),
            "n": int(rng.choice([40, 200, 600])),
            "length": int(rng.choice([3, 64, 256, 1024])),
            "dtype": str(rng.choice(["float16", "float32"])),
        }
        for kind in rng.permutation(kinds).tolist()
    ]


def play(steps: list[Any], folder: Path) -> Counter[str]:
    command = [sys.executable, "-m", "torture.attacks.sketch_file", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # a process with threads must not fork
    played = subprocess.run(
        command, input=json.dumps(steps), capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300
    )
    assert played.returncode == 0, played.stderr[-3000:]
    return Counter(json.loads(played.stdout))


class File:
    """A file of sketches, and which version of each row it should have; -1 is unknown."""

    def __init__(self, step: dict[str, Any], path: Path) -> None:
        self.path, self.n, self.random = path, step["n"], random.Random(step["seed"])
        self.options: dict[str, Any] = {"sketch": CountSketch(length=step["length"], seed=3), "dtype": step["dtype"]}
        rng = np.random.default_rng(step["seed"])
        self.table = rng.normal(size=(VERSIONS, 2 * self.n, step["length"])).astype(step["dtype"])
        self.table[:, :, 0] = np.arange(VERSIONS)[:, None]
        self.expected = np.full(self.n, -1)
        self.replayed = 0  # steps that are in it
        self.progress = np.frombuffer(mmap.mmap(-1, 8 * 2), np.int64)  # of the child: last step begun, last one done
        self.counts: Counter[str] = Counter()

    def open(self) -> tuple[SignalStore, int]:
        """The store, and how many torn rows it says there are."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            store = SignalStore(self.n, memory_map=self.path, **self.options)
        said = [re.search(r"memory_map: ([\d,]+) of [\d,]+ sketches", str(warning.message)) for warning in caught]
        assert len(said) < 2, said
        return store, sum(int(found[1].replace(",", "")) for found in said if found)

    def ids(self, at: int) -> NDArray[np.int64]:
        """Whom step `at` writes: a third of the clients."""
        return (7919 * at + np.arange(-(-self.n // 3))) % self.n

    def version(self, at: int, forgetting: bool) -> int:
        return -1 if forgetting and at % 4 == 3 else at % VERSIONS

    def write(self, store: SignalStore, at: int, forgetting: bool) -> None:
        ids, version = self.ids(at), self.version(at, forgetting)
        if version < 0:
            store.forget(ids)
        else:
            store.observe(ids, updates=self.table[version, ids])

    def write_for_ever(self, forgetting: bool = True) -> None:
        store, _ = self.open()
        parent = os.getppid()
        while os.getppid() == parent:  # which may be killed, too
            self.progress[0] += 1
            self.write(store, int(self.progress[0]), forgetting)
            self.progress[1] += 1

    def found(self, rows: Any, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The version of each row; raises if one is none that was ever written."""
        known = ~np.isnan(rows).all(axis=1)
        with np.errstate(invalid="ignore"):
            versions = np.where(known, rows[:, 0], -1).astype(np.int64)
        whole = ~known | (np.abs(versions) < VERSIONS)
        whole[known & whole] = (self.table[versions, ids] == rows)[known & whole].all(axis=1)
        self.counts["rows checked"] += len(ids)
        assert whole.all(), f"{(~whole).sum()} torn rows accepted: clients {ids[~whole][:5].tolist()}"
        return versions

    def check(self, in_flight: NDArray[np.bool_], news: int) -> None:
        """Open the file: every row is what was last written; rows in flight may be what they were, or unknown."""
        store, torn = self.open()
        versions = self.found(np.asarray(store.signals(0).updates), np.arange(self.n))
        right = versions == self.expected
        right |= in_flight & ((versions == news) | (versions == -1))
        assert right.all(), f"{(~right).sum()} rows lost: clients {np.flatnonzero(~right)[:5].tolist()}"
        lost = ((versions == -1) & (self.expected != -1) & in_flight).sum() if news != -1 else 0
        assert torn >= lost, f"{lost} rows unknown, and it says {torn}"
        self.counts["torn rows found"] += torn
        self.expected = versions

    def kill(self, child: int) -> None:
        os.kill(child, signal.SIGKILL)
        ended(child)
        self.counts["kills"] += 1

    def wait(self, child: int, most: float) -> None:
        """Until the child writes, and then up to `most` seconds."""
        begun = int(self.progress[0])
        while self.progress[0] == begun:
            assert os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None, "the writer ended"
            time.sleep(0.0005)
        time.sleep(self.random.uniform(0, most))


def forked(work: Callable[[], Any]) -> int:
    """The id of a new process that does this, and ends."""
    child = os.fork()
    if child:
        CHILDREN.append(child)
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(child: int) -> int:
    """Its exit code, negative if it was killed."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    CHILDREN.remove(child)
    return code


def kill(file: File) -> None:
    """Writers, one after the other, each killed at a random moment."""
    for _ in range(12):
        child = forked(file.write_for_ever)
        file.wait(child, 0.02)
        file.kill(child)
        begun, done = (int(count) for count in file.progress)
        for at in range(file.replayed + 1, done + 1):
            file.expected[file.ids(at)] = file.version(at, forgetting=True)
        in_flight = np.zeros(file.n, bool)
        if begun > done:
            in_flight[file.ids(begun)] = True
        file.check(in_flight, file.version(begun, forgetting=True))
        file.progress[1] = file.replayed = begun


def grow(file: File) -> None:
    """A store that grows by one client after the other, killed; every size was asked for, and no row is lost."""
    first, _ = file.open()
    everybody = np.arange(file.n)
    first.observe(everybody, updates=file.table[5, everybody])
    del first
    before, most = file.n, 2 * file.n

    def grow_on() -> None:
        store, _ = file.open()
        for n in range(file.n + 1, most + 1):
            file.progress[0] = n
            store.grow(n)
            file.progress[1] = n
            store.observe([n - 1], updates=file.table[7, [n - 1]])

    for _ in range(4):
        if file.n < most:
            child = forked(grow_on)
            file.wait(child, 0.05)
            file.kill(child)
            size = len(np.load(file.path, mmap_mode="r"))
            assert file.progress[1] <= size <= file.progress[0], (size, file.progress)
            file.n = max(size, file.n)
            versions = file.found(np.asarray(file.open()[0].signals(0).updates), np.arange(file.n))
            assert (versions[:before] == 5).all(), "rows lost"
            assert (versions[before : file.n - 1] != 5).all()


def read(file: File) -> None:
    """Copies of rows while another process writes them without end, and a second store on the same file."""
    everybody = np.arange(file.n)
    file.open()[0].observe(everybody, updates=file.table[0, everybody])
    child = forked(lambda: file.write_for_ever(forgetting=False))
    file.wait(child, 0)
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        ids = np.sort(np.array(file.random.sample(range(file.n), min(file.n, 60))))
        versions = file.found(read_sketches(file.path, ids), ids)
        file.counts["rows read meanwhile"] += len(ids)
        file.counts["rows not whole after the wait"] += int((versions == -1).sum())
        if file.random.random() < 0.1:
            file.open()
    file.kill(child)
    file.found(np.asarray(file.open()[0].signals(0).updates), everybody)


def create(file: File) -> None:
    """Several processes make the file at once, some are killed, some want another seed."""
    for _ in range(3):
        for path in file.path.parent.iterdir():
            path.unlink()
        start, length = time.monotonic() + 0.02, file.options["sketch"].length
        seeds = [3] * 4 if file.random.random() < 0.5 else [3, 4, 3, 4]

        def begin(client: int, seed: int, start: float = start, length: int = length) -> None:
            while time.monotonic() < start:
                pass
            options = file.options | {"sketch": CountSketch(length=length, seed=seed)}
            try:
                store = SignalStore(file.n, memory_map=file.path, **options)
            except ValueError as error:
                os._exit(7 if "of seed" in str(error) else 1)
            store.observe([client], updates=file.table[9, [client]])

        children = [forked(lambda c=client, s=seed: begin(c, s)) for client, seed in enumerate(seeds)]  # type: ignore[misc]
        victim = file.random.randrange(8)
        if victim < len(seeds):
            time.sleep(0.02 + file.random.uniform(0, 0.004))
            os.kill(children[victim], signal.SIGKILL)
            file.counts["kills"] += 1
        codes = [ended(child) for child in children]
        file.counts["creators"] += len(codes)
        others = [(seed, code) for at, (seed, code) in enumerate(zip(seeds, codes, strict=True)) if at != victim]
        assert all(code in (0, 7) for _, code in others), codes
        winners = {seed for seed, code in others if code == 0}
        refused = {seed for seed, code in others if code == 7}
        assert len(winners) < 2, "two seeds in one file"
        assert not winners & refused, codes
        assert winners or victim < len(seeds), codes
        if winners == {3}:
            versions = file.found(np.asarray(file.open()[0].signals(0).updates), np.arange(file.n))
            for client, code in enumerate(codes):
                assert code != 0 or versions[client] == 9, "the row of a creator is lost"
            left = {path.name for path in file.path.parent.iterdir()}
            assert victim < len(seeds) or len(left) == 2, left


def flip(file: File) -> None:
    """Damaged files: refused with a sentence, or every row is as it was written or unknown."""
    known = np.flatnonzero(np.arange(file.n) % 3)
    store, _ = file.open()
    store.observe(known, updates=file.table[2, known])
    store.state_dict()
    del store
    whole = {path: path.read_bytes() for path in file.path.parent.iterdir()}
    for _ in range(25):
        path = file.random.choice(sorted(whole))
        content = bytearray(whole[path])
        for _ in range(file.random.choice([1, 1, 2, 8])):
            end = 130 if file.random.random() < 0.3 else len(content)
            content[file.random.randrange(end)] ^= 1 << file.random.randrange(8)
        if file.random.random() < 0.1:
            content = content[: file.random.randrange(len(content))]
        path.write_bytes(content)
        file.counts["damaged files"] += 1
        try:
            versions = file.found(np.asarray(file.open()[0].signals(0).updates), np.arange(file.n))
        except ValueError as error:
            if not str(error).startswith("memory_map: "):
                raise
            file.counts["damaged files refused"] += 1
        else:
            assert np.isin(versions, [2, -1]).all()
            assert (versions[::3] == -1).all(), "an unknown row became known"
        for original, everything in whole.items():
            original.write_bytes(everything)


def main() -> None:
    counts: Counter[str] = Counter()
    for number, step in enumerate(json.load(sys.stdin)):
        folder = Path(sys.argv[1]) / str(number)
        folder.mkdir()
        file = File(step, folder / "sketches.npy")
        sketch_file.PATIENCE = 0.5 if step["kind"] in ("read", "create") else 0.01  # nobody else writes
        {"kill": kill, "grow": grow, "read": read, "create": create, "flip": flip}[step["kind"]](file)
        counts += file.counts
    print(json.dumps(counts))


if __name__ == "__main__":
    try:
        main()
    finally:
        for child in CHILDREN:
            os.kill(child, signal.SIGKILL)
