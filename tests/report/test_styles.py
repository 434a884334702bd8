from itertools import combinations

import numpy as np
import pytest

from equifl.report.styles import COLOURS, DASHES, STYLES, SYMBOLS, band, figure, line, style

ALIKE = {frozenset(DASHES[1:4:2])}  # dashes, and dashes with dots between them


def test_no_two_of_the_first_sixteen_look_alike() -> None:
    assert STYLES == 16
    for a, b in combinations([style(i) for i in range(STYLES)], 2):
        assert a != b
        if a.colour == b.colour:
            assert a.symbol != b.symbol
            assert a.dash != b.dash
            assert frozenset((a.dash, b.dash)) not in ALIKE


def test_the_first_eight_have_a_colour_and_a_marker_each() -> None:
    first = [style(i) for i in range(8)]
    assert [one.colour for one in first] == list(COLOURS)
    assert [one.symbol for one in first] == list(SYMBOLS)


def test_after_sixteen_the_styles_begin_again() -> None:
    assert [style(i) for i in range(16, 32)] == [style(i) for i in range(16)]


def luminance(colour: str) -> float:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("page", ["#ffffff", "#14171a"])
@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_is_seen_in_the_light_and_in_the_dark(colour: str, page: str) -> None:
    low, high = sorted((luminance(colour), luminance(page)))
    assert (high + 0.05) / (low + 0.05) > 2


@pytest.mark.parametrize(("selectors", "click"), [(16, None), (17, "toggleothers")])
def test_with_more_selectors_than_styles_a_click_in_the_legend_shows_one_alone(
    selectors: int, click: str | None
) -> None:
    x, y = [1, 2], [3.0, 4.0]
    bands = [band(i, f"s{i}", x, y, [1.0, 1.0], (0, 100)) for i in range(selectors)]
    lines = [line(i, f"s{i}", x, y, "%{y}") for i in range(selectors)]
    assert figure([*bands, *lines], "round", "accuracy").layout.legend.itemclick == click


def test_a_band_goes_there_above_the_line_and_back_below_it() -> None:
    drawn = band(0, "uniform", [2, 4, 6], [50.0, 99.0, 1.0], [10.0, float("nan"), 5.0], (0, 100))
    assert drawn.x.tolist() == [2, 4, 6, 6, 4, 2]
    assert drawn.y.tolist() == [60.0, 99.0, 6.0, 0.0, 99.0, 40.0]
