"""`equifl data`: list, get, check."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from equifl._numerics.checks import known
from equifl.sim.progress import downloads


def size(count: int) -> str:
    """A number of bytes in the unit that suits it.

    >>> size(39_570), size(170_052_171)
    ('39.6 KB', '170.1 MB')
    """
    value, unit = count / 1e3, "KB"
    for larger in ("MB", "GB"):
        if value >= 999.95:
            value, unit = value / 1e3, larger
    return f"{value:.1f} {unit}"


@click.group()
def data() -> None:
    """Data sets: which there are, and getting them."""


@data.command("list")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where to look first.")
def list_data(data_dir: Path | None) -> None:
    """List the data sets, and where they are."""
    from equifl.sim.data.catalogue import listing

    for name, entry in listing(data_dir).items():
        counts = f"{entry.train:,} + {entry.test:,} examples; " if entry.train and entry.test else ""
        where = f"in {entry.folder}" if entry.folder else f"download of {size(entry.download)}"
        click.echo(f"{name:15} {entry.about}; {counts}{where if entry.download else 'no download'}")


@data.command("get")
@click.argument("name")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where to put it.")
@click.option("--quiet", is_flag=True, help="No progress.")
def get_data(name: str, data_dir: Path | None, quiet: bool) -> None:
    """Download a data set, unless it is there already, and check it."""
    from equifl.sim.data.catalogue import listing, options_of
    from equifl.sim.data.download import get

    known("data set", [name], listing())
    entry = listing()[name]
    if not entry.download:
        path = " --set data.path=FILE.npz" if "path" in options_of(name) else ""
        use = f"equifl run --set data.name={name}{path}"
        click.echo(f"{name} needs no download ({entry.about}); to use it: {use}", err=True)
        return
    with downloads(quiet) as show:
        click.echo(get(name, data_dir, show))


@data.command("check")
@click.argument("file", metavar="FILE.npz", type=click.Path(path_type=Path))
def check_data(file: Path) -> None:
    """Say what an .npz file of your own holds, and what is wrong with it; exit with 1 if it cannot be used."""
    from equifl.sim.data.summary import summary

    if not file.is_file():
        raise ValueError(f"{file}: there is no such file")
    found = summary(file)
    for line in (*found.lines, *(f"problem: {problem}" for problem in found.problems)):
        click.echo(line)
    if found.problems:
        click.echo("not usable as it is")
        sys.exit(1)
    natural = " --set data.partition=natural" if found.natural else ""
    natural += " --set task=regression" if found.regression else ""
    click.echo(f"usable: --set data.name=arrays --set data.path={shlex.quote(str(file))}{natural}")
