"""Workers wait for CPUs with words and a deadline, and are replaced when they die."""

import os
from typing import Any

import numpy as np
import pytest

from equifl import DivFL, Signals
from equifl.cluster import ClusterSelector, workers
from equifl.cluster.workers import WorkerDiedError, end_worker, results, worker
from equifl.objectives import SetFunction
from equifl.testing import random_signals
from tests.cluster.conftest import driver
from tests.cluster.driver import expected
from torture.ray_nodes import Nodes

SIGNALS = random_signals(60)


def test_says_what_it_waits_for_gives_up_at_the_deadline_and_goes_on_when_a_cpu_comes() -> None:
    """A head without CPUs, as large clusters have it."""
    missing = "ray: 3 of 3 workers cannot start: each needs a free CPU, and 0 of 0 CPUs are taken"
    with Nodes(0) as nodes, driver("waiting", nodes) as (said, _):
        assert said() == f"{missing}; waiting for up to 2 s"
        assert said().startswith(f"{missing}, after waiting for 2 s; free some, add nodes, or allow more time")
        assert said() == "nothing is queued"
        assert said() == f"{missing}; waiting for up to 300 s"
        nodes.add(1)
        assert said() == expected()


@pytest.mark.parametrize("limit", [-1, "soon", True, None, float("nan")])
def test_refuses_a_deadline_that_is_none(limit: Any) -> None:
    with pytest.raises(ValueError, match=r"wait_limit: .* is not allowed; allowed: seconds, 0 or more"):
        ClusterSelector(DivFL(), wait_limit=limit)


class Deadly(DivFL):
    """Ends every worker that is to choose by it."""

    def objective(self, signals: Signals) -> SetFunction:
        if signals.updates is not None:
            os._exit(1)
        return super().objective(signals)


def test_a_selector_that_kills_worker_after_worker_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(OSError, match="ray: 5 workers in a row died over 'pick' of shard 0"):
        ClusterSelector(Deadly(), shards=2).select(SIGNALS, 6, rng=0)
    assert "ray: the worker of shard 0 died (" in caplog.messages[0]
    again = ClusterSelector(DivFL(sample=5), shards=2).select(SIGNALS, 6, rng=0)
    assert again.tolist() == DivFL(sample=5).select(SIGNALS, 6, rng=0).tolist()


def test_what_is_wrong_with_the_work_is_raised_as_without_ray() -> None:
    workers.start_workers(1, 60.0)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        results([worker(0).call.remote(None, lambda: 1 / 0, ())])


def test_a_result_that_a_dead_worker_kept_is_lost() -> None:
    """Large results stay where they were made, until they are fetched."""
    workers.start_workers(1, 60.0)
    calls = [worker(0).call.remote(None, np.zeros, (10,))]
    assert len(results(calls)[0]) == 10
    calls.append(worker(0).call.remote(None, os._exit, (1,)))
    with pytest.raises(WorkerDiedError):
        results(calls)
    end_worker(0)
