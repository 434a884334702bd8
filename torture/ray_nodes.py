"""A Ray cluster of several nodes on this machine, on the loopback interface alone, whose parts can be killed.

A process of its own holds the nodes (`python -m torture.ray_nodes PORT`), so that this one may be in another
cluster, or in none; when it ends, however it ends, they end with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

STORE_BYTES = 80 * 2**20
# A node that was killed is found missing within seconds, and one that is merely slow is not.
HEALTH = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "5"}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}  # read as Ray is imported


class Nodes:
    """Nodes with so many CPUs each, the head first, from `with` to its end.

    Attributes:
        address: of the head.
        environment: for processes that join: without it, Ray does not accept loopback addresses.
        pids: for each node, by the name of the service (raylet, gcs_server, ...).
    """

    def __init__(self, *cpus: int, port: int | None = None) -> None:
        self._cpus, self._port = cpus, free_port() if port is None else port
        self.address = f"127.0.0.1:{self._port}"
        self.pids: list[dict[str, list[int]]] = []

    def __enter__(self) -> Nodes:
        self._folder = tempfile.mkdtemp(prefix="r")  # short, because paths of sockets must be
        here = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self.environment = {**os.environ, **LOOPBACK, "RAY_TMPDIR": self._folder, "PYTHONPATH": here}
        command = [sys.executable, "-m", "torture.ray_nodes", str(self._port)]
        self._holder = subprocess.Popen(
            command,
            env=self.environment | HEALTH,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            for cpus in self._cpus:
                self.add(cpus)
        except ValueError:
            self.__exit__(None, None, None)
            raise AssertionError(f"no cluster at {self.address}") from None
        return self

    def add(self, cpus: int) -> None:
        """One more node."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        print(cpus, file=self._holder.stdin, flush=True)
        self.pids.append(json.loads(self._holder.stdout.readline()))

    def kill(self, node: int, service: str) -> None:
        """Kill one process of a node, as the system does when memory runs out."""
        for pid in self.pids[node][service]:
            os.kill(pid, signal.SIGKILL)

    def remove(self, node: int) -> None:
        """Kill all processes of a node at once, its workers among them, as a power cut does."""
        for pid in [pid for service in self.pids[node].values() for root in service for pid in family(root)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.pids[node] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._holder.stdin is not None
        self._holder.stdin.close()  # asks it to end
        try:
            self._holder.wait(30)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()
        if self._holder.stdout is not None:
            self._holder.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def family(pid: int) -> set[int]:
    """A process and all that descend from it, as far as they run."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has just ended
            continue
        if state != "Z":
            parents[int(file.parent.name)] = int(parent)
    found, new = {pid} & parents.keys(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _hold(port: int) -> None:
    """Start a node for every number of CPUs on standard input, until that ends."""
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster()
    first: dict[str, Any] = {"gcs_server_port": port, "include_dashboard": False}
    for line in sys.stdin:
        options = {"node_ip_address": "127.0.0.1", "object_store_memory": STORE_BYTES, **first}
        node = cluster.add_node(num_cpus=int(line), **options)
        services = {name: [found.process.pid for found in each] for name, each in node.all_processes.items()}
        print(json.dumps(services), flush=True)
        first = {}
    cluster.shutdown()


if __name__ == "__main__":
    _hold(int(sys.argv[1]))
