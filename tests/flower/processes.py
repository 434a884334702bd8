"""Programs that tests start, and that do not outlive them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
BIN = Path(sys.executable).parent
MARK = "EQUIFL_TEST"


def until(seen: Callable[[], T], what: str, seconds: float) -> T:
    """What `seen` returns, as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := seen()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} seconds: {what}")
        time.sleep(0.2)
    return found


class Processes:
    """Programs of Flower's in a folder, that see nothing of the user's Flower, with all that they start in turn."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home, self._mark = home, uuid.uuid4().hex
        self._programs: list[subprocess.Popen[bytes]] = []
        self._environment = os.environ | {
            MARK: self._mark,
            "PATH": os.pathsep.join((str(BIN), os.environ.get("PATH", ""))),
            "FLWR_HOME": str(home / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
            "OMP_NUM_THREADS": "1",
            "no_proxy": "127.0.0.1",
            **environment,
        }
        (home / "flwr").mkdir()

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        """A program that writes to `name`.log, the leader of a process group of its own."""
        with (self.home / f"{name}.log").open("ab") as log:
            program = subprocess.Popen(
                [BIN / command[0], *command[1:]],
                cwd=self.home,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._programs.append(program)
        return program

    def log(self, name: str) -> str:
        """What a program has written so far."""
        return (self.home / f"{name}.log").read_text(errors="replace")

    def run(self, *command: str | Path, cwd: Path | None = None, seconds: float = 120) -> str:
        """The output of a command, which must succeed."""
        done = subprocess.run(
            [BIN / command[0], *command[1:]],
            cwd=cwd or self.home,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def alive(self) -> dict[int, str]:
        """The commands of all our processes, also of those that Flower has detached, by process id."""
        mark, found = f"{MARK}={self._mark}".encode(), {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it has just ended, or is another user's
                continue
        return found

    def end(self) -> None:
        """Kill them all; fail if one is left."""
        for program in self._programs:
            kill(program)

        def gone() -> bool:
            for process in self.alive():
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            return not self.alive()

        until(gone, "that all processes are gone", 30)


def kill(program: subprocess.Popen[bytes]) -> None:
    """-9 to a program and to its group."""
    if program.poll() is None:
        os.killpg(program.pid, signal.SIGKILL)
    program.wait(30)


def listens(port: int) -> bool:
    """Whether somebody does, on this port of this machine."""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0
