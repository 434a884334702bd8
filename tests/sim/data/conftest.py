"""Tests of data see neither the user's files nor the network."""

from dataclasses import replace
from pathlib import Path

import pytest

from equifl.sim.data.download import SOURCES
from tests.conftest import free_port


@pytest.fixture(autouse=True)
def no_user_files_and_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the user's files nor the network: whatever is downloaded comes from this machine."""
    monkeypatch.delenv("EQUIFL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name, source in list(SOURCES.items()):
        monkeypatch.setitem(SOURCES, name, replace(source, addresses=(f"http://127.0.0.1:{free_port()}/",)))
