"""The Sphinx extension of the site: formulas, docstrings and signatures as ours are written."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from tools.site.docstrings import process_docstring, process_signature
from tools.site.mathml import visit_block, visit_inline


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", process_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
