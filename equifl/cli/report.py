"""`equifl report`."""

from __future__ import annotations

from pathlib import Path

import click

from equifl.experiment.results import load_results


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The HTML file (default: DIR/report.html).")
def report(folder: Path, output: Path | None) -> None:
    """Write one HTML file about the run in DIR, finished or not: table, figures, configuration. It opens offline."""
    click.echo(load_results(folder).report(output))
