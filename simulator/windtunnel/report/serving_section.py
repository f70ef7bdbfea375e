"""The section of a run's report about its requests: times with both kinds of intervals, use, transfers and tenants."""

from __future__ import annotations

from markupsafe import Markup

from windtunnel.core.results.run import (
    RunResult,
    Serving,
    TimeDistribution,
    WorkloadResult,
)
from windtunnel.report import page
from windtunnel.report.numbers import (
    NOTHING,
    interval,
    is_finite,
    number,
    plural,
    quantity,
    rate,
    share,
    share_interval,
    usd,
)
from windtunnel.report.page import Cell, Tile
from windtunnel.report.serving import MOST_ROWS, STATISTICS, TIMES, model_error_caveat, model_interval, times


def section(result: RunResult) -> Markup | None:
    """Return the section of the report; None where no job generates tokens."""
    serving = result.serving
    if serving is None:
        return None
    timed = times(serving)
    rows = [
        [
            Cell(heading, title=TIMES[heading]),
            *(
                Cell(
                    quantity(e.value, "s"),
                    f"chance {interval(e) or NOTHING} · model {model_interval(e) or NOTHING}",
                )
                for e in distribution.by_name().values()
            ),
        ]
        for heading, distribution in timed
    ]
    caption = "Times of requests. Chance: 95% confidence interval. Model: 90% interval for the error of the step model"
    return page.section(
        "serving",
        "Serving",
        page.tiles(_tiles(serving), "cost"),
        page.table(caption, ["Metric", *STATISTICS], rows, name="serving-times") if rows else None,
        page.hint(caveat) if (caveat := model_error_caveat(result)) else None,
        _classes(result),
        _use(serving),
        _transfers(serving),
        _tenants(serving),
    )


def _tiles(serving: Serving) -> list[Tile]:
    items = []
    if serving.slo_attainment is not None:
        between = share_interval(serving.attainment)
        items.append(
            Tile(
                "SLO attainment",
                share(serving.slo_attainment),
                f"95% CI {between}" if between else "",
                "share of the arrived requests that meet every target on ttft, tpot, itl and e2e",
            )
        )
        items.append(Tile("Goodput", rate(serving.goodput_per_s, "requests"), "requests that meet every such target"))
    if serving.output_tokens_per_s is not None:
        prompts = f"{rate(serving.input_tokens_per_s, 'prompt tokens')}"
        items.append(Tile("Output", rate(serving.output_tokens_per_s, "tokens"), prompts))
    cost = serving.cost_per_million_usd
    if cost.output is not None:
        items.append(Tile("Per million output tokens", usd(cost.output), f"{usd(cost.total)} per million of all"))
    if serving.energy_per_output_token_j is not None:
        items.append(Tile("Energy per output token", quantity(serving.energy_per_output_token_j, "J"), "whole fleet"))
    if serving.kv_peak is not None:
        preemptions = plural(serving.preemptions, "preemption")
        rejected = f", {serving.rejected:,} rejected" if serving.rejected else ""
        items.append(Tile("KV cache peak", share(serving.kv_peak), preemptions + rejected))
    used = serving.adapters
    if used is not None and used.hit_rate is not None:
        items.append(Tile("Adapter in a slot", share(used.hit_rate), plural(used.loads, "load")))
    drafted = serving.speculation
    if drafted is not None and drafted.mean_acceptance_length is not None and drafted.acceptance_rate is not None:
        rate_text = f"{share(drafted.acceptance_rate)} of drafted tokens accepted"
        items.append(Tile("Tokens in a step", number(drafted.mean_acceptance_length), rate_text))
    return items


def _classes(result: RunResult) -> Markup | None:
    """Return a row for each workload that generates tokens; None if there is only one workload."""
    if len(result.workloads) < 2:
        return None

    def cell(timed: TimeDistribution | None, statistic: str = "p99") -> Cell:
        if timed is None or not is_finite(timed.of(statistic).value):
            return Cell(NOTHING)
        return Cell(quantity(timed.of(statistic).value, "s"), interval(timed.of(statistic)) or "no 95% CI")

    def row(workload: WorkloadResult, serving: Serving) -> list[str | Cell]:
        state = workload.statistics.steady_state or result.statistics.steady_state or NOTHING
        attained = NOTHING if serving.slo_attainment is None else share(serving.slo_attainment)
        counts = [f"{serving.preemptions:,}", f"{serving.rejected:,}"]
        timed = (serving.ttft_s, serving.tpot_s, serving.itl_s, serving.e2e_s)
        return [workload.name, state, attained, cell(serving.ttft_s, "p95"), *map(cell, timed), *counts]

    rows = [row(workload, workload.serving) for workload in result.workloads if workload.serving is not None]
    header = ["Workload", "Steady state", "Attainment", "TTFT p95", *(f"{heading} p99" for heading in TIMES)]
    return page.table("Requests by workload", [*header, "Preemptions", "Rejected"], rows, words=(0, 1), name="classes")


def _transfers(serving: Serving) -> Markup | None:
    """Return a row for each pair of fleet entries between which KV caches were sent."""
    moved = serving.kv_transfers
    if moved is None or moved.transfer_s is None or moved.waiting_s is None:
        return None
    rows = [
        [
            f"{pair.sender} to {pair.receiver}",
            f"{pair.count:,}",
            quantity(pair.bytes, "B"),
            quantity(pair.bytes_per_s, "B/s"),
        ]
        for pair in moved.pairs
    ]
    means = ", ".join(
        f"{words} {quantity(spread.mean, 's')} (p99 {quantity(spread.p99, 's')})"
        for words, spread in (("waiting", moved.waiting_s), ("transfer", moved.transfer_s))
    )
    caption = f"KV caches sent from prefill to decode. Means: {means}"
    return page.table(caption, ["From, to", "Transfers", "Sent", "Rate"], rows, name="kv-transfers")


def _use(serving: Serving) -> Markup:
    rows = [
        [
            entry.entry,
            share(entry.busy),
            NOTHING if entry.mean_sequences is None else number(entry.mean_sequences),
            NOTHING if entry.kv_mean is None else share(entry.kv_mean),
            NOTHING if entry.kv_peak is None else share(entry.kv_peak),
            NOTHING if entry.peak_flops is None else share(entry.peak_flops),
            NOTHING if entry.peak_bandwidth is None else share(entry.peak_bandwidth),
            f"{serving.kv_capacity_tokens.get(entry.entry, 0):,}",
        ]
        for entry in serving.entries
    ]
    header = ["Fleet entry", "Any sequence", "Mean sequences", "KV cache, mean", "KV cache, peak"]
    header += ["Peak FLOP/s", "Peak bandwidth", "KV cache, tokens"]
    return page.table("Use of a replica over the rented time", header, rows, name="serving-use")


def _tenants(serving: Serving) -> Markup | None:
    """Return a row for each tenant; None where none is stated."""
    if not serving.tenants:
        return None
    rows = [
        [
            tenant.tenant,
            NOTHING if tenant.weight is None else number(tenant.weight),
            f"{tenant.arrived:,}",
            f"{tenant.completed:,}",
            f"{tenant.input_tokens:,}",
            f"{tenant.output_tokens:,}",
            *(
                NOTHING if time_s is None else quantity(time_s, "s")
                for time_s in (tenant.ttft_mean_s, tenant.ttft_p95_s, tenant.ttft_p99_s)
            ),
        ]
        for tenant in serving.tenants[:MOST_ROWS]
    ]
    shown = f"The {MOST_ROWS} tenants with most tokens" if len(serving.tenants) > MOST_ROWS else "Tenants"
    header = ["Tenant", "Weight", "Arrived", "Completed", "Prompt tokens", "Output tokens"]
    header += ["TTFT mean", "TTFT p95", "TTFT p99"]
    return page.table(shown, header, rows, name="tenants")
