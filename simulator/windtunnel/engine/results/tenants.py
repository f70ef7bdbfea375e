"""The requests of each tenant in a result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from windtunnel.core.recording import COMPLETED, IntArray, Recording
from windtunnel.core.results.use import TenantUse
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.tenants import tenant_of


def tenants_of(prepared: PreparedRun, recording: Recording) -> list[TenantUse]:
    """Return the requests of each tenant, those with most tokens first; none where nothing states a tenant."""
    fair = prepared.policy.fair
    if fair is None and all(w.workload.tenant is None for w in prepared.workloads):
        return []
    jobs = recording.jobs
    names: dict[str, int] = {}
    tenant = np.full(len(jobs), -1, dtype=np.int64)
    for job_class in prepared.workloads:
        mine = np.flatnonzero(jobs.workload == job_class.number)
        own, of = tenant_of(job_class)
        # Jobs of one workload are recorded in the order of their ranks.
        which = np.broadcast_to(of, mine.shape) if of.size == 1 else of[: len(mine)]
        numbers = np.array([names.setdefault(name, len(names)) for name in own], dtype=np.int64)
        tenant[mine] = numbers[which]
    done, served = jobs.status == COMPLETED, jobs.first >= 0
    prompts = np.zeros(len(jobs), dtype=np.int64) if jobs.prompts is None else jobs.prompts
    wait_s = jobs.until_first(slice(None)) / 1e12

    def sums(values: IntArray | FloatArray, of: np.ndarray) -> list[float]:
        found: list[float] = np.bincount(tenant[of], weights=values[of], minlength=len(names)).tolist()
        return found

    ones = np.ones(len(jobs), dtype=np.int64)
    everyone = np.ones(len(jobs), dtype=bool)
    arrived, completed, first = sums(ones, everyone), sums(ones, done), sums(ones, served)
    read, made, waited_s = sums(prompts, done), sums(jobs.tokens, done), sums(wait_s, served)
    by_tenant = np.flatnonzero(served)[np.argsort(tenant[served], kind="stable")]
    until_s = np.split(wait_s[by_tenant], np.cumsum(np.bincount(tenant[served], minlength=len(names)))[:-1])

    def percentile(i: int, fraction: float) -> float | None:
        return float(np.quantile(until_s[i], fraction)) if len(until_s[i]) else None

    rows = [
        TenantUse(
            tenant=name,
            weight=None if fair is None else fair.weights.get(name, 1.0),
            arrived=round(arrived[i]),
            completed=round(completed[i]),
            input_tokens=round(read[i]),
            output_tokens=round(made[i]),
            ttft_mean_s=waited_s[i] / first[i] if first[i] else None,
            ttft_p95_s=percentile(i, 0.95),
            ttft_p99_s=percentile(i, 0.99),
        )
        for name, i in names.items()
    ]
    return sorted(rows, key=lambda row: (-(row.input_tokens + row.output_tokens), row.tenant))


def merged_tenants(parts: Sequence[Sequence[TenantUse]]) -> list[TenantUse]:
    """Return the tenants of replications: counts are totals, and times are means."""
    by_name: dict[str, list[TenantUse]] = {}
    for row in (row for rows in parts for row in rows):
        by_name.setdefault(row.tenant, []).append(row)
    merged = []
    for name, rows in by_name.items():
        merged.append(
            TenantUse(
                name,
                rows[0].weight,
                sum(row.arrived for row in rows),
                sum(row.completed for row in rows),
                sum(row.input_tokens for row in rows),
                output_tokens=sum(row.output_tokens for row in rows),
                ttft_mean_s=_mean(row.ttft_mean_s for row in rows),
                ttft_p95_s=_mean(row.ttft_p95_s for row in rows),
                ttft_p99_s=_mean(row.ttft_p99_s for row in rows),
            )
        )
    return sorted(merged, key=lambda row: (-(row.input_tokens + row.output_tokens), row.tenant))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
