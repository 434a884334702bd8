"""Links of Markdown pages that move: from where they lie in the repository to where the site has them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

# Files of the repository that are no pages of docs/, and where the site has them.
ELSEWHERE: Mapping[str, str] = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "benchmarks/NOTES.md": "project/performance-notes.md",
    "examples/flower/README.md": "project/flower-example.md",
    "examples/flower-legacy/README.md": "project/flower-legacy-example.md",
    "examples/nvflare/README.md": "project/nvflare-example.md",
}
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def relinked(text: str, source: str, page: str) -> str:
    """The Markdown of a file of the repository, with links that lead to the same things from a page of the site.

    Args:
        text: the Markdown.
        source: the file, from the root of the repository.
        page: the page, from the root of the site.

    >>> relinked("[a](docs/scale.md#measured), [b](CHANGELOG.md)", "README.md", "project/readme.md")
    '[a](../scale.md#measured), [b](changes.md)'
    """

    def link(match: re.Match[str]) -> str:
        target, anchor = match[2], match[3] or ""
        if re.match(r"\w+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        found = ELSEWHERE.get(file, file.removeprefix("docs/"))
        return f"]({posixpath.relpath(found, posixpath.dirname(page) or '.')}{anchor})"

    parts = _CODE.split(text)
    return "".join(part if i % 2 else _LINK.sub(link, part) for i, part in enumerate(parts))
