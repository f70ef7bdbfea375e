"""Makes the pictures of docs/explore.md: python docs/images/screenshots.py

Starts `windtunnel explore` as a user does, works its page in Chromium, and writes PNG files beside this script.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCENARIO = "scenarios/llama-70b-h100.yaml"
DESIGNS = {"A": {}, "B": {"models.chat.weights": "fp8", "fleet[0].group.tensor": 2, "fleet[0].replicas": 3}}
LIMIT_MS = 900_000


def whole(page: Page) -> None:
    """Wait until all designs are simulated whole, with intervals and fine curves."""
    page.wait_for_function(
        """() => [...document.querySelectorAll("section.answer:not([hidden])")].every(
            box => box.dataset.stage === "done")"""
    )
    page.evaluate("document.activeElement.blur()")


def main() -> None:
    """Write explore.png and explore-phone.png."""
    command = [sys.executable, "-m", "windtunnel", "explore", SCENARIO, "--no-open"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process,  # noqa: S603
        sync_playwright() as player,
    ):
        assert process.stdout is not None  # noqa: S101  it is a pipe
        address = process.stdout.readline().strip() + "#" + quote(json.dumps(DESIGNS))
        browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, width, height, scheme in (("explore", 1440, 1000, "light"), ("explore-phone", 390, 844, "dark")):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            context.set_default_timeout(LIMIT_MS)
            page = context.new_page()
            page.goto(address)
            whole(page)
            page.screenshot(path=HERE / f"{name}.png")
            context.close()
        browser.close()
        process.terminate()


if __name__ == "__main__":
    main()
