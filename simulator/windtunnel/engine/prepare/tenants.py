"""The tenants of jobs: the flows into which fair queueing divides waiting requests, and the checks of rate limits.

A flow is a tenant's requests of one priority. Between priorities the order of the policy decides, so only flows of one
priority compare the tokens that they were served.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.policy import FairShares, Policy
from windtunnel.core.recording import IntArray
from windtunnel.engine.prepare.prepared import Flow, JobClass, JobFlows, PreparedRun
from windtunnel.scenario.scenario import Scenario

MAX_FLOWS = 4096
"""The largest number of flows, because each admission and each step looks at all of them."""
UNIT = 2**20
"""What a token counts is a whole number of parts of this size, so that sums are exact and ties are equal."""


def tenant_of(job_class: JobClass) -> tuple[list[str], IntArray]:
    """Return the tenants of a workload by name, and the tenant of each of its jobs; shape (1,) if it has one tenant.

    Raises:
        InputError: if the tenant is the column of a trace that has no such column.
    """
    stated = job_class.workload.tenant or job_class.workload.name
    if not stated.startswith("$"):
        return [stated], np.zeros(1, dtype=np.int64)
    words = job_class.source.words(stated[1:], ("workload", job_class.number, "tenant"))
    names, which = np.unique(np.array(words, dtype=np.str_), return_inverse=True)
    return names.tolist(), which.astype(np.int64)


def job_flows(scenario: Scenario, policy: Policy, workloads: Sequence[JobClass]) -> JobFlows | None:
    """Return the flows of the jobs; None without fair queueing.

    Raises:
        InputError: if the policy does not support it, a weight names no tenant, or there are too many tenants.
    """
    shares = policy.fair
    if shares is None:
        return None
    _check_policy(scenario, policy)
    by_priority = policy.order.name == "priority"
    tenants = [tenant_of(w) for w in workloads]
    levels = [-w.workload.priority if by_priority else 0 for w in workloads]
    known = {name for names, _ in tenants for name in names}
    for name in shares.weights:
        if name not in known:
            raise InputError(
                f"no workload has the tenant '{name}'",
                where=scenario.where("policy", "fair", "weights", name),
                expected=list_choices(sorted(known)[:10]),
                nearest=nearest(name, sorted(known)),
            )
    keys = sorted({(level, name) for level, (names, _) in zip(levels, tenants, strict=True) for name in names})
    if len(keys) > MAX_FLOWS:
        raise InputError(
            f"{len(keys):,} tenants",
            where=scenario.where("policy", "fair"),
            expected=f"at most {MAX_FLOWS:,} tenants of all priorities",
        )
    number = {key: place for place, key in enumerate(keys)}
    of = [
        np.array([number[level, name] for name in names], dtype=np.int64)[which]
        for level, (names, which) in zip(levels, tenants, strict=True)
    ]
    return JobFlows(
        [_flow(shares, [level for level, _ in keys], place, keys[place][1]) for place in range(len(keys))], of
    )


def _flow(shares: FairShares, levels: Sequence[int], place: int, name: str) -> Flow:
    weight = shares.weights.get(name, 1.0)
    first = levels.index(levels[place])
    return Flow(
        tenant=name,
        first=first,
        end=first + levels.count(levels[place]),
        prompt=round(UNIT * shares.prompt / weight),
        output=round(UNIT * shares.output / weight),
    )


def _check_policy(scenario: Scenario, policy: Policy) -> None:
    where = scenario.where("policy", "fair")
    if policy.batch.kind != "continuous":
        raise InputError(
            "fair shares count the tokens of continuous batches",
            where=where,
            expected="batch: {kind: continuous}, or no `fair`",
        )
    if policy.order.name not in ("arrival", "priority"):
        raise InputError(
            f"the order '{policy.order.name}' leaves nothing to share: it says of two requests which one is first",
            where=where,
            expected="order: priority, which shares among requests of one priority, or order: arrival",
        )


def check_rate_limits(prepared: PreparedRun) -> None:
    """Check that rate limits are of requests, each of which can be admitted at all.

    Raises:
        InputError: if one is not.
    """
    for (_, work), program in prepared.compiled.items():
        job_class = prepared.workloads[work]
        limit = job_class.workload.rate_limit
        if limit is None:
            continue
        where = prepared.scenario.where("workload", work, "rate_limit")
        if program.prompts is None or program.outputs is None:
            raise InputError(
                f"a limit on the tokens of '{job_class.workload.name}', whose program generates none",
                where=where,
                expected="a program of `generate`, or max_waiting",
            )
        most = int((program.prompts + program.outputs).max(initial=0))
        if most > limit.tokens:
            raise InputError(
                f"a request of '{job_class.workload.name}' has {most:,} tokens, and would never be admitted",
                where=where,
                expected=f"tokens: at least {most:,}",
            )
