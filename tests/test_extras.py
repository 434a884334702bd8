"""What is said where only numpy is installed: by an interpreter that has numpy and nothing else."""

import ast
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import equifl
from equifl.extras import EXTRAS, MissingExtraError, needed_by

ROOT = Path(equifl.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMAND = "the equifl command needs click, which is not installed; pip install 'equifl[sim]'"

Finished = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages: numpy."""
    folder, installed = tmp_path_factory.mktemp("packages"), Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (installed / name).exists():
            (folder / name).symlink_to(installed / name)
    return folder


def call(packages: Path, *arguments: str) -> Finished:
    """An interpreter that has the standard library, these packages and equifl."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(packages), str(ROOT)])}
    command = [sys.executable, "-S", "-P", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_numpy_is_enough_for_the_selectors(packages: Path) -> None:
    assert call(packages, "-c", "import torch").returncode == 1
    code = "import numpy, equifl; print(equifl.Rota(), equifl.__file__)"
    run = call(packages, "-c", code)
    assert (run.returncode, run.stdout) == (0, f"Rota() {equifl.__file__}\n"), run.stderr


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import equifl.flower", "equifl.flower needs flwr, which is not installed; pip install 'equifl[flower]'"),
        (
            "import equifl.nvflare",
            "equifl.nvflare needs nvflare, which is not installed; pip install 'equifl[nvflare]'",
        ),
        ("import equifl.cluster", "equifl.cluster needs ray, which is not installed; pip install 'equifl[cluster]'"),
        ("import equifl.cluster.sweep", "equifl.cluster needs ray, which is not installed; pip install 'equifl[clus"),
        ("from equifl.sim import simulation", "equifl.sim needs torch, which is not installed; pip inst"),
        ("import equifl.report.plot", "a figure needs plotly, which is not installed; pip install 'equifl[report]'"),
        (
            "import equifl.report.page",
            "equifl.report needs tomli_w, which is not installed; pip install 'equifl[report]",
        ),
        ("import equifl.cli.main", COMMAND),
        (
            "import tempfile; from equifl.experiment.run_folder import RunFolder\n"
            "RunFolder.open(tempfile.mkdtemp(), {}, {})",
            "a run folder needs filelock, which is not installed; pip install 'equifl[sim]'",
        ),
        (
            "from equifl.sim.data.catalogue import load; load('digits')",
            "the data set digits needs sklearn, which is not installed; pip install 'equifl[sim]'",
        ),
        (
            "from equifl.statistics import interval; interval([1, 2])",
            "equifl.statistics.interval needs scipy, which is not installed; pip install 'equifl[sim]'",
        ),
    ],
)
def test_a_missing_package_is_a_sentence_with_its_extra(packages: Path, code: str, sentence: str) -> None:
    run = call(packages, "-c", code)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith(f"equifl.extras.MissingExtraError: {sentence}")


@pytest.mark.parametrize("arguments", [[], ["run"], ["--help"], ["no such command"]])
def test_the_command_says_it_in_one_line(packages: Path, arguments: list[str]) -> None:
    module, function = PROJECT["scripts"]["equifl"].split(":")
    script = f"import sys; from {module} import {function}; sys.exit({function}())"  # as pip writes it
    for run in (call(packages, "-c", script, *arguments), call(packages, "-m", "equifl", *arguments)):
        assert (run.returncode, run.stdout, run.stderr) == (2, "", f"equifl: {COMMAND}\n")


def imported_by_others() -> set[str]:
    """Our modules that are imported from outside their own package: by other packages, and in the examples."""
    files = {path.relative_to(ROOT).with_suffix("").parts: path for path in (ROOT / "equifl").rglob("*.py")}
    found = set()
    for path in [*files.values(), *(ROOT / "examples").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            name = tuple(node.module.split("."))
            names = {name} | {(*name, alias.name) for alias in node.names}
            found |= {name for name in names & files.keys() if files[name].parent != path.parent}
    return {".".join(name) for name in found}


def test_every_module_that_others_import_works_or_says_what_it_needs(packages: Path) -> None:
    code = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(name, type(error).__name__, error.name)
"""
    names = imported_by_others()
    run = call(packages, "-c", code, *sorted(names))
    assert run.returncode == 0, run.stderr
    failed = [line.split() for line in run.stdout.splitlines()]
    assert {"equifl.sim.simulation", "equifl.sim.models.zoo"} <= {name for name, _, _ in failed}
    assert [line for line in failed if line[1] != "MissingExtraError"] == []


def test_other_errors_pass_as_they_are() -> None:
    inner = MissingExtraError("equifl.sim needs torch", name="torch")
    others = [ModuleNotFoundError("No module named 'grpc'", name="grpc"), ImportError("cannot import name 'Grid'")]
    others += [ModuleNotFoundError("No module named 'flwr.app'", name="flwr.app"), inner]  # an old flwr is installed
    for error in others:
        with pytest.raises(ImportError) as raised, needed_by("equifl.flower"):
            raise error
        assert raised.value is error


def test_ones_own_module_without_its_package_is_left_alone(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import equifl, torch")
    run = call(packages, "-c", f"import sys; sys.path.append({str(tmp_path)!r}); import own")
    assert run.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"


def test_every_package_of_an_extra_is_known() -> None:
    known = {(extra, name) for name, extra in EXTRAS.items() if name != "markupsafe"}  # which jinja2 brings
    distributions = metadata.packages_distributions()
    expected = {
        (extra, requirement.partition(">")[0])
        for extra in {extra for extra, _ in known}
        for requirement in PROJECT["optional-dependencies"][extra]
    }
    named = {(extra, distributions[name][0].lower().replace("_", "-")) for extra, name in known}
    assert named | {("flower", "filelock"), ("nvflare", "filelock")} == expected  # the one package of several extras
