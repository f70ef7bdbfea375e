"""What a plan answers, in sentences: the recommended fleet, what it meets, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from windtunnel.core.results.objective import OBJECTIVES, amount
from windtunnel.core.results.plan import ChangeEffect, ConfiguredEntry, PlannedFleet, PlanResult
from windtunnel.core.results.target import ENGINE_ERROR, ModelInterval
from windtunnel.core.units import parse_unit
from windtunnel.report.numbers import NOTHING, exact_quantity, plural, share
from windtunnel.report.run_text import METRICS
from windtunnel.report.targets import (
    INCONCLUSIVE,
    MAY_BE_MISSED,
    MET,
    MISSED,
    WITHIN_ERROR,
    all_of,
    ends_text,
    with_signs,
)

_ALIKE = 0.02
"""The difference of a mean window of a trace from the simulated one, relative to this, below which it is not told."""
HOURS_A_MONTH = 730
"""The twelfth part of a year of 365 days, as clouds bill it."""


def _confidence(plan: PlanResult) -> str:
    return f"{plan.confidence * 100:.3g}% confidence"


def verdict(plan: PlanResult) -> str:
    """Return the answer in one line: the recommended fleet, and the best fleet by value where it is another one."""
    if not plan.fleets:
        left = _not_simulated(plan)
        return f"no {'simulated ' if left else ''}fleet meets the targets{left}"
    best, first = plan.fleets[plan.recommended], plan.fleets[0]
    targets = all_of(len(best.targets)).lower()
    spare = _spare(plan)
    if not best.meets.confidence:
        answer = (
            f"{best.text} meets {targets} by value{spare}; no fleet found meets {them(plan)} with {_confidence(plan)}"
        )
        return answer + _may_be_missed(plan)
    answer = f"{best.text} meets {targets} with {_confidence(plan)}{spare}{_may_be_missed(plan)}"
    if plan.recommended:
        costs = [amount(objective_of(plan, fleet), plan.lower_bound.objective_unit) for fleet in (best, first)]
        answer = f"{best.text} ({costs[0]}) meets {targets} with {_confidence(plan)}{spare}{_may_be_missed(plan)}"
        answer += f"; {first.text} ({costs[1]}) meets {them(plan)} by value"
    return answer


def _spare(plan: PlanResult) -> str:
    """Return how many devices of the recommended fleet may be out of service, as the end of a clause."""
    entries = plan.fleets[plan.recommended].configuration
    sizes, groups = (
        [replica_size(entry) for entry in entries],
        [entry.count // replica_size(entry) for entry in entries],
    )
    if not plan.spare:
        return ""
    number = f"{plan.spare:,} {'group' if max(sizes) > 1 else 'device'}{'' if plan.spare == 1 else 's'}"
    if plan.spare >= max(groups):
        number = "all devices"
    elif plan.spare > min(groups):
        number += " or all"
    of = " of any entry" if len(entries) > 1 else ""
    return f", with {number}{of} out of service"


def replica_size(entry: ConfiguredEntry) -> int:
    """Return the devices of a group of an entry; 1 for an entry without groups."""
    return math.prod((entry.group or {}).get(key, 1) for key in ("tensor", "pipeline", "attention_data"))


def _after_a_loss(plan: PlanResult) -> str:
    """Return as a sentence what is known of the recommended fleet after a failure; empty with spare devices."""
    if plan.spare:
        return ""
    replicas: dict[str, int] = {}
    for entry in plan.fleets[plan.recommended].configuration:
        role = entry.role or "both"
        replicas[role] = replicas.get(role, 0) + entry.count // replica_size(entry)
    alone = [role for role, number in replicas.items() if number == 1]
    if not alone or ("both" in replicas and sum(replicas.values()) > 1):
        losses = [effect for effect in plan.explanation.changes if effect.lost]
        if not losses:
            return "It was not judged with a device out of service; with plan.spare: 1 it is."
        text = "; ".join(
            f"with {effect.change[0].lower()}{effect.change[1:]} it {_how_it_meets(effect, plan)}" for effect in losses
        )
        entries = plan.fleets[plan.recommended].configuration
        one_node = len(entries) == 1 and entries[0].node is not None and entries[0].count <= entries[0].node
        together = " All of them may be in one node, whose failure stops the service." if one_node else ""
        return f"{text[0].upper()}{text[1:]}.{_spares(plan, [e for e in losses if not e.still_meets])}{together}"
    which = "the only replica" if alone[0] == "both" else f"the only replica with the role {alone[0]}"
    return f"A failure of one device of {which} stops the service; with plan.spare: 1 the fleet bears one."


def _spares(plan: PlanResult, missed: Sequence[ChangeEffect]) -> str:
    """Return as a sentence what the fleet costs with as many replicas more as each of these losses takes."""
    if not missed:
        return ""
    best, prices = plan.fleets[plan.recommended], {entry.name: entry.price_usd_per_h for entry in plan.entries}
    replica = "replica" if any(replica_size(entry) > 1 for entry in best.configuration) else "device"
    numbers, costs = sorted({effect.lost_replicas for effect in missed}), []
    for number in numbers:
        of_each = [effect for effect in missed if effect.lost_replicas == number]
        more = sum(effect.lost_devices * prices[effect.lost or ""] for effect in of_each)
        which = f"{plural(number, replica)} more{' of each' if len(of_each) > 1 else ''}"
        costs.append(f"{which}, for {best.cost_usd_per_h + more:,.2f} USD/h,")
    spare = " or ".join(f"{number:,}" for number in numbers)
    return (
        f" With {' or '.join(costs)} a fleet of this size remains after such a loss; plan.spare: {spare} seeks the "
        "best fleet that bears it."
    )


def _how_it_meets(effect: ChangeEffect, plan: PlanResult) -> str:
    """Return how certainly the recommended fleet meets the targets under a change, and what it misses."""
    them_ = "the target" if len(plan.fleets[0].targets) == 1 else "the targets"
    why = f" ({'; '.join(effect.violations)})" if effect.violations else ""
    if effect.meets.confidence:
        return f"meets {them_} with {_confidence(plan)}"
    return f"meets {them_} by value only" if effect.meets.value else f"misses {them_}{why}"


def before_renting(plan: PlanResult) -> str:
    """Return what a measurement would decide where the error of the models may break a target; empty elsewhere."""
    beyond = [i for i in plan.explanation.model_intervals if not i.within]
    if not beyond or plan.work.output_tokens is None:
        return ""
    work, prompts = plan.work, ""
    if work.prompt_tokens_p50 is not None and work.prompt_tokens_p95 is not None:
        lengths = f"{work.prompt_tokens_p50:,.0f} and {work.prompt_tokens_p95:,.0f} prompt tokens"
        prompts = f"{lengths} (the median and p95 of this work) and "
    return (
        f"Run {_part(plan, priced=True)} with the configuration below, and measure closed loops of requests with "
        f"{prompts}{work.output_tokens:,.0f} output tokens, with one user and with several, as vllm bench serve "
        "--save-result does. windtunnel validate serving compares their mean times with those of the models."
        f"{_longest_first_tokens(plan, beyond)} If steps take another time too, plan again with the file of windtunnel "
        "calibrate serving as the calibration of the fleet entry; it does not correct times to the first token."
    )


def _part(plan: PlanResult, *, priced: bool = False) -> str:
    """Return the smallest part of the recommended fleet that serves requests alone."""
    prices = {entry.name: entry.price_usd_per_h for entry in plan.entries}
    entries = plan.fleets[plan.recommended].configuration
    if len(entries) > 1:
        return "one replica of each entry"
    (entry,) = entries
    size = replica_size(entry)
    cost = f" ({size:,} × {entry.device}, {size * prices[entry.entry]:,.2f} USD/h)" if priced else ""
    return f"one {'replica' if size > 1 else entry.device}{cost}"


def _longest_first_tokens(plan: PlanResult, beyond: Sequence[ModelInterval]) -> str:
    """Return as a sentence how much longer than modelled times to the first token may be; empty if none is in doubt.

    The interval of such a time is a factor on its value, so a measured factor decides in the same way.
    """
    first = {i.text: i for i in beyond if i.metric == "ttft" and i.value and i.comparison == "<="}
    if not first:
        return ""
    best, several = plan.fleets[plan.recommended], len(first) > 1
    targets = [target for target in best.targets if target.text in first]
    by_value = min(i.limit / (i.value or math.inf) for i in first.values())
    text = (
        f" {' and '.join(map(target_name, first.values()))} {'stay' if several else 'stays'} within the "
        f"limit{'s' if several else ''} by value if steps take as long as modelled and times to the first token at "
        f"most {_down(by_value)} times as long"
    )
    if best.meets.confidence:
        certain = min(first[t.text].limit / (t.worse_end or math.inf) for t in targets)
        text += f", and with {_confidence(plan)}, their intervals scaled likewise, at most {_down(certain)} times"
    return f"{text}."


def at_the_median(plan: PlanResult) -> str:
    """Return as a sentence the best fleets if times to the first token are longer by the median of published ones."""
    if not before_renting(plan):
        return ""
    medians = {e.first_token_error.median for e in plan.entries if e.first_token_error}
    found = next((row for row in plan.explanation.first_tokens if row.factor in medians), None)
    if found is None:
        return ""
    best = "no simulated fleet meets the targets"
    if found.by_value is not None:
        best = f"no simulated fleet meets the targets with {_confidence(plan)}, and"
        if found.with_confidence is not None and found.confident_usd_per_h is not None:
            month = f"{found.confident_usd_per_h * HOURS_A_MONTH:,.0f} USD a month"
            best = f"the best simulated fleet with {_confidence(plan)} is {found.with_confidence} ({month}), and"
        best += f" the best by value is {found.by_value}"
    return (
        f"The median of published times to the first token (closed loops of equal requests) is {found.factor:.3g} "
        f"times those of the models. At that factor {best}."
    )


def _down(factor: float) -> str:
    """Return a factor rounded down, so that what holds up to it holds up to what is shown."""
    return f"{math.floor(factor * 100 + 1e-9) / 100:.2f}"


def _may_be_missed(plan: PlanResult) -> str:
    """Return which targets the recommended fleet may miss within the error of the models, with their 90% intervals.

    Another fleet that was found for this error, and that misses none of them, follows. Where the search reached its
    limit, the end of the sentence says so.
    """
    text = beyond_error(plan.explanation.model_intervals)
    if text:
        surer = dict.fromkeys(
            f"{e.fleet}, at {e.objective_text}"
            for e in plan.explanation.changes
            if e.device and e.fleet and e.model_intervals and not beyond_error(e.model_intervals)
        )
        text = f"; {WITHIN_ERROR} {text}"
        text += f"; {' and '.join(surer)}, would meet {them(plan)} within it too" if surer else ""
    return f"{text}{_not_simulated(plan)}"


def beyond_error(intervals: Sequence[ModelInterval]) -> str:
    """Return which targets may be missed within the error of the models, with their 90% intervals."""
    return " and ".join(f"{target_name(i)} may be missed ({error_ends(i)})" for i in intervals if not i.within)


def status(plan: PlanResult) -> str:
    """Return the state of the answer, as that of `run` for the recommended fleet."""
    if not plan.fleets:
        return MISSED
    if not plan.fleets[plan.recommended].meets.confidence:
        return INCONCLUSIVE
    return MET if all(i.within for i in plan.explanation.model_intervals) else MAY_BE_MISSED


def _not_simulated(plan: PlanResult) -> str:
    """Return how many fleets the limit of the search left out that may be better, as the end of a sentence."""
    search = plan.search
    if "open" not in (search.proof, search.confidence_proof):
        return ""
    left = search.unexplored_cheaper if search.proof == "open" else search.confidence_unexplored
    which = OBJECTIVES[plan.objective].less if plan.fleets else "other"
    return (
        f"; {plural(left, f'{which} fleet')} that may meet the targets {'was' if left == 1 else 'were'} not simulated"
    )


def recommendation(plan: PlanResult) -> str:
    """Return the recommendation as one sentence: what to rent, at what price, and what it meets."""
    if not plan.fleets:
        return f"{verdict(plan)[0].upper()}{verdict(plan)[1:]}"
    best = plan.fleets[plan.recommended]
    targets = all_of(len(best.targets)).lower()
    spare = _spare(plan)
    fleet = best.text.replace("; ", ", ")
    replicas = []
    for entry in best.configuration:
        if (size := replica_size(entry)) > 1:
            of = "" if len(best.configuration) == 1 else f"{entry.entry}: "
            replicas.append(f"{of}{plural(entry.count // size, 'replica')} of {size:,} devices")
    fleet += f" ({'; '.join(replicas)})" if replicas else ""
    if any(entry.device not in (*entry.entry.split(), "server") for entry in best.configuration):
        fleet += f" ({' + '.join(f'{count:,} × {device}' for device, count in best.devices.items())})"
    missed = _may_be_missed(plan)
    advice = f"Measure {_part(plan)} before you rent" if before_renting(plan) else "Rent"
    month = f"{best.cost_usd_per_h * HOURS_A_MONTH:,.0f} USD a month"
    if not best.meets.confidence:
        return (
            f"{advice} {fleet}, for {month}: it meets {targets} by value{spare}, but not with {_confidence(plan)}"
            + missed
        )
    # The confidence covers chance alone; where the error of the models decides, the same clause says so.
    if_right = " if times are as modelled" if beyond_error(plan.explanation.model_intervals) else ""
    return f"{advice} {fleet}, for {month}: it meets {targets} with {_confidence(plan)}{spare}{if_right}" + missed


def uncertainty(plan: PlanResult) -> list[str]:
    """Return as sentences what the confidence covers, and the error of the models of the recommended fleet."""
    best, errors = plan.fleets[plan.recommended], {entry.name: entry.time_error for entry in plan.entries}
    each = " and is that of each target by itself" if len(best.targets) > 1 else ""
    lines = [f"The {plan.confidence * 100:.3g}% confidence covers chance in arrivals and work{each}."]
    parts = []
    for name in best.entries:
        error = errors.get(name)
        if error is not None:
            basis = f", and {error.unmeasured}" if error.unmeasured else ""
            factor = f"a factor of {error.factor:.3g} of its model"
            parts.append(f"90% of the times of a {error.op} on {name} are within {factor}{basis}")
    if parts:
        lines.append(f"{'; '.join(parts)}.")
    firsts = [e.first_token_error for e in plan.entries if e.first_token_error and e.name in best.entries]
    if firsts and any(t.metric in ("ttft", "e2e") for t in best.targets):
        widest = max(firsts, key=lambda error: error.factor)
        text = (
            f"90% of an engine's measured times to the first token are within a factor of {widest.factor:.3g} of those "
        )
        text += "of the models"
        if widest.median is not None:
            text += (
                f"; the median of this engine, or of all where it has few measurements, is {widest.median:.3g} times"
            )
            text += " those"
        lines.append(f"{text}.")
    if powers := "; ".join(power_errors(plan)):
        lines.append(f"{powers[0].upper()}{powers[1:]}.")
    lines += [_with_model_error(plan)]
    lines += [f"{best.model_error_caveat}." if best.model_error_caveat else ""]
    lines += [f"{_if_slower(effect, plan)}." for effect in plan.explanation.changes if effect.device]
    lines += [f"{plan.inputs.assumed:,} of {plural(plan.inputs.total, 'model input')} of all candidates are assumed."]
    lines += [_of_other_times(plan), _after_a_loss(plan), _router(plan)]
    return [with_signs(line) for line in lines if line]


def _router(plan: PlanResult) -> str:
    """Return as a sentence that the simulated route needs a router, which the manifest does not have; else empty."""
    found = [] if plan.deployment is None else plan.deployment.unexpressed
    routes = [unexpressed.text.partition(":")[0] for unexpressed in found if unexpressed.key == "policy.route"]
    if not routes:
        return ""
    return (
        f"The simulated route, {routes[0]}, needs a router in front of the replicas. The manifest has none: its "
        "Service spreads requests evenly, for which this fleet was not judged."
    )


def _of_other_times(plan: PlanResult) -> str:
    """Return as sentences that the fleet is chosen for this work, and how busy other times of its traces are."""
    text = "The fleet is chosen for the work of this run; a busier time may need more."
    for window in plan.work.windows:
        of = f"the trace of {window.workload}" if len(plan.work.windows) > 1 else "the trace"
        length, noun = exact_quantity(window.length_s, "s"), "job" if plan.work.output_tokens is None else "request"
        if window.most_rows > window.rows:
            more, usual = share(window.most_rows / window.rows - 1), window.mean_rows / window.rows - 1
            side = "above" if usual > 0 else "below"
            mean = f"; the mean is {share(abs(usual))} {side} these" if abs(usual) >= _ALIKE else ""
            text += (
                f" The busiest {length} of {of} have {more} more {noun}s than these{mean} ({noun}s are counted, not "
            )
            text += "their tokens)." if noun == "request" else "their sizes)."
            judged = [effect for effect in plan.explanation.changes if effect.window]
            text += "".join(f" In the busiest it {_how_it_meets(effect, plan)}." for effect in judged)
        else:
            text += f" No other {length} of {of} have more {noun}s than these."
    return text


def power_errors(plan: PlanResult) -> list[str]:
    """Return the errors of power of the recommended fleet's devices, and what they mean where power decides."""
    errors = [e.power_error for e in plan.entries if e.power_error and e.name in plan.fleets[plan.recommended].entries]
    texts = list(dict.fromkeys(error.text for error in errors))
    if errors and plan.objective in ("power", "carbon"):
        texts.append(
            f"so {plan.objective} is known to such a factor, and a fleet of other devices within it may be better"
        )
    return texts


def _with_model_error(plan: PlanResult) -> str:
    """Return the intervals of the targets for the error of the models as a sentence; empty without any."""
    found = plan.explanation.model_intervals
    if not found:
        return ""
    values = " and ".join(f"{target_name(i)} is {error_ends(i)} (limit {_in_unit(i.limit, i.unit)})" for i in found)
    beyond = [i for i in found if not i.within]
    outcome = "within the limits" if len(found) > 1 else "within the limit"
    if beyond:
        every = len(beyond) == len(found)
        outcome = (
            f"so {'the targets' if every and len(found) > 1 else ' and '.join(map(target_name, beyond))} may be missed"
        )
    error = f"the error of the models, and {ENGINE_ERROR} (90%, judged by the value)"
    return f"With {error}, {values}, {outcome}."


def target_name(interval: ModelInterval) -> str:
    """Return what a target limits, such as TTFT p99."""
    of = f" of {interval.workload}" if interval.workload else ""
    return f"{METRICS.get(interval.metric, interval.metric)} {interval.statistic or ''}".strip() + of


def _in_unit(value: float | None, unit: str) -> str:
    return NOTHING if value is None else exact_quantity(value * parse_unit(unit).factor, unit)


def error_ends(interval: ModelInterval) -> str:
    """Return the interval of a target for the error of the models, and without which devices it is that."""
    return ends_text(interval.low, interval.high, interval.unit, interval.limit) + interval.out_of_service_text


def _if_slower(effect: ChangeEffect, plan: PlanResult) -> str:
    """Return what follows if a device is as slow as the end of its model's interval allows."""
    targets = "the target" if len(plan.fleets[0].targets) == 1 else "the targets"
    text = f"If every time on {effect.device} were {1 / min(effect.speeds.values()):.3g} times its model's, this fleet"
    if effect.still_meets and effect.meets.confidence:
        return f"{text} would still meet {targets}"
    if effect.still_meets:
        return f"{text} would still meet {targets} by value, but not with {_confidence(plan)}"
    text += f" would not meet {targets}: {'; '.join(effect.violations)}"
    if effect.fleet is None:
        return f"{text}, and none of the fleets tried would meet the targets"
    beyond = beyond_error(effect.model_intervals)
    found = f"{effect.fleet}, at {effect.objective_text}, is the {OBJECTIVES[plan.objective].least} found that"
    if effect.candidates_tried == 1:
        found = f"the one other fleet tried, {effect.fleet}, at {effect.objective_text},"
    if beyond:
        # Its answer to the question would be no better than that of the recommended fleet.
        how = f" with {_confidence(plan)}" if plan.fleets[plan.recommended].meets.confidence else " by value"
        return f"{text}; {found} would meet {them(plan)}{how}, but within the error of its own models {beyond}"
    own = ", also within the error of its own models" if effect.model_intervals else ""
    return f"{text}; {found} would do{own}"


def them(plan: PlanResult) -> str:
    """Return the pronoun for the targets."""
    return "it" if len(plan.fleets[0].targets) == 1 else "them"


def objective_of(plan: PlanResult, fleet: PlannedFleet) -> float:
    """Return the value of the objective of a fleet, as it is shown."""
    values = {
        "cost": fleet.cost_usd_per_h,
        "power": fleet.power_w,
        "carbon": fleet.carbon_kg_per_h,
        "throughput": fleet.throughput_per_s_per_device,
    }
    return values[plan.objective] or 0.0
