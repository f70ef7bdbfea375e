"""The skeleton of every report and the parts of which its sections consist.

A report is one HTML file that opens offline. Its Content-Security-Policy forbids every request and allows only the two
scripts in the page, by their hashes, so that a name from a user's scenario can never be executed. The functions for
parts escape every text that they are given; a part itself is ``Markup`` and is inserted unchanged.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources
from typing import TYPE_CHECKING, Any

import yaml
from markupsafe import Markup, escape

from windtunnel.core import kept
from windtunnel.report.numbers import plural
from windtunnel.report.targets import MARKS, TargetLine

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_SCENARIO_CHARACTERS = 60_000
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Cell:
    """A table cell: its text, a second line in small type, a grey text beside it, and an explanation on hover."""

    text: str
    note: str = ""
    aside: str = ""
    title: str = ""


@dataclass(frozen=True)
class Tile:
    """A key figure: a label, a value with its unit, and one line that puts the value in proportion."""

    label: str
    value: str
    note: str = ""
    meaning: str = ""

    @property
    def figure(self) -> str:
        """Return the number without its unit."""
        return self.value.partition(" ")[0]

    @property
    def unit(self) -> str:
        """Return the unit of the value."""
        return self.value.partition(" ")[2]


@dataclass(frozen=True)
class LegendItem:
    """An entry of a chart's legend: its text, and a line, a dot or a shade as sample.

    ``series`` is the chart's series whose value under the pointer is shown beside the text.
    """

    text: str
    line: str = ""
    style: str = ""
    dot: int = 0
    shade: str = ""
    series: int = 0
    quiet: bool = False


@dataclass(frozen=True)
class Bar:
    """A horizontal bar: a share with its text, and the range over several devices."""

    name: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class BarGroup:
    """Bars below a heading, which may be empty."""

    heading: str
    note: str
    rows: Sequence[Bar]


@dataclass(frozen=True)
class ProvenanceCount:
    """The number of inputs of one provenance (``word``), and their share in percent."""

    word: str
    mark: str
    n: int
    percent: float
    meaning: str


@dataclass(frozen=True)
class InputRow:
    """An input of a device model as text. ``word`` is its provenance; ``link`` is None unless the source is a page."""

    parameter: str
    value: str
    word: str
    mark: str
    range: str
    source: str
    link: str | None
    short: str
    reason: str


@dataclass(frozen=True)
class InputGroup:
    """The inputs of the model of one device, and how many of them are assumed."""

    device: str
    rows: Sequence[InputRow]
    assumed: int


def render_page(
    *,
    kind: str,
    title: str,
    lead: str | None = None,
    facts: Sequence[str],
    sections: Sequence[Markup | None],
    script: str,
    charts: Any,
    footer: Sequence[str],
) -> str:
    """Return a report as a complete HTML document.

    Args:
        kind: What kind of report it is, shown above the title.
        title: The name of what was run; it may hold any text.
        lead: A description below the title.
        facts: The size and the conditions of the run, in a line below the title.
        sections: The sections in order; None is left out.
        script: The file among the templates that draws the charts.
        charts: The data of the charts, for JSON.
        footer: Lines at the end of the page.
    """
    scripts = {"uplot": _file("vendor", "uPlot.iife.min.js"), "app": _file("templates", "common.js", script)}
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            policy="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
            f"script-src {' '.join(map(_hash, scripts.values()))}",
            scripts={name: Markup(text) for name, text in scripts.items()},  # noqa: S704  our own files
            styles=Markup(_file("vendor", "uPlot.min.css") + _file("templates", "report.css")),  # noqa: S704  as above
            data=_embedded(charts),
            kind=kind,
            title=title,
            lead=lead,
            facts=facts,
            sections=sections,
            footer=footer,
        )
    )


def render_live(*, name: str, lead: str | None, file: str, data: Any) -> tuple[str, str]:
    """Return the page of `windtunnel explore` as a complete HTML document, and its Content-Security-Policy.

    In contrast to a report it may connect to the server that it came from, and to nothing else.
    """
    scripts = {"uplot": _file("vendor", "uPlot.iife.min.js"), "app": _file("templates", "common.js", "explore.js")}
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; "
        f"form-action 'none'; frame-ancestors 'none'; script-src {' '.join(map(_hash, scripts.values()))}"
    )
    styles = _file("vendor", "uPlot.min.css") + _file("templates", "report.css", "explore.css")
    template = _environment().get_template("explore.html.j2")
    document = template.render(
        scripts={key: Markup(text) for key, text in scripts.items()},  # noqa: S704  our own files
        styles=Markup(styles),  # noqa: S704  as above
        data=_embedded(data),
        name=name,
        lead=lead,
        file=file,
    )
    return document, policy


@cache
def _environment() -> Environment:
    from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
    from jinja2.bccache import Bucket

    version = metadata.version("jinja2")

    def name_of(bucket: Bucket) -> str:
        return kept.name_of("template", bucket.key, bucket.checksum, version)

    class Kept(BytecodeCache):
        """Keeps the code of compiled templates for later processes."""

        def load_bytecode(self, bucket: Bucket) -> None:
            code = kept.read(name_of(bucket)) if kept.is_on() else None
            if isinstance(code, bytes):
                bucket.bytecode_from_string(code)

        def dump_bytecode(self, bucket: Bucket) -> None:
            if kept.is_on():
                kept.write(name_of(bucket), bucket.bytecode_to_string())

    environment = Environment(
        loader=PackageLoader("windtunnel.report", "templates"),
        bytecode_cache=Kept(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _with_code
    environment.globals["marks"] = MARKS
    return environment


def _with_code(text: str) -> Markup:
    """Return text for a page, in which what stands between backquotes is code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704  the text is escaped


@cache
def _file(folder: str, *names: str) -> str:
    return "".join((resources.files("windtunnel.report") / folder / name).read_text(encoding="utf-8") for name in names)


def _hash(script: str) -> str:
    """Return a script's source expression for the policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _embedded(data: Any) -> Markup:
    """Return ``data`` as JSON that no HTML parser can mistake for markup."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)  # noqa: S704  it holds nothing that could end the element


def _part(name: str, *values: Any) -> Markup:
    macro = getattr(_environment().get_template("parts.html.j2").module, name)
    return Markup(macro(*values))  # noqa: S704  the macro has escaped its values


def section(name: str, heading: str, *parts: Markup | None) -> Markup:
    """Return a section with the anchor ``name``; parts that are None are left out."""
    return _part("section", name, heading, parts)


def answer(status: str, verdict: str, targets: Sequence[TargetLine] = (), *parts: Markup | None) -> Markup:
    """Return the first section of a page: the verdict, coloured by ``status``, and every target."""
    return _part("answer", status, verdict, targets, parts)


def table(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str | Cell]],
    *,
    words: Sequence[int] = (0,),
    name: str = "",
    hidden_caption: bool = False,
    style: str = "",
) -> Markup:
    """Return a table. The columns ``words`` are aligned to the left, all others to the right."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    return _part("table", caption, header, cells, words, name, hidden_caption, style)


def details(summary: str, note: str, *parts: Markup | None, is_open: bool = False, style: str = "") -> Markup:
    """Return parts that are folded away below a line, unless ``is_open``."""
    return _part("details", summary, note, parts, is_open, style)


def hint(text: str) -> Markup:
    """Return a paragraph in small grey type."""
    return _part("paragraph", text, "hint")


def prose(text: str) -> Markup:
    """Return a paragraph."""
    return _part("paragraph", text, "prose")


def remark(label: str, text: str) -> Markup:
    """Return a paragraph for the answer of a page, after a label in bold type."""
    return _part("paragraph", Markup("<b>{}</b> {}").format(label, text), "trust")


def notes(lines: Sequence[str], heading: str = "Notes") -> Markup | None:
    """Return a list of sentences; None if there are none."""
    return _part("notes", lines, heading) if lines else None


def definitions(rows: Sequence[tuple[str, str]], style: str = "sureness") -> Markup | None:
    """Return a list of terms and texts; None if there are none."""
    return _part("definitions", rows, style) if rows else None


def tiles(items: Sequence[Tile], style: str = "") -> Markup:
    """Return key figures side by side."""
    return _part("tiles", items, style)


def figure(
    chart: str | int,
    heading: str,
    label: str,
    legend: Sequence[LegendItem] = (),
    *,
    caption: str = "",
    after: str = "",
    tall: bool = False,
    live: str = "",
    attributes: Mapping[str, str] | None = None,
) -> Markup:
    """Return a chart with its heading and legend.

    ``chart`` is the key of its data, ``label`` its description for screen readers, and ``live`` the name under which
    the script shows the values under the pointer.
    """
    return _part("figure", chart, heading, label, legend, caption, after, tall, live, attributes or {})


def legend(items: Sequence[LegendItem]) -> Markup:
    """Return a legend that several charts share."""
    return _part("legend", items, "")


def live_line(name: int) -> Markup:
    """Return a line in which a script describes the point under the pointer."""
    return _part("live_line", name)


def pair(*parts: Markup) -> Markup:
    """Return parts side by side."""
    return _part("pair", parts)


def bars(title: str, caption: str, groups: Sequence[BarGroup]) -> Markup:
    """Return horizontal bars in groups."""
    return _part("bars", title, caption, groups)


def no_script(text: str) -> Markup:
    """Return a text for browsers without JavaScript."""
    return _part("no_script", text)


def assumed_inputs(assumed: int, total: int) -> Markup:
    """Return a line on how many inputs of the device models are assumed, with a link to the section on provenance."""
    return _part("assumed_inputs", assumed, total)


def provenance_table(counts: Sequence[ProvenanceCount], groups: Sequence[InputGroup]) -> Markup:
    """Return all inputs of the device models, with a filter."""
    return _part("provenance", counts, groups)


def glossary(rows: Sequence[tuple[str, str]]) -> Markup:
    """Return the section that explains the terms of a page."""
    return section("glossary", "Terms", definitions(rows, "glossary"))


def scenario(data: Mapping[str, object]) -> Markup:
    """Return the section with the scenario, folded away."""
    text = yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=100)
    cut = "The text is cut here; result.json contains all of it." if len(text) > MAX_SCENARIO_CHARACTERS else ""
    code = _part("code", text[:MAX_SCENARIO_CHARACTERS])
    lines = plural(text.count("\n"), "line")
    return section(
        "scenario",
        "Scenario",
        details("The complete scenario, including all defaults", lines, code, hint(cut) if cut else None),
    )


def versions_line(versions: Mapping[str, str]) -> str:
    """Return the versions of the software, for the footer."""
    return " · ".join(f"{package} {version}" for package, version in versions.items())


def with_kept_units(text: str) -> str:
    """Return ``text`` with every number kept on the line of its unit."""
    return re.sub(r"(?<=\d) (?=[^\W\d]|%)", "\u00a0", text)
