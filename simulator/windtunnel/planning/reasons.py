"""Why no fleet of one entry alone meets the targets, and why no fleet does at all.

Each reason is a typed result, and its sentence is made from it, so that tests can compare every reason with the
simulation of all fleets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from windtunnel.core.results.candidates import (
    CandidateEntry,
    Conflict,
    EntryReason,
    FirstTokenError,
    TargetLimit,
    TimeError,
)
from windtunnel.core.results.objective import OBJECTIVES, amount
from windtunnel.core.ticks import FloatArray
from windtunnel.core.units import format_quantity, to_unit
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.planning.bounds import Bounds, Counts, Replicated
from windtunnel.planning.candidates import PER_MILLION, Candidates
from windtunnel.planning.evaluation import Evaluation, value_text, violations
from windtunnel.planning.lateness import PERCENTILES, lateness_limits, most_late, until_of
from windtunnel.planning.search import GIVE_UP, Alone, SearchResult, Space
from windtunnel.planning.simulate import Case
from windtunnel.scenario.target import Target
from windtunnel.simulation.sources import model_accuracy, power_errors, widest_error

_ANY_NUMBER = 100_000
"""A number of devices of each entry that stands for any number."""


_TIMES = ("latency", "e2e", "ttft", "tpot", "itl")


def least_time_s(bounds: Replicated, target: Target, entries: Sequence[int]) -> float | None:
    """Return a lower bound (s) on a target's value for fleets of ``entries``: no job waits, each on its fastest entry.

    It is the mean over the replications. None where the target has no such bound: it is not an upper limit on
    `latency`, `e2e`, `ttft`, `tpot` or `itl`, or the jobs that complete are not known.
    """
    if target.comparison != "<=" or target.metric not in _TIMES:
        return None
    values = [_least_time_s(run, target, list(entries)) for run in bounds.runs]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _least_time_s(bounds: Bounds, target: Target, entries: list[int]) -> float | None:
    demand = bounds.demand
    if not demand.complete:
        return None
    until = {"itl": "gap", "tpot": "token"}.get(target.metric) or until_of(target, demand)
    if until is None:
        return None
    by_name = {"whole": demand.alone_s, "first": demand.alone_first_s, "gap": demand.gap_s, "token": demand.token_s}
    times = by_name[until][entries]
    able = demand.eligible[entries]
    mine = able.any(axis=0)
    if target.workload is not None:
        mine &= demand.workload == list(demand.workloads).index(target.workload)
    certain = mine & bounds.judged
    if not certain.any():
        return None
    own = np.where(able, times, math.inf).min(axis=0)[certain]
    if target.metric == "itl":
        return _least_gap_s(own, demand.following[certain], float(demand.following.sum()), target)
    if target.metric == "tpot":
        # Only requests of several tokens have a mean gap.
        several = demand.following > 0
        own, of = own[several[certain]], several if target.workload is None else several & mine
        if target.statistic not in PERCENTILES:
            return float(own.sum() / of.sum()) if of.any() else None
        late = most_late(int(of.sum()), PERCENTILES[target.statistic or ""])
        return float(np.sort(own)[::-1][late]) if late < len(own) else None
    if target.statistic not in PERCENTILES:
        of_all = np.ones(len(demand), dtype=bool) if target.workload is None else mine
        return float(own.sum() / of_all.sum())
    late = int(lateness_limits(demand, [target])[0].most)
    return float(np.sort(own)[::-1][late]) if late < len(own) else None


def _least_gap_s(own: FloatArray, tokens: FloatArray, total: float, target: Target) -> float | None:
    """Return the least value of a target on gaps; ``own`` and ``tokens``: each job's least gap, and how many it has."""
    if not total:
        return None
    if target.statistic not in PERCENTILES:
        return float((own * tokens).sum() / total)
    order = np.argsort(-own)
    beyond = np.cumsum(tokens[order]) > (1 - PERCENTILES[target.statistic or ""]) * total
    return float(own[order][np.argmax(beyond)]) if beyond.any() else None


def first_token_error(
    prepared: PreparedRun, parts: Collection[tuple[int, int]] | None = None
) -> FirstTokenError | None:
    """Return the largest error of a time to the first token; None if no engine serves.

    ``parts``: the entries with the workloads that count, by number; None for all.
    """
    found = []
    for part, program in prepared.compiled.items():
        engine = prepared.classes[part[0]].replica.engine
        if (parts is None or part in parts) and program.decoder is not None and engine is not None:
            error, median = (
                engine.first_token_error(program.decoder.model),
                engine.first_token_median(program.decoder.model),
            )
            found.append(FirstTokenError(error.value, None if median is None else median.value))
    return max(found, key=lambda error: error.factor, default=None)


def _parts(prepared: PreparedRun, entry: int) -> list[tuple[int, int]]:
    return [part for part in prepared.compiled if part[0] == entry]


class Reasons:
    """Finds the reasons for one plan, from its lower bounds and from what was simulated."""

    def __init__(self, candidates: Candidates, targets: Sequence[Target]) -> None:
        self.candidates = candidates
        self.targets = list(targets)
        self._bounds: dict[tuple[str, ...], Replicated] = {}

    def bounds(self, targets: Sequence[Target]) -> Replicated:
        """Return the lower bounds for fleets that keep up and meet only ``targets``."""
        key = tuple(target.text for target in targets)
        if key not in self._bounds:
            whole = self.candidates.bounds
            self._bounds[key] = Replicated(whole.demands, targets, whole.first.slack_s)
        return self._bounds[key]

    # One entry alone.

    def of_entries(
        self, prepared: PreparedRun, alone: Mapping[int, Alone], simulated: Sequence[Evaluation], space: Space
    ) -> list[CandidateEntry]:
        """Return each candidate entry, what its times rest on, and why no fleet of it alone meets the targets by value.

        ``alone`` is how the search of each entry alone ended, and ``simulated`` are the fleets of this and later
        searches. Where another choice is as good, the search by value does not look for such fleets; that with
        confidence may.
        """
        candidates, powers, entries = self.candidates, power_errors(prepared.classes), []
        for i, name in enumerate(candidates.names):
            label = candidates.devices[i].label
            own = {key: program for key, program in prepared.compiled.items() if key[0] == i}
            error = widest_error(model_accuracy(own, prepared.classes), label)
            fleets = [e for e in simulated if sum(e.counts) == e.counts[i]]
            end = None if any(e.meets.value for e in fleets) else alone.get(i)
            if end is not None and end.kind in ("not_searched", "not_better"):
                # That with confidence may have simulated larger fleets, which fail too.
                end = replace(end, count=max([end.count, *(e.counts[i] for e in fleets)]))
                end = replace(end, kind="largest_fails") if end.count >= candidates.max_counts[i] else end
            more = self._only(i, 1 + end.count if end else 0)
            lower_bound = float(space.lower_bound(np.array([more]))[0])
            entries.append(
                CandidateEntry(
                    name=name,
                    device=label,
                    price_usd_per_h=float(candidates.prices[i]) / candidates.sizes[i],
                    reason=self.of_entry(prepared, i, end, error, lower_bound),
                    time_error=error,
                    power_error=next((found for found in powers if found.device == label), None),
                    first_token_error=first_token_error(prepared, _parts(prepared, i)),
                )
            )
        return entries

    def of_entry(
        self, prepared: PreparedRun, entry: int, alone: Alone | None, error: TimeError | None, lower_bound: float
    ) -> EntryReason | None:
        """Return why there is no fleet of an entry alone, or None if there is one or it was not sought.

        ``error`` is that of the entry's device, and ``lower_bound`` that of the objective for one device more than
        the number with which the search ended.
        """
        reason = self._of_jobs(prepared, entry) or (None if alone is None else self._of_search(entry, alone))
        if reason is None:
            return None
        if reason.kind in ("not_searched", "not_better"):
            reason = replace(reason, objective=OBJECTIVES[self.candidates.plan.objective].shown(lower_bound))
        of_first = first_token_error(prepared, _parts(prepared, entry))
        if of_first is not None and reason.kind == "too_slow" and self._are_first_tokens(reason):
            error = TimeError(of_first.factor, "the first token", "measured")
        factor = 1.0 if error is None else error.factor
        reason = replace(reason, within_model_error=self._may_turn(entry, reason, factor))
        text = _entry_text(reason, error, self.candidates)
        chosen = self.candidates.choice
        # The reason is that of one combination of the values that a whole fleet shares.
        return replace(reason, text=f"with {chosen.text}, {text}" if chosen.values else text)

    def _are_first_tokens(self, reason: EntryReason) -> bool:
        """Return whether a reason rests on targets on the first token only."""
        metrics = {target.text: target.metric for target in self.targets}
        return bool(reason.targets) and all(metrics[limit.text] == "ttft" for limit in reason.targets)

    def _of_jobs(self, prepared: PreparedRun, entry: int) -> EntryReason | None:
        """Return the reason of an entry that cannot run all jobs."""
        able, role = self.candidates.demand.eligible[entry], prepared.classes[entry].role
        programs = [c for (number, _), c in prepared.compiled.items() if number == entry]
        if role != "both" and programs:
            return EntryReason(kind="one_role", role=role)
        if able.all():
            return None
        if able.any():
            return EntryReason(kind="some_jobs", jobs=int(able.sum()), of_jobs=len(able))
        if not programs:
            return EntryReason(kind="no_job")
        return EntryReason(
            kind="no_job",
            memory_bytes=float(prepared.classes[entry].usable_bytes(prepared.policy.batch)),
            needed_bytes=min(float(c.footprint_bytes.min()) for c in programs),
        )

    def _of_search(self, entry: int, alone: Alone) -> EntryReason:
        candidates, groups = self.candidates, alone.count
        count, most = groups * candidates.sizes[entry], candidates.max_devices[entry]
        if alone.kind == "cannot":
            limits = [self._limit(t, least_time_s(self.bounds([t]), t, [entry])) for t in self._too_slow(entry)]
            return EntryReason(kind="too_slow", targets=limits)
        if alone.kind == "too_few":
            return EntryReason(kind="too_few", count=count, allowed=most)
        if alone.kind == "over_rent":
            return EntryReason(kind="over_rent", count=count, targets=self._rent(groups * candidates.rents[entry]))
        if alone.kind == "largest_fails":
            evaluation = candidates.judge([Case(self._only(entry, groups))])[0]
            return EntryReason(
                kind="largest_fails",
                count=count,
                allowed=most if count == most else None,
                targets=[] if count == most else self._rent(None),
                violations=violations(evaluation),
            )
        return EntryReason(kind=alone.kind, count=count)

    def _only(self, entry: int, count: int) -> Counts:
        return tuple(count if i == entry else 0 for i in range(self.candidates.entries))

    def _too_slow(self, entry: int) -> list[Target]:
        """Return the targets that no number of an entry's devices meets: each alone, or else a least set of them."""
        counts = self._only(entry, max(self.candidates.demand.gang))

        def cannot(targets: Sequence[Target]) -> bool:
            return not math.isfinite(self.bounds(targets).load(counts)[0])

        return [t for t in self.targets if cannot([t])] or _least_set(self.targets, cannot)

    def _rent(self, least_usd_per_h: float | None) -> list[TargetLimit]:
        """Return the target that limits the rent most."""
        return self._rent_of([t for t in self.targets if _limits_rent(t)], least_usd_per_h)

    def _rent_of(self, rents: Sequence[Target], least_usd_per_h: float | None) -> list[TargetLimit]:
        limit = min(rents, key=self.candidates.rent_limit)
        return [TargetLimit(text=limit.text, limit=to_unit(limit.limit, limit.unit), least=least_usd_per_h)]

    @staticmethod
    def _limit(target: Target, least: float | None) -> TargetLimit:
        """Return a target's limit and its least possible value (SI), which is left out where it is within the limit."""
        beyond = least is not None and least > target.limit
        return TargetLimit(
            text=target.text,
            limit=to_unit(target.limit, target.unit),
            least=to_unit(least, target.unit) if least is not None and beyond else None,
        )

    def _may_turn(self, entry: int, reason: EntryReason, factor: float) -> bool:
        """Return whether times that are shorter by ``factor`` could turn a reason that rests on the lower bound."""
        if reason.kind == "too_slow":
            return bool(reason.targets) and all(
                t.least is not None and t.least / factor <= t.limit for t in reason.targets
            )
        size = self.candidates.sizes[entry]
        count = size * math.ceil((reason.count or 0) / size / factor)
        if reason.kind == "too_few":
            return count <= (reason.allowed or 0)
        if reason.kind == "over_rent":
            return bool(count // size * self.candidates.rents[entry] <= self.candidates.max_cost)
        return False

    # No fleet at all.

    def by_bound(self) -> list[Conflict]:
        """Return which targets no allowed fleet meets, by the lower bound: each alone, or else a least set of them."""
        if self._excluded([]):
            return [self._conflict([])]
        alone = [t for t in self.targets if self._excluded([t])]
        if alone:
            return [self._conflict([t]) for t in alone]
        # If they are excluded only fleet by fleet, all of them are named.
        return [self._conflict(_least_set(self.targets, self._excluded))]

    def _excluded(self, targets: Sequence[Target], any_number: bool = False) -> bool:
        """Return whether the lower bound excludes every fleet that meets ``targets``."""
        most = (_ANY_NUMBER,) * self.candidates.entries if any_number else self.candidates.max_counts
        if not self.candidates.demand.fits(most):
            return True
        rent = self.candidates.rent_lower_bound(self.bounds(targets), most[0] if any_number else None).value
        limit = min(map(self.candidates.rent_limit, targets), default=math.inf)
        return bool(not math.isfinite(rent) or rent > limit * (1 + 1e-9))

    def _conflict(self, targets: Sequence[Target]) -> Conflict:
        # A limit on the whole fleet is last, because its least value is that of fleets that meet the others.
        ordered = sorted(targets, key=lambda t: (_limits_rent(t), t.metric == "power"))
        by_counts = not self._excluded(targets, any_number=True)
        limits = [TargetLimit(text=t.text, limit=to_unit(t.limit, t.unit), least=None) for t in ordered]
        if ordered:
            limits[-1] = self._limit(ordered[-1], self._least(ordered))
        conflict = Conflict(kind="bound", targets=limits, by_counts=by_counts)
        return replace(conflict, text=self._conflict_text(conflict, [t.metric for t in ordered]))

    def _least(self, targets: Sequence[Target]) -> float | None:
        """Return a lower bound (SI) on the value of the last of ``targets`` in a fleet that meets the others."""
        *others, last = targets
        if last.comparison != "<=":
            return None
        if last.metric == "cost":
            return self.candidates.rent_lower_bound(self.bounds(others)).value / 3600
        if _limits_rent(last):
            rent = self.candidates.rent_lower_bound(self.bounds(others)).value
            allowed = self.candidates.rent_limit(last)
            return last.limit * rent / allowed if math.isfinite(rent) and 0.0 < allowed < math.inf else None
        if last.metric == "power":
            candidates = self.candidates
            value = self.bounds(others).lower_bound(
                candidates.demand.idle_w, candidates.max_counts, candidates.plan.max_entries, work_w=1.0
            )
            return value.value if math.isfinite(value.value) else None
        return None if others else least_time_s(self.bounds([last]), last, range(self.candidates.entries))

    def by_search(
        self, evaluations: Sequence[Evaluation], without_rent: Callable[[], tuple[Evaluation, SearchResult] | None]
    ) -> list[Conflict]:
        """Return which simulated fleets meet all targets but one, for each target; the limit on the rent first.

        ``without_rent`` searches the cheapest fleet that meets the targets other than those on the rent.
        """
        conflicts = []
        others, rents = [t for t in self.targets if not _is_rent(t)], [t for t in self.targets if _is_rent(t)]
        found = without_rent() if others and rents else None
        if found is not None:
            evaluation, search = found
            limits = [TargetLimit(text=t.text, limit=to_unit(t.limit, t.unit), least=None) for t in others]
            conflict = Conflict(
                kind="cheapest",
                targets=[*limits, *self._rent_of(rents, evaluation.cost_usd_per_h)],
                fleet=self.candidates.text(evaluation.counts),
                entries=self.candidates.named(evaluation.counts),
                proof=search.proof,
            )
            conflicts.append(replace(conflict, text=self._conflict_text(conflict, [])))
        for target in self.targets:
            able = [e for e in evaluations if e.keeps_up and _missed(e) == [target.text]]
            if not able or (found is not None and _is_rent(target)):
                continue
            best = min(able, key=lambda e: (e.objective(self.candidates.plan.objective), e.counts))
            ordered = [*(t for t in self.targets if t is not target), target]
            conflict = Conflict(
                kind="simulated",
                targets=[TargetLimit(text=t.text, limit=to_unit(t.limit, t.unit), least=None) for t in ordered],
                fleet=self.candidates.text(best.counts),
                entries=self.candidates.named(best.counts),
            )
            missed = best.target(target.text)
            text = (
                f"{target.text} is the only target that {conflict.fleet} at {self.candidates.objective_text(best)} "
                f"misses: {missed.reason if missed.value is None else value_text(missed)}"
            )
            conflicts.append(replace(conflict, text=text))
        return conflicts

    def _conflict_text(self, conflict: Conflict, metrics: Sequence[str]) -> str:
        """Return the sentence of a conflict that the lower bound shows, or of the rent with the other targets."""
        limits = conflict.targets
        texts = [limit.text for limit in limits]
        if conflict.kind == "cheapest":
            rent = f"{limits[-1].least:,.2f} USD/h"
            proof = "" if conflict.proof == "open" else "; every cheaper fleet misses another target"
            return (
                f"{texts[-1]} cannot be met together with {_listed(texts[:-1])}: the cheapest fleet found that meets "
                f"the {'latter' if len(texts) == 2 else 'others'} is {conflict.fleet} at {rent}{proof}"
            )
        allowed = f"with {self._allowed()}" if conflict.by_counts else "by any fleet of these entries"
        if not limits:
            return f"the work cannot be done in time {allowed}"
        what = f"{_listed(texts)} cannot be met{' together' if len(texts) > 1 else ''} {allowed}"
        least = limits[-1].least
        if least is None:
            return what
        if metrics[-1] in ("cost", "power"):
            unit = "USD/h" if metrics[-1] == "cost" else "W"
            value = f"{least:,.2f} USD/h" if unit == "USD/h" else format_quantity(least, "W")
            does = f"meets {_listed(texts[:-1])}" if len(texts) > 1 else "does the work"
            return f"{what}: one that {does} {'costs' if unit == 'USD/h' else 'draws'} at least {value}"
        if metrics[-1] == PER_MILLION:
            return f"{what}: one that meets the others costs at least {least:,.2f} USD per million output tokens"
        return (
            f"{what}: even if no job waits, and each runs on the candidate that is fastest for it, the value is at "
            f"least {format_quantity(least, 's')}, without the error of the models"
        )

    def _allowed(self) -> str:
        """Return the limits on the numbers of devices and of entries as a phrase."""
        counts = set(self.candidates.max_devices)
        if len(counts) > 1:
            most = "as many devices as `max` allows"
        else:
            most = f"at most {max(counts):,} {'device' if max(counts) == 1 else 'devices'} of each entry"
        entries = self.candidates.plan.max_entries
        return most if entries >= self.candidates.entries else f"{most} and {entries} of the entries"


def _missed(evaluation: Evaluation) -> list[str]:
    return [target.text for target in evaluation.targets if target.verdict == "missed"]


def _is_rent(target: Target) -> bool:
    return target.metric == "cost" and target.comparison == "<="


def _limits_rent(target: Target) -> bool:
    return target.metric in ("cost", PER_MILLION) and target.comparison == "<="


def _least_set(targets: Sequence[Target], excluded: Callable[[Sequence[Target]], bool]) -> list[Target]:
    """Return a set of targets that is ``excluded``, but not without any one of its members (a deletion filter)."""
    kept = list(targets)
    for target in targets:
        rest = [t for t in kept if t is not target]
        if excluded(rest):
            kept = rest
    return kept


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


# Long: one sentence for each kind of reason.
def _entry_text(reason: EntryReason, error: TimeError | None, candidates: Candidates) -> str:
    """Return the reason why there is no fleet of an entry alone as a sentence without a full stop."""
    count, limits = reason.count or 0, reason.targets
    if reason.kind == "one_role":
        does, other = ("reads prompts", "decodes") if reason.role == "prefill" else ("decodes", "reads prompts")
        return f"it only {does} (role: {reason.role}); a fleet also needs an entry that {other}"
    if reason.kind == "no_job":
        if reason.memory_bytes is None or reason.needed_bytes is None:
            return "it cannot run any of these jobs"
        memory, need = format_quantity(reason.memory_bytes, "B"), format_quantity(reason.needed_bytes, "B")
        return f"its memory is {memory}; the smallest job needs {need}"
    if reason.kind == "some_jobs":
        return f"alone, it runs only {reason.jobs:,} of {reason.of_jobs:,} jobs"
    if reason.kind == "too_slow":
        parts = [t.text + ("" if t.least is None else f" (at least {format_quantity(t.least, 's')})") for t in limits]
        met = f"meets {_listed(parts)}" if parts else "does the work in time"
        text = f"alone, no number of them {met}, even if no job waits"
    elif reason.kind == "too_few":
        text = f"alone, at least {count:,} are needed, and {reason.allowed:,} are allowed"
    elif reason.kind == "over_rent":
        text = f"alone, at least {count:,} are needed, which cost {limits[0].least:,.2f} USD/h ({limits[0].text})"
    elif reason.kind == "largest_fails":
        why = "the number allowed" if reason.allowed is not None else f"as many as {limits[0].text} allows"
        text = f"alone, {count:,} ({why}) {'fails' if count == 1 else 'fail'}"
        text += f": {reason.violations[0]}" if reason.violations else ""
    elif reason.kind in ("not_searched", "not_better"):
        objective = OBJECTIVES[candidates.plan.objective]
        limit = f"{amount(reason.objective or 0.0, candidates.unit)} or {'less' if objective.inverse else 'more'}"
        suffice = f"{count:,} do not suffice, and " if count > 1 else "one does not suffice, and " if count else ""
        more = "it" if count == 0 else "more"
        beaten = (
            f"{f'under 1/{GIVE_UP:g} of' if objective.inverse else f'over {GIVE_UP:g} times'} the best fleet by value"
        )
        if reason.kind == "not_better":
            beaten = "which is no better than a fleet found with other values"
        text = f"not searched further by value: alone, {suffice}{more} would be at {limit}, {beaten}"
    else:
        text = f"alone, {count:,} do not suffice; more were not tried, as the limit of simulated fleets was reached"
    if not reason.within_model_error or error is None:
        return text
    basis = f", {error.unmeasured}" if error.unmeasured else ""
    return f"{text}; this is within the error of its model (a factor of {error.factor:.3g} for {error.op}{basis})"


__all__ = ["Reasons", "first_token_error", "least_time_s"]
