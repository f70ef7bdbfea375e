"""A validation's page, opened in a real browser: it draws its plots, tells of the row under the pointer, asks for nothing."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import sync_playwright

from windtunnel.app import validate as validating

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
INKED = """() => [...document.querySelectorAll("[data-chart] canvas")].map(c =>
    c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 === 3 && v > 0))"""


def test_the_plots_are_drawn_in_light_and_dark_and_the_page_fits(root: Path, tmp_path: Path) -> None:
    source = root / "scenarios" / "measurements" / "a100-attention.csv"
    lines = source.read_text().splitlines()
    # A name from outside stays a name.
    table = tmp_path / "rows.csv"
    table.write_text("\n".join([f"{lines[0]},source", *(f"{line},<b>bold</b>" for line in lines[1:])]) + "\n")
    _, written = validating.validate(table, op="attention", out=tmp_path / "out", calibrate=True)
    page_file = next(path for path in written if path.suffix == ".html")
    complaints: list[str] = []
    requests: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for width, scheme in ((1280, "light"), (1280, "dark"), (400, "light")):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda request: requests.append(request.url))
            page.goto(page_file.as_uri())
            page.wait_for_selector("[data-chart] canvas")
            assert page.evaluate(INKED) == [True, True]
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert "<b>bold</b>" in page.locator("main").inner_text()
            assert page.locator("main b").count() == 0
            # The whole of the plot is looked over: somewhere there is a row, and it is told in words.
            over = page.locator("[data-kind=scatter] .u-over").first
            over.scroll_into_view_if_needed()
            box = over.bounding_box()
            assert box is not None
            said = set()
            for step in range(20):
                page.mouse.move(
                    box["x"] + box["width"] * (step + 0.5) / 20, box["y"] + box["height"] * (19.5 - step) / 20
                )
                said.add(page.locator("[data-live]").inner_text().strip())
            assert any("measured" in words and "modelled" in words and "kv_tokens" in words for words in said)
            page.close()
        browser.close()
    assert complaints == []
    assert all(url.startswith("file:") for url in requests)
