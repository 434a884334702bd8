"""`equifl reproduce`."""

from __future__ import annotations

from pathlib import Path

import click

from equifl.cli.tables import console, draw_paper_table, draw_table, draw_verdicts
from equifl.experiment.table import make_table
from equifl.paper import runs, tables


@click.command()
@click.argument("table", type=click.Choice([*tables.titles(), "all", *list(tables.VARIANTS)[1:]]))
@click.option("--data", "names", type=click.Choice(tables.DATA), multiple=True, help="Default: both.")
@click.option("--seeds", type=click.IntRange(min=1), default=20, show_default=True, help="Seeds 0 to N-1.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/paper"), show_default=True)
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Where data sets are (else $EQUIFL_DATA, the cache)."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
def reproduce(table: str, names: tuple[str, ...], seeds: int, out: Path, data_dir: Path | None, device: str) -> None:
    """The paper's tables again: run what is missing, print its figures below ours, and judge its claims.

    Or the selectors of table 1 in a setting that differs from the paper's in one thing (fresh, exact, ...).
    Finished runs are kept in OUT and never run twice; what is under way, in OUT/work.
    """
    variant = table if table in tables.VARIANTS else "paper"
    wanted = [] if variant != "paper" else tables.titles() if table == "all" else [table]
    for data_name in names or tables.DATA:
        needed = runs.selectors_for(wanted, data_name) or tables.six(data_name)
        results = runs.PaperResults.read(out / f"{data_name}-{variant}.json")
        if results.missing(needed, range(seeds)):
            from equifl.sim.players import choose_device
            from equifl.sim.simulation import load_data

            chosen = choose_device(device)
            load_data(tables.configuration(data_name, needed, [0]), data_dir)  # fail early, download once
            runs.run_missing(
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
        if verdicts := runs.verdicts(wanted, data_name, results.finals(), range(seeds)):
            console.print(draw_verdicts(data_name, verdicts), "")
        click.echo(f"{data_name}: the runs took {results.seconds:.0f} s on {results.made_with.get('device')}\n")
