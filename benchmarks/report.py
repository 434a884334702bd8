"""How large the report of a large experiment is, and how soon it answers in Chromium.

python benchmarks/report.py        # from the root of the repository; writes benchmarks/results/report.json

16 selectors with 20 seeds, 100 clients, 100 rounds, evaluated every tenth: made-up records, as the simulator writes
them.
A page is interactive when a click in the legend of its first figure has hidden a line. Each opening is a new browser
with an empty profile. The limits are 8 MB and 3 s. `work` is the processor time of the page's main thread until then,
which does not depend on what else the machine does; `load` is the load average, of two cores.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from equifl.experiment.results import Results
from equifl.report.page import make_page
from tests.report.example_records import MADE_WITH, configuration, records

OUT = Path(__file__).parent / "results" / "report.json"
SETTING = {"clients": 100, "per_round": 10, "rounds": 100, "evaluate_every": 10, "seeds": list(range(20))}
SELECTORS, OPENINGS = 16, 5
MEGABYTES, SECONDS = 8.0, 3.0
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def opened(page_file: Path, chromium: str) -> dict[str, float]:
    """Seconds until a click has hidden a line, of the page's work until then, and until all figures are drawn."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(120_000)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        start = time.perf_counter()
        page.goto(page_file.as_uri(), wait_until="commit")
        toggle, lines = page.locator("#accuracy .legendtoggle").first, page.locator("#accuracy .scatterlayer .trace")
        toggle.wait_for(state="attached")
        before = lines.count()
        toggle.click()
        while lines.count() == before:  # the page's policy forbids to watch from within
            time.sleep(0.005)
        interactive = time.perf_counter() - start
        busy = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        page.wait_for_selector("body[data-drawn]")
        drawn = time.perf_counter() - start
        browser.close()
    return {"interactive": interactive, "work": busy["TaskDuration"], "drawn": drawn, "load": os.getloadavg()[0]}


def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("no chromium, chromium-browser or google-chrome is installed")
    config = configuration([f"selector {i:02d}" for i in range(SELECTORS)], **SETTING)
    results = Results(config, MADE_WITH, records(config))
    start = time.perf_counter()
    html = make_page(results)
    made = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(html, encoding="utf-8")
        size = path.stat().st_size / 1e6
        times = [opened(path, chromium) for _ in range(OPENINGS)]
    found: dict[str, Any] = {
        "setting": {"selectors": SELECTORS, **SETTING, "seeds": len(SETTING["seeds"])},  # type: ignore[arg-type]
        "machine": {"processor": platform.machine(), "chromium": Path(chromium).name},
        "megabytes": round(size, 2),
        "seconds_to_make": round(made, 2),
        "openings": [{name: round(value, 2) for name, value in one.items()} for one in times],
        "median_interactive": round(statistics.median(one["interactive"] for one in times), 2),
        "median_work": round(statistics.median(one["work"] for one in times), 2),
        "limits": {"megabytes": MEGABYTES, "seconds": SECONDS},
    }
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
