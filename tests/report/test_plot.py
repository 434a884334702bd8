import shutil
from pathlib import Path

import pytest

from equifl.experiment.results import Results
from equifl.report.figures import draw
from equifl.report.numbers import make_numbers
from tests.report.example_records import MADE_WITH, configuration, records

RESULTS = Results(configuration(), MADE_WITH, records(configuration()))
DRAWN = {drawing.name: drawing for drawing in draw(make_numbers(RESULTS.config, RESULTS.whole_rounds))}


@pytest.mark.parametrize("kind", DRAWN)
def test_every_figure_of_the_report_can_be_had_alone(kind: str) -> None:
    figure = RESULTS.plot(kind)
    assert figure.layout.title.text == DRAWN[kind].title
    assert len(figure.data) == sum(len(panel.data) for panel in DRAWN[kind].panels.values())
    assert kind in (RESULTS.plot.__doc__ or "")
    shown = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert len(shown) == len(set(shown))  # once in the legend
    assert all(shown)


def test_refuses_a_figure_or_a_file_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^kind: 'pie' is not allowed; allowed: accuracy, dissimilarity"):
        RESULTS.plot("pie")
    with pytest.raises(ValueError, match=r"^path: .*allowed: a name that ends in .svg, .pdf, .png or .html"):
        RESULTS.plot("accuracy", tmp_path / "figure.doc")
    with pytest.raises(ValueError, match=r"^path: .*allowed: a file in a folder that is there"):
        RESULTS.plot("accuracy", tmp_path / "nowhere" / "figure.html")


def test_writes_a_page(tmp_path: Path) -> None:
    RESULTS.plot("plane", tmp_path / "plane.html")
    assert "plotly" in (tmp_path / "plane.html").read_text()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore")  # of the library that draws
@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<svg"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_writes_images_where_kaleido_and_a_browser_are(tmp_path: Path, suffix: str, begins: bytes) -> None:
    pytest.importorskip("kaleido")
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        pytest.skip("no browser")
    path = tmp_path / f"figure.{suffix}"
    RESULTS.plot("accuracy", path)
    assert path.read_bytes().startswith(begins)
