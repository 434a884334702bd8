"""What all tests share: markers by folder, how many examples hypothesis draws, and the real data sets.

The real data are read where a copy of their files lies beside the repository; no test goes to the network for them.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Machines that test are shared: no deadlines. Examples follow from the test, so that what passes here passes anywhere;
# `make check` draws fewer of them, and --hypothesis-profile explore others each time.
settings.register_profile("all", deadline=None, derandomize=True)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=10)
settings.register_profile("explore", deadline=None)
settings.load_profile("all")

# Tests start from no terminal's width, and with Ctrl-C as usual: shells ignore it for jobs in the background.
os.environ.pop("COLUMNS", None)
signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).parent
MARKED = {
    HERE / "flower": "flower",
    HERE / "nvflare": "nvflare",
    HERE / "cluster": "ray",
    HERE / "sim" / "engines" / "compiled": "compiled",
}
# What waits for processes comes first: where several workers share the files, none is left with a long one at the end.
FIRST = ["torture", "cluster", "flower", "nvflare", "cli", "report"]
UNPACK = Path(__file__).parents[2] / "shared" / "data" / "unpack.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of a folder by what they need, see the markers in pyproject.toml; and order the folders."""
    for item in items:
        for folder, marker in MARKED.items():
            if item.path.is_relative_to(folder):
                item.add_marker(marker)

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        return FIRST.index(folder) if folder in FIRST else len(FIRST)

    items.sort(key=place)


def unpacked(folder: Path, *names: str) -> Path:
    if not UNPACK.is_file():
        pytest.skip(f"the real data are not here: {Path(*UNPACK.parts[-3:])}, beside the repository, is not there")
    subprocess.run([sys.executable, UNPACK, folder, *names], check=True)
    return folder


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with mnist, heart-disease and shakespeare."""
    return unpacked(tmp_path_factory.mktemp("data"), "mnist", "heart-disease", "shakespeare")


@pytest.fixture(scope="session")
def real_cifar10(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with cifar10, which takes 20 seconds to unpack."""
    return unpacked(tmp_path_factory.mktemp("cifar10"), "cifar10")


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
