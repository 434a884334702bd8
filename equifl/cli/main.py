"""The `equifl` command: what its commands have in common."""

from __future__ import annotations

import os
import sys
from typing import Any

from equifl.extras import MissingExtraError, needed_by

with needed_by("the equifl command"):
    import click
    import rich as rich

from equifl import __version__
from equifl.cli.data import data
from equifl.cli.report import report
from equifl.cli.reproduce import reproduce
from equifl.cli.run import run
from equifl.cli.selectors import selectors
from equifl.cli.table import table


class OneLine(click.Group):
    """Says what is wrong in one line and exits with 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except (ValueError, OSError, MissingExtraError) as error:
            click.echo(f"equifl: {error}", err=True)
            sys.exit(2)


@click.group(cls=OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="equifl")
def main() -> None:
    """Which clients train next in federated learning, so that the model serves everybody evenly."""


for command in (run, table, report, reproduce, selectors, data):
    main.add_command(command)
