"""NVFlare's POC mode: a server and sites as processes, with certificates, on loopback."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import free_port
from tests.flower.processes import until
from tests.nvflare.pretend_server import rows

ROOT = Path(__file__).parents[2]
MARK = "EQUIFL_TEST"
pytestmark = pytest.mark.deployment
ROUNDS = 4

# The name of the server is the host that it listens on.
PROJECT = """
api_version: 3
name: numbers
description: three sites
participants:
  - {{name: localhost, type: server, org: test, fed_learn_port: {port}}}
  - {{name: admin@nvidia.com, type: admin, org: test, role: project_admin}}
  - {{name: site-1, type: client, org: test}}
  - {{name: site-2, type: client, org: test}}
  - {{name: site-3, type: client, org: test}}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
    args: {{template_file: [master_template.yml]}}
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {{config_folder: config}}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""


def unless_ended(ask: Callable[[], Any], otherwise: Any = None) -> Any:
    """What a process answers; `otherwise` if it has ended meanwhile, or is not ours."""
    try:
        return ask()
    except psutil.Error:
        return otherwise


class Federation:
    """A server and three sites, and a job; all processes have a mark of the test's in their environment."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder, self._mark = home, home / "run", uuid.uuid4().hex
        (home / "project.yml").write_text(PROJECT.format(port=free_port()))
        self._environment = os.environ | {
            MARK: self._mark,
            "PYTHONPATH": str(ROOT),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
            "NVFLARE_POC_WORKSPACE": str(home / "poc"),
            "HOME": str(home),
            "OMP_NUM_THREADS": "1",
        }

    def start(self) -> str:
        """Make certificates and start server and sites; returns why that is not possible, or nothing."""
        for command in (["prepare", "--force", "-i", "project.yml"], ["start", "--timeout", "120"]):
            nvflare = [str(Path(sys.executable).parent / "nvflare"), "poc", *command]
            with (self.home / "poc.log").open("ab") as log:
                run = subprocess.run(
                    nvflare,
                    cwd=self.home,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=180,
                    check=False,
                )
            if run.returncode:
                return f"nvflare poc {command[0]}: {self.log()[-300:]}"
        return ""

    def submit(self) -> subprocess.Popen[bytes]:
        """Start a job, of whose three sites two train in a round."""
        options = {
            "sites": 3,
            "min_clients": 2,
            "num_clients": 2,
            "num_rounds": ROUNDS,
            "min_responses": 1,
            "grace": 2,
            "timeout": 60,
            "evaluate_every": ROUNDS,
            "evaluation_timeout": 6,
            "folder": str(self.folder),
            "train_args": "--seconds 0.5",
        }
        kit = self.home / "poc" / "numbers" / "prod_00" / "admin@nvidia.com"
        command = [sys.executable, "-m", "tests.nvflare.job", str(kit), json.dumps(options)]
        with (self.home / "job.log").open("wb") as log:
            return subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)

    def processes(self) -> list[psutil.Process]:
        marked = (one for one in psutil.process_iter() if unless_ended(one.environ, {}).get(MARK) == self._mark)
        return list(marked)

    def of(self, name: str) -> list[psutil.Process]:
        """The processes of a site: its daemon, its client and its job."""
        folder = f"/{name}"
        return [
            one
            for one in self.processes()
            if any(part.endswith(folder) or f"{folder}/" in part for part in unless_ended(one.cmdline, []))
        ]

    def log(self) -> str:
        files = [
            self.home / "poc.log",
            self.home / "job.log",
            *(self.home / "poc").rglob("log*.txt"),
            *(self.home / "poc").rglob("*.log"),
        ]
        return "\n".join(path.read_text(errors="replace") for path in files if path.is_file())

    def played(self) -> int:
        return len(rows(self.folder)) if (self.folder / "rounds.jsonl").exists() else 0

    def end(self) -> None:
        for process in self.processes():
            unless_ended(process.kill)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    one = Federation(tmp_path)
    try:
        if why := one.start():
            pytest.skip(f"POC cannot start here: {why}")
        yield one
    finally:
        one.end()


def test_a_site_that_is_killed_does_not_stop_the_run(federation: Federation) -> None:
    with federation.submit() as job:
        until(lambda: federation.played() or job.poll() is not None, "that a round is played", 180)
        assert federation.played(), federation.log()[-5000:]
        listening = {
            connection.laddr.ip
            for process in federation.processes()
            for connection in unless_ended(process.net_connections, [])
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening
        assert listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
        victims = federation.of("site-2")
        assert victims
        for process in victims:
            unless_ended(process.kill)
        assert federation.played() < ROUNDS, "it was killed before the end"
        # NVFlare itself waits for the dead site for minutes before it calls the job finished.
        until(
            lambda: "Finished FedAvg." in federation.log() or job.poll() is not None, "that all rounds are played", 180
        )
        federation.end()
    records = rows(federation.folder)
    assert [row["round"] for row in records] == list(range(ROUNDS))
    assert "no result of site-2 (silent, late or failed)" in federation.log()
    accuracy = records[-1]["client_accuracy"]
    assert [one is None for one in accuracy] == [False, True, False]
    assert len(list((federation.home / "poc").rglob("client.crt"))) >= 3, "sites prove who they are"
