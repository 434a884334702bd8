import base64
import csv
import html
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equifl.experiment.results import Results, load_results
from equifl.experiment.run_folder import RunFolder
from equifl.report.page import make_page, write_report
from equifl.report.styles import style
from tests.report.example_records import MADE_WITH, configuration, records

FIGURES = ["accuracy", "dissimilarity", "worst10", "plane", "clients"]
FIGURES += ["map", "counts", "scatter", "terms", "bytes"]
Tags = list[tuple[str, dict[str, str | None]]]


class Reader(HTMLParser):
    """What a browser sees: every tag with its attributes, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Tags = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        else:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [found for name, found in self.tags if name == tag and wanted.items() <= found.items()]


def read(config: dict[str, Any], played: int | None = None) -> Reader:
    return Reader(make_page(Results(config, MADE_WITH, records(config, played))))


def panels(page: Reader) -> list[dict[str, Any]]:
    kinds = [found.get("type") for found in page.all("script")]
    return [json.loads(text) for kind, text in zip(kinds, page.scripts, strict=True) if kind == "application/json"]


@pytest.fixture(scope="module")
def page() -> Reader:
    return read(configuration())


def test_nothing_is_loaded_from_elsewhere(page: Reader) -> None:
    links = [value for _, found in page.tags for key, value in found.items() if key in ("src", "href")]
    assert links
    assert all(str(link).startswith("data:") for link in links)
    assert not page.all("link")
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert str(policy["content"]).startswith("default-src 'none';")


def test_plotly_is_there_exactly_once(page: Reader) -> None:
    assert len([text for text in page.scripts if "plotly.js v" in text]) == 1


def test_every_figure_has_a_title_a_caption_a_name_and_its_data(page: Reader) -> None:
    assert [found["id"] for found in page.all("figure")] == FIGURES
    assert len(page.all("figcaption")) == len(FIGURES)
    assert [found["download"] for found in page.all("a")] == [*(f"{name}.csv" for name in FIGURES), "experiment.toml"]
    plots = page.all("div", role="img")
    assert (
        len(plots) == len(panels(page)) == 6 + 2 * 3 + 2 + 2
    )  # a map and a scatter a selector, two terms, bytes down and up
    assert all(found["aria-label"] for found in plots)


def test_a_csv_holds_what_the_figure_shows(page: Reader) -> None:
    (link,) = page.all("a", download="plane.csv")
    kind, _, encoded = str(link["href"]).partition(",")
    assert kind == "data:text/csv;charset=utf-8;base64"
    header, *rows = csv.reader(io.StringIO(base64.b64decode(encoded).decode()))
    assert header == ["selector", "seed", "accuracy", "dissimilarity"]
    finals = [row for row in records(configuration()) if row["round"] == 5]
    wanted = [[row["selector"], row["seed"], row["accuracy"], row["dissimilarity"]] for row in finals]
    assert [[row[0], *map(float, row[1:])] for row in rows] == [
        [row[0], *map(pytest.approx, row[1:])] for row in wanted
    ]


def test_title_configuration_versions_and_command(page: Reader) -> None:
    for text in ("synthetic: 20 clients, 6 rounds, 3 seeds", "equifl run experiment.toml", "per_round = 4", "x86_64"):
        assert text in page.text
    assert page.all("meta", name="viewport")
    assert "not finished" not in page.text


def test_the_table_shows_the_style_of_every_selector() -> None:
    names = ["uniform", *(f"s{i}" for i in range(1, 12))]
    page = read(configuration(names))
    paths = page.all("path")
    assert len(paths) == 2 * len(names)
    for position, (line, marker) in enumerate(zip(paths[::2], paths[1::2], strict=True)):
        wanted = style(position)
        assert line["stroke"] == marker["fill"] == wanted.colour
        assert line.get("stroke-dasharray", "solid") == wanted.dash
        assert marker["d"] == wanted.path


def test_the_parameters_of_a_sweep_are_columns_of_its_tables() -> None:
    config = configuration(["uniform", "subtrunc[lam=0.5, phi=<b>]"])
    page = make_page(Results(config, MADE_WITH, records(config)))
    for table in re.findall("<table>.*?</table>", page, re.DOTALL):
        head, plain, swept = re.findall("<tr>.*?</tr>", table, re.DOTALL)
        assert re.findall("<th[^>]*>([^<]*)</th>", head)[:3] == ["selector", "lam", "phi"]
        assert re.findall('<td class="swept">(.*?)</td>', plain) == ["", ""]
        assert re.findall('<td class="swept">(.*?)</td>', swept) == ["0.5", "&lt;b&gt;"]
        assert "SubTrunc</th>" in swept


def test_every_figure_can_be_saved_as_an_image(page: Reader) -> None:
    buttons = page.all("button", type="button")
    assert [found["data-save"] for found in buttons] == ["png", "svg"] * len(panels(page))
    assert all(found["aria-label"] for found in buttons)


def test_bands_stay_within_what_is_possible() -> None:
    bands = [
        trace for panel in panels(read(configuration(seeds=[0, 1]))) for trace in panel["data"] if "fill" in trace
    ]
    assert len(bands) == 5 * 3  # three over rounds, accuracy and counts of clients
    for band in bands:
        y = np.frombuffer(base64.b64decode(band["y"]["bdata"]), band["y"]["dtype"])
        assert y.min() >= 0
        assert y.max() <= 100


EVIL = "<script>alert(1)</script>"


def test_a_name_is_text_and_never_runs() -> None:
    page = read(configuration([EVIL, "</script><img src=x onerror=alert(1)>", "uniform"]))
    assert not page.all("img")
    assert len(page.scripts) == len(panels(page)) + 2  # plotly, and what draws
    assert EVIL in page.text
    names = {trace["name"] for panel in panels(page) for trace in panel["data"] if "name" in trace}
    assert html.escape(EVIL) in names
    assert EVIL not in names


def test_an_unfinished_run_says_so() -> None:
    text = read(configuration(), played=5).text
    assert "This run is not finished: 5 of 6 rounds are played" in text
    assert "up to round 4" in text


def test_one_seed_has_no_band() -> None:
    page = read(configuration(seeds=[3]))
    assert not any("fill" in trace for panel in panels(page) for trace in panel["data"])
    assert "One seed" in page.text
    assert "Show intervals" not in page.text


@pytest.mark.parametrize("name", ["uniform", "rota"])
def test_one_selector_without_terms(name: str) -> None:
    page = read(configuration([name]))
    assert [found["id"] for found in page.all("figure")] == [name for name in FIGURES if name != "terms"]
    assert "Most accurate" not in page.text


def test_without_uniform_there_are_no_differences() -> None:
    page = read(configuration(["rota", "divfl"]))
    assert not page.all("span", **{"class": "versus"})
    assert "difference to" not in page.text


def with_accuracy(config: dict[str, Any], **accuracy: float) -> Reader:
    """The page of a run whose selectors end with these accuracies, and the same dissimilarity."""
    rows = records(config)
    for row in rows:
        if "accuracy" in row:
            row |= {"accuracy": accuracy[row["selector"]], "dissimilarity": 8.25}
    return Reader(make_page(Results(config, MADE_WITH, rows)))


def test_the_lead_names_who_is_best() -> None:
    page = with_accuracy(configuration(), uniform=80.0, subtrunc=81.0, rota=82.0)
    assert "Most accurate: Rota, 82.0 %. Fairest: all tie at 8.2 points between two clients on average." in page.text


def test_what_looks_the_same_is_a_tie() -> None:
    config = configuration(["uniform", "subtrunc", "mine", "rota"])
    page = with_accuracy(config, uniform=80.0, subtrunc=87.41, mine=87.36, rota=87.44)
    assert "Most accurate: a tie of SubTrunc, mine and Rota at 87.4 %." in page.text


def test_the_table_has_display_names_and_its_notes() -> None:
    config = configuration(["uniform", "divfl", "mine"], seeds=[4])
    rows = records(config)
    for divfl, mine in zip(
        *([row for row in rows if row["selector"] == name] for name in ("divfl", "mine")), strict=True
    ):
        mine["cohort"] = divfl["cohort"][::-1]
    page = Reader(make_page(Results(config, MADE_WITH, rows)))
    assert "DivFL and mine chose the same cohorts in all 6 rounds." in page.text
    assert len(page.all("p", **{"class": "note"})) == 2  # and the one for browsers without JavaScript
    for name in ("Random", "DivFL", "mine"):
        assert re.search(rf"^{name}$", page.text, re.MULTILINE)
    assert "Below, the difference to Random." in page.text  # one seed: no stars to explain
    assert "a star" not in page.text
    many = read(configuration())
    assert "the difference to Random, seed by seed; a star where it is significant at the 5 % level" in many.text
    assert len(many.all("p", **{"class": "note"})) == 1


def test_hundreds_of_clients_and_rounds_stay_below_six_megabytes() -> None:
    names = ["uniform", "power_of_choice", "divfl", "subtrunc", "unionfl", "rota"]
    config = configuration(names, clients=900, per_round=20, rounds=200, seeds=[0], evaluate_every=50)
    text = make_page(Results(config, MADE_WITH, records(config)))
    assert len(text.encode()) < 6_000_000
    assert "the first 37 of 200 rounds" in text


def test_the_same_records_give_the_same_page() -> None:
    config = configuration()
    assert len({make_page(Results(config, MADE_WITH, records(config))) for _ in range(2)}) == 1


def test_a_report_is_written_into_the_run_folder(tmp_path: Path) -> None:
    config = configuration()
    with RunFolder.open(tmp_path / "run", config, MADE_WITH) as folder:
        folder.append(records(config))
    assert write_report(load_results(tmp_path / "run")) == tmp_path / "run" / "report.html"
    assert write_report(load_results(tmp_path / "run"), tmp_path / "mine.html") == tmp_path / "mine.html"
    written = (tmp_path / "mine.html").read_text(encoding="utf-8")
    assert written == (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_refuses_a_folder_that_is_no_run_or_has_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(str(tmp_path))}: is no run folder \(it has no config.json\)$"):
        write_report(load_results(tmp_path))
    RunFolder.open(tmp_path / "new", configuration(), MADE_WITH).close()
    with pytest.raises(ValueError, match=r"new: cannot be reported \(records: no round was evaluated; "):
        write_report(load_results(tmp_path / "new"))
    assert not (tmp_path / "new" / "report.html").exists()
