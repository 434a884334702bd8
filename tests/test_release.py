"""The wheel and the source distribution: built as `make dist` does, and the wheel used where the repository is not."""

import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import equifl
from tools.dist_check import TINY, own_loop

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("build", reason="pip install 'equifl[dev]'")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def environment(folder: Path, wheel: Path) -> tuple[Path, Path]:
    """A fresh environment with the wheel alone: its Python, and the folder of its packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    return python, packages


def call(python: Path, *arguments: str, cwd: Path) -> str:
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    run = subprocess.run([python, *arguments], cwd=cwd, env=kept, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_it_works_with_numpy_alone(wheel: Path, tmp_path: Path) -> None:
    """numpy is that of this environment, linked; nothing else of it can be imported."""
    python, packages = environment(tmp_path / "fresh", wheel)
    for name in ("numpy", "numpy.libs"):
        if (found := Path(np.__file__).parents[1] / name).exists():
            (packages / name).symlink_to(found)
    assert Path(call(python, "-c", "import equifl; print(equifl.__file__)", cwd=tmp_path).strip()).is_relative_to(
        packages
    )
    command = python.with_name("equifl")
    assert call(command, "--version", cwd=tmp_path) == f"equifl, version {equifl.__version__}\n"
    call(python, "-c", own_loop(), cwd=tmp_path)
    missing = subprocess.run([command, "run"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (missing.returncode, "pip install 'equifl[sim]'" in missing.stderr) == (2, True)


def test_the_simulator_runs_the_digits(wheel: Path, tmp_path: Path) -> None:
    """With the packages of this environment behind its own; `make dist-check` installs them anew."""
    python, packages = environment(tmp_path / "fresh", wheel)
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    assert Path(call(python, "-c", "import equifl; print(equifl.__file__)", cwd=tmp_path).strip()).is_relative_to(
        packages
    )
    call(python, "-m", "equifl", "run", *TINY, "--set", "engine=torch", "--out", "runs/first", cwd=tmp_path)
    played = call(python, "-m", "equifl", "table", "runs/first", "--format", "csv", cwd=tmp_path)
    assert "rota" in played.lower()


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    own = {name for name in names if not name.startswith(f"equifl-{equifl.__version__}.dist-info/")}
    tracked = subprocess.run(["git", "ls-files", "equifl"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert all(name.startswith("equifl/") for name in own)
    assert {"equifl/py.typed", "equifl/report/template.html.j2"} <= own
    if tracked.returncode == 0:
        assert set(tracked.stdout.split()) <= own


def test_the_metadata_are_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = f"equifl-{equifl.__version__}.dist-info"
        said = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert (said["Name"], said["Version"], said["License-Expression"]) == ("equifl", equifl.__version__, "Apache-2.0")
    assert said["Requires-Python"] == ">=3.11"
    assert said["Description-Content-Type"] == "text/markdown"
    assert said["Summary"] == PROJECT["description"]
    assert set(said.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert [line for line in said.get_all("Requires-Dist", []) if "extra ==" not in line] == ["numpy>=1.26"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(said.get_all("Classifier", [])))
    assert supported == ["3.11", "3.12", "3.13"]


def test_the_source_distribution_has_what_tests_and_docs_need(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ("Makefile", "constraints.txt", "pyproject.toml", "CITATION.cff", "CHANGELOG.md", "docs/conf.py")
    assert set(needed) <= names
    assert {"tests/test_release.py", "tools/site/__main__.py", "results/cohorts.json", "configs/digits.toml"} <= names
    assert not any(name.startswith(("build/", "dist/", ".venv", "runs/")) for name in names)


def test_the_version_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {equifl.__version__}\n" in citation
    dated = re.search(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert dated is not None
    assert dated[1] == equifl.__version__
    assert f"\ndate-released: {dated[2]}\n" in citation


def test_the_change_log_keeps_its_form() -> None:
    """Versions, newest first and after what is unreleased; in each the kinds of changes, in their order."""
    log = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (.*)$", log, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for part in log.split("\n## ")[1:]:
        found = re.findall(r"^### (.*)$", part, re.MULTILINE)
        assert found == [kind for kind in kinds if kind in found]
