"""One Ray for all tests of the cluster, started as a user's first selection starts it."""

import gc
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from torture.ray_nodes import Nodes

ray = pytest.importorskip("ray")


@pytest.fixture(scope="package", autouse=True)
def cluster() -> Iterator[None]:
    from equifl.cluster.session import connect

    assert not ray.is_initialized()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", str(200 * 2**20))
        connect(None)
    assert ray.is_initialized()
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray leaves its own processes and files to the collector
        ray.shutdown()
        gc.collect()


@contextmanager
def every_cpu_taken() -> Iterator[Any]:
    """By another worker, which it gives; it ends with the block, if not before."""
    from equifl.cluster.session import resource
    from equifl.cluster.workers import results

    class Hog:
        """Takes CPUs, and does nothing."""

    hog: Any = ray.remote(Hog).options(num_cpus=resource("CPU")).remote()
    results([hog.__ray_ready__.remote()])
    yield hog
    ray.kill(hog)


@contextmanager
def driver(what: str, nodes: Nodes) -> Iterator[tuple[Callable[[], Any], Callable[[], None]]]:
    """A process in a cluster of its own, see `driver.py`: gives what it says next, and a function to answer."""
    command = [sys.executable, "-m", "tests.cluster.driver", what, nodes.address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=nodes.environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        out, into = process.stdout, process.stdin

        def said() -> Any:
            for line in out:
                try:
                    return json.loads(line)
                except ValueError:  # of Ray
                    continue
            raise AssertionError(f"ended with {process.wait()}")

        try:
            yield said, lambda: print(file=into, flush=True)
        finally:
            process.kill()
