"""`equifl report`."""

from __future__ import annotations

from pathlib import Path

import click

from equifl.experiment.results import load_results

REPORT = "report.html"


@click.command()
@click.argument("folders", metavar="DIR...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The HTML file (default: DIR/report.html; of several folders report.html here).",
)
def report(folders: tuple[Path, ...], output: Path | None) -> None:
    """Write one HTML file about the runs in one or more folders, finished or not: table, figures, configuration.

    It opens offline.
    """
    click.echo(load_results(*folders).report(output or (Path(REPORT) if len(folders) > 1 else None)))
