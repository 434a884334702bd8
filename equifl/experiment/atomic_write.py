"""Write a file whole or not at all, and safely on the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

TEMPORARY = ".tmp"


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when it is whole and on the disk; until then the old one stays."""
    temporary = path.with_name(path.name + TEMPORARY)
    with naming(path):
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)  # or a power cut may bring the old one back
        except BaseException:
            with suppress(OSError):  # a folder that cannot be written: the first error says more
                temporary.unlink(missing_ok=True)
            raise


@contextmanager
def naming(path: Path, what: str = "written") -> Iterator[None]:
    """Add the file's name to an OSError, which may have none."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path}: cannot be {what} ({error.strerror or error})") from error


def sync_folder(path: Path) -> None:
    """Flush the folder's entries to the disk, where the system can: Windows and some network disks cannot."""
    if os.name != "nt":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(folder)
