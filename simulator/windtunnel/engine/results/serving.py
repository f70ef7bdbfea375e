"""The section ``serving`` of a result: the times, rates and costs of requests (docs/metrics.md defines them)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from windtunnel.core.recording import (
    COMPLETED,
    IntArray,
    Jobs,
    Recording,
    ServingUse,
    StepWork,
    TokenGaps,
    grouped,
    sum_of_ticks,
)
from windtunnel.core.results.decoding import AdapterUse, SpeculationUse
from windtunnel.core.results.prefix_tiers import PrefixTier
from windtunnel.core.results.run import (
    CostPerMillion,
    Estimate,
    Serving,
    TimeDistribution,
    of_tokens,
)
from windtunnel.core.results.transfers import KvPair, KvTransferResult, Spread
from windtunnel.core.results.use import EntryUse
from windtunnel.core.ticks import TICKS_PER_SECOND, FloatArray, TickArray, to_second_array
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results.sample import BatchedSample
from windtunnel.engine.results.statistics import estimates, over_replications
from windtunnel.engine.results.step_work import peak_times_s
from windtunnel.engine.results.tenants import merged_tenants, tenants_of
from windtunnel.engine.results.times import Steady
from windtunnel.scenario.program import Generate
from windtunnel.scenario.target import Target

BoolArray = np.ndarray


def generates(prepared: PreparedRun, work: int | None) -> bool:
    """Return whether jobs of one workload, or of any, generate tokens."""
    return any(
        isinstance(stage, Generate)
        for w in prepared.workloads
        if work is None or w.number == work
        for stage in w.program
    )


# Long: it states each figure of the section once.
def serving_of(
    distributions: Mapping[str, TimeDistribution],
    work: int | None,
    prepared: PreparedRun,
    recording: Recording,
    steady: Steady,
    whole: tuple[float | None, float],
    attained: bool,
) -> Serving | None:
    """Return the requests of one workload, or of all; None if no job generates tokens.

    Args:
        distributions: The times by their key in the result.
        work: The number of the workload, or None.
        prepared: The run, prepared.
        recording: Its recording.
        steady: The part of the run that its statistics include.
        whole: The rent (USD, None where it is not known) and the energy (J) of the whole fleet.
        attained: Whether the share of requests that meet their targets is measured.
    """
    if not generates(prepared, work):
        return None
    jobs, span_s, use = recording.jobs, recording.end / 1e12, recording.use
    mine = jobs.tokens > 0 if work is None else jobs.workload == work
    completed = mine & (jobs.status == COMPLETED)
    outputs = int(jobs.tokens[completed].sum())
    prompts = 0 if jobs.prompts is None else int(jobs.prompts[completed].sum())
    # Rent and energy are not divided among workloads.
    is_whole = work is None or len(prepared.workloads) == 1
    cost_usd, energy_j = whole if is_whole else (None, None)
    share = attainment(work, prepared, recording, steady) if attained else Estimate(None)
    entries = _entries(prepared, recording, work)
    peaks = [entry.kv_peak for entry in entries if entry.kv_peak is not None]
    hits = None if jobs.hits is None else int(jobs.hits[completed].sum())
    return Serving(
        ttft_s=of_tokens(distributions.get("ttft_s")),
        itl_s=of_tokens(distributions.get("itl_s")),
        tpot_s=of_tokens(distributions.get("tpot_s")),
        e2e_s=of_tokens(distributions.get("e2e_s")),
        input_tokens_per_s=prompts / span_s if prompts and span_s else None,
        output_tokens_per_s=outputs / span_s if outputs and span_s else None,
        slo_attainment=share.value,
        goodput_per_s=share.value * int(mine.sum()) / span_s if share.value is not None and span_s else None,
        prefix_hit_rate=jobs.prefix_hit_rate(completed),
        prefix_hit_tokens=hits,
        prefix_tiers=_tiers(prepared, recording, work, completed),
        kv_peak=max(peaks, default=None),
        kv_capacity_tokens=_kv_capacity_tokens(prepared, work),
        preemptions=0 if use is None else _of(use.preemptions, work),
        rejected=0 if use is None else _of(use.rejected, work),
        cost_per_million_usd=CostPerMillion(
            _per_million(cost_usd, prompts), _per_million(cost_usd, outputs), _per_million(cost_usd, prompts + outputs)
        ),
        energy_per_output_token_j=energy_j / outputs if energy_j is not None and outputs else None,
        speculation=_speculation(use, prepared, work),
        adapters=_adapters(use, prepared, work),
        entries=entries,
        kv_transfers=_kv_transfers(prepared, recording, mine, work),
        tenants=tenants_of(prepared, recording) if work is None else [],
        attainment=share,
    )


def _kv_transfers(
    prepared: PreparedRun, recording: Recording, mine: BoolArray, work: int | None
) -> KvTransferResult | None:
    """Return the transfers of KV caches of the jobs ``mine``; None where no request moves."""
    found = recording.transfers
    if found is None:
        return None
    of_jobs = mine[found.job]
    classes = prepared.class_of_device()
    sender, receiver = classes[found.sender[of_jobs]], classes[found.receiver[of_jobs]]
    size = np.zeros(len(sender))
    for cls, link in prepared.links.items():
        here = receiver == cls
        size[here] = found.tokens[of_jobs][here] * link.token_bytes + link.state_bytes
    asked, began, landed = (to_second_array(ticks[of_jobs]) for ticks in (found.asked, found.began, found.landed))
    pairs = []
    for first, second in sorted({*zip(sender.tolist(), receiver.tolist(), strict=True)}):
        between = (sender == first) & (receiver == second)
        pairs.append(
            KvPair(
                prepared.classes[first].name,
                prepared.classes[second].name,
                int(between.sum()),
                float(size[between].sum()),
                float(size[between].sum() / max(float((landed - began)[between].sum()), 1e-12)),
            )
        )
    span_s = recording.end / 1e12
    busiest = 0.0
    if work is None and span_s:
        for devices in (found.sender, found.receiver):
            busy = np.bincount(devices, weights=(found.landed - found.began).astype(np.float64))
            busiest = max(busiest, float(busy.max(initial=0.0)) / recording.end)
    return KvTransferResult(
        count=len(size),
        tokens=int(found.tokens[of_jobs].sum()),
        bytes=float(size.sum()),
        waiting_s=_spread(began - asked),
        transfer_s=_spread(landed - began),
        busiest_link=busiest if work is None else None,
        pairs=pairs,
    )


def _spread(seconds: FloatArray) -> Spread | None:
    """Return mean and percentiles of some times; None without any."""
    if not len(seconds):
        return None
    return Spread(float(seconds.mean()), *(float(np.quantile(seconds, q)) for q in (0.5, 0.95, 0.99)))


def _adapters(use: ServingUse | None, prepared: PreparedRun, work: int | None) -> AdapterUse | None:
    """Return how requests of a workload, or of all, found their adapters; None if none has any."""
    mine = {number for (_, number), c in prepared.compiled.items() if c.adapters is not None and work in (None, number)}
    if use is None or not mine:
        return None
    return _adapter_use(*(_of(n, work) for n in (use.adapter_hits, use.adapter_loads, use.adapter_reads)))


def _adapter_use(hits: int, loads: int, reads: int) -> AdapterUse:
    return AdapterUse(hits, loads, reads, hits / (hits + loads) if hits + loads else None)


def _merged_adapters(found: Sequence[AdapterUse | None]) -> AdapterUse | None:
    """Return the use over replications, whose counts are added."""
    parts = [part for part in found if part is not None]
    if not parts:
        return None
    return _adapter_use(*(sum(getattr(part, name) for part in parts) for name in ("hits", "loads", "storage_reads")))


def _speculation(use: ServingUse | None, prepared: PreparedRun, work: int | None) -> SpeculationUse | None:
    """Return how drafted tokens of a workload, or of all, were accepted; None if none of them drafts."""
    decoders = [(number, c.decoder) for (_, number), c in prepared.compiled.items() if c.decoder is not None]
    drafting = {number: costs.query_tokens - 1 for number, costs in decoders if costs.query_tokens > 1}
    mine = [number for number in sorted(drafting) if work in (None, number)]
    if use is None or not mine:
        return None
    counts = use.accepted[mine].sum(axis=0)
    drafted = sum(int(use.accepted[number].sum()) * drafting[number] for number in mine)
    return _speculation_use(counts, drafted)


def _speculation_use(counts: IntArray, drafted: int) -> SpeculationUse:
    """Return the rates where ``counts`` has how often 0, 1, ... tokens were accepted, of ``drafted`` ones."""
    steps, total = int(counts.sum()), int(counts @ np.arange(len(counts)))
    reached = np.cumsum(counts[::-1])[::-1][1:]
    return SpeculationUse(
        steps=steps,
        drafted_tokens=drafted,
        accepted_tokens=total,
        acceptance_rate=total / drafted if drafted else None,
        mean_acceptance_length=1.0 + total / steps if steps else None,
        acceptance_by_position=[float(count) / steps for count in reached] if steps else [],
    )


def _merged_speculation(found: Sequence[SpeculationUse | None]) -> SpeculationUse | None:
    """Return the use over replications, whose steps and tokens are added."""
    parts = [part for part in found if part is not None]
    if not parts:
        return None
    places = max(len(part.acceptance_by_position) for part in parts)
    reached = np.zeros(places + 1, dtype=np.int64)
    for part in parts:
        own = np.rint(part.steps * np.array([1.0, *part.acceptance_by_position])).astype(np.int64)
        reached[: len(own)] += own
    return _speculation_use(reached - np.append(reached[1:], 0), sum(part.drafted_tokens for part in parts))


def _of(counts: IntArray, work: int | None) -> int:
    return int(counts.sum()) if work is None else int(counts[work])


def _per_million(cost_usd: float | None, tokens: int) -> float | None:
    return None if cost_usd is None or not tokens else cost_usd / (tokens / 1e6)


def _kv_capacity_tokens(prepared: PreparedRun, work: int | None) -> dict[str, int]:
    """Return the tokens that a replica of each entry has room for, with the model that needs most room."""
    capacities: dict[str, int] = {}
    for (cls, number), program in prepared.compiled.items():
        if program.decoder is not None and work in (None, number):
            name, tokens = prepared.classes[cls].name, program.decoder.capacity_tokens
            capacities[name] = min(tokens, capacities.get(name, tokens))
    return capacities


def _tiers(prepared: PreparedRun, recording: Recording, work: int | None, completed: BoolArray) -> Sequence[PrefixTier]:
    """Return what requests found in the prefix caches of the devices, and in each tier below them."""
    cache, jobs, use = prepared.policy.batch.prefix_cache, recording.jobs, recording.use
    if cache is None or not cache.tiers or use is None:
        return ()
    assert jobs.blocks is not None and jobs.hit_blocks is not None and jobs.hits is not None  # noqa: S101
    all_blocks, hit_blocks = int(jobs.blocks[completed].sum()), int(jobs.hit_blocks[completed].sum())
    hit_tokens = int(jobs.hits[completed].sum())
    found = []
    rented_ticks = float(sum_of_ticks(recording.devices.rented_ticks))
    for number, tier in enumerate(cache.tiers):
        blocks, tokens = _of(use.tier_blocks[number], work), _of(use.tier_tokens[number], work)
        hit_blocks, hit_tokens = hit_blocks - blocks, hit_tokens - tokens
        loading = float(sum_of_ticks(use.tier_busy_ticks[number])) / rented_ticks if rented_ticks else None
        rates = {prepared.classes[cls].name: tiers[number].bytes_per_s for cls, tiers in prepared.tiers.items()}
        found.append(PrefixTier(tier.name, blocks / all_blocks if all_blocks else None, tokens, loading, rates))
    return [PrefixTier("device", hit_blocks / all_blocks if all_blocks else None, hit_tokens, None), *found]


def _entries(prepared: PreparedRun, recording: Recording, work: int | None) -> list[EntryUse]:
    """Return how the replicas of each entry that serves requests were used."""
    use, devices = recording.use, recording.devices
    capacities = _kv_capacity_tokens(prepared, work)
    found = []
    for c in prepared.classes:
        if c.name not in capacities:
            continue
        members = slice(c.first, c.first + c.count)
        rented = float(sum_of_ticks(devices.rented_ticks[members]))
        mean_sequences = kv_mean = kv_peak = None
        if use is not None and len(use.peak_tokens) and rented:
            capacity = max(capacities[c.name], 1)
            mean_sequences = float(use.sequence_ticks[members].sum()) / rented
            kv_mean = float(use.token_ticks[members].sum()) / rented / capacity
            kv_peak = float(use.peak_tokens[members].max()) / capacity
        busy = float(sum_of_ticks(devices.busy_ticks[members])) / rented if rented else 0.0
        shares: tuple[float | None, float | None] = (None, None)
        if use is not None and len(use.work) and rented:
            shares = _peak_shares(prepared, c.number, use.work[c.number], rented / TICKS_PER_SECOND)
        found.append(EntryUse(c.name, busy, mean_sequences, kv_mean, kv_peak, *shares))
    return found


def _peak_shares(prepared: PreparedRun, cls: int, work: StepWork, rented_s: float) -> tuple[float | None, float | None]:
    """Return the shares of peak arithmetic and of peak bandwidth that the steps of a class used."""
    decoder = next((p.decoder for (c, _), p in prepared.compiled.items() if c == cls and p.decoder is not None), None)
    if decoder is None:
        return None, None
    flops_s, moved_s = peak_times_s(decoder, work)
    return (
        None if flops_s is None else flops_s / rented_s,
        None if moved_s is None else moved_s / rented_s,
    )


# Attainment.


def attains(targets: Sequence[Target], names: Sequence[str], recording: Recording) -> BoolArray:
    """Return whether each job completed and met every target on times of single requests; shape (jobs,).

    A request meets a target on ``itl`` if every gap between its tokens is within the limit. A target on a percentile or
    a mean counts as a limit for each request. A request of one token has no gap. ``names`` are those of the workloads.
    """
    jobs = recording.jobs
    met = np.asarray(jobs.status == COMPLETED)
    several = np.maximum(jobs.tokens - 1, 1)
    # A time that did not happen belongs to a job that did not complete.
    times_s: dict[str, FloatArray] = {
        "ttft": to_second_array(np.maximum(jobs.until_first(slice(None)), 0)),
        "e2e": to_second_array(np.maximum(jobs.until_finish(slice(None)), 0)),
        "tpot": np.where(jobs.tokens > 1, to_second_array(np.maximum(jobs.finish - jobs.first, 0)) / several, 0.0),
    }
    asked = [target for target in targets if target.is_of_requests]
    limits_s = [target.limit for target in asked if target.metric == "itl"]
    if limits_s:
        largest = largest_gaps(jobs, recording.token_gaps, times_s["tpot"], beyond_s=min(limits_s))
        times_s["itl"] = to_second_array(largest)
    for target in asked:
        within = times_s[target.metric] <= target.limit
        if target.workload is not None:
            within |= jobs.workload != names.index(target.workload)
        met = met & within
    return met


def largest_gaps(jobs: Jobs, gaps: TokenGaps, mean_s: FloatArray, *, beyond_s: float = 0.0) -> TickArray:
    """Return the largest gap between two tokens of each completed request (ticks); shape (jobs,).

    The steps that take ``beyond_s`` at most are left out, which are most of them where that is a limit: the value of a
    request whose gaps are all within it is then another one that is within it.

    A step of a device with continuous batching gives a token to each sequence that decodes, so the gaps of a request
    are the steps of its device between its first and its last token, and the pauses after preemptions, which are
    recorded with its number. Without continuous batching a request has its mean gap, ``mean_s``.
    """
    largest = np.rint(mean_s * 1e12).astype(np.int64)
    shared = gaps.of < 0
    if not shared.any():
        return largest
    decoded = np.flatnonzero((jobs.status == COMPLETED) & (jobs.tokens > 1) & (jobs.first >= 0))
    largest[decoded] = 0
    if not len(decoded):
        return largest
    # Device and workload as one number. The steps of a device are recorded in the order of time, which sorting keeps.
    works = int(max(gaps.workload.max(), jobs.workload.max())) + 1
    which = np.flatnonzero(shared & (to_second_array(gaps.ticks) > beyond_s))
    group_of_gap, group_of_job = (
        (-1 - gaps.of[which]) * works + gaps.workload[which],
        jobs.device * works + jobs.workload,
    )
    order = grouped(group_of_gap)
    end, ticks, group = gaps.end[which][order], gaps.ticks[which][order], group_of_gap[order]
    decoded = decoded[grouped(group_of_job[decoded])]
    groups, first = np.unique(group_of_job[decoded], return_index=True)
    for number, mine in zip(groups.tolist(), np.split(decoded, first[1:]), strict=True):
        here = slice(*np.searchsorted(group, [number, number + 1]).tolist())
        # A gap begins with its step. A request that has come from another device was not in the step before.
        low = np.searchsorted(end[here] - ticks[here], jobs.first[mine], side="left")
        high = np.searchsorted(end[here], jobs.finish[mine], side="right")
        largest[mine] = _largest_within(ticks[here], low, high)
    if len(gaps.cuts):
        _replace_of_moved(largest, jobs, gaps, (group, end, ticks), works)
    own = np.flatnonzero(~shared)
    own = own[(gaps.end[own] > jobs.first[gaps.of[own]]) & (jobs.first[gaps.of[own]] >= 0)]
    np.maximum.at(largest, gaps.of[own], gaps.ticks[own])
    return largest


def _replace_of_moved(
    largest: TickArray, jobs: Jobs, gaps: TokenGaps, steps: tuple[IntArray, TickArray, TickArray], works: int
) -> None:
    """Replace the largest gaps in steps of the jobs that were on several devices, or on one that was lost.

    Args:
        largest: The largest gaps by job.
        jobs: The jobs.
        gaps: The gaps.
        steps: The group, the end and the ticks of each step, by group and end.
        works: The number of workloads, by which a group is numbered.
    """
    group, end, ticks = steps
    decoded = (jobs.status == COMPLETED) & (jobs.tokens > 1) & (jobs.first >= 0)
    cuts = gaps.cuts[decoded[gaps.cuts[:, 0]]]
    resumed = np.flatnonzero(np.isin(gaps.of, cuts[:, 0]))
    for job in sorted(set(cuts[:, 0].tolist())):
        returns = np.sort(gaps.end[resumed[gaps.of[resumed] == job]])
        stays = [(int(device), int(cut)) for _, device, cut in cuts[cuts[:, 0] == job].tolist()]
        since, found = int(jobs.first[job]), 0
        for device, until in [*sorted(stays, key=lambda stay: stay[1]), (int(jobs.device[job]), int(jobs.finish[job]))]:
            number = device * works + int(jobs.workload[job])
            here = slice(*np.searchsorted(group, [number, number + 1]).tolist())
            low, high = np.searchsorted(end[here], [since, until], side="right").tolist()
            found = max(found, int(ticks[here][low:high].max(initial=0)))
            later = returns[returns > until]
            since = int(later[0]) if len(later) else int(jobs.finish[job])
        largest[job] = found


def _largest_within(values: TickArray, low: IntArray, high: IntArray) -> TickArray:
    """Return the maximum of ``values[low:high]`` for each pair; 0 for an empty range.

    The maxima of all ranges of 2^k values answer any range with two of them.
    """
    found = np.zeros(len(low), dtype=np.int64)
    size = high - low
    largest = int(size.max(initial=0))
    table, width = values, 1
    while len(table):
        mine = np.flatnonzero((size >= width) & (size < 2 * width))
        found[mine] = np.maximum(table[low[mine]], table[high[mine] - width])
        if 2 * width > largest:
            break
        table = np.maximum(table[:-width], table[width:])
        width *= 2
    return found


def attainment(work: int | None, prepared: PreparedRun, recording: Recording, steady: Steady) -> Estimate:
    """Return the share of the arrived requests that meet all targets on single requests, with its 95% interval."""
    targets = prepared.scenario.parsed_targets()
    names = [w.workload.name for w in prepared.workloads]
    name = None if work is None else names[work]
    if not any(t.is_of_requests and (None in (t.workload, name) or t.workload == name) for t in targets):
        return Estimate(None)
    jobs = recording.jobs
    mine = jobs.tokens > 0 if work is None else jobs.workload == work
    met = attains(targets, names, recording)[mine].astype(np.float64)
    if not len(met):
        return Estimate(None)
    reason = steady.no_interval
    if steady.state is not None and steady.state.verdict == "unstable":
        reason = steady.state.reason
    found = estimates(BatchedSample.from_values(met), within=steady.correlation, reason=reason)["mean"]
    share = float(met.mean())
    found = replace(found, value=share)
    if found.low is None or found.high is None:
        return found
    if share in (0.0, 1.0):
        # Of n requests all do so at the probability 2.5% (Clopper and Pearson, 1934) if the share is this far away.
        away = 1.0 - 0.025 ** (1.0 / max(min(float(len(met)), steady.correlation.effective), 1.0))
        return replace(found, low=max(share - away, 0.0), high=min(share + away, 1.0))
    return replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))


# Long: it states each figure of the section once.
def merged_serving(parts: Sequence[Serving], merged: Mapping[str, TimeDistribution]) -> Serving | None:
    """Return the requests of replications: counts are totals, other values are means; ``merged`` has the times."""
    if not parts:
        return None
    attained = over_replications([part.slo_attainment for part in parts])
    if attained.low is not None and attained.high is not None:
        attained = replace(attained, low=max(attained.low, 0.0), high=min(attained.high, 1.0))
    hits = [part.prefix_hit_tokens for part in parts if part.prefix_hit_tokens is not None]
    return Serving(
        ttft_s=of_tokens(merged.get("ttft_s")),
        itl_s=of_tokens(merged.get("itl_s")),
        tpot_s=of_tokens(merged.get("tpot_s")),
        e2e_s=of_tokens(merged.get("e2e_s")),
        input_tokens_per_s=_mean(part.input_tokens_per_s for part in parts),
        output_tokens_per_s=_mean(part.output_tokens_per_s for part in parts),
        slo_attainment=attained.value,
        goodput_per_s=_mean(part.goodput_per_s for part in parts),
        prefix_hit_rate=_mean(part.prefix_hit_rate for part in parts),
        prefix_hit_tokens=sum(hits) if hits else None,
        prefix_tiers=list(map(_merged_tier, zip(*(part.prefix_tiers for part in parts), strict=True))),
        kv_peak=_mean(part.kv_peak for part in parts),
        kv_capacity_tokens=parts[0].kv_capacity_tokens,
        preemptions=sum(part.preemptions for part in parts),
        rejected=sum(part.rejected for part in parts),
        cost_per_million_usd=_merged_cost([part.cost_per_million_usd for part in parts]),
        energy_per_output_token_j=_mean(part.energy_per_output_token_j for part in parts),
        adapters=_merged_adapters([part.adapters for part in parts]),
        speculation=_merged_speculation([part.speculation for part in parts]),
        tenants=merged_tenants([part.tenants for part in parts]),
        entries=list(map(_merged_use, zip(*(part.entries for part in parts), strict=True))),
        kv_transfers=_merged_transfers([part.kv_transfers for part in parts if part.kv_transfers is not None]),
        attainment=attained,
    )


def _merged_cost(costs: Sequence[CostPerMillion]) -> CostPerMillion:
    return CostPerMillion(
        _mean(cost.input for cost in costs), _mean(cost.output for cost in costs), _mean(cost.total for cost in costs)
    )


def _merged_use(rows: Sequence[EntryUse]) -> EntryUse:
    return EntryUse(
        entry=rows[0].entry,
        busy=_mean(row.busy for row in rows) or 0.0,
        mean_sequences=_mean(row.mean_sequences for row in rows),
        kv_mean=_mean(row.kv_mean for row in rows),
        kv_peak=_mean(row.kv_peak for row in rows),
        peak_flops=_mean(row.peak_flops for row in rows),
        peak_bandwidth=_mean(row.peak_bandwidth for row in rows),
    )


def _merged_tier(rows: Sequence[PrefixTier]) -> PrefixTier:
    return replace(
        rows[0],
        hit_rate=_mean(row.hit_rate for row in rows),
        hit_tokens=sum(row.hit_tokens for row in rows),
        loading=_mean(row.loading for row in rows),
    )


def _merged_transfers(parts: Sequence[KvTransferResult]) -> KvTransferResult | None:
    """Return the transfers of replications: counts are totals, times are means."""
    if not parts:
        return None
    names = dict.fromkeys((pair.sender, pair.receiver) for part in parts for pair in part.pairs)
    pairs = []
    for name in names:
        same = [pair for part in parts for pair in part.pairs if (pair.sender, pair.receiver) == name]
        size = math.fsum(pair.bytes for pair in same)
        seconds = math.fsum(pair.bytes / pair.bytes_per_s for pair in same if pair.bytes_per_s)
        pairs.append(KvPair(*name, sum(pair.count for pair in same), size, size / max(seconds, 1e-12)))

    def spread(found: Sequence[Spread | None]) -> Spread | None:
        known = [one for one in found if one is not None]
        if not known:
            return None
        return Spread(*(math.fsum(getattr(one, f) for one in known) / len(known) for f in Spread.FIGURES))

    return KvTransferResult(
        count=sum(part.count for part in parts),
        tokens=sum(part.tokens for part in parts),
        bytes=math.fsum(part.bytes for part in parts),
        waiting_s=spread([part.waiting_s for part in parts]),
        transfer_s=spread([part.transfer_s for part in parts]),
        busiest_link=_mean(part.busiest_link for part in parts),
        pairs=pairs,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
