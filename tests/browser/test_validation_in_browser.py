"""A validation's page, opened in a real browser: it draws its plots, tells of the row under the pointer, asks for nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from windtunnel.app import validate as validating

INKED = """() => [...document.querySelectorAll("[data-chart] canvas")].map(c =>
    c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 === 3 && v > 0))"""


def test_the_plots_are_drawn_in_light_and_dark_and_the_page_fits(
    root: Path, tmp_path: Path, open_file: Callable[..., Any]
) -> None:
    source = root / "scenarios" / "measurements" / "a100-attention.csv"
    lines = source.read_text().splitlines()
    # A name from outside stays a name.
    table = tmp_path / "rows.csv"
    table.write_text("\n".join([f"{lines[0]},source", *(f"{line},<b>bold</b>" for line in lines[1:])]) + "\n")
    _, written = validating.validate(table, op="attention", out=tmp_path / "out", calibrate=True)
    page_file = next(path for path in written if path.suffix == ".html")
    for width, scheme in ((1280, "light"), (1280, "dark"), (400, "light")):
        opened = open_file(page_file, width, scheme)
        page = opened.page
        assert page.evaluate(INKED) == [True, True]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert "<b>bold</b>" in page.locator("main").inner_text()
        assert page.locator("main b").count() == 0
        # The whole of the plot is looked over: somewhere there is a row, and it is told in words.
        over = page.locator("[data-kind=scatter] .u-over").first
        over.scroll_into_view_if_needed()
        box = over.bounding_box()
        assert box is not None
        # The page describes the row under the pointer in the next frame; two frames later it has done so.
        texts = []
        for step in range(20):
            page.mouse.move(box["x"] + box["width"] * (step + 0.5) / 20, box["y"] + box["height"] * (19.5 - step) / 20)
            page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            texts.append(page.locator("[data-live]").inner_text())
        assert any("measured" in text and "modelled" in text and "kv_tokens" in text for text in texts)
        opened.assert_silent()
        page.close()
