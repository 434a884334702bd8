"""The report as people get to see it: in a real browser, without a network."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from equifl.experiment.results import Results
from equifl.report.page import make_page
from tests.report.example_records import MADE_WITH, configuration, records

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
EVIL = "<img src=x onerror=alert(1)>"

# Opening takes a second on a free machine; a busy one may need many.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome is installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)  # with a profile of its own
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    config = configuration(["uniform", "subtrunc", "rota", EVIL], clients=120, rounds=20, per_round=12)
    path.write_text(make_page(Results(config, MADE_WITH, records(config))), encoding="utf-8")
    return path


def opened(browser: Browser, report: Path, *, width: int = 1200, dark: bool = False) -> tuple[Page, list[str]]:
    """The page with everything drawn, and what the browser complained about."""
    viewport, scheme = {"width": width, "height": 800}, "dark" if dark else "light"
    page = browser.new_page(viewport=viewport, color_scheme=scheme)  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on(
        "request",
        lambda request: complaints.extend([] if request.url.startswith(("file:", "data:", "blob:")) else ["net"]),
    )
    page.goto(report.as_uri())
    page.wait_for_selector("body[data-drawn]")
    return page, complaints


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    page, complaints = opened(browser, report)
    yield page
    page.close()
    assert complaints == []


@pytest.fixture(scope="module")
def unchanged(browser: Browser, report: Path) -> Iterator[Page]:
    """One page for all tests that leave it as it is: opening takes longer than looking."""
    page, complaints = opened(browser, report)
    yield page
    page.close()
    assert complaints == []


def lines(figure: Locator) -> Locator:
    return figure.locator(".scatterlayer .trace")


def test_every_figure_is_drawn_with_its_traces(unchanged: Page) -> None:
    plots = unchanged.locator(".plot")
    assert plots.count() == 6 + 2 * 4 + 2 + 2
    for plot in plots.all():
        assert plot.locator("svg.main-svg").count() > 0
        assert plot.locator(".scatterlayer .trace, .heatmaplayer image").count() > 0
    assert lines(unchanged.locator("#accuracy")).count() == 2 * 4  # each with its band


def test_a_click_in_the_legend_hides_a_selector_and_a_second_shows_it_again(page: Page) -> None:
    figure = page.locator("#accuracy")
    toggle = figure.locator(".legendtoggle").first
    toggle.click()
    expect(lines(figure)).to_have_count(2 * 3)
    page.wait_for_timeout(600)  # two clicks sooner than this are a double click, which means something else
    toggle.click()
    expect(lines(figure)).to_have_count(2 * 4)


def test_a_double_click_in_the_legend_shows_one_selector_alone(page: Page) -> None:
    figure = page.locator("#accuracy")
    figure.locator(".legendtoggle").first.dblclick()
    expect(lines(figure)).to_have_count(2)  # with its band


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crowded") / "report.html"
    config = configuration([f"selector number {i}" for i in range(20)])
    path.write_text(make_page(Results(config, MADE_WITH, records(config))), encoding="utf-8")
    return path


def test_with_more_selectors_than_styles_a_click_shows_one_alone_and_another_all(
    browser: Browser, crowded: Path
) -> None:
    page, complaints = opened(browser, crowded)
    figure = page.locator("#clients")
    figure.locator(".legendtoggle").nth(3).click()
    expect(lines(figure)).to_have_count(2)
    page.wait_for_timeout(600)
    figure.locator(".legendtoggle").nth(3).click()
    expect(lines(figure)).to_have_count(2 * 20)
    page.close()
    assert complaints == []


def test_a_long_legend_takes_no_room_from_the_data(browser: Browser, crowded: Path) -> None:
    page, complaints = opened(browser, crowded, width=390)
    for plot in page.locator("#accuracy .plot, #plane .plot, #clients .plot, #bytes .plot").all():
        data, legend = (plot.locator(part).first.bounding_box() for part in (".xy .gridlayer, .gridlayer", ".legend"))
        assert data is not None
        assert legend is not None
        assert legend["height"] > 200
        assert data["height"] > 150
        assert legend["y"] + legend["height"] <= data["y"] + 1
    page.close()
    assert complaints == []


def test_a_checkbox_hides_the_intervals_of_all_figures(page: Page) -> None:
    def drawn(name: str) -> Locator:
        return lines(page.locator(f"#{name}"))

    names = ("accuracy", "dissimilarity", "worst10", "clients", "counts")
    box = page.get_by_label("Show intervals")
    assert box.is_checked()
    box.focus()
    page.keyboard.press("Space")
    for name in names:
        expect(drawn(name)).to_have_count(4)
    page.locator("#accuracy .legendtoggle").first.click()
    expect(drawn("accuracy")).to_have_count(3)
    box.press("Space")
    expect(drawn("accuracy")).to_have_count(2 * 3)  # whoever is hidden has no band
    for name in names[1:]:
        expect(drawn(name)).to_have_count(2 * 4)
    page.wait_for_timeout(600)
    page.locator("#accuracy .legendtoggle").first.click()
    expect(drawn("accuracy")).to_have_count(2 * 4)


def test_intervals_hidden_while_figures_are_drawn_stay_hidden(browser: Browser, report: Path) -> None:
    """Figures are drawn one after another, and the first can be used meanwhile."""
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.set_default_timeout(PATIENCE)
    page.goto(report.as_uri(), wait_until="commit")
    page.wait_for_selector("#accuracy .legendtoggle", state="attached")
    page.get_by_label("Show intervals").uncheck()
    page.wait_for_selector("body[data-drawn]")
    for name in ("accuracy", "dissimilarity", "worst10"):
        expect(lines(page.locator(f"#{name}"))).to_have_count(4)
    page.close()


def test_paper_has_neither_checkbox_nor_buttons(page: Page) -> None:
    controls = (
        page.get_by_label("Show intervals"),
        page.locator("#accuracy button").first,
        page.locator("figure a").first,
    )
    assert all(control.is_visible() for control in controls)
    page.emulate_media(media="print")
    assert not any(control.is_visible() for control in controls)


def saved(page: Page, button: Locator) -> tuple[str, bytes]:
    with page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_figures_are_saved_as_png_svg_and_csv(unchanged: Page) -> None:
    figure = unchanged.locator("#accuracy")
    name, png = saved(unchanged, figure.get_by_role("button", name="PNG"))
    assert name == "accuracy.png"
    width, height = (int.from_bytes(png[i : i + 4], "big") for i in (16, 20))
    box = figure.locator(".plot").bounding_box()
    assert box is not None
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert (width, height) == (3 * box["width"], 3 * box["height"])
    name, svg = saved(unchanged, figure.get_by_role("button", name="SVG"))
    assert name == "accuracy.svg"
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "SubTrunc" in "".join(root.itertext())
    name, table = saved(unchanged, figure.get_by_role("link", name="CSV"))
    assert name == "accuracy.csv"
    assert table.startswith(b"selector,round,mean,half_width_95\n")


def test_a_panel_is_saved_with_its_heading_black_on_white(browser: Browser, report: Path) -> None:
    page, complaints = opened(browser, report, dark=True)
    name, svg = saved(page, page.locator("#map .panel").last.get_by_role("button", name="SVG"))
    assert name == "map-_img_src_x_onerror_alert_1_.svg"
    assert EVIL in "".join(ElementTree.fromstring(svg).itertext())
    assert b"fill: rgb(28, 33, 38)" in svg
    assert b"rgb(230, 233, 236)" not in svg  # the dark page's text
    page.close()
    assert complaints == []


def test_nothing_lies_on_the_data(unchanged: Page) -> None:
    plot = unchanged.locator("#accuracy .plot")
    plot.hover()
    assert unchanged.locator(".modebar-btn").count() == 0


@pytest.mark.parametrize(("name", "label"), [("accuracy", "round 2"), ("clients", "rank 1"), ("map", "took part")])
def test_hovering_shows_a_label(unchanged: Page, name: str, label: str) -> None:
    plot = unchanged.locator(f"#{name} .plot").first
    plot.scroll_into_view_if_needed()
    target = plot.locator(".scatterlayer .trace .point, .heatmaplayer image").first
    box = target.bounding_box()
    assert box is not None
    unchanged.mouse.move(box["x"] + box["width"] / 2 - 3, box["y"] + box["height"] / 2)
    unchanged.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(plot.locator(".hoverlayer")).to_contain_text(label)


def test_a_name_is_shown_as_it_is_written(unchanged: Page) -> None:
    assert unchanged.locator("#accuracy .legendtext").all_text_contents()[-1] == EVIL
    assert unchanged.locator("img").count() == 0


def colour(plot: Locator) -> str:
    return str(plot.locator(".xtick text").first.evaluate("text => getComputedStyle(text).fill"))


def test_figures_follow_light_and_dark_as_they_change(page: Page) -> None:
    plot = page.locator("#accuracy .plot")
    assert colour(plot) == "rgb(28, 33, 38)"
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "() => getComputedStyle(document.querySelector('.xtick text')).fill == 'rgb(230, 233, 236)'"
    )
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"


def test_who_comes_in_the_dark_finds_it_dark(browser: Browser, report: Path) -> None:
    page, complaints = opened(browser, report, dark=True)
    assert colour(page.locator("#map .plot").last) == "rgb(230, 233, 236)"
    page.close()
    assert complaints == []


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_no_width_needs_scrolling_sideways(browser: Browser, report: Path, width: int) -> None:
    page, complaints = opened(browser, report, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for plot in page.locator(".plot").all():
        box = plot.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert plot.locator("svg.main-svg").first.evaluate("svg => svg.clientWidth") <= box["width"] + 1
    page.close()
    assert complaints == []
