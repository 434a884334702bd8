"""The memory of a process and all its descendants: Linux's proportional set size, in which shared pages count once."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path


def family(of: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [of]
    for process in found:  # grows as it goes
        found += [child for child, parent in parents.items() if parent == process]
    return found


def held(process: int) -> int:
    """Bytes; none of one that has just ended."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 0


class Peak(threading.Thread):
    """The most that a family held at once, looked at ten times a second."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.bytes, self.over = process, 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.1):
            self.bytes = max(self.bytes, sum(map(held, family(self.process))))
