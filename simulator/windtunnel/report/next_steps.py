"""What to do next, from the numbers of a run alone: the cause of a missed target, and the key to change.

Every sentence is derived from the result. A run that says nothing about the cause of a missed target gets no advice
about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from windtunnel.core.results.run import RunResult, distribution
from windtunnel.core.results.target import TargetVerdict
from windtunnel.core.results.use import EntryUse
from windtunnel.report.numbers import number, plural, rate, share
from windtunnel.report.run_text import by_entry, idle_by_budget
from windtunnel.report.targets import doubt_of, with_signs

MOST = 2
"""The most sentences."""
_FULL, _MANY = 0.98, 0.9
"""Shares from which a KV cache counts as full, and a batch as large as it may be."""
_CROWDED = 0.5
"""The share of the largest batch from which fewer sequences in a step are suggested."""
_WAITS = 0.5
"""The share of a time from which waiting is said to decide it."""
_SPREAD = 2.0
"""How many times its median the p99 of the gaps between tokens is where steps that read prompts are said to decide."""
_HEADROOM = 0.5
"""The share of its limit below which a value has large headroom."""
_UNTIL_FIRST = ("ttft", "latency", "waiting", "e2e")
_BETWEEN = ("itl", "tpot")
_PLAN = "`windtunnel plan` finds the cheapest fleet that meets the targets"


def next_steps(result: RunResult) -> list[str]:
    """Return what to do next as at most two sentences; none where the run suggests nothing."""
    missed = [target for target in result.targets if not target.met]
    found = [*_overload(result, missed)]
    if not found:
        found += list(dict.fromkeys(text for target in missed for text in _binding(result, target)))[: MOST - 1]
    if missed and not result.real:
        found += [_plan_for(result, missed)] if result.cost_usd is not None else []
    if not missed:
        found += [*_inconclusive(result), *_headroom(result)]
    return found[:MOST]


def _overload(result: RunResult, missed: list[TargetVerdict]) -> Iterator[str]:
    """Yield how much load the fleet takes, if its queue grows for the whole run."""
    load = result.statistics.offered_load
    unstable = result.statistics.steady_state == "unstable"
    if load is not None and load > 1.0:
        counted = "replicas" if any(device.group for device in result.devices) else "devices"
        yield (
            f"the load is {share(load)} of what the fleet can do: reduce it to at most {share(1 / load)}, or have "
            f"{number(load)} times as many {counted} ({_largest_key(result, 'count')})"
        )
    elif unstable or (missed and _backlog(result)):
        yield (
            f"the queue grows: the fleet completes {rate(result.throughput_per_s, 'jobs')} and more arrive; reduce the "
            f"load to that, or add devices ({_largest_key(result, 'count')})"
        )


def _backlog(result: RunResult) -> bool:
    """Return whether more jobs wait at the end of the run than run, and they are a tenth of all."""
    jobs = result.jobs
    return jobs.queued > jobs.running and 10 * jobs.queued >= jobs.arrived


def _binding(result: RunResult, target: TargetVerdict) -> Iterator[str]:
    """Yield what decides a missed target, and the keys to change."""
    name = with_signs(target.text)
    part: Any = result if target.workload is None else _workload(result, target.workload)
    if target.metric in _UNTIL_FIRST and part is not None:
        yield from _until(result, part, target, name)
    elif target.metric in _BETWEEN and part is not None:
        yield from _between_tokens(result, part, name)
    elif target.metric == "slo_attainment":
        yield from _attainment(result, name)
    elif target.metric == "completed" and (result.jobs.dropped or result.jobs.failed):
        lost = [f"{n:,} {word}" for n, word in ((result.jobs.dropped, "dropped"), (result.jobs.failed, "failed")) if n]
        yield f"{name}: {' and '.join(lost)} of {plural(result.jobs.arrived, 'job')}"
    elif target.metric == "cost_per_million_output_tokens" and (busiest := _busiest(result)) is not None:
        yield f"{name}: the rent is shared by few tokens; {_use(busiest)}, so fewer or cheaper devices may do"


def _until(result: RunResult, part: Any, target: TargetVerdict, name: str) -> Iterator[str]:
    """Yield whether waiting or the work itself decides a time that begins with the arrival."""
    times, waits = distribution(part, target.metric), distribution(part, "waiting")
    value = None if times is None else times.of(target.statistic or "mean").value
    waiting = None if waits is None else waits.of(target.statistic or "mean").value
    if not value or waiting is None:
        return
    if waiting < _WAITS * value:
        yield f"{name}: {_why_slow(result, target.metric)}"
        return
    of = "" if target.metric == "waiting" else f"{share(min(waiting / value, 1.0))} of it is waiting for a device; "
    yield f"{name}: {of}{_why_waiting(result)}"


def _workload(result: RunResult, name: str) -> Any:
    return next((workload for workload in result.workloads if workload.name == name), None)


def _busiest(result: RunResult) -> EntryUse | None:
    """Return the fleet entry whose KV cache is the fullest; None without serving."""
    entries = () if result.serving is None else result.serving.entries
    return max(entries, key=lambda entry: (entry.kv_peak or 0.0, entry.busy), default=None)


def _use(entry: EntryUse) -> str:
    kv = "" if entry.kv_mean is None else f" and its KV cache {share(entry.kv_mean)} full"
    return f"{entry.entry} has {number(entry.mean_sequences or 0.0)} sequences on average{kv}"


def _why_waiting(result: RunResult) -> str:
    """Return why requests wait, from what is full, and the keys to change."""
    if idle_by_budget(result):
        return "the power budget keeps devices idle (power_budget)"
    entry = _busiest(result)
    more = _largest_key(result, "count") if entry is None else _key(result, entry.entry, "count")
    if entry is None or entry.mean_sequences is None:
        busy = max((e.mean for e in by_entry(result.devices)), default=0.0)
        return f"devices are busy {share(busy)} of the time: add some ({more})"
    if entry.kv_peak is None and not _batch(result, entry):
        return f"each replica generates one request at a time: policy.batch={{kind: continuous}} or {more}"
    serving = result.serving
    preempted = 0 if serving is None else serving.preemptions
    if (entry.kv_peak or 0.0) >= _FULL or preempted:
        also = f", {plural(preempted, 'preemption')}" if preempted else ""
        keys = ", ".join(
            filter(None, (more, _model_key(result, "kv_dtype", "fp8"), _batch_key(result, entry, "memory")))
        )
        return f"the KV cache of {entry.entry} is full ({share(entry.kv_peak or 0.0)} at its peak{also}): {keys}"
    size = _batch(result, entry).get("size")
    if size and entry.mean_sequences >= _MANY * size:
        return (
            f"the batches of {entry.entry} are full ({size} sequences): {_batch_key(result, entry, 'size')} or {more}"
        )
    return f"prompts wait for room in the steps of {entry.entry}: {_batch_key(result, entry, 'tokens')} or {more}"


def _why_slow(result: RunResult, metric: str) -> str:
    """Return what takes the time of a request that hardly waits, and the keys to change."""
    entry = _busiest(result)
    if entry is None or entry.mean_sequences is None:
        return f"the work itself takes it, not the queue: a faster device ({_largest_key(result, 'device')})"
    faster = " or ".join(
        filter(None, (_key(result, entry.entry, "group.tensor"), _model_key(result, "weights", "fp8")))
    )
    if metric != "ttft":
        return f"the steps take it, not the queue: {faster}"
    tokens, serving = _batch(result, entry).get("tokens"), result.serving
    read = 0.0 if serving is None or not result.throughput_per_s else serving.input_tokens_per_s or 0.0
    prompt = read / result.throughput_per_s if read else 0.0
    if tokens and prompt > tokens:
        key = _batch_key(result, entry, "tokens")
        return f"prompts of {prompt:,.0f} tokens on average take several steps of {tokens:,}: {key} or {faster}"
    return f"reading the prompt takes it, not the queue: {faster}"


def _between_tokens(result: RunResult, part: Any, name: str) -> Iterator[str]:
    """Yield whether steps that read prompts, or all steps, make the time between tokens too long."""
    gaps, entry = distribution(part, "itl"), _busiest(result)
    if gaps is None or entry is None or not gaps.p50.value or gaps.p99.value is None:
        return
    tokens, ratio = _batch(result, entry).get("tokens"), gaps.p99.value / gaps.p50.value
    if ratio >= _SPREAD and tokens:
        key = _batch_key(result, entry, "tokens")
        yield (
            f"{name}: steps that read prompts take {number(ratio)} times as long as most: less than {tokens:,} tokens "
            f"in a step ({key})"
        )
        return
    keys = [_key(result, entry.entry, "group.tensor"), _model_key(result, "weights", "fp8")]
    size = _batch(result, entry).get("size")
    if size and entry.mean_sequences is not None and entry.mean_sequences >= _CROWDED * size:
        keys.insert(0, f"fewer sequences in a step ({_batch_key(result, entry, 'size')})")
    yield f"{name}: most steps take this long ({_use(entry)}): {' or '.join(filter(None, keys))}"


def _attainment(result: RunResult, name: str) -> Iterator[str]:
    """Yield the target on single requests that most requests miss, by how far its p95 is above its limit."""
    worst: tuple[float, TargetVerdict] | None = None
    for target in result.targets:
        times = distribution(result, target.metric) if target.metric in (*_BETWEEN, "ttft", "e2e") else None
        value = None if times is None else times.p95.value
        if value is not None and target.limit:
            over = value / (target.limit * _seconds(target.unit))
            worst = max(worst or (1.0, target), (over, target), key=lambda pair: pair[0])
    if worst is not None and worst[0] > 1.0:
        for text in _binding(result, worst[1]):
            yield f"{name}: most requests that fail it miss {text}"


def _seconds(unit: str) -> float:
    return {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0}.get(unit, 1.0)


def _plan_for(result: RunResult, missed: list[TargetVerdict]) -> str:
    if any(re.search(r"power|energy|carbon", target.metric) for target in missed):
        return "`windtunnel plan --objective power` finds the fleet with the least power that meets the targets"
    return _PLAN


def _inconclusive(result: RunResult) -> Iterator[str]:
    """Yield how to decide targets whose confidence interval contains the limit, or that have none."""
    unsure = [target for target in result.targets if doubt_of(target)]
    if not unsure:
        return
    names = " and ".join(with_signs(target.text) for target in unsure[:2])
    wanted, known = max(10, 4 * result.replications), doubt_of(unsure[0]) == "inconclusive"
    does = "narrows the" if known else "gives a"
    yield f"{names}: `--replications {wanted}`, or a longer run, {does} confidence interval"


def _headroom(result: RunResult) -> Iterator[str]:
    """Yield that a cheaper fleet may do, if every value is far within its limit and there is a fleet to reduce."""
    if not result.targets or result.cost_usd is None or result.real:
        return
    if any(doubt_of(target) or target.may_be_missed or target.value is None for target in result.targets):
        return
    if not _can_be_smaller(result):
        return
    timed = [target for target in result.targets if target.comparison == "<=" and target.limit > 0]
    if timed and all((target.value or 0.0) <= _HEADROOM * target.limit for target in timed):
        yield "every value is within half of its limit: `windtunnel plan` may find a cheaper fleet"


def _can_be_smaller(result: RunResult) -> bool:
    """Return whether a plan may find a fleet with fewer of these devices: it searches the entries of the scenario.

    One replica of each role cannot be fewer. Of one entry, one less would be overloaded if the load says so.
    """
    entries, fleet = by_entry(result.devices), list(result.scenario.get("fleet", ()))  # type: ignore[call-overload]
    roles = {entry.get("role", "both") for entry in fleet} or {"both"}
    number = sum(entry.count for entry in entries)
    if number <= len(roles):
        return False
    load = result.statistics.offered_load
    return len(entries) > 1 or load is None or load * number / (number - 1) <= 1


def _batch(result: RunResult, entry: EntryUse) -> Mapping[str, Any]:
    """Return the limits of the steps of an entry as the resolved scenario has them."""
    policy: Any = result.scenario.get("policy")
    batch = policy.get("batch") if isinstance(policy, Mapping) else None
    fleet: Any = result.scenario.get("fleet", ())
    index = _index(result, entry.entry)
    own = fleet[index].get("batch") if index is not None and index < len(fleet) else None
    stated = {key: value for key, value in (own or {}).items() if value is not None}
    return {**(batch or {}), **stated}


def _batch_key(result: RunResult, entry: EntryUse, key: str) -> str:
    """Return the path of a limit of steps: the entry's own where it states one, else the policy's."""
    fleet: Any = result.scenario.get("fleet", ())
    index = _index(result, entry.entry)
    own = fleet[index].get("batch") if index is not None and index < len(fleet) else None
    return f"fleet[{index}].batch.{key}" if own and own.get(key) is not None else f"policy.batch.{key}"


def _model_key(result: RunResult, key: str, value: str) -> str:
    """Return the path of a key of the only model with a narrower format; empty if it has that already."""
    models: Any = result.scenario.get("models") or {}
    if len(models) != 1:
        return ""
    ((name, model),) = models.items()
    return "" if model.get(key) == value else f"models.{name}.{key}={value}"


def _index(result: RunResult, entry: str) -> int | None:
    names = [found.name for found in by_entry(result.devices)]
    return names.index(entry) if entry in names else None


def _key(result: RunResult, entry: str, key: str) -> str:
    """Return the path of a key of an entry; the number of devices of a scaled one is the autoscaler's."""
    scaled = [rule.entry for rule in result.autoscale]
    if key == "count" and entry in scaled:
        return f"autoscale[{scaled.index(entry)}].max"
    index = _index(result, entry)
    return f"fleet[{index}].{key}" if index is not None else key


def _largest_key(result: RunResult, key: str) -> str:
    """Return the path of a key of the entry whose devices are busiest."""
    entries = by_entry(result.devices)
    return "" if not entries else _key(result, max(entries, key=lambda entry: entry.mean).name, key)
