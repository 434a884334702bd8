"""Run folders with damaged files: a resumed run has the same records, or one sentence and every file as it was."""

from __future__ import annotations

import io
import json
import re
import tempfile
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from equifl.experiment.callbacks import Callback
from equifl.experiment.config import Config
from equifl.experiment.records import sealed
from equifl.experiment.results import Records, load_results
from equifl.report.numbers import make_numbers
from equifl.report.page import as_toml, make_page
from equifl.sim.simulation import simulate

QUICK = 40
FILES = ("config.json", "rounds.jsonl", "checkpoint.npz")
KINDS = ("finished", "half", "early", "old finished", "old half")
ARRAYS = ["models", "recent", "updates", "distances", "store.losses", "store.times_selected", "store.progress"]
ARRAYS += ["server.parts", "rounds_played", "config.crc"]
FIELDS = ["round", "selector", "seed", "cohort", "local_loss", "bytes_up", "accuracy", "worst10", "client_accuracy"]
FIELDS += ["participation", "objective", "crc"]
SETTINGS = [
    "rounds",
    "clients",
    "seeds",
    "selectors",
    "data",
    "data.name",
    "data.partition",
    "evaluate_every",
    "train",
]
SETTINGS += ["per_round", "engine", "train.lr", "selectors.uniform"]
VALUES: list[Any] = [None, True, -1, 0, 1, 2**70, 0.5, 1e308, "", "rota", [], [0], [1, 1], [[1]], {}, {"gini": None}]
TINY = ["rounds=6", "clients=10", "per_round=2", "seeds=[0]", "train.steps=1", "data.name=synthetic"]
TINY += ["data.partition=natural", "evaluate_every=2", "selectors={uniform={}, subtrunc={}}"]

DAMAGES = [*["flip", "edit", "array"] * 4, *["cut", "junk", "repeat", "swap", "drop", "set"] * 2]
DAMAGES += ["other model", "other run", "remove"]

Files = dict[str, bytes]


class _Stop(Callback):
    def __init__(self, after: int) -> None:
        self._after = after

    def on_round(self, played: int, records: Records) -> bool:
        return played < self._after


def make(rng: np.random.Generator) -> list[Any]:
    steps: list[Any] = [{"do": "begin", "kind": str(rng.choice(KINDS)), "draw": bool(rng.random() < 0.03)}]
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        do = str(rng.choice(DAMAGES))
        step = {"do": do, "at": float(rng.random()), "to": float(rng.random()), "bit": int(rng.integers(8))}
        step["file"] = str(rng.choice(FILES, p=[0.2, 0.5, 0.3]))
        if do in ("edit", "set"):
            step |= {
                "field": str(rng.choice(FIELDS if do == "edit" else SETTINGS)),
                "value": VALUES[rng.integers(len(VALUES))],
            }
            step["forged"] = bool(rng.random() < 0.3)
        if do == "array":
            how = ["delete", "add", "reshape", "retype", "shorten", "scalar", "big-endian"]
            step |= {"array": str(rng.choice(ARRAYS)), "how": str(rng.choice(how))}
        steps.append(step)
    return steps


def play(steps: list[Any], folder: Path) -> Counter[str]:
    begin: dict[str, Any] = steps[0] if steps[0]["do"] == "begin" else {"kind": "half"}
    expected, files = _files("finished")["rounds.jsonl"], dict(_files(begin["kind"]))
    for step in steps:
        _damage(files, step)
    old = begin["kind"].startswith("old")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    counts = Counter(damages=len(steps) - (steps[0]["do"] == "begin"))
    counts += _report(folder, draw=begin.get("draw", False))
    assert _read(folder) == files, "a report changed the folder"
    if any(step.get("forged") for step in steps):
        return counts  # nobody can tell
    try:
        results = simulate(_config(), out=folder, device="cpu")
    except ValueError as error:
        said = str(error)
    else:
        said = ""
        assert results.rounds_played == 6
    if said:
        assert "\n" not in said
        assert _read(folder) == files, f"changed, and then refused: {said}"
        return counts + Counter(refused=1)
    if old and any(step["do"] in ("flip", "edit", "set") for step in steps):
        return counts + Counter({"resumed without checksums": 1})  # of which not every change can be seen
    assert _plain((folder / "rounds.jsonl").read_bytes()) == _plain(expected), "other records"
    return counts + Counter({"resumed to the same records": 1})


def _report(folder: Path, *, draw: bool) -> Counter[str]:
    """What `equifl report` makes of a folder; the drawing, which takes a second, only if asked for."""
    try:
        results = load_results(folder)
        numbers = make_numbers(results.config, results.whole_rounds)
        shown = [numbers.played == results.rounds_played, str(results.table()), as_toml(results.config)]
        shown += [make_page(results)] if draw else []
        said, part = "", bool(results.left_out)
    except ValueError as error:
        said, shown, part = str(error), [], False
    assert all(shown)
    assert "\n" not in said
    return Counter({"reports refused" if said else "reports in part" if part else "reports": 1})


def _read(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def _plain(rounds: bytes) -> bytes:
    return re.sub(rb', "crc": "[0-9a-f]{8}"}\n', b"}\n", rounds)


def _config(*more: str) -> Config:
    return Config.load(None, [*TINY, "train.model=logistic", *more])


@cache
def _files(kind: str) -> Files:
    """A folder that was finished, stopped after five rounds with a checkpoint of three, or killed before any."""
    if kind.startswith("old"):
        return _without_checksums(_files(kind.removeprefix("old ")))
    other = {"other model": "train.model=mlp", "other run": "train.lr=0.01"}.get(kind, "train.lr=0.05")
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        stops = [6] if kind == "finished" else [3, 5]
        found: list[Files] = []
        for after in stops:
            simulate(_config(other), out=folder, device="cpu", callbacks=[_Stop(after)])
            found.append(_read(Path(folder)))
    if kind == "finished":
        return found[-1]
    checkpoint = {} if kind == "early" else {"checkpoint.npz": found[0]["checkpoint.npz"]}
    return {name: content for name, content in found[-1].items() if name != "checkpoint.npz"} | checkpoint


def _without_checksums(files: Files) -> Files:
    stored = json.loads(files["config.json"])
    old = {"config.json": json.dumps({key: stored[key] for key in ("config", "made_with")}, indent=2).encode() + b"\n"}
    old["rounds.jsonl"] = _plain(files["rounds.jsonl"])
    if "checkpoint.npz" in files:
        arrays = _arrays(files["checkpoint.npz"])
        kept = {name: array for name, array in arrays.items() if name not in ("config.crc", "server.parts")}
        kept["apart"] = kept.pop("distances")
        old["checkpoint.npz"] = _archive(kept)
    return old


def _arrays(archive: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(archive)) as found:
        return {name: found[name] for name in found.files}


def _archive(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(array))
    return file.getvalue()


def _damage(files: Files, step: dict[str, Any]) -> None:
    """Do one damage; to a file that is not there, or no longer what it was, none."""
    do, name = step["do"], step.get("file", "")
    if do in ("other model", "other run"):
        files["checkpoint.npz"] = _files(do)["checkpoint.npz"]
    elif do == "array":
        _damage_array(files, step)
    elif do in ("repeat", "swap", "drop", "edit") and files.get("rounds.jsonl"):
        _damage_lines(files, step)
    elif do == "set":
        _damage_setting(files, step)
    elif do == "remove":
        files.pop(name, None)
    elif files.get(name):
        content = bytearray(files[name])
        place = int(step["at"] * len(content))
        if do == "flip":
            content[place] ^= 1 << step["bit"]
        elif do == "cut":
            del content[place:]
        elif do == "junk":
            content[place if step["bit"] else len(content) :] = b"\0" * int(1000 * step["to"]) + b"\n" * (
                step["bit"] % 2
            )
        files[name] = bytes(content)


def _damage_lines(files: Files, step: dict[str, Any]) -> None:
    lines = files["rounds.jsonl"].splitlines(keepends=True)
    here, there = (int(step[name] * len(lines)) for name in ("at", "to"))
    if step["do"] == "repeat":
        lines.insert(there, lines[here])
    elif step["do"] == "swap":
        lines[here], lines[there] = lines[there], lines[here]
    elif step["do"] == "drop":
        del lines[here]
    else:
        try:
            record = json.loads(lines[here])
        except ValueError:
            return
        if step["forged"]:
            record.pop("crc", None)
        record[step["field"]] = step["value"]
        text = json.dumps(record)
        lines[here] = sealed(text) if step["forged"] else text.encode() + b"\n"
    files["rounds.jsonl"] = b"".join(lines)


def _damage_setting(files: Files, step: dict[str, Any]) -> None:
    try:
        stored = json.loads(files["config.json"])
        *outer, last = step["field"].split(".")
        table = stored["config"]
        for name in outer:
            table = table[name]
        table[last] = step["value"]
    except (KeyError, TypeError, ValueError):
        return
    if step["forged"]:
        stored.pop("crc", None)
    text = json.dumps(stored, indent=2)
    files["config.json"] = sealed(text) if step["forged"] else text.encode() + b"\n"


def _damage_array(files: Files, step: dict[str, Any]) -> None:
    try:
        arrays = _arrays(files["checkpoint.npz"])
    except (KeyError, ValueError, OSError, zipfile.BadZipFile):
        return
    name, how = step["array"], step["how"]
    if how == "add":
        arrays["extra"] = np.zeros(3)
    elif how == "delete":
        arrays.pop(name, None)
    elif name in arrays:
        array = arrays[name]
        changed: dict[str, Any] = {
            "reshape": array.reshape(*array.shape, 1),
            "retype": array.astype(np.float64 if array.dtype != np.float64 else np.float32),
            "shorten": array[..., :-1] if array.ndim else np.zeros(2, array.dtype),
            "scalar": np.zeros((), array.dtype),
            "big-endian": array.astype(array.dtype.newbyteorder(">")),
        }
        arrays[name] = changed[how]
    files["checkpoint.npz"] = _archive(arrays)
