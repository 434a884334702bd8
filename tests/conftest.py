"""The real data sets, where a copy of their files lies beside the repository; no test goes to the network for them."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

UNPACK = Path(__file__).parents[2] / "shared" / "data" / "unpack.py"


def unpacked(folder: Path, *names: str) -> Path:
    if not UNPACK.is_file():
        pytest.skip(f"the real data are not here: {Path(*UNPACK.parts[-3:])}, beside the repository, is not there")
    subprocess.run([sys.executable, UNPACK, folder, *names], check=True)
    return folder


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with mnist and heart-disease."""
    return unpacked(tmp_path_factory.mktemp("data"), "mnist", "heart-disease")


@pytest.fixture(scope="session")
def real_cifar10(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with cifar10, which takes 20 seconds to unpack."""
    return unpacked(tmp_path_factory.mktemp("cifar10"), "cifar10")


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
