"""Build the documentation site: `python -m tools.site [FOLDER]`, from the root of the repository.

The pages of docs/, and those made from the code, are laid into FOLDER/source and built by Sphinx into FOLDER/html.
Every warning is an error: a link or an anchor that leads nowhere, a formula or a docstring that cannot be read.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tools.site import api, configuration, methods, notebooks
from tools.site.links import ELSEWHERE, relinked

ROOT = Path(__file__).parents[2]
COMMAND_LINE = """# Command line

```{eval-rst}
.. click:: equifl.cli.main:main
   :prog: equifl
   :nested: full
```
"""


def pages(root: Path = ROOT) -> dict[str, str]:
    """Every Markdown page of the site by its place in it."""
    found = {}
    for path in sorted((root / "docs").rglob("*.md")):
        place = path.relative_to(root / "docs").as_posix()
        text = relinked(_together(path.read_text()), f"docs/{place}", place)
        kind, _, name = place.removesuffix(".md").partition("/")
        if kind in methods.METHODS and not name:
            text = methods.index(kind, text)
        elif kind in methods.METHODS:
            text = methods.completed(kind, name, text)
        elif kind == "tutorials" and name != "index":
            text += notebooks.download(name)
        found[place] = text
    found |= {
        place: relinked((root / source).read_text(), source, place)
        for source, place in ELSEWHERE.items()
        if place not in found
    }
    found |= {"reference/configuration.md": configuration.page(), "reference/command-line.md": COMMAND_LINE}
    return found | api.pages()


def _together(text: str) -> str:
    """No line breaks within "87.4 ± 0.3" in tables."""
    return "\n".join(
        line.replace(" ± ", "\u00a0±\u00a0") if line.startswith("|") else line for line in text.split("\n")
    )


def lay_out(source: Path, root: Path = ROOT) -> None:
    """Lay all that Sphinx reads into a folder; files that are there and unchanged are left alone."""
    files: dict[str, bytes] = {place: text.encode() for place, text in pages(root).items()}
    docs = root / "docs"
    for path in docs.rglob("*"):
        if path.is_file() and path.suffix not in (".md", ".pyc"):
            files[path.relative_to(docs).as_posix()] = path.read_bytes()
    files |= {f"_static/{name}": text.encode() for name, text in notebooks.notebooks(docs / "tutorials").items()}
    for path in source.rglob("*"):
        if path.is_file() and path.relative_to(source).as_posix() not in files:
            path.unlink()
    for place, content in files.items():
        path = source / place
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def build(folder: Path) -> int:
    """Build the site; 0 if there was no warning."""
    try:
        from sphinx.cmd.build import main as sphinx
    except ModuleNotFoundError as error:
        sys.exit(f"the site needs {error.name}, which is not installed; pip install '.[docs]'")
    lay_out(folder / "source")
    places = [folder / name for name in ("doctrees", "source", "html")]
    status = sphinx(["-q", "-W", "--keep-going", "-b", "html", "-d", *map(str, places)])
    if status == 0:
        shutil.rmtree(folder / "html" / "_sources", ignore_errors=True)
        print(f"{folder / 'html' / 'index.html'}: open it in a browser; no server is needed")
    return int(status)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/docs"))
    sys.exit(build(parser.parse_args().folder.resolve()))
