"""The house itself: who may import whom, that numpy is enough, how long a file may be, where its tests are."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import equifl
from tools.site.configuration import sections
from tools.site.methods import METHODS, missing

PACKAGE = Path(equifl.__file__).parent
TESTS = Path(__file__).parent

# A module may import those before it and nothing else of ours. The private numerics are modules of their own here:
# some of them serve the signals, and some are made for them.
ORDER = [
    "extras",
    "_numerics.checks",
    "_numerics.threads",
    "_numerics.lengths",
    "signals",
    "_numerics.mapped",
    "outliers",
    "guard",
    "sketch",
]
ORDER += ["_numerics.checksums", "sketch_file", "store"]
ORDER += [
    "_numerics.bounds",
    "_numerics.centring",
    "_numerics.distances",
    "_numerics.similarities",
    "_numerics.ward",
    "objectives",
    "maximizers",
    "selectors",
    "aggregators",
]
ORDER += [
    "testing",
    "metrics",
    "statistics",
    "experiment",
    "hosts",
    "flower",
    "nvflare",
    "sim",
    "cluster",
    "paper",
    "report",
    "cli",
]
ORDER += ["__main__"]
ONLY = {
    "torch": "sim",
    "numba": "sim",
    "llvmlite": "sim",
    "triton": "sim",
    "flwr": "flower",
    "nvflare": "nvflare",
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


def room(name: str) -> str:
    """Where a module of ours is at home: its package, or for the private numerics itself."""
    parts = name.removeprefix("equifl.").split(".")
    return ".".join(parts[: 2 if parts[0] == "_numerics" else 1])


def name_of(path: Path) -> str:
    return ".".join(["equifl", *path.relative_to(PACKAGE).with_suffix("").parts])


MODULES = [path for path in PACKAGE.rglob("*.py") if room(name_of(path)) not in ("__init__", "_numerics.__init__")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    here = room(name_of(path))
    assert here in ORDER, f"{here} has no place in the order of the house yet"
    ours = {room(name) for name in imports(path) if name.startswith("equifl.")}
    allowed = set(ORDER[: ORDER.index(here)]) | {here}
    assert ours <= allowed, f"{here} may not import {sorted(ours - allowed)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_libraries_have_one_room_each(path: Path) -> None:
    for name in imports(path):
        owner = ONLY.get(name.split(".")[0])
        assert owner in (None, room(name_of(path))), f"only {owner} may import {name}"


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
found = {name for name in found if not name.startswith(("numpy", "equifl", "_equifl"))}
print(sorted(found | {name for name in sys.modules if name.startswith("equifl.experiment")}))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


LONGEST = 300


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_long_file_says_why(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    reason = f"Longer than {LONGEST} lines because"
    if lines > LONGEST:
        docstring = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
        assert reason in docstring, f"{lines} lines; cut the file, or say in its docstring: {reason} ..."


# Tests of what is no module of the package, or of several at once.
ELSEWHERE = {
    "test_house.py": "the package as a whole",
    "test_readme.py": "README.md",
    "test_own_pages.py": "docs/own-selector.md, docs/own-aggregator.md",
    "test_design_page.py": "docs/design.md",
    "test_tutorials.py": "docs/tutorials",
    "test_release.py": "the distributions",
    "test_benchmarks.py": "benchmarks/",
    "paper/test_cohort_error.py": "benchmarks/cohort_error.py",
    "tools/test_cohorts.py": "tools/",
    "tools/test_anchors.py": "tools/",
    "tools/test_results_page.py": "tools/",
    "tools/test_server_rules.py": "tools/",
    "tools/test_evidence.py": "tools/",
    "tools/test_evidence_tables.py": "tools/",
    "tools/test_tuning.py": "tools/",
    "tools/test_flower_versions.py": "tools/",
    "tools/test_site.py": "tools/site",
    "tools/test_reliability_page.py": "tools/",
    "torture/test_attacks.py": "torture/",
    "experiment/test_damaged_results.py": "results of damaged folders",
    "cli/test_commands.py": "the commands, by processes of their own",
    "flower/test_journal.py": "the folder of FairSelection",
    "flower/test_evenness.py": "the fairness that Flower gets",
    "flower/test_simulation.py": "Flower's simulation",
    "flower/test_deployment.py": "Flower's deployment",
    "flower/test_legacy_example.py": "examples/flower-legacy, simulated and deployed",
    "flower/test_example.py": "examples/flower",
    "nvflare/test_simulator.py": "NVFlare's simulator",
    "nvflare/test_poc.py": "NVFlare's POC mode",
    "nvflare/test_example.py": "examples/nvflare",
    "test_loggers.py": "examples/loggers",
    "report/test_browser.py": "the page in a browser",
    "report/test_recipe.py": "the configuration on the page",
    "sim/engines/cuda/test_gpu.py": "the engine on a GPU",
}


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_tests_mirror_the_package(path: Path) -> None:
    """tests/sim/data/test_idx.py is about equifl/sim/data/idx.py, or _idx.py, or the package idx/."""
    where, name = path.relative_to(TESTS), path.stem.removeprefix("test_")
    folder = PACKAGE / where.parent
    found = any(candidate.exists() for candidate in (folder / f"{name}.py", folder / f"_{name}.py", folder / name))
    assert found != (where.as_posix() in ELSEWHERE), f"{where}: there is no module {name} in {folder}; see ELSEWHERE"


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, methods in METHODS.items() for name in methods])
def test_every_method_has_a_page(kind: str, name: str) -> None:
    """With its formula, its reference and when to use it; a selector's also shows its cohorts."""
    assert not missing(kind, name)


def test_every_key_of_a_configuration_says_what_it_means() -> None:
    """The reference is made of these sentences: "`lr`: what it is." in the docstring of the key's dataclass."""
    missing = [
        f"{section}.{key.name}".lstrip(".") for section, _, keys in sections() for key in keys if not key.meaning
    ]
    assert not missing, f"say in equifl/experiment/config.py what these keys mean: {', '.join(missing)}"


# Private idiom, and the term to write instead.
TERMS = {r"\blanes?\b": "run", "stranger": "unknown client", "slope": "gradient", r"\bdesk\b": "workspace"}
NOT_SEARCHED = ("sim/engines/compiled/", "sim/engines/cuda/")  # SIMD has lanes
REGRESSION = "paper/claims.py"  # whose claims have slopes in the statistical sense


@pytest.mark.parametrize("word", TERMS)
def test_the_package_uses_the_terms_of_the_field(word: str) -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.relative_to(PACKAGE).as_posix().startswith(NOT_SEARCHED)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(word, line, re.IGNORECASE) and not (word == "slope" and path == PACKAGE / REGRESSION)
    ]
    assert not found, f"write {TERMS[word]!r} in {', '.join(found)}"
