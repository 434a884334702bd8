"""docs/design.md: its tree is that of the package, and the lists it sends a reader to are there."""

import re
from importlib import import_module
from pathlib import Path

import equifl

PACKAGE = Path(equifl.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "design.md").read_text()


def listed(indent: int, after: str) -> set[str]:
    """The files and folders so far in, from the line of a folder to the end of what is in it."""
    lines = iter(PAGE[PAGE.index(f"{after}\n") + len(after) + 1 :].splitlines())
    found = set()
    for line in lines:
        name = re.match(r"( *)([\w.]+/?)(?= |$)", line)
        if (name and len(name[1]) < indent) or line.startswith("```"):
            break
        if name and len(name[1]) == indent:
            found.add(name[2])
    return found


def present(folder: Path) -> set[str]:
    folders = {f"{path.name}/" for path in folder.iterdir() if (path / "__init__.py").exists()}
    return folders | {path.name for path in folder.glob("*.py")}


def test_the_tree_is_that_of_the_package() -> None:
    assert listed(2, "equifl/") == present(PACKAGE) - {"__main__.py"}
    assert listed(4, "  sim/") == present(PACKAGE / "sim") - {"__init__.py"}


def test_the_lists_to_add_to_are_there() -> None:
    for module, name in (
        ("selectors", "SELECTORS"),
        ("aggregators", "AGGREGATORS"),
        ("sim.data.catalogue", "_CATALOGUE"),
        ("sim.data.download", "SOURCES"),
        ("sim.models.zoo", "MODELS"),
        ("sim.engines.choose", "ENGINES"),
    ):
        assert f"`{name}`" in PAGE
        assert getattr(import_module(f"equifl.{module}"), name)
