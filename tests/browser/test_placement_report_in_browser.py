"""A placement report in a real browser: it draws, asks for nothing, fits its window, and runs no one's script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

import windtunnel
from windtunnel.app import run as run_command
from windtunnel.placement.scenario import placement_from_data

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
HOSTILE = "</script><script>window.__owned = 1</script><img src=x onerror='window.__owned = 1'>{{ 7 * 7 }}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        found = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
        yield found
        found.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, mode in (("replay", "replay"), ("inflate", {"kind": "inflate", "demand": 1.1, "runs": 3})):
        pods = {"process": "trace", "file": "traces/openb_pods_default.csv.gz", "format": "openb-pods"}
        data = {
            "schema": 1,
            "name": HOSTILE,
            "description": HOSTILE,
            "cluster": {"nodes": {"file": "traces/openb_nodes.csv.gz", "stride": 80}},
            "workload": [{"name": HOSTILE, "arrivals": pods}],
            "mode": mode,
            "targets": ["allocation >= 50%"],
        }
        folder = tmp_path_factory.mktemp(name)
        run_command.save(windtunnel.run(placement_from_data(data, str(SCENARIOS / "small.yaml"))), folder)
        found[name] = folder / "report.html"
    return found


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(("name", "charts"), [("replay", 4), ("inflate", 2)])
def test_it_draws_in_silence_and_fits(
    browser: Browser, reports: dict[str, Path], name: str, charts: int, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    try:
        page = context.new_page()
        complaints: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(reports[name].as_uri())
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert complaints == []
        assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
        assert page.evaluate("window.__owned") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        painted = page.evaluate(
            "[...document.querySelectorAll('[data-chart] canvas')].map(c => c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v > 0).length)"
        )
        assert len(painted) == charts and min(painted) > 2_000
        assert page.locator(".targets li").is_visible()
    finally:
        context.close()
