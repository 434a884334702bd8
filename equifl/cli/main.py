"""The command line."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

from equifl.extras import MissingExtraError, needed_by

with needed_by("the equifl command"):
    import click

    from equifl.cli.terminal import Downloads, Watch, console, draw_paper_table, draw_table, draw_verdicts, notes, size

from equifl import __version__
from equifl._numerics.checks import known
from equifl.experiment.config import SELECTORS, Config
from equifl.experiment.run_folder import ROUNDS, RunFolder
from equifl.experiment.table import make_table
from equifl.paper import runs as paper_runs
from equifl.paper import tables
from equifl.selectors.base import needs


class OneLine(click.Group):
    """Says what is wrong in one line and exits with 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, OSError, MissingExtraError) as error:
            click.echo(f"equifl: {error}", err=True)
            sys.exit(2)


@click.group(cls=OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="equifl")
def main() -> None:
    """Which clients train next in federated learning, so that the model serves everybody evenly."""


@main.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Run folder (default: runs/NAME-TIME).")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override, e.g. --set train.lr=0.1")
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
    help="Spread the lanes over a Ray cluster: the one at ADDRESS (`auto`: the one this machine is in), else over "
    "this machine's CPUs or GPUs. Needs equifl[cluster].",
)
@click.option("--quiet", is_flag=True, help="No progress and no table.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON on standard output, nothing else.")
def run(
    config: Path | None,
    out: Path | None,
    overrides: tuple[str, ...],
    data_dir: Path | None,
    device: str,
    cluster: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run an experiment: every selector with every seed. Without CONFIG: the digits, all six selectors, 5 seeds.

    Run it again with the same --out and it goes on where it stopped; of a finished run it shows the table.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # for selectors and models of one's own, as with python -m
    settings = Config.load(config, overrides)
    from equifl.sim import run as simulation  # torch takes a second; a wrong key should not wait for it
    from equifl.sim.loop.environment import resolved

    silent = quiet or as_json
    click.get_current_context().with_resource(notes(silent))
    path = out or Path("runs") / f"{config.stem if config else 'digits'}-{datetime.now():%Y%m%d-%H%M%S}"
    failure: OSError | None = None
    rows = simulation.finished_rows(path, settings)
    if rows is None:
        with Downloads(silent) as downloads:
            dataset = simulation.load_data(settings, data_dir, downloads.progress)
        settings = resolved(settings, dataset)
        wanted = simulation.engine_for(path, settings)
        lanes = _lanes(settings, dataset, device, cluster, wanted)  # what cannot work leaves no folder behind
        if lanes.note and not silent:
            click.echo(lanes.note, err=True)
        with RunFolder.open(path, settings.as_dict(), lanes.made_with) as folder:
            failure = _play(lanes, folder, settings, silent)
            rows = folder.rows()
    elif not silent:
        click.echo(f"{path}: finished already; to run it again, choose another --out", err=True)
    played = len(rows) // (len(settings.selectors) * len(settings.seeds))
    if failure:
        click.echo(f"equifl: {failure}; {played} of {settings.rounds} rounds are in {path / ROUNDS}", err=True)
    if played < settings.rounds:
        again = shlex.join(["equifl", *sys.argv[1:], *([] if out else ["--out", str(path)])])
        click.echo(f"{'' if failure else 'stopped after a checkpoint; '}to go on: {again}", err=True)
        sys.exit(2 if failure else 130)
    table = make_table(rows)
    if as_json:
        click.echo(json.dumps({"folder": str(path), **table.as_dict()}, indent=1))
    elif not quiet:
        console.print(draw_table(table))
        click.echo(f"record: {path}")
    report = _report_if_possible(path)
    if report and not silent:
        click.echo(f"report: {report}")
    if failure:
        sys.exit(2)


def _play(lanes: Any, folder: RunFolder, config: Config, silent: bool) -> OSError | None:
    """Play what is left of a run, until it is finished or asked to stop; what the disk refused, if it did."""
    # Ray says on standard output when a worker has died, which is for the results alone.
    with _stop_requests() as stopped, Watch(config, lanes.device, silent) as watch, redirect_stdout(sys.stderr):

        def on_round(played: int, rows: list[dict[str, Any]]) -> bool:
            watch.show(played, rows)
            return not stopped

        try:
            lanes.run(folder, on_round=on_round)
        except OSError as error:
            return error
    return None


def _lanes(config: Config, dataset: Any, device: str, cluster: str | None, engine: str) -> Any:
    """What plays the run: this process, or the workers of a cluster."""
    if cluster is None:
        from equifl.sim.run import Here

        return Here(config, dataset, device=device, engine=engine)
    from equifl.cluster.sweep import Sweep

    return Sweep(config, dataset, device=device, engine=engine, address=cluster or None)


def _report_if_possible(folder: Path) -> Path | None:
    """A run is worth its record without a report, and says how to get one."""
    try:
        return _write_report(folder, None)
    except MissingExtraError as error:
        click.echo(f"no report: {error}", err=True)
        return None
    except OSError as error:
        again = shlex.join(["equifl", "report", str(folder)])
        raise OSError(f"{error}; all rounds are in {folder / ROUNDS}; to write the report: {again}") from None


def _write_report(folder: Path, output: Path | None) -> Path:
    from equifl.report.page import write_report  # a second of imports that only a report needs

    return write_report(folder, output)


@contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """Fills a list when Ctrl-C or a polite kill asks to stop; a second one ends at once."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        click.echo("stopping after this round ...", err=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@main.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The HTML file (default: DIR/report.html).")
def report(folder: Path, output: Path | None) -> None:
    """Write one HTML file about the run in DIR, finished or not: table, figures, configuration. It opens offline."""
    click.echo(_write_report(folder, output))


@main.command()
@click.argument("table", type=click.Choice([*tables.titles(), "all", *list(tables.VARIANTS)[1:]]))
@click.option("--data", "names", type=click.Choice(tables.DATA), multiple=True, help="Default: both.")
@click.option("--seeds", type=click.IntRange(min=1), default=20, show_default=True, help="Seeds 0 to N-1.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/paper"), show_default=True)
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Where data sets are (else $EQUIFL_DATA, the cache)."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
def reproduce(table: str, names: tuple[str, ...], seeds: int, out: Path, data_dir: Path | None, device: str) -> None:
    """The paper's tables again: run what is missing, print its figures beside ours, and judge its claims.

    Or the selectors of table 1 in a setting that differs from the paper's in one thing (fresh, exact, ...).
    Finished runs are kept in OUT and never run twice; what is under way, in OUT/work.
    """
    variant = table if table in tables.VARIANTS else "paper"
    wanted = [] if variant != "paper" else tables.titles() if table == "all" else [table]
    for data_name in names or tables.DATA:
        needed = paper_runs.selectors_for(wanted, data_name) or tables.six(data_name)
        results = paper_runs.Results.read(out / f"{data_name}-{variant}.json")
        if results.missing(needed, range(seeds)):
            from equifl.sim import run as simulation

            chosen = simulation.choose_device(device)
            simulation.load_data(tables.configuration(data_name, needed, [0]), data_dir)  # fail early, download once
            paper_runs.run_missing(
                results,
                needed,
                range(seeds),
                data=data_name,
                variant=variant,
                work=out / "work",
                device=chosen,
                data_dir=data_dir,
            )
        if variant != "paper":
            console.print(f"{data_name}, {variant}")
            console.print(draw_table(make_table(results.rows(needed, range(seeds)))))
        for title in wanted:
            console.print(draw_paper_table(title, data_name, results.finals(), range(seeds)), "")
        if verdicts := paper_runs.verdicts(wanted, data_name, results.finals(), range(seeds)):
            console.print(draw_verdicts(data_name, verdicts), "")
        click.echo(f"{data_name}: the runs took {results.seconds:.0f} s on {results.made_with.get('device')}\n")


@main.command()
def selectors() -> None:
    """List the selectors, what they need to hear, and their parameters with the defaults."""
    for name, cls in SELECTORS.items():
        summary = (cls.__doc__ or "").strip().splitlines()[0]
        heard = ", ".join(sorted(needs(cls()))) or "nothing"
        parameters = ", ".join(f"{f.name} = {getattr(cls(), f.name)!r}" for f in fields(cls)) or "none"
        click.echo(f"{name}\n  {summary}\n  needs: {heard}\n  parameters: {parameters}")


@main.group()
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
    with Downloads(quiet) as downloads:
        click.echo(get(name, data_dir, downloads.progress))


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
    click.echo(f"usable: --set data.name=arrays --set data.path={shlex.quote(str(file))}")
