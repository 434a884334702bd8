import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from equifl.cli.tables import draw_paper_table, draw_table, draw_verdicts
from equifl.experiment.measures import MEASURES
from equifl.experiment.names import display_name
from equifl.experiment.table import Cell, Table, make_table
from equifl.paper.runs import PaperResults, verdicts
from equifl.paper.tables import DATA, rows, six, titles
from equifl.selectors import SELECTORS
from equifl.statistics import interval

NAN = float("nan")
RESULTS = Path(__file__).parents[2] / "results" / "paper"


def drawn(table: Table, width: int = 80, **options: Any) -> list[str]:
    return printed(draw_table(table, width), width, **options)


def printed(drawing: Any, width: int, **options: Any) -> list[str]:
    console = Console(width=width, file=io.StringIO(), **options)
    console.print(drawing)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def words(lines: list[str]) -> list[str]:
    return [word for line in lines for word in line.split()]


def figure(mean: float, half_width: float, digits: int = 2) -> str:
    return f"{mean:.{digits}f}±{half_width:.{digits}f}"


def table_of(cell: Cell, names: list[str], baseline: str | None = "uniform", seeds: int = 5) -> Table:
    """The same cell everywhere, but for the baseline, which has no difference to itself."""
    own = {name: replace(cell, difference=None) if name in (baseline, None) else cell for name in names}
    return Table(60, seeds, baseline, {name: {m.title: found for m in MEASURES} for name, found in own.items()})


def evaluated(selector: str, seed: int, accuracy: float, dissimilarity: float) -> dict[str, Any]:
    return {"selector": selector, "seed": seed, "accuracy": accuracy, "dissimilarity": dissimilarity}


USUAL = Cell(83.25, 2.5, (-1.25, 0.5), False)
TWO_SEEDS = Cell(99.94, 118.25, (-99.94, 120.5), True)  # hardly anything known: as wide as it gets


@pytest.mark.parametrize(
    ("points", "loss", "gini"),
    [
        (USUAL, Cell(0.75, 0.25, (0.5, 0.25), False), Cell(0.25, 0.125, (-0.5, 0.25), True)),
        (TWO_SEEDS, Cell(12.25, 45.75, (-12.25, 45.75), False), Cell(0.25, 9.5, (0.5, 9.5), False)),
    ],
)
def test_six_selectors_fit_into_80_columns_with_every_name_and_number_whole(
    points: Cell, loss: Cell, gini: Cell
) -> None:
    table = table_of(points, list(SELECTORS))
    for name, cells in table.cells.items():
        for title, cell in (("local loss", loss), ("Gini", gini)):
            cells[title] = replace(cell, difference=None) if name == "uniform" else cell
    lines = drawn(table)
    assert all(cell_len(line) <= 80 for line in lines)
    assert not any("…" in line for line in lines)
    assert all(measure.title in lines[0] for measure in MEASURES)
    figures, differences = [], []
    for cell, digits in zip([points] * 3 + [loss, gini], [1, 1, 1, 2, 2], strict=True):
        figures.append(f"{cell.mean:.{digits}f}±{cell.half_width:.{digits}f}")
        assert cell.difference is not None
        differences += [f"{cell.difference[0]:+.{digits}f}"] + ["*"] * cell.differs
    expected = [["Random", *figures]]  # the others have a second line, with the difference to it
    for name in list(SELECTORS)[1:]:
        expected += [[display_name(name), *figures], differences]
    assert [line.split() for line in lines[2 : 2 + len(expected)]] == expected  # below the heading and its rule
    assert lines[2 + len(expected)].startswith("mean ± 95 % interval")


def test_a_star_marks_what_the_test_tells_from_zero() -> None:
    for cell, marked in ((Cell(5.0, 1.0, (2.0, 1.9), False, 0.04), 5), (Cell(5.0, 1.0, (2.0, 1.9), False, 0.06), 0)):
        lines = drawn(table_of(cell, ["uniform", "rota"]))
        assert lines[2].startswith("Random")
        assert lines[3].startswith("Rota")
        assert lines[4].count("*") == marked
        assert lines[4].replace("*", "").split() == ["+2.0"] * 3 + ["+2.00"] * 2


def test_the_caption_says_what_the_table_means() -> None:
    def caption(*table: Any) -> str:
        return " ".join(" ".join(drawn(table_of(*table), width=200)[3:]).split())

    cell = Cell(5.0, 1.0, None, False)
    shown = "mean ± 95 % interval over 5 seeds after 60 rounds; bold = best"
    versus = "below, the difference to Random"
    assert caption(cell, ["uniform"]) == shown  # there is nobody to differ
    assert caption(cell, ["uniform", "rota"]).endswith(
        f"{shown}; {versus}; * = significant at the 5 % level (paired t test)"
    )
    assert caption(cell, ["rota"], None) == shown
    assert caption(cell, ["rota"], None, 1) == "one seed after 60 rounds: no interval; bold = best"
    assert caption(cell, ["uniform", "rota"], "uniform", 1).endswith(f"no interval; bold = best; {versus}")


def test_notes_stand_below_the_table_a_line_each() -> None:
    table = replace(table_of(USUAL, ["uniform", "rota"]), notes=("[a] and b are alike.", "b does nothing."))
    assert drawn(table)[-2:] == ["note: [a] and b are alike.", "note: b does nothing."]


def test_the_best_is_bold() -> None:
    for best in (False, True):
        lines = drawn(table_of(Cell(5.0, 1.0, None, best), ["rota"]), force_terminal=True, color_system="standard")
        assert [line.count("\x1b[1m5.0±1.0") for line in lines if "Rota" in line] == [3 * best]


def test_what_is_not_known_leaves_no_nan_behind() -> None:
    one_seed = drawn(table_of(Cell(5.0, NAN, (2.0, NAN), False), ["uniform", "rota"], seeds=1))
    assert one_seed[2].split() == ["Random", "5.0", "5.0", "5.0", "5.00", "5.00"]
    assert one_seed[4].split() == ["+2.0", "+2.0", "+2.0", "+2.00", "+2.00"]
    nobody = drawn(table_of(Cell(NAN, NAN, (NAN, NAN), False), ["uniform", "rota"]))
    assert nobody[3].split() == ["Rota", "-", "-", "-", "-", "-"]
    assert nobody[4].startswith("mean")


def test_a_loss_through_the_roof_does_not_take_the_table_with_it() -> None:
    table = table_of(Cell(83.25, 2.5, (1.0, 0.5), False), list(SELECTORS))
    table.cells["power_of_choice"]["local loss"] = Cell(3.26e28, NAN, (3.26e28, NAN), False)
    lines = drawn(table)
    figures = next(i for i, line in enumerate(lines) if "3e+28" in line.split())
    assert lines[figures].startswith(display_name("power_of_choice"))
    assert "+3e+28" in lines[figures + 1].split()
    assert all(display_name(name) in "\n".join(lines) for name in SELECTORS)


def test_a_long_name_stands_above_its_numbers() -> None:
    name = "my_selector_with_[brackets]_and_a_name_that_is_longer_than_all_the_others"
    lines = drawn(table_of(Cell(83.25, 2.5, None, False), [name]))
    assert lines[2] == name
    assert lines[3].split() == ["83.2±2.5"] * 3 + ["83.25±2.50"] * 2


def test_a_name_wider_than_the_screen_goes_on_below() -> None:
    lines = drawn(table_of(Cell(83.25, 2.5, None, False), ["n" * 90]))
    assert lines[2:4] == ["n" * 80, "n" * 10]
    assert lines[4].split() == ["83.2±2.5"] * 3 + ["83.25±2.50"] * 2


# The committed results, at every width: each name and each number once, whole


@pytest.fixture(scope="module")
def paper() -> Mapping[str, PaperResults]:
    return {data: PaperResults.read(RESULTS / f"{data}-paper.json") for data in DATA}


@pytest.mark.parametrize("seeds", [20, 2, 1])
@pytest.mark.parametrize("width", [30, 50, 80, 120])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("title", titles())
def test_the_papers_tables_fit_with_every_name_and_number_whole(
    paper: Mapping[str, PaperResults], title: str, data: str, width: int, seeds: int
) -> None:
    finals = paper[data].finals()
    lines = printed(draw_paper_table(title, data, finals, range(seeds), width), width)
    assert all(cell_len(line) <= width for line in lines)

    def ours(selector: str, measure: str) -> str:
        values = [finals[selector][seed][measure] for seed in range(seeds)]
        return f"{values[0]:.2f}" if seeds == 1 else figure(*interval(values))

    expected = []
    for row in rows(title, data):
        assert any(line == row.title or line.startswith(f"{row.title} ") for line in lines)
        expected += [ours(row.selector, measure) for measure in rows(title, data)[0].printed]
        expected += [figure(*value) for value in row.printed.values()]
    body = [word for line in below_rules(lines) for word in numbers_of(line)]
    assert sorted(body) == sorted(expected)
    shown = " ".join(words(lines))
    assert ("one seed: no interval" in shown) == (seeds == 1)
    assert "nan" not in shown
    assert "1 seeds" not in shown


def below_rules(lines: list[str]) -> Iterator[str]:
    """The lines of a table's body: those after a rule, up to an empty one."""
    inside = False
    for line in lines:
        if inside and line:
            yield line
        inside = (inside or line.startswith("─")) and bool(line)


def numbers_of(line: str) -> list[str]:
    """The figures of a line, without the row's own name or label."""
    return re.findall(r"(?<!\S)[-+]?\d+\.\d+(?:±\d+\.\d+)?(?!\S)", re.sub(r"^(lambda \d\.\d+|window \d+)", "", line))


def test_at_80_columns_the_papers_figures_stand_below_ours(paper: Mapping[str, PaperResults]) -> None:
    lines = printed(draw_paper_table("table1", "mnist", paper["mnist"].finals(), range(20), 80), 80)
    heading, rule, *body = lines[1:]
    assert heading.split() == ["local", "loss", "accuracy", "%", "dissimilarity"]
    assert set(rule) == {"─"}
    names = [(row.title, "paper") if row.printed else (row.title,) for row in rows("table1", "mnist")]
    assert [line.split()[0] for line in body] == [name for pair in names for name in pair]
    assert all(len(line.split()) == 4 for line in body)


@pytest.mark.parametrize("seeds", [20, 1])
@pytest.mark.parametrize("width", [50, 80, 120])
@pytest.mark.parametrize("data", DATA)
def test_claims_fit_with_what_came_of_them(
    paper: Mapping[str, PaperResults], data: str, width: int, seeds: int
) -> None:
    found = verdicts(titles(), data, paper[data].finals(), range(seeds))
    lines = printed(draw_verdicts(data, found), width)
    assert all(cell_len(line) <= width for line in lines)
    shown = " ".join(words(lines))
    assert ("one seed: no interval" in shown) == (seeds == 1)
    assert "nan" not in shown
    for verdict in found:
        number = f"{verdict.mean:+.2f}" + (f"±{verdict.half_width:.2f}" if seeds > 1 else "")
        assert number in shown.split()
    wide = printed(draw_verdicts(data, found), 200)[1:]
    for line, verdict in zip(wide, found, strict=True):
        assert line.startswith(f"{verdict.outcome} ")
        assert line.endswith(f" {verdict.claim.text}")


@pytest.mark.parametrize("seeds", [20, 2, 1])
@pytest.mark.parametrize("width", [30, 50, 80, 120])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("all_of_them", [False, True], ids=["six", "all"])
def test_a_runs_table_fits_with_every_name_and_number_whole(
    paper: Mapping[str, PaperResults], all_of_them: bool, data: str, width: int, seeds: int
) -> None:
    names = list(paper[data].runs) if all_of_them else six(data)  # all: the longest is subtrunc_0.95_identity
    table = make_table(paper[data].rows(names, range(seeds)))
    lines = drawn(table, width)
    assert all(cell_len(line) <= width for line in lines)
    for name in table.cells:
        shown = display_name(name)
        assert any(line == shown or line.startswith(f"{shown} ") for line in lines)
    expected = []
    for cells in table.cells.values():
        for measure in MEASURES:
            cell, digits = cells[measure.title], measure.digits
            expected.append(f"{cell.mean:.{digits}f}" if seeds == 1 else figure(cell.mean, cell.half_width, digits))
            if cell.difference:
                expected.append(f"{cell.difference[0]:+.{digits}f}")
    assert sorted(word for line in below_rules(lines) for word in numbers_of(line)) == sorted(expected)
    stars = sum(cell.differs for cells in table.cells.values() for cell in cells.values())
    assert sum(line.count("*") for line in lines) == stars + (seeds > 1)  # and one that says what it means
    if seeds == 1:
        assert not re.search(r"nan|±|\*|1 seeds", "\n".join(lines))
