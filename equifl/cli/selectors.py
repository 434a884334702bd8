"""`equifl selectors`."""

from __future__ import annotations

from dataclasses import fields

import click

from equifl.selectors import SELECTORS
from equifl.selectors.base import needs


@click.command()
def selectors() -> None:
    """List the selectors, the signals they need, and their parameters with the defaults."""
    for name, cls in SELECTORS.items():
        summary = (cls.__doc__ or "").strip().splitlines()[0]
        signals = ", ".join(sorted(needs(cls()))) or "nothing"
        parameters = ", ".join(f"{f.name} = {getattr(cls(), f.name)!r}" for f in fields(cls)) or "none"
        click.echo(f"{name}\n  {summary}\n  needs: {signals}\n  parameters: {parameters}")
