"""The table of docs/reliability.md from the counts of `make torture`, so that the page cannot drift from them.

python -m tools.reliability_page        # from the root of the repository: rewrites the marked block of the page
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tools.results_page import rewrite
from torture.harness import attacks

PAGE = Path("docs/reliability.md")
COUNTS = Path("results/torture")


def counted(folder: Path = COUNTS) -> dict[str, Counter[str]]:
    """Cases, failures and what the cases counted, of each attack, over all runs that were kept."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(folder.glob("*.json")):
        run: dict[str, Any] = json.loads(path.read_text())
        for name, tally in run["attacks"].items():
            counts = {"cases": tally["cases"], "failures": tally["failures"], **tally["counts"]}
            found.setdefault(name, Counter()).update(counts)
    return found


def table(folder: Path = COUNTS) -> str:
    """A row an attack: what is attacked, how many cases, and what happened in them."""
    lines = ["| attack | cases | what happened in them | failures |", "|---|---:|---|---:|"]
    about = {name: (attack.__doc__ or "").strip().splitlines()[0] for name, attack in attacks().items()}
    for name, counts in counted(folder).items():
        rest = ", ".join(f"{n:,} {what}" for what, n in sorted(counts.items()) if what not in ("cases", "failures"))
        lines.append(f"| `{name}`: {about[name]} | {counts['cases']:,} | {rest} | {counts['failures']:,} |")
    return "\n".join(lines)


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(rewrite(PAGE.read_text(), {"torture": table()}))


if __name__ == "__main__":
    main()
