"""The house itself: who may import whom, and that numpy is enough."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import equifl

PACKAGE = Path(equifl.__file__).parent

# A module may import those before it and nothing else of ours.
ORDER = ["checks", "extras", "threads", "signals", "guard", "sketch", "sketch_file", "store", "centring", "distances"]
ORDER += [
    "objectives",
    "maximizers",
    "selectors",
    "aggregators",
    "testing",
    "records",
    "metrics",
    "config",
    "flower",
    "sim",
    "cluster",
    "paper",
    "report",
    "terminal",
    "cli",
    "__main__",
]
ONLY = {
    "torch": "sim",
    "numba": "sim",
    "llvmlite": "sim",
    "triton": "sim",
    "flwr": "flower",
    "ray": "cluster",
    "plotly": "report",
    "jinja2": "report",
}


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MODULES = [path for path in PACKAGE.rglob("*.py") if room(path) != "__init__"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    assert here in ORDER, f"{here} has no place in the order of the house yet"
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("equifl.")}
    allowed = set(ORDER[: ORDER.index(here)]) | {here}
    assert ours <= allowed, f"{here} may not import {sorted(ours - allowed)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_libraries_have_one_room_each(path: Path) -> None:
    for name in imports(path):
        owner = ONLY.get(name.split(".")[0])
        assert owner in (None, room(path)), f"only {owner} may import {name}"


def test_importing_equifl_costs_numpy_and_nothing_else() -> None:
    code = """
import sys, sysconfig
from pathlib import Path
import equifl
libraries = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
found = {
    path.relative_to(library).parts[0]
    for module in list(sys.modules.values()) if getattr(module, "__file__", None)
    for path in [Path(module.__file__).resolve()] for library in libraries if path.is_relative_to(library)
}
found -= {"_virtualenv.py", "_distutils_hack"}  # pip's and virtualenv's own
print(sorted(name for name in found if not name.startswith(("numpy", "equifl", "_equifl"))))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
