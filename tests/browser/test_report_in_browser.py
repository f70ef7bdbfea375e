"""The report, opened in a real browser: it draws, asks for nothing, fits its window, and runs no one's script."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cases import check_all

from windtunnel.report.run_page import render

WIDE, NARROW = 1280, 400


@pytest.fixture(scope="module")
def files(
    make: Callable[..., Any], make_empty: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    many = ("h100-sxm-80gb",) * 400 + ("l40s",) * 500 + ("tpu-v5e",) * 100
    runs = {
        "main": make(),
        "hostile": make(hostile=True),
        "thousand": make(fleet=many),
        "empty": make_empty(),
    }
    paths = {}
    for name, (result, recording) in runs.items():
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(render(result, recording), encoding="utf-8")
    return paths


@pytest.fixture
def open_report(open_file: Callable[..., Any], files: dict[str, Path]) -> Callable[..., Any]:
    return lambda name, width=WIDE, scheme="light": open_file(files[name], width, scheme)


COLOURS = """() => Object.fromEntries([...document.querySelectorAll("[data-chart]")].map(holder => {
  const canvas = holder.querySelector("canvas");
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  let painted = 0;
  for (let i = 0; i < pixels.length; i += 4)
    if (pixels[i + 3] > 0) { painted++; seen.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]); }
  return [holder.dataset.chart, [painted, seen.size]];
}))"""


@pytest.mark.parametrize("name", ["main", "hostile", "thousand", "empty"])
def test_it_draws_in_silence_and_fits(open_report: Callable[..., Any], name: str) -> None:
    def check(case: tuple[int, str]) -> None:
        width, scheme = case
        opened = open_report(name, width, scheme)
        page = opened.page
        opened.assert_silent()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        drawn = page.evaluate(COLOURS)
        assert set(drawn) == (
            {"power", "waiting"} if name == "empty" else {"latency", "ttft", "itl", "power", "waiting"}
        )
        for painted, colours in drawn.values():
            assert painted > 2_000
            assert colours > 10
        assert page.locator("#verdict").is_visible()
        targets = page.locator(".targets li").all()
        assert targets and all(target.is_visible() for target in targets)
        page.close()

    check_all([(width, scheme) for width in (WIDE, NARROW) for scheme in ("light", "dark")], check)


def test_the_answer_comes_first_and_names_every_target(open_report: Callable[..., Any]) -> None:
    page = open_report("main").page
    assert page.locator("h1").inner_text() == "chat-and-search"
    assert page.locator("#verdict").inner_text().endswith("1 of 6 targets missed")
    targets = page.locator(".targets li").all_inner_texts()
    assert len(targets) == 6
    assert all(
        word in targets[0] for word in ("missed", "latency p99 ≤ 15 s", "15.4 s", "limit 15 s", "beyond the limit")
    )
    assert all(word in targets[4] for word in ("met", "throughput ≥ 60 /s", "74.2 /s"))
    # All of it above the fold of an ordinary screen.
    box = page.locator(".targets li").last.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 900
    headings = page.locator("h2").all_inner_texts()
    assert headings.index("Key figures") < headings.index("Latency") < headings.index("Cost")
    tiles = page.locator(".tiles").first.inner_text()
    for figure in ("8,900", "74.2", "15.4", "95% CI", "kW", "Wh", "USD"):
        assert figure in tiles


def test_dark_and_light_differ_in_page_and_in_charts(open_report: Callable[..., Any]) -> None:
    page = open_report("main", scheme="light").page
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper), page.evaluate(COLOURS)
    page.emulate_media(color_scheme="dark")
    changed = f"before => JSON.stringify(({COLOURS})()) !== JSON.stringify(before)"
    page.wait_for_function(changed, arg=light[1])
    dark = page.evaluate(paper), page.evaluate(COLOURS)
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] != light[0]
    assert dark[1] != light[1]


def test_a_hostile_name_is_text_and_nothing_else(open_report: Callable[..., Any], hostile_text: str) -> None:
    page = open_report("hostile").page
    assert page.evaluate("window.__owned") is None
    assert page.locator("h1").inner_text() == hostile_text
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    assert hostile_text in page.locator(".legend").first.inner_text()
    assert "49" not in page.locator("h1").inner_text()
    assert page.locator("a[href^='javascript']").count() == 0
    # Hover writes values, and with them nothing of the names.
    page.locator("[data-chart=latency] .u-over").hover()
    assert page.evaluate("window.__owned") is None


def test_the_policy_would_stop_a_script_that_slipped_through(open_report: Callable[..., Any]) -> None:
    opened = open_report("main")
    planted = opened.page.evaluate(
        """() => { const script = document.createElement("script");
        script.textContent = "window.__planted = 1";
        document.body.append(script);
        return window.__planted === undefined; }"""
    )
    assert planted
    assert any("Content Security Policy" in complaint for complaint in opened.complaints)
    fetched = opened.page.evaluate("fetch('https://example.invalid/').then(() => 'asked', () => 'refused')")
    assert fetched == "refused"
    assert [url for url in opened.requests if url.startswith("http")] == []


def test_hovering_reads_the_curves_out(open_report: Callable[..., Any]) -> None:
    page = open_report("main").page
    page.locator("[data-chart=latency] .u-over").hover()
    read = [text for text in page.locator("[data-live=latency]").all_inner_texts() if text]
    assert any(text.startswith("at p") for text in read)
    assert any(text.endswith(" s") for text in read)
    page.locator("[data-chart=power] .u-over").hover()
    # The charts over time share their cursor.
    assert any(text.endswith("kW") for text in page.locator("[data-live=power]").all_inner_texts())
    assert any(text for text in page.locator("[data-live=waiting]").all_inner_texts())


def test_the_provenance_filters_by_word_and_by_text(open_report: Callable[..., Any]) -> None:
    page = open_report("main").page
    rows = page.locator("details.origin tbody tr")
    assert rows.count() == 30
    for word in ("measured", "published", "datasheet"):
        page.locator(f"input[data-word={word}]").uncheck()
    assert page.locator("#filtered").inner_text() == "6 shown"
    assert page.locator("details.origin tbody tr:visible").count() == 6
    page.locator("#filter").fill("power_exponent")
    assert page.locator("#filtered").inner_text() == "3 shown"
    page.locator("#filter").fill("l40s")
    assert page.locator("details.origin:visible").count() == 1
    text = page.locator("details.origin tbody tr:visible").first.inner_text()
    assert "assumed" in text
    assert "0.6 to 1" in text


def test_a_thousand_devices_stay_readable(open_report: Callable[..., Any], files: dict[str, Path]) -> None:
    page = open_report("thousand").page
    bars = page.locator("#utilisation tbody tr")
    assert bars.count() == 3
    assert "500 × l40s" in bars.nth(1).inner_text()
    assert "100 busiest" in page.content()
    assert page.locator("[aria-label=Devices] tbody tr").count() == 200
    assert files["thousand"].stat().st_size < 600_000
    assert files["main"].stat().st_size < 600_000


def test_nothing_measured_reads_as_a_dash(open_report: Callable[..., Any]) -> None:
    page = open_report("empty").page
    text = page.locator("main").inner_text()
    assert "nothing measured" in text
    assert "The cost is unknown" in text
    for word in ("None", "NaN", "nan", "null", "undefined"):
        assert not re.search(rf"\b{word}\b", text), word


def test_it_can_be_read_without_seeing(open_report: Callable[..., Any]) -> None:
    page = open_report("main").page
    for chart in page.locator("[data-chart]").all():
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label") or "") > 30
    assert page.locator("figure:not(:has(figcaption))").count() == 0
    assert page.locator("table:not(:has(caption)):not(.bars)").count() == 0
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("html").get_attribute("lang") == "en"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))
    labelled = page.evaluate(
        "[...document.querySelectorAll('[aria-labelledby]')].map(e => e.getAttribute('aria-labelledby'))"
    )
    assert set(labelled) <= set(ids)


def test_paper_gets_light_colours_and_everything_unfolded(open_report: Callable[..., Any]) -> None:
    page = open_report("main", scheme="dark").page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()") == "#ffffff"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 0


def test_the_same_run_gives_the_same_page(make: Callable[..., Any]) -> None:
    result, recording = make(jobs=500)
    assert render(result, recording) == render(result, recording)
