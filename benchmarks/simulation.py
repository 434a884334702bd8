"""Rounds a second: our engines, a plain PyTorch loop, and four simulators of others, on the same work, in one run.

    make bench-simulation         # or: python benchmarks/simulation.py [--quick] [--repeats 5] [--only NAME ...]

The work: 100 clients x 600 examples of MNIST's shape, LeNet 28x28, 10 clients a round, plain SGD and plain mean;
(A) 10 steps of batch 32, (B) one epoch of batch 32. What each contender does is in `benchmarks/race/`; those of others
have environments of their own, which this script makes. Each runs in processes of its own, in turns, on all cores it
is given, with the settings that suit it best. It counts the steps of its optimiser, and its model is judged before and
after: who did not do the work has no row, but is named with what went wrong.

Everyone runs for about as long in every repeat, the fast ones for more rounds: a machine that is shared is slow for
seconds at a time, and who were done in one of them would be measured by chance.

Printed: the median over repeats of rounds a second (each the median of its rounds, the first one not among them) and
their spread; seconds from the start of the process to the end of its first round; the peak of the memory of all its
processes, from a run of its own, because looking costs time; how many times its rounds a second our engines make;
and for ours and the loop the seconds for the gradients, with losses, of all 100 clients at one model, and for their
losses alone. What numba compiles is in its cache before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawing import fill_in
from race.course import STEPS, Course, write_data
from race.environments import ROOT, python_of
from race.memory import Peak

LIMIT = 300  # seconds a run may take
LONG = 8  # seconds that its rounds take together, about


@dataclass(frozen=True)
class Contender:
    """A module of `race`, a variant of it, and its environment; none is the one this runs in."""

    module: str
    variant: str = ""
    environment: str = ""


CONTENDERS = {
    "compiled": Contender("ours", "compiled"),
    "torch": Contender("ours", "torch"),
    "plain loop": Contender("loop"),
    "Flower": Contender("flower", environment="flower"),
    "pfl, one process": Contender("pfl", "1", "pfl"),
    "pfl, two processes": Contender("pfl", "2", "pfl"),
    "FedLab": Contender("fedlab", environment="fedlab"),
    "FedJAX": Contender("fedjax", environment="fedjax"),
}
OURS = ("compiled", "torch")
Row = dict[str, Any]


def run(name: str, work: str, rounds: int, folder: str, *, look: bool = False) -> Row:
    """What a contender reports; with `look`, the peak of its memory too. RuntimeError says why there is nothing."""
    contender = CONTENDERS[name]
    python = python_of(contender.environment)
    course = Course(work, rounds, folder, time.time(), contender.variant)
    paths = os.pathsep.join((str(ROOT), str(ROOT / "benchmarks")))
    quiet = {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore", "FLWR_TELEMETRY_ENABLED": "0"}
    command = [python, "-m", "race", contender.module, json.dumps(vars(course))]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | quiet,
        start_new_session=True,
    )
    peak = Peak(process.pid)
    if look:
        peak.start()
    try:
        output, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise RuntimeError(f"not finished after {LIMIT} s") from None
    finally:
        peak.over.set()
    if process.returncode:
        raise RuntimeError((errors.strip().splitlines() or ["no word"])[-1])
    found: Row = json.loads(output.splitlines()[-1])
    return found | ({"peak_bytes": peak.bytes} if look else {})


def summary(runs: list[Row], looked: Row) -> Row:
    rates = [1 / statistics.median(found["seconds"]) for found in runs]
    row = {"rounds_per_second": statistics.median(rates), "slowest": min(rates), "fastest": max(rates)}
    for key in ("first_round_after", "gradients", "losses_only"):
        if key in runs[0]:
            row[key] = statistics.median(found[key] for found in runs)
    row["peak_bytes"] = looked["peak_bytes"]
    return row | {key: runs[0][key] for key in ("steps_a_round", "losses", "versions")}


def measure(
    names: list[str], work: str, repeats: int, rounds: int, long: float, folder: str
) -> tuple[dict[str, Row], Row]:
    """A row for each that did the work, in so many rounds or more, for about so long, and why the others did not."""
    looked, failed = {}, {}
    for name in names:
        try:
            looked[name] = run(name, work, 2, folder, look=True)
        except RuntimeError as error:
            failed[name] = str(error)
    many = {name: max(rounds, round(long / min(found["seconds"]))) for name, found in looked.items()}
    runs: dict[str, list[Row]] = {name: [] for name in looked}
    for _ in range(repeats):
        for name in list(runs):
            try:
                runs[name].append(run(name, work, many[name], folder))
            except RuntimeError as error:
                failed[name] = str(error)
                del runs[name]
    return {name: summary(found, looked[name]) for name, found in runs.items()}, failed


def show(work: str, rows: dict[str, Row], failed: Row) -> None:
    print(f"\n({work}) {STEPS[work]} steps a client")
    head = f"{'':20}{'rounds/s':>9} {'(spread)':>15}{'first after':>13}{'memory':>11}{'loss':>14}"
    print(head + "".join(f"{ours + ' is':>13}" for ours in OURS if ours in rows))
    for name, row in rows.items():
        spread = f"({row['slowest']:.2f} - {row['fastest']:.2f})"
        loss = "{:.2f} - {:.2f}".format(*row["losses"])
        line = f"{name:20}{row['rounds_per_second']:9.2f} {spread:>15}{row['first_round_after']:11.1f} s"
        line += f"{row['peak_bytes'] / 2**20:7.0f} MiB{loss:>14}"
        row["times"] = {o: rows[o]["rounds_per_second"] / row["rounds_per_second"] for o in OURS if o in rows}
        print(line + "".join(f"{ratio:11.2f} x" for ratio in row["times"].values()))
    for name, why in failed.items():
        print(f"{name:20} failed: {why}")
    for name, row in rows.items():
        if "gradients" in row:
            print(f"{name:20} gradients of all {row['gradients']:.2f} s, losses alone {row['losses_only']:.2f} s")


def table(rows: dict[str, dict[str, Row]], failed: dict[str, Row]) -> str:
    """For docs/performance.md: a row a contender, the works side by side; a failure has its reason."""
    ours = " | ".join(f"speed-up of {name}" for name in OURS)
    works = " | ".join(f"({work}) {STEPS[work]} steps: rounds/s (min - max) | {ours}" for work in rows)
    lines = [f"| | {works} | first round after | memory |", "|---|" + "---:|" * (len(rows) * (1 + len(OURS)) + 2)]
    for name in CONTENDERS:
        cells, start = [name], list[str]()
        for work, found in rows.items():
            if name not in found:
                cells += [f"failed: {failed[work][name]}", *[""] * len(OURS)]
                continue
            row = found[name]
            cells += [f"{row['rounds_per_second']:.2f} ({row['slowest']:.2f} - {row['fastest']:.2f})"]
            cells += [f"{row['times'][engine]:.1f} x" for engine in OURS]
            start = start or [f"{row['first_round_after']:.1f} s", f"{row['peak_bytes'] / 2**20:,.0f} MiB"]
        lines.append(f"| {' | '.join(cells + (start or ['', '']))} |")
    passes = [(name, row) for name, row in rows["A"].items() if "gradients" in row]
    seconds = [f"{name} {row['gradients']:.2f} s and {row['losses_only']:.2f} s" for name, row in passes]
    lines += ["", "Gradients of all 100 clients at one model, and losses alone, take:", "; ".join(seconds) + "."]
    return "\n".join(lines)


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    wide = [name for name in ("avx512f", "avx2") if name in found.get("flags", "").split()]
    return " ".join([found.get("model name", platform.processor()), *wide[:1]])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, once; printed only")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, help="printed only", metavar="NAME")
    parser.add_argument("--works", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--cifar", action="store_true", help="LeNet on CIFAR-10's shape; printed only")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "simulation.json")
    options = parser.parse_args()
    names = options.only or list(CONTENDERS)
    rows, failed = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), (3, 32, 32) if options.cifar else (1, 28, 28))
        for work in options.works:
            repeats, rounds, long = (1, 4, 0) if options.quick else (options.repeats, 150 // STEPS[work], LONG)
            rows[work], failed[work] = measure(names, work, repeats, rounds, long, folder)
            show(work, rows[work], failed[work])
    machine = {"cores": os.cpu_count(), "processor": processor(), "system": platform.system()}
    if not (options.quick or options.cifar or options.only or len(rows) < len(STEPS)):
        result = {"command": "make bench-simulation", "machine": machine, "rows": rows, "failed": failed}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        fill_in(ROOT / "docs" / "performance.md", {"race": table(rows, failed)})
        print(f"\nwritten to {options.out} and docs/performance.md")


if __name__ == "__main__":
    main()
