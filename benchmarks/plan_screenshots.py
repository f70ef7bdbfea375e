"""Makes the pictures of a plan in docs/images: the top of plan.html on a desk and on a phone, in light and dark colour.

    windtunnel plan scenarios/plan-70b.yaml --out reports/plan-70b
    python benchmarks/plan_screenshots.py reports/plan-70b/plan.html

It needs Playwright and Chromium (`make setup-test`); ``CHROMIUM`` may name the browser.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
VIEWS = {"plan": (1200, 1240, "light"), "plan-phone": (390, 844, "dark")}
"""The width and the height in pixels, and the colours, by the name of the picture."""


def main(page_file: Path) -> None:
    """Write the pictures of a page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"))
        for name, (width, height, colours) in VIEWS.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours)
            page.goto(page_file.resolve().as_uri())
            page.wait_for_timeout(300)
            page.screenshot(path=IMAGES / f"{name}.png")
            print(f"wrote docs/images/{name}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
