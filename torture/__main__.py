"""`python -m torture --minutes 10`: attack equifl, print what was tried, keep what failed as cases for the tests."""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path

import click

from torture.harness import attacks, keep, lacks, tortured


@click.command(context_settings={"max_content_width": 100})
@click.option("--minutes", type=click.FloatRange(min=0), default=10.0, show_default=True, help="How long, in all.")
@click.option("--seed", type=click.IntRange(min=0), help="The first case's seed; by default a new one, printed.")
@click.option("--only", help="Names of attacks, separated by commas; by default all.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the counts here, as JSON.")
def main(minutes: float, seed: int | None, only: str | None, out: Path | None) -> None:
    """Attack equifl until the time is over. Exits with 1 if anything broke."""
    found = attacks()
    names = only.split(",") if only else list(found)
    if unknown := [name for name in names if name not in found]:
        raise click.UsageError(f"--only: {unknown[0]!r} is no attack; there are {', '.join(found)}")
    seed = secrets.randbelow(2**32) if seed is None else seed
    click.echo(f"seed {seed}, {minutes:g} minutes, {len(names)} attacks (the same again: --seed {seed})")
    for name in names:
        if why := lacks(found[name]):
            click.echo(f"{name:14} left out: {why}")
    names = [name for name in names if not lacks(found[name])]
    tallies = {}
    for name, tally in tortured({name: found[name] for name in names}, seconds=60 * minutes, seed=seed):
        tallies[name] = tally
        counted = ", ".join(f"{count:,} {what}" for what, count in sorted(tally.counts.items()))
        click.echo(f"{name:14} {tally.cases:7,} cases in {tally.seconds:5.0f} s: {counted}")
        for failure in tally.failures:
            click.echo(
                f"  FAILED with seed {failure['seed']}; cut down and kept in {keep(failure)}\n{failure['error']}"
            )
    if out is not None:
        kept = {
            name: {"cases": tally.cases, "counts": dict(sorted(tally.counts.items())), "failures": len(tally.failures)}
            for name, tally in tallies.items()
        }
        out.write_text(json.dumps({"seed": seed, "minutes": minutes, "attacks": kept}, indent=2) + "\n")
    sys.exit(any(tally.failures for tally in tallies.values()))


if __name__ == "__main__":
    main()
