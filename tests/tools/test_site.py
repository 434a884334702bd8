import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from equifl.aggregators import AGGREGATORS
from equifl.selectors import SELECTORS
from tools.site.links import relinked
from tools.site.notebooks import notebook

pytest.importorskip("sphinx", reason="pip install 'equifl[docs]'")

from tools.site.docstrings import escape

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Links(HTMLParser):
    """What a page leads to, what it loads, and where it can be entered."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {str(given[key]) for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.targets.append(str(given["href"]))
        elif given.get("src") or (tag == "link" and given.get("href")):
            self.loaded.append(str(given.get("src") or given["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` builds it, where every warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "tools.site", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder / "html"


@pytest.mark.slow
def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html")}
    assert len(pages) > 40
    lost = []
    for page, links in pages.items():
        for target in links.targets:
            address, anchor = urldefrag(target)
            if address.startswith(("http:", "https:")):
                continue
            file = (page.parent / unquote(address)).resolve() if address else page
            there = file.is_file() and (not anchor or file not in pages or unquote(anchor) in pages[file].anchors)
            lost += [] if there else [f"{page.relative_to(site)}: {target}"]
    assert not lost


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for source in Links(page).loaded:
            file, _ = urldefrag(source.partition("?")[0])
            assert not file or (page.parent / unquote(file)).is_file(), f"{page.relative_to(site)} loads {source}"
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert "http://" not in styles.replace("http://www.w3.org", "")
    assert "https://fonts" not in styles


@pytest.mark.slow
def test_pages_have_their_formula_figure_and_parameters(site: Path) -> None:
    for kind, methods in (("selectors", SELECTORS), ("aggregators", AGGREGATORS)):
        listed = (site / f"{kind}.html").read_text()
        for name, cls in methods.items():
            page = (site / kind / f"{name}.html").read_text()
            assert f'href="{kind}/{name}.html"' in listed
            assert "<math" in page
            assert f".{cls.__name__}" in page
            assert ("Its cohorts on the digits" in page) == (kind == "selectors")
            if kind == "selectors":
                assert f"_images/{name}.svg" in page


@pytest.mark.slow
def test_the_reference_is_that_of_the_code(site: Path) -> None:
    configuration = (site / "reference" / "configuration.html").read_text()
    commands = (site / "reference" / "command-line.html").read_text()
    interface = (site / "reference" / "api" / "equifl.html").read_text()
    assert all(f">{key}<" in configuration for key in ("per_round", "batch_size", "average_last", "dropout"))
    assert all(option in commands for option in ("--sweep", "--data-dir", "--format"))
    assert all(f'id="equifl.{name}"' in interface for name in ("simulate", "SignalStore", "Signals", "load_results"))


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome is installed")
def test_it_can_be_searched_from_a_folder(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.extend([] if request.url.startswith("file:") else [request.url]))
        page.goto(f"{(site / 'search.html').as_uri()}?q=anticlustering")
        page.wait_for_selector("ul.search li a", timeout=60_000)
        found = [link.get_attribute("href") or "" for link in page.locator("ul.search li a").all()]
        browser.close()
    assert any("selectors/rota" in link for link in found)
    assert complaints == []


def test_links_are_moved_with_their_page() -> None:
    page = "See [map](docs/design.md#decisions), [it](CHANGELOG.md), [out](https://a.example), `[x](docs/a.md)`."
    moved = "See [map](../design.md#decisions), [it](changes.md), [out](https://a.example), `[x](docs/a.md)`."
    assert relinked(page, "CONTRIBUTING.md", "project/contributing.md") == moved


def test_a_docstring_is_taken_literally() -> None:
    assert escape("|S| of *all* and `a_b` in w_k") == r"\|S\| of \*all\* and ``a_b`` in w\_k"


def test_a_notebook_has_the_code_and_no_outputs() -> None:
    page = "# Title\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\nMore.\n"
    cells = notebook(page)["cells"]
    assert [(cell["cell_type"], cell["source"]) for cell in cells] == [
        ("markdown", "# Title"),
        ("code", "print(1)"),
        ("markdown", "More."),
    ]
    assert cells[1]["outputs"] == []
