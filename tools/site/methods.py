"""Pages of selectors and aggregators: what is written by hand, and what the code and the results add to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import equifl
from equifl.aggregators import AGGREGATORS
from equifl.selectors import SELECTORS
from equifl.selectors.base import needs
from tools.site.api import directive

ROOT = Path(__file__).parents[2]
METHODS: Mapping[str, Mapping[str, type]] = {"selectors": SELECTORS, "aggregators": AGGREGATORS}
# What a page has to say by hand; the rest is made.
WRITTEN = ("## Formula", "## Reference", "## When to use it")
FIGURES = "figures/cohorts"


def missing(kind: str, name: str, docs: Path = ROOT / "docs") -> str:
    """What the page of a method lacks, in words; nothing if it is complete."""
    page = docs / kind / f"{name}.md"
    if not page.is_file():
        return f"docs/{kind}/{name}.md is missing; it needs {', '.join(WRITTEN)}"
    text, listed = page.read_text(), (docs / f"{kind}.md").read_text()
    lacking = [heading for heading in WRITTEN if f"\n{heading}\n" not in text]
    if lacking:
        return f"docs/{kind}/{name}.md lacks {', '.join(lacking)}"
    if _row(name) not in listed and any(_row(other) in listed for other in METHODS[kind]):
        return f"docs/{kind}.md has no line {_row(name)} in its table"
    if kind == "selectors" and not (docs / FIGURES / f"{name}.svg").is_file():
        return f"docs/{FIGURES}/{name}.svg is missing; `python -m tools.cohorts` plays the digits and draws it"
    return ""


def completed(kind: str, name: str, text: str) -> str:
    """The page of a method with all of its parts."""
    cls = METHODS[kind][name]
    where = "equifl" if cls.__name__ in equifl.__all__ else f"equifl.{kind}"
    parts = [text.rstrip(), "\n## What it needs\n", _needs(kind, cls)]
    if kind == "selectors":
        from tools.cohorts import caption  # which knows the results

        parts += ["\n## Its cohorts on the digits\n", f"![Who was selected when](../{FIGURES}/{name}.svg)\n"]
        parts += [caption(name)]
    setting = f"selectors.{name} = {{}}" if kind == "selectors" else f'server.aggregate = "{name}"'
    parts += ["\n## Parameters\n", f"In a configuration: `{setting}`.\n"]
    parts += ["```{eval-rst}", directive(f"{where}.{cls.__name__}"), "```", ""]
    return "\n".join(parts)


def index(kind: str, text: str, docs: Path = ROOT / "docs") -> str:
    """The page of all methods of a kind, docs/KIND.md, with links to their pages, which are also listed at the side.

    A table that is there is kept; if there is none, it is made: what each page says first, and what the method needs.
    """
    if not any(_row(name) in text for name in METHODS[kind]):
        lines = ["", "| name | what it does | needs |", "|---|---|---|"]
        for name, cls in METHODS[kind].items():
            summary = " ".join((docs / kind / f"{name}.md").read_text().split("\n\n")[1].split()).replace("|", r"\|")
            lines.append(f"{_row(name)} {summary} | {', '.join(_signals(kind, cls)) or 'nothing'} |")
        text += "\n".join([*lines, ""])
    for name in METHODS[kind]:
        text = text.replace(_row(name), f"| [`{name}`]({kind}/{name}.md) |")
    pages = [f"{kind}/{name}" for name in METHODS[kind]]
    return "\n".join([text, "```{toctree}", ":hidden:", "", *pages, "```", ""])


def _row(name: str) -> str:
    return f"| `{name}` |"


def _signals(kind: str, cls: type) -> list[str]:
    if kind == "selectors":
        return sorted(needs(cls()))
    return sorted(cls().needs)


def _needs(kind: str, cls: type) -> str:
    signals = _signals(kind, cls)
    otherwise = " With other parameters it may need more." if isinstance(vars(cls).get("needs"), property) else ""
    if not signals:
        nothing = "Nothing but the updates that clients send anyway." if kind == "aggregators" else "No signal at all."
        return nothing + otherwise
    whose = "of the cohort" if kind == "aggregators" else "of the clients, as `Signals` has them"
    listed = " and ".join(f"`{name}`" for name in signals)
    return f"{listed} {whose}. What is not named here is neither computed nor sent for it.{otherwise}"
