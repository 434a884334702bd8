"""`equifl run`."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from equifl.cli.tables import console, draw_table
from equifl.experiment.config import Config
from equifl.experiment.results import Results, load_results
from equifl.experiment.run_folder import CONFIG, ROUNDS, SWEEP
from equifl.experiment.sweep import load_points, parse
from equifl.extras import MissingExtraError
from equifl.sim.progress import Watch, downloads, notes
from equifl.sim.stopping import StopRequests


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Run folder (default: runs/NAME-TIME).")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override, e.g. --set train.lr=0.1")
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="Run every combination, e.g. --sweep train.lr=0.01,0.02 --sweep selectors.subtrunc.lam=0,0.5",
)
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Where data sets are (else $EQUIFL_DATA, the cache)."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option(
    "--ray",
    "cluster",
    is_flag=False,
    flag_value="",
    metavar="[ADDRESS]",
    help="Spread the runs over a Ray cluster: the one at ADDRESS (`auto`: the one this machine is in), else over "
    "this machine's CPUs or GPUs. Needs equifl[cluster].",
)
@click.option(
    "--ray-wait",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="With --ray: how long to wait for free CPUs or GPUs.",
)
@click.option("--quiet", is_flag=True, help="No progress and no table.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON on standard output, nothing else.")
def run(
    config: Path | None,
    out: Path | None,
    overrides: tuple[str, ...],
    sweeps: tuple[str, ...],
    data_dir: Path | None,
    device: str,
    cluster: str | None,
    ray_wait: float,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run an experiment: every selector with every seed. Without CONFIG: the digits, all six selectors, 5 seeds.

    Run it again with the same --out and it goes on where it stopped; of a finished run it shows the table.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # for selectors and models of one's own, as with python -m
    points = load_points(config, overrides, parse(sweeps))
    silent = quiet or as_json
    click.get_current_context().with_resource(notes(silent))
    path = out or Path("runs") / f"{config.stem if config else 'digits'}-{datetime.now():%Y%m%d-%H%M%S}"
    results, failure = _play(points, path, data_dir, device, _player(cluster, ray_wait), silent)
    if failure:
        where = path if results.parts else path / ROUNDS
        played = f"{results.rounds_played} of {results.config['rounds']} rounds are in {where}"
        click.echo(f"equifl: {failure}; {played}", err=True)
    if not results.finished:
        again = shlex.join(["equifl", *sys.argv[1:], *([] if out else ["--out", str(path)])])
        click.echo(f"{'' if failure else 'stopped after a checkpoint; '}to go on: {again}", err=True)
        sys.exit(2 if failure else 130)
    if as_json:
        click.echo(json.dumps({"folder": str(path), **results.table().to_dict()}, indent=1))
    elif not quiet:
        console.print(draw_table(results.table()))
        click.echo(f"record: {path}")
    report = _report_if_possible(results, path) if results.folder is not None else None  # a part has none
    if report and not silent:
        click.echo(f"report: {report}")
    if failure:
        sys.exit(2)


def _player(cluster: str | None, wait: float) -> Any:
    """What makes the player: in this process, or on a cluster."""
    from equifl.sim.players import LocalPlayer  # torch takes a second; a wrong key should not wait for it

    if cluster is None:
        return LocalPlayer
    from equifl.cluster.sweep import Sweep

    return partial(Sweep, address=cluster or None, wait_limit=wait)


def _play(
    points: Mapping[str, Config], path: Path, data_dir: Path | None, device: str, player: Any, silent: bool
) -> tuple[Results, OSError | None]:
    """The results, as far as they go, and what the disk or the cluster refused, if it did."""
    from equifl.sim.sweeps import simulate_points

    # Standard output is for the results alone, and Ray prints there what it knows of its parts.
    stop = StopRequests()
    with (
        downloads(silent) as show,
        Watch(silent) as watch,
        stop.listening(terminated=True),
        redirect_stdout(_WithoutRay()),
    ):
        try:
            results = simulate_points(
                points,
                out=path,
                device=device,
                data_dir=data_dir,
                callbacks=[watch, stop],
                downloads=show,
                player=player,
                progress=False,
            )
        except OSError as error:
            if not watch.playing or not any((path / name).is_file() for name in (CONFIG, SWEEP)):
                raise
            return load_results(path), error
    return results, None


def _report_if_possible(results: Results, folder: Path) -> Path | None:
    """A run is worth its record without a report, and says how to get one."""
    try:
        return results.report()
    except MissingExtraError as error:
        click.echo(f"no report: {error}", err=True)
        return None
    except OSError as error:
        again = shlex.join(["equifl", "report", str(folder)])
        raise OSError(f"{error}; all rounds are in {folder / ROUNDS}; to write the report: {again}") from None


class _WithoutRay(io.TextIOBase):
    """Standard error, without what Ray prints when a part of a cluster dies: fifty lines, where we print one."""

    def write(self, text: str) -> int:
        if "(raylet)" not in text:
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()
