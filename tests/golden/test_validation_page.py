"""What a validation said, in the terminal and on its page, when it was last looked at. Regenerate only on purpose.

WINDTUNNEL_REGENERATE=1 pytest tests/golden
"""

from __future__ import annotations

import os
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from windtunnel.core.device import Device, Kind, Parameters, RawCost
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.provenance import Provenance, SourcedValue, assumed
from windtunnel.core.results.validation import Environment
from windtunnel.core.spec import ApiProfile, DeviceSpec, Parameter
from windtunnel.report.validation import text
from windtunnel.report.validation_page import render
from windtunnel.validation.compare import compare
from windtunnel.validation.page import charts
from windtunnel.validation.rows import Measurement

HERE = Path(__file__).parent


def _cost(p: Parameters, rows: Rows) -> RawCost:
    n = next(iter(rows.numbers.values()))
    if rows.choices.get("dtype") == "int8":
        raise p.unsupported("does not add int8")
    return RawCost(4e-6 + p("second_s") * n, np.asarray(1.0), np.where(n < 1e4, "launch", "memory"))


VALUES = {"second_s": SourcedValue(1e-10, Provenance.DATASHEET, "a test")}
ERROR = assumed(1.2, 1.1, 1.3, "a ruler has no error")
KIND = Kind(
    name="ruler",
    doc="time by length",
    parameters=(Parameter("second_s", "s", "of an element"),),
    costs={"vector_add": _cost, "copy": _cost},
    errors={"vector_add": ERROR, "copy": ERROR},
)
RULER = Device(
    DeviceSpec("ruler", "ruler", "nobody", "Ruler", ("native",), VALUES),
    KIND,
    ApiProfile("native", "", ("ruler",), frozenset(), {}),
    VALUES,
)


def measurement(op: str, latency_s: float, line: int, columns: dict[str, object], **more: object) -> Measurement:
    parsed = OPERATIONS.find(op).complete(columns)
    return Measurement("ruler", "opencl:0", op, parsed, latency_s, line=line, **more)  # type: ignore[arg-type]


def rows() -> list[Measurement]:
    found = [
        measurement("vector_add", (5e-6 + 1.1e-10 * n) * factor, 2 + i, {"n": n, "dtype": dtype}, repeats=repeats)
        for i, (n, factor, dtype, repeats) in enumerate(
            [
                (100, 1.0, "float32", (4.9e-6, 5.1e-6)),
                (1000, 1.02, "float32", ()),
                (10**5, 0.7, "float32", (1e-5, 1.1e-5, 1.2e-5)),
                (10**7, 1.0, "float16", ()),
            ]
        )
    ]
    found += [
        measurement("vector_add", 1e-6, 6, {"n": 64}, suspect="the clock fell by 20% while it ran"),
        measurement("vector_add", 1e-6, 7, {"n": 64, "dtype": "int8"}),
        measurement("copy", 2e-5, 8, {"bytes": 10**5, "direction": "h2d"}),
    ]
    return found


class Words(HTMLParser):
    """The text of a page, a line for each piece of it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        said = " ".join(data.split())
        if said and not self._silent:
            self.lines.append(said)


def page_text() -> str:
    comparisons = compare(rows(), lambda *_: RULER)
    about = Environment(
        "two cores", "PoCL 6.0", {"pyopencl": "2025.1"}, {"core": 3.1e9}, "2026-11-22T12:00:00+00:00", "validate"
    )
    words = Words()
    words.feed(render([one.report() for one in comparisons], charts(comparisons), about, 0.1))
    return "\n".join(words.lines) + "\n"


def terminal_text() -> str:
    return text([one.report() for one in compare(rows(), lambda *_: RULER)]) + "\n"


@pytest.mark.parametrize(("name", "say"), [("validation-page", page_text), ("validation", terminal_text)])
def test_a_validation_says_what_it_said(name: str, say: Callable[[], str]) -> None:
    golden = HERE / f"{name}.txt"
    said = say()
    if os.environ.get("WINDTUNNEL_REGENERATE"):
        golden.write_text(said)
        pytest.fail("written again; run without WINDTUNNEL_REGENERATE")
    assert said == golden.read_text()
