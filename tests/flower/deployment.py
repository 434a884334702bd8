"""A SuperLink and SuperNodes as processes on this machine, with TLS and node authentication."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.conftest import free_port
from tests.flower.certificates import make_certificates
from tests.flower.processes import Processes, listens, until

APP = """
[project]
name = "fair-numbers"
version = "1.0.0"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "equifl"

[tool.flwr.app.components]
serverapp = "fair_numbers.server_app:app"
clientapp = "fair_numbers.client_app:app"

[tool.flwr.app.config]
folder = ""
diary = ""
resume = false
identity = ""
"""


class Deployment:
    """A SuperLink that admits registered keys alone, or everybody, and as many SuperNodes as are started."""

    def __init__(self, home: Path, *, open_to_all: bool = False) -> None:
        self.home, self.port = home, free_port()
        self.processes = Processes(home)
        make_certificates(home)
        make_app(home / "app")
        connection = f'[superlink.here]\naddress = "127.0.0.1:{self.port}"\nroot-certificates = "{home / "ca.crt"}"\n'
        (home / "flwr" / "config.toml").write_text(connection)
        self.processes.start(
            *("superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key"),
            *(() if open_to_all else ("--enable-supernode-auth",)),
        )

    def wait(self) -> None:
        """Until the SuperLink listens."""
        until(lambda: listens(self.port), "that the SuperLink listens", 60)

    def register(self, name: str) -> None:
        """Tell the SuperLink a key."""
        self.flwr("supernode", "register", f"{name}.pub", "here")

    def start_node(self, name: str, partition: int, *, keyless: bool = False) -> subprocess.Popen[bytes]:
        """A SuperNode with the key of this name, or none."""
        return self.processes.start(
            *(name, "flower-supernode", "--host", "127.0.0.1", "--port", str(free_port())),
            *("--superlink", f"127.0.0.1:{self.port}", "--root-certificates", "ca.crt"),
            *(() if keyless else ("--auth-supernode-private-key", name)),
            *("--node-config", f"partition-id={partition} num-partitions=6"),
        )

    def times_admitted(self, name: str) -> int:
        """How often SuperNodes of this name came online."""
        return self.processes.log(name).count("SuperNode ID:")

    def nodes(self) -> list[str]:
        """What the SuperLink says of each key that it knows."""
        out = self.flwr("supernode", "list", "here", "--format", "json")
        return [node["status"] for node in json.loads(out[out.index("{") :])["nodes"]]

    def start_run(self, app: str = "app", **config: Any) -> str:
        """Run the app in this folder; returns the run's id."""
        given = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        out = self.flwr("run", app, "here", "--format", "json", "--run-config", given)
        return str(json.loads(out[out.index("{") :])["run-id"])

    def stop_run(self, run: str) -> None:
        """Stop a run; its ServerApp lives on for some seconds."""
        self.flwr("stop", run, "here")

    def flwr(self, *words: str) -> str:
        """What `flwr` with these words says."""
        return self.processes.run("flwr", *words)


def make_app(folder: Path) -> None:
    """The folder that `flwr run` packs and sends to everyone."""
    package = folder / "fair_numbers"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(APP)
    (package / "__init__.py").touch()
    for name in ("federation.py", "client_app.py", "server_app.py"):
        shutil.copy(Path(__file__).with_name(name), package)
