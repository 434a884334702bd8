import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from equifl.cli.main import main
from equifl.paper.runs import verdicts
from equifl.paper.tables import DATA, VARIANTS, configuration, rows, six, titles
from equifl.statistics import interval, paired
from tools import results_page as results
from tools.results_page import Setting, bytes_up, make_blocks, names, rewrite

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "results" / "paper"
PAGE = (ROOT / "docs" / "results-introduced.md").read_text()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def line(table: str, title: str) -> list[str]:
    (found,) = [cells(row) for row in table.splitlines() if cells(row)[0] == title]
    return found


def test_the_page_says_what_the_results_say() -> None:
    """If not: python -m tools.results_page, and read again what is written around the tables."""
    blocks = make_blocks(COMMITTED)
    assert names(PAGE) == list(blocks)
    assert rewrite(PAGE, blocks) == PAGE


def test_every_table_has_as_many_cells_in_each_line() -> None:
    for block in make_blocks(COMMITTED).values():
        for table in block.split("\n\n"):
            assert len({len(cells(row)) for row in table.splitlines()}) == 1


def test_a_block_nobody_makes_is_refused() -> None:
    with pytest.raises(ValueError, match="table: 'beyond mnits' is not known; did you mean 'beyond mnist'"):
        rewrite("<!-- table: beyond mnits -->\n<!-- end -->", {"beyond mnist": ""})


def test_what_is_outside_the_markers_stays() -> None:
    page = "a\n\n<!-- table: x -->\n<!-- end -->\n\n| b |\n\n<!-- table: y -->\nold\n<!-- end -->\n"
    blocks = {"x": "1", "y": "2"}
    once = rewrite(page, blocks)
    assert once == ("a\n\n<!-- table: x -->\n\n1\n\n<!-- end -->\n\n| b |\n\n<!-- table: y -->\n\n2\n\n<!-- end -->\n")
    assert rewrite(once, blocks) == once


def test_every_setting_has_a_title() -> None:
    assert list(results.SETTINGS) == list(VARIANTS)


def test_a_table_takes_the_files_and_seeds_that_are_there(tmp_path: Path) -> None:
    shutil.copy(COMMITTED / "mnist-paper.json", tmp_path)
    content = json.loads((COMMITTED / "mnist-unequal.json").read_text())
    del content["runs"]["rota"]["3"], content["runs"]["uniform"]["7"]
    (tmp_path / "mnist-unequal.json").write_text(json.dumps(content))
    table = results.beyond("mnist", tmp_path)
    assert [cells(row)[:2] for row in table.splitlines()[2:]] == [
        ["the paper's, stale", "20"],
        ["unequal sizes", "18"],
    ]
    setting = Setting("mnist", "unequal", tmp_path)
    assert setting.seeds == [seed for seed in range(20) if seed not in (3, 7)]
    mean, half_width = interval(
        [content["runs"]["divfl"][str(seed)]["final"]["dissimilarity"] for seed in setting.seeds]
    )
    assert line(table, "unequal sizes")[4].startswith(f"{mean:.1f} ± {half_width:.1f} (")
    assert len(results.over_rounds("mnist", tmp_path).splitlines()[0].split("|")) == 1 + 5 + 1  # no long training


def test_bold_is_what_differs_from_random_in_the_same_seeds() -> None:
    setting = Setting("mnist", "averaged", COMMITTED)
    found = line(results.beyond("mnist", COMMITTED), results.SETTINGS["averaged"])
    for selector, cell in (("power_of_choice", found[3]), ("divfl", found[4])):
        for measure, part in zip(("dissimilarity", "accuracy"), cell.split(" ("), strict=True):
            mean, half_width = paired(setting.values(selector, measure), setting.values("uniform", measure))
            assert ("**" in part) == (abs(mean) > half_width)
    assert "**" not in found[2]


@pytest.mark.parametrize("variant", ["exact", "fresh"])
def test_bytes_of_a_run_are_those_recorded_of_its_rounds(variant: str) -> None:
    """Kept is the last of 70 rounds; where signals are stale, the first also introduces 100 clients."""
    setting = Setting("mnist", variant, COMMITTED)
    introduced = {"uniform": 0, "power_of_choice": 4 * 100, "subtrunc_0.95": 4 * 100 * (44_426 + 1)}
    for name in six("mnist"):
        last = int(setting.values(name, "bytes_up")[0])
        first = introduced.get(name, 4 * 100 * 44_426) if variant == "exact" else 0
        assert bytes_up(configuration("mnist", [name], [0], variant), name, 44_426) == 70 * last + first


def test_rounds_that_the_page_shows_end_as_the_runs_did() -> None:
    for data in DATA:
        setting = Setting(data, "paper", COMMITTED)
        rounds = configuration(data, ["uniform"], [0]).rounds
        for name in six(data):
            assert setting.dissimilarity(name, rounds).tolist() == setting.values(name, "dissimilarity").tolist()


@pytest.mark.parametrize("data", DATA)
def test_the_same_again_is_the_same(data: str) -> None:
    """Who knows no candidates plays the paper's setting where greedy is exact, too."""
    paper, exact = (Setting(data, variant, COMMITTED).results.runs for variant in ("paper", "exact"))
    for selector in ("uniform", "power_of_choice", "rota"):
        assert exact[selector] == paper[selector]
    assert exact["divfl"] != {seed: paper["divfl"][seed] for seed in exact["divfl"]}


def test_subtrunc_that_chooses_as_divfl_is_counted_though_it_sends_losses() -> None:
    runs = Setting("mnist", "paper", COMMITTED).results.runs
    assert runs["subtrunc_0.01"] != runs["divfl"]
    assert line(results.same_as_divfl(COMMITTED), "MNIST")[1] == "20 of 20"


def test_training_loss_stands_beside_the_papers() -> None:
    table = results.training_loss(COMMITTED)
    mean, half_width = interval(Setting("mnist", "paper", COMMITTED).values("subtrunc_0.95", "local_loss"))
    assert line(table, "SubTrunc")[1:3] == ["0.21 ± 0.01", f"{mean:.2f} ± {half_width:.2f}"]
    assert line(table, "Rota")[3] == ""
    far = []
    for data in DATA:
        setting = Setting(data, "paper", COMMITTED)
        for row in rows("table1", data):
            ours = round(setting.values(row.selector, "local_loss").mean(), 2)
            if row.printed and abs(ours - row.printed["local_loss"][0]) > 0.04 + 1e-9:
                far.append((data, row.selector, ours))
    assert far == [("cifar10", "power_of_choice", 0.92)]


def test_the_training_loss_of_the_paper_is_local_and_not_everybodys() -> None:
    setting = Setting("mnist", "paper", COMMITTED)
    local, everybody = (setting.values("uniform", name).mean() for name in ("local_loss", "global_loss"))
    said = f"our local loss is {local:.2f}, and the loss over all clients {everybody:.2f} |"
    assert said in (ROOT / "docs" / "design.md").read_text()


def test_a_contradiction_shows_the_papers_value() -> None:
    table = results.claims_table(COMMITTED)
    (found,) = verdicts(["table2"], "mnist", Setting("mnist", "paper", COMMITTED).results.finals(), range(20))
    assert found.word == "contradicted"
    ours, paper = f"{found.mean:+.2f} ± {found.half_width:.2f}", f"{found.claim.printed:+.2f}"
    assert line(table, found.claim.text)[1] == f"contradicted ({ours}, paper {paper})"
    told = CliRunner().invoke(main, ["reproduce", "table2", "--data", "mnist", "--out", str(COMMITTED)])
    assert told.exit_code == 0
    assert f"contradicted  {ours.replace(' ', '')}  paper {paper}  " in told.output


def test_the_page_says_which_verdicts_the_earlier_runs_had() -> None:
    """Two contradictions and one claim that holds were not decided in the earlier runs; one is no longer decided."""
    changed = []
    for data in DATA:
        now, then = (
            verdicts(titles(), data, Setting(data, "paper", folder).results.finals(), range(20))
            for folder in (COMMITTED, ROOT / "results" / "earlier")
        )
        for new, old in zip(now, then, strict=True):
            if new.word != old.word:
                changed.append((data, new.word))
                assert old.word in ("not decided at 20 seeds", "equivalent within 0.5")
                if new.word == "contradicted":
                    assert f"{old.mean:+.2f} ± {old.half_width:.2f}" in PAGE
    undecided = ("cifar10", "not decided at 20 seeds")
    assert changed == [("mnist", "contradicted"), ("mnist", "contradicted"), undecided, ("cifar10", "holds")]


@pytest.fixture(scope="module")
def truncation() -> Any:
    """A script, not part of the package."""
    if not (ROOT / "benchmarks").exists():
        pytest.skip("benchmarks/ is not part of the source distribution")
    sys.path.append(str(ROOT / "benchmarks"))
    return importlib.import_module("truncation")


def test_the_page_says_how_little_the_loss_term_changes(truncation: Any) -> None:
    found = json.loads(truncation.RESULT.read_text())["data"]
    assert truncation.tables(found) in PAGE
    shares = {
        other: max(pair[other] for row in found.values() for pair in row["changed"].values())
        for other in ("without", "relative")
    }
    said = f"{100 * shares['without']:.1f} % of the picks at most, and relative instead of absolute distances "
    assert f"{said}{100 * shares['relative']:.1f} %" in PAGE
    assert {pick for row in found.values() for pick in row["full after"]} == set("1234")


@pytest.mark.slow
def test_what_the_loss_term_changes_is_counted(truncation: Any, real_data: Path) -> None:
    assert truncation.changed(np.array([3, 1, 7, 5]), np.array([5, 3, 8, 9])) == 0.5
    found = truncation.measured("mnist", real_data, range(1), rounds=2)
    assert found["full after"] == {"1": 2}  # no client has learned anything yet
    assert found["rounds"] == 2
    assert found["distance"] == sorted(found["distance"])


def test_what_the_page_says_of_clients_that_are_offline_is_measured() -> None:
    """Against UnionFL on CIFAR-10 neither measure is decided; everywhere else both are; and the largest Gini."""
    page, most = (ROOT / "docs" / "results-introduced.md").read_text(), 0.0
    for data in DATA:
        setting = Setting(data, "online_0.3", COMMITTED)
        most = max(most, setting.values("rota", "gini").max())
        for name in six(data)[:-1]:
            pairs = [paired(setting.values("rota", m), setting.values(name, m)) for m in ("dissimilarity", "accuracy")]
            decided = [abs(mean) > half_width for mean, half_width in pairs]
            assert decided == [(data, name) != ("cifar10", "unionfl_5")] * 2
            if not all(decided):
                assert "({:+.2f} ± {:.2f} and {:+.2f} ± {:.2f})".format(*pairs[0], *pairs[1]) in page
    assert f"and of {most:.2f} at most where only 30 % are" in page.replace("\n", " ")
