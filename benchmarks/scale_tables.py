"""Tables and figures of docs/scale.md, from the rows that `benchmarks/scale.py` measured."""

from __future__ import annotations

from typing import Any

from drawing import COLOURS, Axis, Panel, picture
from scale_points import LENGTH, PEERS, SELECTORS

from equifl.experiment.names import display_name


def with_lines(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Beside every time the one of a straight line in N through the same method's at 10,000."""
    anchors = {row["name"]: row for row in rows if row["part"] == "selection" and row["n"] == 10**4 and "k" in row}
    for row in rows:
        anchor = anchors.get(row["name"], {})
        if row["part"] == "selection" and "seconds" in row and "seconds" in anchor:
            row["line"] = anchor["seconds"] * row["n"] / anchor["n"]
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| N | method | k | numbers | seconds | straight line | most memory |",
        "|---:|---|---:|---|---:|---:|---:|",
    ]
    for row in (row for row in rows if row["part"] == "selection"):
        start = f"| {row['n']:,} | {row['name']} | {row['k']:,} | {row['dtype']} |"
        if "error" in row:
            lines.append(f"{start} {row['error']} | | |")
        else:
            line = f"{row['line']:.2f}" if "line" in row else ""
            lines.append(f"{start} {row['seconds']:.2f} | {line} | {row['bytes'] / 2**30:.2f} GiB |")
    return "\n".join(lines)


def small_tables(rows: list[dict[str, Any]]) -> str:
    lines = ["| numbers in an update | to a sketch of 256 |", "|---:|---:|"]
    sketches = (row for row in rows if row["part"] == "sketch")
    lines += [f"| {row['n']:,} | {1000 * row['seconds']:.2f} ms |" for row in sketches]
    lines += ["", "| N | selector | a round | of which not selection | first round | data | most memory |"]
    lines.append("|---:|---|---:|---:|---:|---:|---:|")
    for row in (row for row in rows if row["part"] == "simulation"):
        times = f"{row['seconds']:.3f} s | {row['without selection']:.3f} s | {row['first round']:.1f} s"
        memory = f"{row['bytes of data'] / 2**30:.2f} GiB | {row['bytes'] / 2**30:.2f} GiB"
        name = display_name(row["name"].lower())  # Random, as in every table
        lines.append(f"| {row['n']:,} | {name} | {times} | {memory} |")
    return "\n".join(lines)


def checksum_words(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| clients that report | with checksums | without | more | late news (no round): with | without |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    part = [row for row in rows if row["part"] == "checksums"]
    for row in (row for row in part if row["name"] == "observe"):
        times = [row[key] for key in ("seconds", "without checksums", "late news", "late news without checksums")]
        first, second, third, fourth = (f"{1000 * seconds:.2f} ms" for seconds in times)
        more = f"{100 * (times[0] / times[1] - 1):.1f} %"
        lines.append(f"| {row['k']:,} of {row['n']:,} | {first} | {second} | {more} | {third} | {fourth} |")
    (opened,) = (row for row in part if row["name"] == "open")
    lines += [
        "",
        f"Opening a file of {opened['n']:,} clients takes {opened['seconds']:.2f} s, if the system has it in",
    ]
    lines[-1] += f" memory; `store.signals`, which reads as much in every round, {opened['signals']:.2f} s."
    return "\n".join(lines)


def figure(rows: list[dict[str, Any]]) -> str:
    """Time and memory against N, on logarithmic axes."""
    clients = Axis.powers(3, 7, "10^{}")
    time_of = Panel(60, "seconds to choose 100", clients, Axis.powers(-3, 3))
    memory_of = Panel(440, "most memory, GiB", clients, Axis.powers(-2, 2))
    legend = list(zip([*SELECTORS, *PEERS], COLOURS, strict=True))
    for panel, key, unit in ((time_of, "seconds", 1.0), (memory_of, "bytes", 2.0**30)):
        for name, colour in legend:
            chosen = [r for r in rows if r["part"] == "selection" and r["name"] == name and key in r and r["k"] == 100]
            half = [r for r in chosen if r["n"] == 10**6 and r["dtype"] == "float16"]  # float32 is there too
            panel.line({r["n"]: r[key] / unit for r in chosen if r not in half}, colour)
    return picture([time_of, memory_of], legend, "Time and memory against the number of clients")


def of_cluster(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["part"] == "cluster"]


def a_step(found: dict[str, Any], way: str) -> float:
    """Bytes to or from one worker, each time that the selection waits for all."""
    return found[f"bytes {way}"] / found["workers"] / found["steps"]


def amount(number: float) -> str:
    """Bytes in words: 80 B, 1.2 KB, 51 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if number < 999.5 or unit == "GB":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"


def cluster_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| N | method | k | numbers | here alone | 1 worker | 2 | 4 | most memory of a worker: 1, 2, 4 | steps "
        "| to each worker, a step | back | the same cohort |",
        "|---:|---|---:|---|---:|---:|---:|---:|---|---:|---:|---:|---|",
    ]
    for row in of_cluster(rows):
        several = row["with workers"]
        seconds = " | ".join(f"{found['seconds']:.2f} s" for found in several)
        memory = ", ".join(f"{found['bytes of a worker'] / 2**30:.2f}" for found in several)
        last = several[-1]
        messages = f"{last['steps']} | {amount(a_step(last, 'out'))} | {amount(a_step(last, 'back'))}"
        worth = min(found.get("share of the value", 1.0) for found in several)
        same = "yes" if all(found["same choice"] for found in several) else f"no; {100 * worth:.3f} % of the value"
        start = f"| {row['n']:,} | {row['name']} | {row['k']:,} | {row['dtype']} | {row['seconds']:.2f} s"
        lines.append(f"{start} | {seconds} | {memory} GiB | {messages} | {same} |")
    return "\n".join(lines)


def cluster_figure(rows: list[dict[str, Any]]) -> str:
    """Time against workers at the largest N of each method, and messages against N."""
    legend = list(zip(SELECTORS, COLOURS[:4], strict=True))
    workers = Axis(1, 4, {1.0: "1 worker", 2.0: "2", 4.0: "4"}, logarithmic=True)
    times = Panel(60, "seconds against workers; dashed: here alone", workers, Axis.powers(0, 2))
    sent = Panel(440, "bytes to each of 4 workers, a step", Axis.powers(4, 6, "10^{}"), Axis.powers(2, 5, "10^{}"))
    for name, colour in legend:
        kind = {"name": name, "dtype": "float32", "k": 100}
        mine = [row for row in of_cluster(rows) if row.items() >= kind.items()]
        if not mine:
            continue
        largest = max(mine, key=lambda row: row["n"])
        times.line({found["workers"]: found["seconds"] for found in largest["with workers"]}, colour)
        times.line({1: largest["seconds"], 4: largest["seconds"]}, colour, dashed=True)
        sent.line({row["n"]: a_step(row["with workers"][-1], "out") for row in mine}, colour)
    return picture([times, sent], legend, "Time against workers, and messages against clients")


MACHINES, EACH = 100, 10**6  # of two cores, and clients on each


def paper_table(rows: list[dict[str, Any]]) -> str:
    """What the measured rows of a million clients on two workers make of 10^8 on 100 machines."""
    measured = {row["name"]: row for row in of_cluster(rows) if row["n"] == EACH and row["dtype"] == "float16"}
    names = [name for name in SELECTORS if name in measured]
    columns = [on_paper(next(f for f in measured[name]["with workers"] if f["workers"] == 2)) for name in names]
    lines = [f"| | {' | '.join(f'{name}, k = 100' for name in names)} |", "|---|" + "---|" * len(names)]
    every = zip(*columns, strict=True)
    lines += [f"| {cells[0][0]} | {' | '.join(value for _, value in cells)} |" for cells in every]
    return "\n".join(lines)


def on_paper(found: dict[str, Any]) -> list[tuple[str, str]]:
    """One method: what it is, and how much."""
    out, back = 2 * a_step(found, "out"), 2 * a_step(found, "back")
    calls, here = MACHINES * found["telling"], MACHINES * seconds_here(found)
    together = found["waiting"] + calls + here + found["planning"]
    sketches = f"10^6 x {2 * LENGTH} B = {amount(EACH * 2 * LENGTH)}; {amount(MACHINES * EACH * 2 * LENGTH)}"
    return [
        ("sketches on each machine; on all", sketches),
        ("loss, size, counts, last round, available, on the driver", f"10^8 x 33 B = {amount(MACHINES * EACH * 33)}"),
        ("steps", f"{found['steps']}"),
        ("sent to each machine at a step; to all", f"{amount(out)}; {amount(MACHINES * out)}"),
        ("back from each machine; from all", f"{amount(back)}; {amount(MACHINES * back)}"),
        ("workers compute, all at the same time", f"{found['waiting']:.1f} s"),
        ("the driver calls 200 workers, one after another", f"100 x {found['telling']:.3f} s = {calls:.0f} s"),
        ("the driver's own work, at most", f"100 x {seconds_here(found):.2f} s = {here:.0f} s"),
        ("the driver plans, whatever N is", f"{found['planning']:.1f} s"),
        ("together", f"{together:.0f} s"),
    ]


def plan_words(rows: list[dict[str, Any]]) -> str:
    """Why Rota is not planned by shards for their own clients, in numbers."""
    balanced = {row["k"]: row["distance with shards"] for row in rows if row["part"] == "balance"}
    lines = ["| k | tables | 2 shards, for themselves | 4 shards |", "|---:|---:|---:|---:|"]
    for k, found in balanced.items():
        lines.append(f"| {k:,} | {' | '.join(f'{100 * found[shards]:.0f} %' for shards in ('1', '2', '4'))} |")
    found = [
        found for row in of_cluster(rows) if row["name"] == "Rota" and row["k"] == 100 for found in row["with workers"]
    ]
    plans = [one["planning"] for one in found]
    lines += ["", f"Planning 100 seats for 2,048 clients took {min(plans):.1f} to {max(plans):.1f} s, whatever N was."]
    return "\n".join(lines)


def seconds_here(found: dict[str, Any]) -> float:
    """What the driver does beside calling workers, waiting for them and planning; it grows with N."""
    return found["seconds"] - found["waiting"] - found["telling"] - found["planning"]
