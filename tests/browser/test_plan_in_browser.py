"""A plan's report, opened in a real browser: it draws its charts, says nothing wrong, and asks for nothing."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import sync_playwright

from windtunnel.app import plan as planner
from windtunnel.scenario.read import read_scenario

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def test_the_front_and_the_curve_are_drawn_and_the_page_fits(root: Path, tmp_path: Path) -> None:
    scenario = read_scenario(root / "scenarios" / "plan-small.yaml", ["plan={loads: [0.5, 0.8, 1, 1.1]}"])
    _, page_file = planner.save(planner.plan(scenario.changed(name="<b>bold</b>"), workers=1), tmp_path)
    complaints: list[str] = []
    requests: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for width in (1280, 400):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda request: requests.append(request.url))
            page.goto(page_file.as_uri())
            page.wait_for_selector("[data-chart] canvas")
            assert page.locator("[data-chart] canvas").count() == 3
            # Something other than paper was drawn on each.
            inked = page.evaluate(
                """() => [...document.querySelectorAll("[data-chart] canvas")].map(c =>
                    c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 === 3 && v > 0))"""
            )
            assert inked == [True, True, True]
            # Every axis says what it is of, and no verdict is out of sight.
            titles = page.evaluate(
                "() => ['time', 'power'].map(name => JSON.parse(document.getElementById('chart-data').textContent)[name].title)"
            )
            assert titles == ["Latency p99", "Average power"]
            if width == 1280:
                cut = page.evaluate(
                    """() => [...document.querySelectorAll(".scroll")].filter(s => s.scrollWidth > s.clientWidth + 1).length"""
                )
                assert cut == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.locator("h1").inner_text() == "<b>bold</b>"
            page.close()
        browser.close()
    assert complaints == []
    assert all(url.startswith("file:") for url in requests)
