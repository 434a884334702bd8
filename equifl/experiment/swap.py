"""Replace all files of a run folder at once: whoever is killed meanwhile leaves the old ones or the new ones.

The new files are made in a folder of their own. It becomes valid by a rename, and from then on every reader takes the
files from there, until they are copied to their place and the folder is renamed away.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from equifl.experiment.atomic_write import TEMPORARY, replacing, sync_folder

GROWING = "growing"  # within a run folder: what it lacks is made there
_READY, _DONE = "ready", "done"


def current(path: Path) -> Path:
    """Where the files of a run folder are: in its place, or ready to be put there."""
    ready = path / GROWING / _READY
    return ready if ready.is_dir() else path


def new_files(path: Path) -> Path:
    """An empty folder for the new files of a run folder; `swap` makes them valid."""
    place = path / GROWING / (_READY + TEMPORARY)
    if place.exists():
        shutil.rmtree(place)
    place.parent.mkdir(exist_ok=True)
    return place


def swap(path: Path, names: tuple[str, ...]) -> None:
    """Make the new files valid, and put them in their place; of these names, those that are not new are removed."""
    ready = path / GROWING / _READY
    sync_folder(path / GROWING / (_READY + TEMPORARY))
    (path / GROWING / (_READY + TEMPORARY)).rename(ready)
    sync_folder(ready.parent)
    settle(path, names)


def settle(path: Path, names: tuple[str, ...]) -> None:
    """Put files that are ready in their place, and remove what is no longer needed."""
    growing = path / GROWING
    ready, done = growing / _READY, growing / _DONE
    if ready.is_dir():
        for name in names:
            if (ready / name).exists():
                with (ready / name).open("rb") as source, replacing(path / name) as target:
                    shutil.copyfileobj(source, target)
            else:
                (path / name).unlink(missing_ok=True)
        sync_folder(path)
        ready.rename(done)
        sync_folder(growing)
    with suppress(OSError):  # what is left takes space, and nothing else
        if done.is_dir():
            for part in growing.iterdir():
                if part != done:
                    shutil.rmtree(part)
            shutil.rmtree(done)  # last, so that a killed process leaves word of what is no longer needed
        if growing.is_dir() and not any(growing.iterdir()):
            growing.rmdir()
