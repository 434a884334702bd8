"""Tables that scripts write into the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def fill_in(page: Path, tables: Mapping[str, str]) -> None:
    """Put each table between its two marks."""
    text = page.read_text()
    for name, content in tables.items():
        mark = f"<!-- {name} -->"
        before, _, after = text.split(mark)
        text = f"{before}{mark}\n{content}\n{mark}{after}"
    page.write_text(text)
