"""What the benchmarks say about themselves: pages show what was measured, and the race counts work and memory."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))  # scripts, not a package

import attacks  # noqa: E402
import every_selector  # noqa: E402
import flower  # noqa: E402
import gpu  # noqa: E402
import growth  # noqa: E402
import guard as honest  # noqa: E402
import python_api  # noqa: E402
import scale_tables  # noqa: E402
import selection  # noqa: E402
import simulation  # noqa: E402
from race.course import BATCH, CLIENTS, COHORT, EXAMPLES, STEPS, Course  # noqa: E402
from race.memory import Peak, family  # noqa: E402

from equifl.selectors import SELECTORS  # noqa: E402

PAGE = (ROOT / "docs" / "performance.md").read_text()


def results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    return found


def runs_of_the_paper() -> tuple[int, list[str]]:
    """How many there are, and the seconds they took for each data set."""
    files = [
        json.loads((ROOT / "results" / "paper" / f"{data}-paper.json").read_text()) for data in ("mnist", "cifar10")
    ]
    return sum(len(seeds) for file in files for seeds in file["runs"].values()), [f"{f['seconds']:.0f}" for f in files]


def test_the_page_shows_the_race_as_it_was_measured() -> None:
    found = results("simulation.json")
    assert simulation.table(found["rows"], found["failed"]) in PAGE


def test_the_race_names_who_failed_in_which_work() -> None:
    found = results("simulation.json")
    rows, failed = found["rows"], found["failed"]
    del rows["B"]["Flower"], rows["A"]["FedLab"], rows["B"]["FedLab"]
    failed["A"] |= {"FedLab": "no word"}
    failed["B"] |= {"Flower": "not finished after 300 s", "FedLab": "no word"}
    lines = {line.split(" | ")[0]: line for line in simulation.table(rows, failed).splitlines()}
    assert "| failed: not finished after 300 s | " in lines["| Flower"]
    assert lines["| Flower"].startswith(f"| Flower | {rows['A']['Flower']['rounds_per_second']:.2f} (")
    assert lines["| FedLab"].count("failed: no word") == 2
    assert len({line.count("|") for line in lines.values() if line.startswith("|")}) == 1


def test_the_page_shows_how_long_every_selector_takes() -> None:
    """Those that need no matrix of all pairs take less than a second from 10,000 clients, but for k = 100 of Rota."""
    rows = results("selectors.json")["rows"]
    assert every_selector.table(rows) in PAGE
    assert list(dict.fromkeys(row["name"] for row in rows)) == list(SELECTORS)
    pairs = {"divfl", "subtrunc", "unionfl", "clustered_sampling", "fedgs", "hicsfl"}
    assert all(row["seconds"] < 1 for row in rows if row["name"] not in pairs and row["k"] == 10)


def test_the_page_shows_what_a_gpu_reached() -> None:
    assert gpu.table(results("gpu.json")) in PAGE


def test_the_page_shows_simulate_beside_the_command_line() -> None:
    found = results("python_api.json")
    assert python_api.table(found) in PAGE
    assert found["frames"]["rows"] == 1000 * 100
    assert found["frames"]["to_pandas"]["seconds"] < 2
    ways = found["digits"]
    assert ways["simulate"]["cpu_seconds"] <= 1.05 * ways["equifl run"]["cpu_seconds"]


def test_the_page_shows_the_growth_as_it_was_measured() -> None:
    table = growth.read(ROOT / "benchmarks" / "results" / "growth.json")
    assert growth.table(table) in PAGE
    assert growth.figure(table) == (ROOT / "docs" / "figures" / "growth.svg").read_text()


def test_the_page_shows_selection_beside_others() -> None:
    assert selection.table(results("selection.json")["rows"]) in PAGE


def test_the_page_shows_what_selection_costs_around_flower() -> None:
    found = results("flower.json")
    assert flower.summary(found) in PAGE
    said = " ".join((ROOT / "docs" / "flower.md").read_text().split())
    rows, peaks = found["rows"], [f"{peak / 2**20:.0f}" for peak in found["peak_bytes"].values()]
    assert f"in a round of {rows['FedAvg']['round_seconds']:.2f} s; FairSelection keeps" in said
    over = [f"{100 * rows[name]['over_plain']:.1f} %" for name in ("Rota", "SubTrunc")]
    assert f"a round took {over[0]} more with Rota and {over[1]} with SubTrunc" in said
    assert (
        "took {} MiB with FedAvg alone, {} with Rota, {} with SubTrunc (`sample=10`) and {} with".format(*peaks)
        in said
    )


def test_the_sentences_of_the_page_are_as_measured() -> None:
    text = " ".join(PAGE.split())
    compiled = results("simulation.json")["rows"]["A"]["compiled"]
    assert f"as long as {compiled['gradients'] * compiled['rounds_per_second']:.0f} rounds of `compiled`" in text
    device = results("gpu.json")
    peak = device["ceilings"]["product, float32, TFLOP/s"]
    assert f"a single run on a GPU, at {device['rows'][0]['train_tflops'] / peak:.0%} of its peak" in text
    gains = [row["step_seconds"] / row["tf32_step_seconds"] for row in device["rows"] if row["data"] == "residual"]
    assert f"{min(gains):.1f} to {max(gains):.1f} times as fast for the residual network" in text
    rows = results("selection.json")["rows"]
    (small,) = (r for r in rows if r["name"] == "equifl streaming" and (r["n"], r["k"]) == (10_000, 100))
    assert f"takes {small['seconds']:.1f} s, and {small['bytes'] / 2**20:.0f} MiB in all" in text
    runs, (mnist, cifar10) = runs_of_the_paper()
    assert f"The {runs} runs of the paper's tables took {mnist} s for MNIST and {cifar10} s for CIFAR-10" in text


def test_the_readme_is_as_measured() -> None:
    """Every number of its section on speed: whatever is left without these sentences has none."""
    readme = (ROOT / "README.md").read_text()
    assert "<!-- race -->" not in readme
    left = " ".join(readme.partition("## How fast")[2].partition("\n## ")[0].split())
    race = results("simulation.json")["rows"]["A"]
    compiled, torch = (
        [f"{race[name]['times'][ours]:.1f}" for name in ("Flower", "pfl, two processes", "FedLab", "FedJAX")]
        for ours in ("compiled", "torch")
    )
    runs, (mnist, cifar10) = runs_of_the_paper()
    for sentence in (
        f"{COHORT} of {CLIENTS} clients per round, {STEPS['A']} steps of batch {BATCH}",
        f"the `compiled` engine runs {compiled[0]} times as many rounds per second as Flower, {compiled[1]} times as "
        f"many as pfl with two processes, {compiled[2]} as FedLab and {compiled[3]} as FedJAX",
        f"{torch[0]}, {torch[1]}, {torch[2]} and {torch[3]} times as many",
        f"On one H200 GPU the {runs} runs of the paper's tables took {mnist} s (MNIST) and {cifar10} s (CIFAR-10)",
    ):
        assert sentence in left
        left = left.replace(sentence, "")
    assert not re.findall(r"\d", left)


@pytest.mark.parametrize(("work", "steps"), [("A", 10), ("B", 19)])
def test_who_did_other_work_is_out_of_the_race(work: str, steps: int) -> None:
    course = Course(work, 1, "", 0.0)
    assert -(-course.taken // 32) == course.steps == steps
    assert course.taken <= EXAMPLES
    done = course.report([1.0, 3.0], 2 * 10 * steps, (2.3, 2.0))
    assert done["seconds"] == [2.0]
    assert done["steps_a_round"] == 10 * steps
    for taken, after in ((2 * 10 * steps - 1, 2.0), (2 * 10 * steps, 2.3), (2 * 10 * steps, np.nan)):
        with pytest.raises(SystemExit, match="not the same work"):
            course.report([1.0, 3.0], taken, (2.3, after))


def test_memory_is_that_of_the_whole_family() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = [1.5] * 2**24; print(1); input()'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert process.pid in family(os.getpid())
    peak = Peak(process.pid)
    peak.start()
    peak.join(0.5)
    peak.over.set()
    process.communicate(b"\n")
    assert peak.bytes > 2**26


def test_the_page_on_scale_shows_what_was_measured() -> None:
    rows, page = results("scale.json")["rows"], (ROOT / "docs" / "scale.md").read_text()
    assert scale_tables.small_tables(rows) in page
    assert scale_tables.checksum_words(rows) in page
    assert "Uniform" not in scale_tables.small_tables(rows)  # Random, as in every table


def test_a_large_report_is_small_and_quick_enough() -> None:
    """16 selectors, 20 seeds, 100 clients: under 8 MB, and interactive within 3 s; the page says what was measured."""
    found = results("report.json")
    assert (found["setting"]["selectors"], found["setting"]["seeds"], found["setting"]["clients"]) == (16, 20, 100)
    assert found["megabytes"] < found["limits"]["megabytes"] == 8
    assert found["median_interactive"] < found["limits"]["seconds"] == 3
    said = " ".join(PAGE[PAGE.index("## The report") :].split())
    assert f"has {found['megabytes']:.1f} MB" in said
    assert f"answered {found['median_interactive']:.1f} s after" in said
    assert f"needed {found['median_work']:.1f} s of processor time" in said


def test_the_page_on_attacks_shows_what_was_measured() -> None:
    page = (ROOT / "docs" / "attacks.md").read_text()
    for name, table in attacks.tables(results("attacks.json")).items():
        assert f"<!-- {name} -->\n{table}\n<!-- {name} -->" in page
    assert f"<!-- honest -->\n{honest.table(results('guard.json'))}\n<!-- honest -->" in page


def test_scaling_gained_nothing_in_the_figures_of_the_page() -> None:
    rows = results("attacks.json")["rows"]
    captured = 0
    for name, row in rows.items():
        for attack in attacks.SCALING:
            for rule in attacks.RULES:
                had, fair = (row[label][f"{rule}, guard"]["seats"] for label in (attack, attacks.HONEST))
                assert had <= attacks.limit(fair), (name, attack, rule)
            captured += row[attack]["median, no guard"]["seats"] > 50
    assert captured >= 5, "without the guard some selectors are captured, else the attacks are too weak"


@pytest.mark.parametrize("data", attacks.HELD_OUT)
def test_scaling_gained_nothing_on_data_that_nothing_was_chosen_on(data: str) -> None:
    rows = results("attacks.json")["held_out"][data]
    assert list(rows) == list(SELECTORS)
    for name, row in rows.items():
        for what in attacks.KINDS:
            assert list(map(float, row[what])) == list(attacks.FACTORS)
            assert max(row[what].values()) <= attacks.limit(row[attacks.HONEST]), (name, what)


def test_honest_federations_are_as_the_page_says() -> None:
    page = " ".join((ROOT / "docs" / "attacks.md").read_text().split())
    changes = honest.changes(results("guard.json"))
    decided = {(change.setting, change.selector) for change in changes if change.decided}
    everywhere = {(setting, name) for setting in honest.SETTINGS for name in ("subtrunc_default", "oort")}
    assert decided == everywhere | {("two classes", "power_of_choice")}
    assert {change.measure for change in changes if change.decided} == {"gini", "top"}
    assert all(change.mean == 0 for change in changes if change.selector == "rota" and change.measure == "gini")
    top = [change.without for change in changes if change.measure == "top" and change[:2] in everywhere]
    assert f"{min(top):.0f} to {max(top):.0f} % of the seats, without any lie" in page
    [lucky] = [change for change in changes if change.decided and change.selector == "power_of_choice"]
    assert f"the ten most selected have {lucky.without:.1f} %" in page
    assert f"{-lucky.mean:.1f} points less with the guard" in page


@pytest.mark.slow
@pytest.mark.parametrize("name", SELECTORS)
def test_scaling_gains_nothing(name: str) -> None:
    """Every selector, also one added later, on data that need no training of a network."""

    def seats(attack: attacks.Attack) -> float:
        selector, data = SELECTORS[name](), attacks.gaussians()
        found = [attacks.play(selector, attack, guard=True, seed=seed, examples=data)[0] for seed in range(2)]
        return float(np.mean(found))

    most = attacks.limit(seats(attacks.ATTACKS[attacks.HONEST]))
    assert seats(attacks.everything(2)) <= most
    assert seats(attacks.scaled(losses=50, sizes=50)) <= most
    assert seats(attacks.everything(1e9)) <= most
