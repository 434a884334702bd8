import csv
import io
import math
import re

import pytest

from equifl.experiment.table import Table, make_table
from tests.experiment.test_table import made_up

VALUES = {"uniform": [10.0, 12.0, 11.0, 9.0], "rota": [20.0, 23.0, 21.0, 20.0], "my_100%_{x}": [10.0, 12.1, 11.0, 9.0]}


def table(**more: object) -> Table:
    return make_table(made_up(VALUES), measures=["accuracy", "dissimilarity"], **more)  # type: ignore[arg-type]


def test_every_form_shows_the_same_figures() -> None:
    made = table()
    for text in (str(made), made._repr_html_(), made.to_markdown(), made.to_latex().replace(r" \pm ", " ± ")):
        text = text.replace(r"\mathbf{21.0}", "21.0").replace(r"\mathbf{10.5}", "10.5").replace("**", "")
        assert [len(re.findall(rf"{figure}", text)) for figure in ("21.0 ± 2.3", "10.5 ± 2.")] == [2, 4], text


def test_latex_has_rules_bold_best_stars_and_escaped_names() -> None:
    text = table().to_latex(label="tab:first")
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\label{tab:first}", r"\begin{tabular}{lrr}"):
        assert text.count(part) == 1
    assert r"my\_100\%\_\{x\} & $10.5 \pm 2.1$ & $\mathbf{10.5} \pm 2.1$ \\" in text
    assert r"Rota & $\mathbf{21.0} \pm 2.3^{*}$ & $21.0 \pm 2.3^{*}$ \\" in text
    assert r"accuracy \% $\uparrow$ & dissimilarity $\downarrow$" in text
    assert "Mean $\\pm$ 95 \\% interval over 4 seeds after 10 rounds" in text
    assert "differs from Random, significant at the 5 \\% level (paired t test, Holm's correction" in text
    assert r"\caption{Ours.}" in table().to_latex(caption="Ours.")
    assert r"\caption{100\% of A \& b\_c}" in table().to_latex(caption="100% of A & b_c")
    assert r"\caption{$\lambda$ as in \ref{a_b}}" in table().to_latex(caption=r"$\lambda$ as in \ref{a_b}")


def test_plain_text_has_stars_that_it_explains() -> None:
    lines = str(table()).splitlines()
    assert lines[2] == "Rota         21.0 ± 2.3 *     21.0 ± 2.3 *"
    assert lines[3] == "my_100%_{x}  10.5 ± 2.1       10.5 ± 2.1"
    assert lines[4].startswith("* = differs from Random, significant at the 5 % level (paired t test, Holm's")
    assert len(str(make_table(made_up({"uniform": [1.0], "rota": [2.0]}))).splitlines()) == 3


def test_csv_has_all_digits_and_empty_cells_for_the_baseline() -> None:
    made = table()
    rows = {row["selector"]: row for row in csv.DictReader(io.StringIO(made.to_csv()))}
    assert list(rows) == list(VALUES)
    cell = made.cells["rota"]["accuracy %"]
    assert cell.difference is not None
    assert float(rows["rota"]["accuracy"]) == cell.mean
    assert float(rows["rota"]["accuracy_half_width"]) == cell.half_width
    assert float(rows["rota"]["accuracy_difference"]) == cell.difference[0]
    assert float(rows["rota"]["accuracy_difference_half_width"]) == cell.difference[1]
    assert float(rows["rota"]["accuracy_p"]) == cell.p
    assert rows["uniform"]["accuracy_difference"] == rows["uniform"]["accuracy_p"] == ""


def test_parameters_of_a_sweep_are_columns_and_not_names() -> None:
    rows = made_up({"uniform": [1.0, 2.0], "subtrunc[lam=0.5]": [3.0, 4.0], "subtrunc[lam=0.9]": [4.0, 5.0]})
    made = make_table(rows, parameters={"subtrunc[lam=0.5]": {"lam": 0.5}, "subtrunc[lam=0.9]": {"lam": 0.9}})
    lines = [line.split() for line in str(made).splitlines()]
    assert lines[0][:2] == ["selector", "lam"]
    assert [line[:2] for line in lines[2:4]] == [["SubTrunc", "0.5"], ["SubTrunc", "0.9"]]
    assert [line.split(",")[:2] for line in made.to_csv().splitlines()] == [
        ["selector", "lam"],
        ["uniform", ""],
        ["subtrunc", "0.5"],
        ["subtrunc", "0.9"],
    ]
    assert "| SubTrunc | 0.5 |" in made.to_markdown()
    assert "SubTrunc & 0.5 &" in made.to_latex()


def test_the_number_of_seeds_is_not_that_of_one_selector() -> None:
    rows = made_up({"uniform": [1.0, 2.0, 3.0], "rota": [3.0, 4.0]})
    assert "over 2 to 3 seeds" in make_table(rows).to_markdown()
    assert "over 3 seeds" in make_table(rows[:3]).to_markdown()


def test_names_cannot_break_html_or_markdown() -> None:
    made = make_table(made_up({"<b>|x*": [1.0]}))
    assert "&lt;b&gt;|x*" in made._repr_html_()
    assert "<b>\\|x\\*" in made.to_markdown()


def test_unknown_values_leave_no_nan() -> None:
    rows = made_up({"uniform": [1.0], "rota": [2.0]})
    for row in rows:
        row["local_loss"] = None
    made = make_table(rows)
    for text in (str(made), made._repr_html_(), made.to_markdown(), made.to_latex(), made.to_csv()):
        assert "nan" not in text
    assert math.isnan(made.cells["rota"]["local loss"].mean)


def test_holm_makes_fewer_stars_than_no_correction() -> None:
    rows = made_up({"uniform": [10.0, 20.0, 30.0], "rota": [12.0, 23.0, 34.0]})
    alone = make_table(rows, correction=None).cells["rota"]["accuracy %"]
    together = make_table(rows).cells["rota"]["accuracy %"]
    assert (alone.differs, together.differs) == (True, False)
    assert together.p == pytest.approx(5 * alone.p)  # five comparisons, all alike
