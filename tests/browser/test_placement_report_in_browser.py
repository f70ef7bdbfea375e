"""A placement report in a real browser: it draws, asks for nothing, fits its window, and runs no one's script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cases import check_all

import windtunnel
from windtunnel.app import run as run_command
from windtunnel.placement.scenario import placement_from_data

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
HOSTILE = "</script><script>window.__owned = 1</script><img src=x onerror='window.__owned = 1'>{{ 7 * 7 }}"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    files = {}
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
        files[name] = folder / "report.html"
    return files


def test_it_draws_in_silence_and_fits(open_file: Callable[..., Any], reports: dict[str, Path]) -> None:
    def check(case: tuple[str, int, int]) -> None:
        name, charts, width = case
        opened = open_file(reports[name], width)
        page = opened.page
        opened.assert_silent()
        assert page.evaluate("window.__owned") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        painted = page.evaluate(
            "[...document.querySelectorAll('[data-chart] canvas')].map(c => c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v > 0).length)"
        )
        assert len(painted) == charts and min(painted) > 2_000
        assert page.locator(".targets li").is_visible()
        page.close()

    check_all(
        [(name, charts, width) for name, charts in (("replay", 4), ("inflate", 2)) for width in (1280, 400)], check
    )
