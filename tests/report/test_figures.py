from typing import Any

import numpy as np
import pytest

from equifl.experiment.names import display_name
from equifl.experiment.table import make_table
from equifl.report.figures import MOST_POINTS, Drawing, draw
from equifl.report.numbers import make_numbers
from equifl.report.styles import BAND, style
from equifl.selectors import SELECTORS
from tests.report.example_records import configuration, records

LEGENDS = ("accuracy", "dissimilarity", "worst10", "plane", "clients", "counts", "terms", "bytes")
NATURAL: dict[str, Any] = {"data": {"name": "synthetic", "path": None, "partition": {"kind": "natural"}}}


KEYS = {display_name(key): key for key in SELECTORS}


def key(name: str) -> str:
    """The key of a selector that a figure calls by its display name."""
    return KEYS.get(name, name)


def drawings(config: dict[str, Any]) -> dict[str, Drawing]:
    return {drawing.name: drawing for drawing in draw(make_numbers(config, records(config)))}


def lines(drawing: Drawing, heading: str = "") -> list[Any]:
    return [trace for trace in drawing.panels[heading].data if trace.meta != BAND]


def bands(drawing: Drawing) -> list[Any]:
    return [trace for trace in drawing.panels[""].data if trace.meta == BAND]


def column(drawing: Drawing, title: str, selector: str) -> list[Any]:
    header, *rows = drawing.data
    return [row[header.index(title)] for row in rows if row[0] == key(selector)]


def test_the_worst_tenth_is_drawn_as_low_as_the_table_says() -> None:
    config = configuration(["uniform", "divfl", "rota"], clients=30, seeds=[0, 1, 2, 3, 4])
    table, drawing = make_table(records(config)), drawings(config)["clients"]
    (shaded,) = drawing.panels[""].layout.shapes
    for line in lines(drawing):
        wanted = table.cells[key(line.name)]["worst 10 %"].mean
        worst = [y for x, y in zip(line.x, line.y, strict=True) if shaded.x0 < x < shaded.x1]
        assert np.mean(worst) == pytest.approx(wanted, abs=1e-3)
        marked = zip(
            column(drawing, "accuracy", key(line.name)),
            column(drawing, "worst_10_percent", key(line.name)),
            strict=True,
        )
        assert np.mean([value for value, worst in marked if worst]) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize(("name", "value"), [("clients", "accuracy"), ("counts", "times_selected")])
def test_by_rank_no_client_is_named_and_by_id_every_one_is(name: str, value: str) -> None:
    ranks, ids = (drawings(configuration(**more))[name] for more in ({}, NATURAL))
    assert "Every seed has its own clients" in ranks.caption
    assert "A client is the same in every seed" in ids.caption
    assert set(column(ranks, "client", "rota")) == {""}
    assert sorted(column(ids, "client", "rota")) == list(range(20))
    for line in lines(ranks):
        assert "client" not in line.hovertemplate
    for line in lines(ids):
        assert "client %{customdata}" in line.hovertemplate
        assert list(line.customdata) == column(ids, "client", key(line.name))
    for drawing in (ranks, ids):
        for line, band in zip(lines(drawing), bands(drawing), strict=True):
            mean, half = (np.array(column(drawing, title, key(line.name))) for title in (value, "half_width_95"))
            most = 100 if name == "clients" else 6  # rounds
            np.testing.assert_allclose(line.y, mean, rtol=1e-6)
            np.testing.assert_allclose(band.y[:20], np.minimum(mean + half, most), rtol=1e-6)
            np.testing.assert_allclose(band.y[:19:-1], np.maximum(mean - half, 0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["clients", "counts", "scatter"])
def test_clients_of_a_live_federation_have_their_names_beside_their_numbers(name: str) -> None:
    config = configuration(["rota"], seeds=[0], clients=4) | {"flower": {}}
    rows = records(config)
    rows[0]["names"] = {"0": "clinic 0, key:1a2b3c4d", "1": "node:5", "3": "x"}
    rows[2]["names"] = {"1": "partition-id:1", "3": ""}  # its id belongs to nobody now
    named, ids = ({one.name: one for one in draw(make_numbers(config, each))} for each in (rows, records(config)))
    expected = {0: "clinic 0, key:1a2b3c4d", 1: "partition-id:1", 2: "", 3: ""}
    clients = column(named[name], "client", "rota")
    assert column(named[name], "name", "rota") == [expected[client] for client in clients]
    (trace,) = (trace for panel in named[name].panels.values() for trace in panel.data if trace.meta != BAND)
    hovers = {0: "0: clinic 0, key:1a2b3c4d", 1: "1: partition-id:1", 2: 2, 3: 3}
    assert list(trace.customdata) == [hovers[client] for client in clients]
    assert "client %{customdata}" in trace.hovertemplate
    assert "name" not in ids[name].data[0]


def test_one_seed_needs_no_words_about_seeds() -> None:
    for name in ("clients", "counts"):
        drawing = drawings(configuration(seeds=[3]))[name]
        assert "seed" not in drawing.caption
        assert bands(drawing) == []
        assert sorted(column(drawing, "client", "rota")) == list(range(20))


def test_the_scatter_has_a_mark_a_client_and_seed() -> None:
    drawing = drawings(configuration())["scatter"]
    assert list(drawing.panels) == ["Random", "SubTrunc", "Rota"]
    for name in drawing.panels:
        (dots,) = lines(drawing, name)
        assert len(dots.x) == 3 * 20
        assert sum(dots.x) == 3 * 6 * 4  # seeds, rounds, cohort
        assert dots.x.tolist() == column(drawing, "times_selected", name)
        np.testing.assert_allclose(dots.y, column(drawing, "accuracy", name), rtol=1e-6)
    assert "Shown are" not in drawing.caption
    ranges = {(panel.layout.xaxis.range, panel.layout.yaxis.range) for panel in drawing.panels.values()}
    assert len(ranges) == 1  # to be compared


def test_of_very_many_clients_the_scatter_shows_the_same_for_every_selector_and_says_so() -> None:
    drawing = drawings(configuration(["uniform", "rota"], clients=600))["scatter"]
    assert "Shown are 1,500 of 1,800 marks" in drawing.caption
    shown = [
        list(zip(column(drawing, "seed", name), column(drawing, "client", name), strict=True))
        for name in drawing.panels
    ]
    assert shown[0] == shown[1]
    assert len(set(shown[0])) == MOST_POINTS // 2


@pytest.mark.parametrize(("selectors", "noted"), [(16, False), (17, True)])
def test_a_caption_says_how_to_see_one_of_more_selectors_than_styles(selectors: int, noted: bool) -> None:
    found = drawings(configuration(["divfl", *(f"s{i}" for i in range(1, selectors))]))
    assert all(("click a name to see it alone" in found[name].caption) == noted for name in LEGENDS)


def test_a_selector_has_one_style_everywhere() -> None:
    names = ["divfl", *(f"s{i}" for i in range(1, 12))]
    found: dict[str, set[tuple[str, str | None, str]]] = {name: set() for name in names}
    for drawing in drawings(configuration(names)).values():
        for heading in drawing.panels:
            for trace in lines(drawing, heading):
                if trace.type == "scatter":
                    dash = trace.line.dash or style(names.index(key(trace.name))).dash  # points have no lines
                    found[key(trace.name)].add((trace.line.color or trace.marker.color, dash, trace.marker.symbol))
    styles = [style(i) for i in range(12)]
    assert found == {name: {(s.colour, s.dash, s.symbol)} for name, s in zip(names, styles, strict=True)}
