"""Makes the tables of docs/serving.md and docs/serving-prefix.md from the scenarios that they describe.

    python benchmarks/serving_tables.py [NAME ...]

Each table stands below a comment ``<!-- serving_tables.py: NAME -->``; the script runs its rows and replaces it.
Without names it makes all tables, which takes some minutes, and a few more where the engine has to be compiled first.
It also prints what the text around a table says. The script needs the package's two source roots on the path.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from windtunnel.core.recording import Recording
from windtunnel.core.results.run import RunResult, Serving, TimeDistribution
from windtunnel.core.ticks import to_second_array
from windtunnel.core.units import format_quantity
from windtunnel.scenario.changes import read_document
from windtunnel.scenario.read import check_scenario
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation.run import simulate
from windtunnel_models.catalogue import shipped_catalogue

ROOT = Path(__file__).resolve().parents[1]
SERVING, PREFIX = "docs/serving.md", "docs/serving-prefix.md"

Figure = Callable[[RunResult, Recording], str]


def _serving(result: RunResult) -> Serving:
    assert result.serving is not None
    return result.serving


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f} s" if value >= 100 else format_quantity(value, "s", 3)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}".replace("100.0%", "100%")


def _time(metric: str, statistic: str) -> Figure:
    """A time of requests; of an overloaded run, which has none, the one of the requests that it served, with a mark."""

    def figure(result: RunResult, recording: Recording) -> str:
        times = result.latency_s if metric == "latency" else getattr(_serving(result), f"{metric}_s")
        assert isinstance(times, TimeDistribution)
        value = times.by_name()[statistic].value
        if value is None and (metric, statistic) == ("ttft", "p99"):
            first = to_second_array(recording.jobs.until_first(recording.jobs.first >= 0))
            return f"{_seconds(float(np.quantile(first, 0.99)))}*"
        return _seconds(value)

    return figure


def _tier(name: str) -> Figure:
    def figure(result: RunResult, _: Recording) -> str:
        found = {tier.tier: tier for tier in _serving(result).prefix_tiers or ()}
        if name == "device" and not found:
            return _share(_serving(result).prefix_hit_rate)
        return _share(found[name].hit_rate) if name in found else ""

    return figure


def _begun(workload: int) -> Figure:
    """The mean time to the first token of the requests of a workload that have one, also where the run is unstable."""

    def figure(result: RunResult, recording: Recording) -> str:
        jobs = recording.jobs
        ticks = jobs.until_first((jobs.workload == workload) & (jobs.first >= 0))
        return _seconds(float(to_second_array(ticks).mean()))

    return figure


def _hits(result: RunResult, _: Recording) -> str:
    return _share(_serving(result).prefix_hit_rate)


def _attained(result: RunResult, _: Recording) -> str:
    return _share(_serving(result).slo_attainment)


def _power(result: RunResult, _: Recording) -> str:
    return format_quantity(result.average_power_w, "W", 3)


@dataclass(frozen=True)
class Row:
    """A row of a table: its first cells, and the changes to the scenario of each of its runs."""

    labels: Sequence[str]
    runs: Sequence[Sequence[str]]


@dataclass(frozen=True)
class MadeTable:
    """A table of a page: its columns, and the figures of each run of a row."""

    page: str
    scenario: str
    header: Sequence[str]
    rows: Sequence[Row]
    figures: Sequence[Figure]
    also: Figure | None = None
    """What the text around the table says of each run."""


def _transfers(result: RunResult, _: Recording) -> str:
    moved = _serving(result).kv_transfers
    if moved is None or moved.transfer_s is None or moved.waiting_s is None:
        return ""
    return (
        f"{moved.bytes / moved.count / 1e9:.2f} GB a KV cache, {_seconds(moved.transfer_s.mean)} a transfer after "
        f"{_seconds(moved.waiting_s.mean)}; {_serving(result).input_tokens_per_s or 0:.0f} prompt tokens/s"
    )


_ALONE = ("fleet[0].role=both", "fleet[1].role=both", "policy.decode_route=null")
_SLOTS = (4, 8, 16)
TABLES = {
    "disaggregation": MadeTable(
        SERVING,
        "disaggregation",
        ("", "TTFT mean", "TTFT p99", "TPOT mean", "TPOT p99", "requests within both targets"),
        (
            Row(("disaggregated, 50 GB/s for each device",), ((),)),
            Row(("the same, 12.5 GB/s",), (("network.bandwidth=12.5 GB/s",),)),
            Row(("all six groups do both (`role: both`)",), (_ALONE,)),
        ),
        (_time("ttft", "mean"), _time("ttft", "p99"), _time("tpot", "mean"), _time("tpot", "p99"), _attained),
        _transfers,
    ),
    "drafted tokens": MadeTable(
        SERVING,
        "speculation",
        ("drafted tokens", "0.5 requests/s", "", "8 requests/s", ""),
        tuple(
            Row(
                (str(n),),
                tuple(
                    (f"models.chat.speculation.tokens={n}", f"workload[0].arrivals.rate={rate} /s") for rate in (0.5, 8)
                ),
            )
            for n in (0, 1, 2, 3, 5)
        ),
        (_time("tpot", "p99"), _power),
        _time("itl", "mean"),
    ),
    "adapters": MadeTable(
        SERVING,
        "adapters",
        (
            "slots",
            "`least-loaded`: requests within the limits",
            "p99 TTFT",
            "`adapter-affinity`: requests within the limits",
            "p99 TTFT",
        ),
        tuple(
            Row(
                (str(n),),
                tuple(
                    (f"models.chat.adapters.slots={n}", f"policy.name={name}")
                    for name in ("least-loaded", "adapter-affinity")
                ),
            )
            for n in _SLOTS
        ),
        (_attained, _time("ttft", "p99")),
        _time("itl", "p99"),
    ),
    "tenants": MadeTable(
        SERVING,
        "tenants",
        ("policy", "operator (priority 1)", "acme (weight 2)", "bravo", "noisy"),
        (
            Row(("`arrival`",), (("policy.order=arrival", "policy.fair=null", "policy.preemption=null"),)),
            Row(("`priority`",), (("policy.fair=null", "policy.preemption=null"),)),
            Row(("`priority` and `fair`",), (("policy.preemption=null",),)),
            Row(("and `preemption: resume`",), ((),)),
        ),
        tuple(_begun(workload) for workload in range(4)),
    ),
    "prefix caches": MadeTable(
        PREFIX,
        "prefix-cache",
        ("`prefix_cache`", "blocks found", "TTFT mean", "latency mean"),
        (
            Row(("none",), (("policy.batch.prefix_cache=null",),)),
            Row(("`{}`: in the KV memory",), ((),)),
            Row(("`{blocks: 2000000}`: a store of its own",), (("policy.batch.prefix_cache.blocks=2000000",),)),
        ),
        (_hits, _time("ttft", "mean"), _time("latency", "mean")),
    ),
    "routes": MadeTable(
        PREFIX,
        "routing",
        ("route", "blocks found", "TTFT mean", "TTFT p99", "latency mean"),
        tuple(
            Row((f"`{route}`",), ((f"policy.route={route}",),))
            for route in ("least-loaded", "kv-aware", "prefix-and-load", "session-affinity", "prefix-aware")
        ),
        (_hits, _time("ttft", "mean"), _time("ttft", "p99"), _time("latency", "mean")),
        lambda result, _: f"KV memory used at most: {_share(_serving(result).kv_peak)}",
    ),
    "tiers": MadeTable(
        PREFIX,
        "tiers",
        (
            *("`prefix_cache`, route `session-affinity`", "device", "host", "disk", "blocks found"),
            *("TTFT mean", "TTFT p99", "latency mean"),
        ),
        (
            Row(("`{}`: in the KV memory",), (("policy.batch.prefix_cache={}",),)),
            *(
                Row((f"`{stated}`",), ((f"policy.batch.prefix_cache={stated}",),))
                for stated in (
                    "{host: {size: 256 GB}}",
                    "{host: {size: 2 TB}}",
                    "{host: {size: 256 GB}, disk: {size: 4 TB, bandwidth: 12 GB/s}}",
                )
            ),
        ),
        (
            *(_tier(name) for name in ("device", "host", "disk")),
            _hits,
            _time("ttft", "mean"),
            _time("ttft", "p99"),
            _time("latency", "mean"),
        ),
    ),
    "sessions": MadeTable(
        PREFIX,
        "sessions",
        ("route", "blocks found", "TTFT mean", "TTFT p99"),
        tuple(
            Row((f"`{route}`",), ((f"policy.name={route}",),))
            for route in ("session-affinity", "prefix-aware", "least-loaded")
        ),
        (_hits, _time("ttft", "mean"), _time("ttft", "p99")),
    ),
}


def place(name: str) -> re.Pattern[str]:
    """Return the pattern of a table on its page: the comment, and the rows below it."""
    return re.compile(rf"(<!-- serving_tables\.py: {re.escape(name)} -->\n)((?:\|.*\n)+)")


def lines(cells: Sequence[Sequence[str]]) -> str:
    """Return a table; the first row is its header."""
    rows = ["".join(f"| {cell} " if cell else "| " for cell in row) + "|" for row in cells]
    rows.insert(1, "|---" * len(cells[0]) + "|")
    return "\n".join(rows) + "\n"


def scenarios(table: MadeTable) -> list[list[Scenario]]:
    """Return the scenario of each run of each row."""
    path = ROOT / "scenarios" / "serving" / f"{table.scenario}.yaml"
    return [[check_scenario(read_document(path, changes)) for changes in row.runs] for row in table.rows]


def made(table: MadeTable) -> list[list[str]]:
    """Return the rows of a table, with the header; runs each of its rows."""
    cells = [list(table.header)]
    for row, runs in zip(table.rows, scenarios(table), strict=True):
        found = list(row.labels)
        for changes, scenario in zip(row.runs, runs, strict=True):
            result, recording = simulate(scenario, 1, "auto", shipped_catalogue(), redrawn="never")
            found += [figure(result, recording) for figure in table.figures]
            if table.also is not None:
                print(f"{row.labels[0]} {' '.join(changes)}: {table.also(result, recording)}", flush=True)
        print(" | ".join(found), flush=True)
        cells.append(found)
    return cells


def main(names: Sequence[str]) -> None:
    """Make the tables of these names, or all."""
    for name in names or TABLES:
        table = TABLES[name]
        print(f"{name}:", flush=True)
        text = lines(made(table))
        page = ROOT / table.page
        before = page.read_text()
        after, count = place(name).subn(lambda found, text=text: found[1] + text, before)
        assert count == 1, f"{table.page} has {count} places for the table '{name}'"
        page.write_text(after)


if __name__ == "__main__":
    main(sys.argv[1:])
