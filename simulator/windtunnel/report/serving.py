"""The requests of a run in words, for the terminal summary and for the report: both kinds of intervals, use and cost.

An interval for chance in the traffic (95%) and one for the error of the device models (90%) are never merged.
"""

from __future__ import annotations

from windtunnel.core.results.decoding import AdapterUse, SpeculationUse
from windtunnel.core.results.run import (
    Estimate,
    RunResult,
    Serving,
    TimeDistribution,
    TokenEstimate,
)
from windtunnel.core.results.use import EntryUse, TenantUse
from windtunnel.core.validated import DISAGGREGATED
from windtunnel.report.numbers import (
    NOTHING,
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
