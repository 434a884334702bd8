"""Work on the rows of large arrays: on all cores, and in tiles that stay in a core's cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

_TILE_BYTES = 2**20
_WORTH_THREADS = 2**24  # bytes; for less, contention for the GIL costs more than threads save


def on_all_cores(work: Callable[[range], None], rows: int, row_bytes: int) -> None:
    """Call `work(part)` for parts of `range(rows)`, one a core; in this thread if there is too little work.

    It pays where numpy does the work, which releases the GIL. Never use it around products of
    matrices: those have threads of their own, and two pools at once are many times slower than one.

    >>> found = []
    >>> on_all_cores(lambda part: found.extend(part), 5, row_bytes=8)
    >>> found
    [0, 1, 2, 3, 4]
    """
    threads = min(rows, cores()) if rows * row_bytes >= _WORTH_THREADS else 1
    if threads == 1:
        work(range(rows))
        return
    cuts = [rows * t // threads for t in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, map(range, cuts, cuts[1:])))


def tiles(part: range, row_bytes: int) -> Iterator[slice]:
    """Neighbouring rows of `part`, about a mebibyte at a time.

    >>> list(tiles(range(3, 6), row_bytes=2**19))
    [slice(3, 5, None), slice(5, 6, None)]
    """
    step = max(1, _TILE_BYTES // max(1, row_bytes))
    for start in range(part.start, part.stop, step):
        yield slice(start, min(start + step, part.stop))


def cores() -> int:
    """The cores this process may use: in a container fewer than the machine has, or as OMP_NUM_THREADS says.

    That variable limits each process where several run on one machine.
    """
    share = os.environ.get("OMP_NUM_THREADS", "")
    if share.isdecimal() and int(share):
        return int(share)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
