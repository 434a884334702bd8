"""Formulas as MathML, made when the site is built: browsers draw them without fonts or scripts from elsewhere."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

log = logging.getLogger(__name__)


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula of a sentence, and skip what the node holds."""
    translator.body.append(_mathml(node))
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, which may be scrolled where it is too wide."""
    translator.body.append(f'<div class="formula">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, *, as_block: bool = False) -> str:
    text = node.astext()
    try:
        return latex2mathml.tex2mathml(text, as_block=as_block)
    except MathError as error:  # a warning, and so an error of the build
        log.warning("formula %r: %s", text, error, location=node)
        return ""
