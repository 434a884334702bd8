"""The report as people get to see it: in a real browser, without a network."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from equifl.report.page import make_page
from tests.report.made_up import MADE_WITH, configuration, records

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
EVIL = "<img src=x onerror=alert(1)>"

# Opening takes a second on a free machine; a busy one may need many.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome is installed")


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
    path.write_text(make_page(config, MADE_WITH, records(config)), encoding="utf-8")
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
        "request", lambda request: complaints.extend([] if request.url.startswith(("file:", "data:")) else ["net"])
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


def lines(figure: Locator) -> Locator:
    return figure.locator(".scatterlayer .trace")


def test_every_figure_is_drawn_with_its_traces(page: Page) -> None:
    plots = page.locator(".plot")
    assert plots.count() == 6 + 2 * 4 + 2 + 2
    for plot in plots.all():
        assert plot.locator("svg.main-svg").count() > 0
        assert plot.locator(".scatterlayer .trace, .heatmaplayer image").count() > 0
    assert lines(page.locator("#accuracy")).count() == 2 * 4  # each with its band


def test_a_click_in_the_legend_hides_a_selector_and_a_second_shows_it_again(page: Page) -> None:
    figure = page.locator("#accuracy")
    toggle = figure.locator(".legendtoggle").first
    toggle.click()
    expect(lines(figure)).to_have_count(2 * 3)
    page.wait_for_timeout(600)  # two clicks sooner than this are a double click, which means something else
    toggle.click()
    expect(lines(figure)).to_have_count(2 * 4)


@pytest.mark.parametrize(("name", "label"), [("accuracy", "round 2"), ("clients", "rank 1"), ("map", "took part")])
def test_hovering_shows_a_label(page: Page, name: str, label: str) -> None:
    plot = page.locator(f"#{name} .plot").first
    plot.scroll_into_view_if_needed()
    target = plot.locator(".scatterlayer .trace .point, .heatmaplayer image").first
    box = target.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2 - 3, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(plot.locator(".hoverlayer")).to_contain_text(label)


def test_a_name_is_shown_as_it_is_written(page: Page) -> None:
    assert page.locator("#accuracy .legendtext").all_text_contents()[-1] == EVIL
    assert page.locator("img").count() == 0


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
