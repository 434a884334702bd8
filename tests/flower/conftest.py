"""What tests of the Flower part share."""

from dataclasses import dataclass

import pytest


@dataclass
class Clock:
    """Time that passes only while somebody sleeps."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Waiting for nodes costs no time."""
    mine = Clock()
    for name in ("selection", "first_replies"):
        monkeypatch.setattr(f"equifl.flower.{name}.time", mine)
    return mine


@pytest.fixture
def inside_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's messages can be made only within a run; a test is none."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # older ones can be made anywhere
        return
    for name, value in (("_task_id", 1), ("_run_id", 1), ("_node_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)
