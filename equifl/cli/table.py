"""`equifl table`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from equifl.cli.tables import console, draw_table
from equifl.experiment.results import load_results


@click.command()
@click.argument("folders", metavar="DIR...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["text", "latex", "csv", "md", "json"]), default="text")
@click.option("--baseline", default="uniform", show_default=True, help="The selector that others are compared with.")
@click.option("--measures", metavar="A,B,...", help="The columns, such as accuracy,worst10,std.")
@click.option(
    "--at",
    type=click.Choice(["last", "late", "matched"]),
    default="last",
    show_default=True,
    help="The last evaluation, the mean over the last N/k of them, or where all runs are equally accurate.",
)
@click.option("--no-correction", is_flag=True, help="Stars without Holm's correction for the number of comparisons.")
@click.option("--caption", help="For LaTeX: plain text, or LaTeX if it has a backslash or a dollar sign.")
@click.option("--label", default="tab:equifl", show_default=True, help="For LaTeX.")
def table(
    folders: tuple[Path, ...],
    form: str,
    baseline: str,
    measures: str | None,
    at: str,
    no_correction: bool,
    caption: str | None,
    label: str,
) -> None:
    """The table of the runs in one or more folders, finished or not: mean and interval over seeds."""
    made = load_results(*folders).table(
        baseline=baseline,
        measures=None if measures is None else [name.strip() for name in measures.split(",")],
        correction=None if no_correction else "holm",
        at=at,  # type: ignore[arg-type]  # one of the choices
    )
    if not made.compares and len(made.cells) > 1:
        names = list(dict.fromkeys(name.partition("[")[0] for name in made.cells))  # without swept parameters
        alike = [name for name in names if name.endswith(f"/{baseline}")] or names
        advice = " or ".join(f"--baseline {shlex.quote(name)}" for name in alike)
        click.echo(f"note: no selector is called {baseline}, so nothing is compared; add {advice}", err=True)
    if form == "text":
        console.print(draw_table(made))
    elif form == "latex":
        click.echo(made.to_latex(caption=caption, label=label), nl=False)
    elif form == "json":
        click.echo(json.dumps(made.to_dict(), indent=1))
    else:
        click.echo(made.to_csv() if form == "csv" else made.to_markdown(), nl=False)
