"""One Ray for all tests of the cluster, started as a user's first selection starts it."""

import gc
import warnings
from collections.abc import Iterator

import pytest

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
