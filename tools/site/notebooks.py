"""Tutorials as notebooks: the Markdown pages, cell by cell and without outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_PYTHON = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_OUTPUT = re.compile(r"^```text\n.*?^```\n", re.DOTALL | re.MULTILINE)


def notebooks(folder: Path) -> dict[str, str]:
    """Every tutorial of a folder as the text of an .ipynb file, by its name."""
    found = sorted(path for path in folder.glob("*.md") if path.stem != "index")
    return {f"{path.stem}.ipynb": json.dumps(notebook(path.read_text()), indent=1) for path in found}


def download(name: str) -> str:
    """The end of a tutorial's page: where its notebook is."""
    return f'\n---\n\n<a href="../_static/{name}.ipynb" download>This page as a notebook</a>, without outputs.\n'


def notebook(page: str) -> dict[str, Any]:
    """The page as a notebook of version 4: its Python as code, the rest as text, shown outputs left out."""
    cells: list[dict[str, Any]] = []
    for at, part in enumerate(_PYTHON.split(_OUTPUT.sub("", page))):
        text = part.strip("\n")
        if not text.strip():
            continue
        common: dict[str, Any] = {"id": f"cell-{at}", "metadata": {}, "source": text}
        code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append({**(code if at % 2 else {"cell_type": "markdown"}), **common})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
