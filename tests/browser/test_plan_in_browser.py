"""A plan's report, opened in a real browser: it draws its charts, says nothing wrong, and asks for nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from windtunnel.app import plan as planner
from windtunnel.core.results.plan import RatePoint
from windtunnel.scenario.read import read_scenario


def test_the_front_and_the_curve_are_drawn_and_the_page_fits(
    root: Path, tmp_path: Path, open_file: Callable[..., Any]
) -> None:
    scenario = read_scenario(root / "scenarios" / "plan-small.yaml", ["plan={loads: [0.5, 0.8, 1, 1.1]}"])
    found = planner.plan(scenario.changed(name="<b>bold</b>"), workers=1)
    # Nothing generates tokens here, so the rates are made up.
    fleets = [fleet.text for fleet in found.simulated]
    rates = [RatePoint(f, 1.0, 100.0 - 9 * i, 20.0 + 7 * i, i % 2 == 0, True, True) for i, f in enumerate(fleets)]
    rates += [RatePoint(fleets[0], load, 100 * load, 30 / load, True, False, False) for load in (0.5, 0.8, 1.2)]
    _, page_file = planner.save(replace(found, rates=rates), tmp_path)
    for width in (1280, 400):
        opened = open_file(page_file, width)
        page = opened.page
        assert page.locator("[data-chart] canvas").count() == 4
        # Something other than paper was drawn on each.
        inked = page.evaluate(
            """() => [...document.querySelectorAll("[data-chart] canvas")].map(c =>
                c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 === 3 && v > 0))"""
        )
        assert inked == [True, True, True, True]
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
        opened.assert_silent()
        page.close()
