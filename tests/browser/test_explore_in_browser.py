"""`windtunnel explore` in a real browser: keyboard, phone, no other host, two designs, and a file that runs to the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from playwright.sync_api import Browser, Page

from windtunnel.explorer.figures import figures
from windtunnel.simulation.run import run

SCENARIO: dict[str, Any] = {
    "schema": 1,
    "name": "<b>small</b>",
    "models": {"chat": {"catalogue": "llama-3.1-70b"}},
    "fleet": [{"device": "h100-sxm-80gb", "count": 4, "price": "2.99 USD/h", "group": {"tensor": 4}, "engine": "vllm"}],
    "workload": [
        {
            "name": "chat",
            "arrivals": {"process": "poisson", "rate": "4 /s"},
            "ops": [{"generate": {"model": "chat", "prompt": 300, "output": 40}}],
        }
    ],
    "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 64, "tokens": 2048}},
    "stop": {"jobs": 60},
    "targets": ["ttft p99 <= 1 s", "tpot p99 <= 30 ms"],
}
FIGURE = "#table tr[data-figure='{}'] td"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a page, and its scenario."""
    path = tmp_path_factory.mktemp("explored") / "small.yaml"
    path.write_text(yaml.safe_dump(SCENARIO, sort_keys=False))
    command = [sys.executable, "-m", "windtunnel", "explore", str(path), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), path
        process.terminate()
        assert process.wait() == 143


class Opened:
    """A page, with what it complained about and asked for."""

    def __init__(self, browser: Browser, address: str, width: int, scheme: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.context.set_default_timeout(600_000)  # only limits a test that hangs
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked(request.url))
        self.page.on("websocket", lambda socket: self.asked(socket.url))
        self.page.goto(address)

    def asked(self, url: str) -> None:
        if not url.startswith(("data:", "blob:")):
            self.hosts.add(urlsplit(url).netloc)

    def settled(self) -> None:
        """Wait until every design is simulated whole."""
        self.page.wait_for_function(
            """() => [...document.querySelectorAll("section.answer:not([hidden])")].every(box =>
                !box.classList.contains("waiting") && ["intervals", "curves", "done"].includes(box.dataset.stage))"""
        )

    def text(self, name: str, column: int = 0) -> str:
        """The text of a figure, without its intervals."""
        cell = self.page.locator(FIGURE.format(name)).nth(column)
        return str(cell.evaluate("cell => cell.firstChild.textContent"))


@pytest.fixture
def opened(browser: Browser, served: tuple[str, Path]) -> Iterator[Callable[..., Opened]]:
    pages: list[Opened] = []

    def opener(width: int = 1440, scheme: Any = "light", hash_: str = "") -> Opened:
        pages.append(Opened(browser, served[0] + hash_, width, scheme))
        return pages[-1]

    yield opener
    for page in pages:
        page.context.close()


def test_the_page_is_worked_by_keyboard_and_asks_no_other_host(
    opened: Callable[..., Opened], served: tuple[str, Path]
) -> None:
    at = opened()
    page = at.page
    at.settled()
    assert page.locator("h1").inner_text() == "<b>small</b>"
    assert "the whole scenario, 60 requests" in page.locator("#basis").inner_text()
    inked = page.evaluate(
        """() => [...document.querySelectorAll("[data-chart] canvas")].map(c =>
            c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 === 3 && v > 0))"""
    )
    assert inked == [True, True, True]
    before, cost = at.text("ttft p99"), at.text("cost")
    # The first control that Tab reaches is the button of design A; the first slider is the load.
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent")
        )
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", reached
        if reached[-1] == "Load, Load, design A":
            break
    assert reached[-1] == "Load, Load, design A"
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(f"text => {_figure_text('ttft p99')} !== text", arg=before)
    assert page.get_by_label("Load, Load, design A", exact=True).get_attribute("aria-valuetext") == "159%"
    assert at.text("cost") == cost
    replicas = page.get_by_label("Fleet, Replicas, design A", exact=True)
    replicas.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"() => {_figure_text('cost')} === '23.92 USD'")
    # The browser's history undoes one change after the other.
    page.go_back()
    page.wait_for_function(f"text => {_figure_text('cost')} === text", arg=cost)
    page.wait_for_function("() => document.getElementById('announce').textContent.includes('targets')")
    assert at.hosts == {urlsplit(served[0]).netloc}
    assert at.complaints == []


def _figure_text(name: str) -> str:
    return f'document.querySelector("{FIGURE.format(name)}").firstChild.textContent'


def test_a_written_scenario_runs_to_the_figures_of_the_page(
    opened: Callable[..., Opened], served: tuple[str, Path]
) -> None:
    at = opened()
    page = at.page
    page.get_by_label("Model chat, Weights, design A").select_option(label="fp8")
    page.get_by_label("Load, Load, design A, typed").fill("150%")
    page.keyboard.press("Enter")
    at.settled()
    assert "--set models.chat.weights=fp8" in page.locator("#command-A").inner_text()
    page.get_by_text("Write design A as a scenario").click()
    page.wait_for_function("() => document.getElementById('written-A').textContent")
    path = Path(page.locator("#written-A code").inner_text())
    assert path.parent == served[1].parent and path.name == "small-explored.yaml"
    result: Any = run(path).result
    for figure in figures(result):
        assert at.text(figure.name) == figure.text, figure.name
    assert at.complaints == []


def test_two_designs_are_compared_and_what_does_not_fit_says_why(opened: Callable[..., Opened]) -> None:
    at = opened()
    page = at.page
    page.get_by_text("Compare with a second design").click()
    page.get_by_label("Fleet, Device, design B").select_option(value='"h200-sxm-141gb"')
    price = page.get_by_label("Fleet, Price of a device, design B")
    at.settled()
    assert (price.input_value(), at.text("cost", 1)) == ("", "no price is stated")
    price.fill("3.79 USD/h")
    price.press("Enter")
    at.settled()
    assert [at.text("cost", column) for column in range(3)] == ["11.96 USD", "15.16 USD", "+26.8%"]
    assert page.locator(FIGURE.format("tpot p50")).nth(2).locator("small").inner_text() == "better"
    # The four devices of a group hold the model, and one does not.
    groups = page.get_by_label("Fleet, Tensor parallel, design A")
    groups.locator("option[disabled]").wait_for(state="attached")
    assert groups.locator("option[disabled]").all_text_contents() == ["1"]
    why = page.locator(".cell.a .why", has_text="1 of 6 do not fit")
    why.locator("summary").press("Enter")
    assert "llama-3.1-70b does not fit" in why.inner_text()
    # A value that is typed is not checked before, and its error is that of the command line.
    page.get_by_label("Fleet, Price of a device, design A").fill("3")
    page.keyboard.press("Enter")
    message = page.locator("#verdict-A .message")
    message.wait_for()
    assert "fleet[0].price" in message.inner_text() and "USD/h" in message.inner_text()
    page.locator("button[data-do=reset][data-slot=A]").click()
    message.wait_for(state="detached")
    page.locator("button[data-do=remove]").click()
    assert page.locator("#verdict-B").is_hidden() and page.locator(".cell.b:visible").count() == 0
    assert at.complaints == []


def test_a_phone_shows_all_of_it_without_scrolling_sideways(opened: Callable[..., Opened]) -> None:
    for scheme in ("light", "dark"):
        at = opened(390, scheme)
        page = at.page
        at.settled()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        # What matters stays in view while a control is moved.
        glance = page.locator("#glance")
        assert glance.is_visible() and "TTFT p99" in glance.inner_text()
        page.get_by_text("Compare with a second design").click()
        at.settled()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        assert at.complaints == []


def test_an_address_holds_both_designs(opened: Callable[..., Opened]) -> None:
    at = opened(hash_='#{"A":{"fleet[0].replicas":2},"B":{"targets[0]":"10 ms","unknown":1}}')
    at.settled()
    assert at.text("cost") == "23.92 USD"
    assert "ttft p99 ≤ 10 ms" in at.page.locator("#verdict-B").inner_text()
    assert at.page.locator("#lost").is_hidden()
    assert at.complaints == []


def test_a_page_says_when_the_program_behind_it_has_ended(browser: Browser, served: tuple[str, Path]) -> None:
    command = [sys.executable, "-m", "windtunnel", "explore", str(served[1]), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        at = Opened(browser, process.stdout.readline().strip(), 1280, "light")
        at.page.locator("#verdict-A h2").wait_for()
        process.terminate()
        at.page.get_by_text("The program behind this page has ended").wait_for()
        at.context.close()
