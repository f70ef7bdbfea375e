"""The requests of a run in words, for the terminal summary and for the report: both kinds of intervals, use and cost.

An interval for chance in the traffic (95%) and one for the error of the device models (90%) are never merged.
"""

from __future__ import annotations

from markupsafe import Markup

from windtunnel.core.results.decoding import AdapterUse, SpeculationUse
from windtunnel.core.results.run import (
    Estimate,
    RunResult,
    Serving,
    TimeDistribution,
    TokenEstimate,
    WorkloadResult,
)
from windtunnel.core.results.use import EntryUse, TenantUse
from windtunnel.core.validated import DISAGGREGATED
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
    value_range,
)
from windtunnel.report.page import Cell, Tile

STATISTICS = ("mean", "p50", "p95", "p99")
TIMES = {
    "TTFT": "time to first token: from a request's arrival to its first output token",
    "TPOT": "time per output token: a request's mean time between tokens",
    "ITL": "inter-token latency: the time between two consecutive tokens; every gap counts once",
    "End-to-end latency": "from a request's arrival to its last token",
}
MOST_TENANTS, MOST_ROWS = 6, 100
"""How many tenants the summary and the report show."""
_SHORT = {"End-to-end latency": "end to end"}


def times(serving: Serving) -> list[tuple[str, TimeDistribution]]:
    """Return the times of requests with their headings; those without an observation are left out."""
    found = zip(TIMES, (serving.ttft_s, serving.tpot_s, serving.itl_s, serving.e2e_s), strict=True)
    return [(heading, timed) for heading, timed in found if timed is not None and is_finite(timed.mean.value)]


def model_interval(estimate: Estimate) -> str:
    """Return the 90% model error interval of an estimate ("475 to 653 ms"); empty if it has none."""
    if not isinstance(estimate, TokenEstimate) or estimate.model_low is None:
        return ""
    if estimate.model_high is None:
        return f"from {quantity(estimate.model_low, 's')}, no upper bound"
    return value_range(estimate.model_low, estimate.model_high, "s")


def model_error_rows(result: RunResult) -> list[list[str]]:
    """Return the 90% model error intervals of means and p99 as a table with a header; empty if there are none."""
    if result.serving is None:
        return []
    rows = [
        [
            "end to end" if heading.startswith("End") else heading,
            model_interval(timed.mean) or NOTHING,
            model_interval(timed.p99) or NOTHING,
        ]
        for heading, timed in times(result.serving)
        if model_interval(timed.mean)
    ]
    return [["model error", "90% of mean", "90% of p99"], *rows] if rows else []


def model_error_caveat(result: RunResult) -> str:
    """Return what published measurements show of the model error intervals of such a run; empty if nothing."""
    moves = result.serving is not None and result.serving.kv_transfers is not None
    return f"{DISAGGREGATED.text}." if moves and model_error_rows(result) else ""


def lines(result: RunResult) -> list[str]:
    """Return lines on attainment, tokens, use and cost; none where no job generates tokens."""
    serving = result.serving
    if serving is None:
        return []
    found = []
    if serving.slo_attainment is not None:
        between = share_interval(serving.attainment)
        text = f"{share(serving.slo_attainment)} of requests meet every limit on single requests"
        text += f" (95% CI {between})" if between else ""
        found.append(f"{text}; goodput {rate(serving.goodput_per_s, 'requests')}")
    if serving.output_tokens_per_s is not None:
        found.append(
            f"{rate(serving.input_tokens_per_s, 'prompt tokens')}, {rate(serving.output_tokens_per_s, 'output tokens')}"
        )
    found += [f"{entry.entry}: {use_text(entry)}" for entry in serving.entries[:6]]
    found += transfer_lines(serving)
    found += [_tenant_text(tenant) for tenant in serving.tenants[:MOST_TENANTS]]
    events = [plural(serving.preemptions, "preemption")] if serving.preemptions else []
    events += [f"{serving.rejected:,} rejected"] if serving.rejected else []
    if serving.prefix_hit_tokens is not None:
        text = f"{serving.prefix_hit_tokens:,} prompt tokens from the prefix cache"
        hit = serving.prefix_hit_rate
        events.append(text if hit is None else f"{text}, which had {share(hit)} of the blocks")
    if serving.prefix_tiers:
        events.append("by tier " + ", ".join(f"{row.tier} {share(row.hit_rate)}" for row in serving.prefix_tiers))
    found += [", ".join(events)] if events else []
    found += [] if serving.adapters is None else [adapter_text(serving.adapters)]
    found += [] if serving.speculation is None else [speculation_text(serving.speculation)]
    energy_j = serving.energy_per_output_token_j
    return found if energy_j is None else [*found, f"{quantity(energy_j, 'J')} per output token"]


def transfer_lines(serving: Serving) -> list[str]:
    """Return lines on the transfers of KV caches; none where no request moves."""
    moved = serving.kv_transfers
    if moved is None or moved.transfer_s is None or moved.waiting_s is None:
        return []
    text = f"{plural(moved.count, 'KV cache')} sent ({quantity(moved.bytes, 'B')})"
    text += f", {quantity(moved.transfer_s.mean, 's')} each after waiting {quantity(moved.waiting_s.mean, 's')}"
    if moved.busiest_link is not None:
        text += f"; busiest link {share(moved.busiest_link)}"
    return [text]


def adapter_text(use: AdapterUse) -> str:
    """Return how requests found their adapters: "adapters: 71% of admitted requests found theirs in a slot, ..."."""
    if use.hit_rate is None:
        return "adapters: no request used one"
    read = f", {use.storage_reads:,} of them read from storage" if use.storage_reads else ""
    found = f"adapters: {share(use.hit_rate)} of admitted requests found theirs in a slot"
    return f"{found}; {plural(use.loads, 'load')}{read}"


def speculation_text(use: SpeculationUse) -> str:
    """Return how drafted tokens were accepted: "speculative decoding: 2.8 tokens in a step of a sequence, ..."."""
    if use.mean_acceptance_length is None:
        return "speculative decoding: no step drafted tokens"
    text = f"speculative decoding: {number(use.mean_acceptance_length)} tokens on average in a step of a sequence"
    if use.acceptance_rate is None:
        return text
    places = ", ".join(share(accepted) for accepted in use.acceptance_by_position)
    return f"{text}, {share(use.acceptance_rate)} of drafted tokens accepted (by position {places})"


def use_text(entry: EntryUse) -> str:
    """Return how the replicas of an entry were used: "any sequence 99.8% of the time, 12.1 sequences on average"."""
    parts = [f"any sequence {share(entry.busy)} of the time"]
    if entry.mean_sequences is not None:
        parts.append(f"{number(entry.mean_sequences)} sequences on average")
    if entry.kv_mean is not None:
        parts.append(f"KV cache {share(entry.kv_mean)} full, {share(entry.kv_peak)} at its peak")
    if entry.peak_flops is not None and entry.peak_bandwidth is not None:
        parts.append(f"{share(entry.peak_flops)} of peak FLOP/s and {share(entry.peak_bandwidth)} of peak bandwidth")
    return ", ".join(parts)


def _tenant_text(tenant: TenantUse) -> str:
    """Return what a tenant was served: "tenant acme (weight 2): 120 of 200 requests, 14,000 prompt tokens ..."."""
    weight = "" if tenant.weight is None else f" (weight {number(tenant.weight)})"
    text = f"tenant {tenant.tenant}{weight}: {tenant.completed:,} of {tenant.arrived:,} requests, "
    text += f"{tenant.input_tokens:,} prompt tokens and {tenant.output_tokens:,} output tokens"
    if tenant.ttft_mean_s is None or tenant.ttft_p95_s is None:
        return text
    return f"{text}, TTFT {quantity(tenant.ttft_mean_s, 's')} on average, p95 {quantity(tenant.ttft_p95_s, 's')}"


def cost_text(result: RunResult) -> str:
    """Return the cost of tokens, and of an hour; empty where none are generated or a price is not known."""
    serving = result.serving
    if serving is None or serving.cost_per_million_usd.output is None:
        return ""
    cost = serving.cost_per_million_usd
    text = f"{usd(cost.output)} per million output tokens ({usd(cost.total)} per million of all)"
    return text if result.cost_usd_per_h is None else f"{text}, {usd(result.cost_usd_per_h)} per hour"


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
    times = ", ".join(
        f"{words} {quantity(spread.mean, 's')} (p99 {quantity(spread.p99, 's')})"
        for words, spread in (("waiting", moved.waiting_s), ("transfer", moved.transfer_s))
    )
    caption = f"KV caches sent from prefill to decode. Means: {times}"
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
