"""What tests of the Flower part share."""

import pytest


@pytest.fixture
def inside_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's messages can be made only within a run; a test is none."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # older ones can be made anywhere
        return
    for name, value in (("_task_id", 1), ("_run_id", 1), ("_node_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)
