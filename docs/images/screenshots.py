"""Makes the pictures of the documents, with Chromium (`make setup-test`), and writes them beside this script.

    python docs/images/screenshots.py explore
    python docs/images/screenshots.py reports/make-run/report.html
    python docs/images/screenshots.py reports/plan-70b/plan.html

The first starts `windtunnel explore` as a user does. The others show the top of a page that `windtunnel run` or
`windtunnel plan` wrote with `--out`.
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
VIEWS = {
    "report": [("report", 1280, 1100, "light")],
    "plan": [("plan", 1200, 1240, "light"), ("plan-phone", 390, 844, "dark")],
}
"""The pictures of a page by the name of its file: name, width and height in pixels, and colours."""


def whole(page: Page) -> None:
    """Wait until all designs are simulated whole, with intervals and fine curves."""
    page.wait_for_function(
        """() => [...document.querySelectorAll("section.answer:not([hidden])")].every(
            box => box.dataset.stage === "done")"""
    )
    page.evaluate("document.activeElement.blur()")


def explore() -> None:
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


def top(file: Path) -> None:
    """Write the pictures of the top of a page."""
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, width, height, scheme in VIEWS[file.stem]:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(file.resolve().as_uri())
            page.wait_for_timeout(1000)
            page.screenshot(path=HERE / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["explore"]:
        explore()
    else:
        top(Path(sys.argv[1]))
