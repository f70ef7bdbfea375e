"""Numbers as people read them: shared by the terminal's summary and the report.

Every value comes in SI and leaves as text with its unit; None (nothing was measured) leaves as a dash.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.core.errors import InputError
from windtunnel.core.result import distribution
from windtunnel.core.units import format_quantity, format_share, parse_unit, to_unit

NOTHING = "–"

METRICS = {
    "latency": "Latency",
    "waiting": "Waiting",
    "ttft": "Time to first token",
    "itl": "Inter-token latency",
}
"""The timed metrics, in the order they are shown, with their headings. ``<metric>_s`` is the result's key."""

STATISTICS = ("mean", "p50", "p95", "p99")

_UNFINISHED = ("running", "queued", "dropped", "failed")
_SIGNS = {"<=": "≤", ">=": "≥"}


def known(value: float | None) -> bool:
    """Whether there is a number at all (not None, not NaN)."""
    return value is not None and not math.isnan(value)


def quantity(value: float | None, unit: str, digits: int = 3) -> str:
    """An SI ``value`` of dimension ``unit``, with a prefix that keeps it short; a dash for None."""
    if value is None or math.isnan(value):
        return NOTHING
    try:
        parsed = parse_unit(unit)
    except InputError:
        return f"{value:.{digits}g} {unit}"
    if parsed.text == "1":
        return number(value, digits)
    if unit == "%":
        return share(value)
    if unit == "/s":
        return f"{number(value, digits)} /s"
    if parsed.factor == 1.0 or unit == "USD/h":
        return format_quantity(value, unit, digits)
    # A unit that is a scale of the SI one (MHz, GB/s): the author's own unit reads best.
    return f"{number(to_unit(value, unit), digits)} {unit}"


def stated(value: float | None, unit: str) -> str:
    """Like ``quantity``, for what somebody wrote down: "15 s", not "15.0 s", as no measurement limits its digits."""
    if unit == "%" and value is not None and not math.isnan(value):
        return f"{value * 100:.4g}%"
    figure, _, rest = quantity(value, unit, 4).partition(" ")
    if "." in figure and "e" not in figure and "USD" not in unit:
        figure = figure.rstrip("0").rstrip(".")
    return f"{figure} {rest}".strip()


def number(value: float | None, digits: int = 3) -> str:
    """A pure number: thousands grouped, at least ``digits`` significant digits, no needless exponent."""
    if value is None or math.isnan(value):
        return NOTHING
    size = abs(value)
    if not math.isfinite(value) or size >= 1e12 or 0 < size < 1e-3:
        return f"{value:.{digits}g}"
    if float(value).is_integer():
        return f"{value:,.0f}"
    whole = len(str(int(size))) if size >= 1 else 0
    if whole == 0:
        return f"{value:.{digits}g}"
    return f"{value:,.{max(0, digits - whole)}f}"


def in_unit(value: float | None, unit: str) -> str:
    """A number somebody stated in ``unit`` (not in SI), as the provenance table holds them."""
    try:
        return NOTHING if value is None else stated(value * parse_unit(unit).factor, unit)
    except InputError:
        return f"{number(value, 4)} {unit}"


def rate(value: float | None, what: str = "") -> str:
    """Something a second, as in "1,234 jobs/s"."""
    return NOTHING if not known(value) else f"{number(value)} {what}/s"


def share(value: float | None) -> str:
    """A fraction of one as a percentage."""
    if value is None or math.isnan(value):
        return NOTHING
    return format_share(value)


def usd(value: float | None) -> str:
    """US dollars; small sums keep three significant digits instead of becoming 0.00."""
    if value is None or math.isnan(value):
        return NOTHING
    return f"{value:,.2f} USD" if abs(value) >= 1 or value == 0 else f"{value:.3g} USD"


def watt_hours(joules: float | None) -> str:
    """An energy in J as watt-hours, which bills are in."""
    return NOTHING if joules is None or math.isnan(joules) else format_quantity(joules / 3600, "Wh")


def spread(low: float | None, high: float | None, unit: str) -> str:
    """A range, its unit said once where both ends share it ("13.9 to 14.6 ms"); empty where an end is unknown."""
    if low is None or high is None:
        return ""
    return _joined(quantity(low, unit), quantity(high, unit))


def stated_range(low: float | None, high: float | None, unit: str) -> str:
    """A range stated in ``unit`` (not in SI), as "3.2 to 6 µs"; empty where an end is unknown."""
    return "" if low is None or high is None else _joined(in_unit(low, unit), in_unit(high, unit))


def _joined(first: str, last: str) -> str:
    if first == last:
        return last
    first_number, _, first_unit = first.partition(" ")
    last_unit = last.partition(" ")[2]
    return f"{first_number} to {last}" if first_unit == last_unit else f"{first} to {last}"


def interval(statistic: Mapping[str, Any] | None, unit: str = "s") -> str:
    """The 95% interval of a ``{value, low, high}``; empty where too few jobs gave none."""
    return "" if statistic is None else spread(statistic.get("low"), statistic.get("high"), unit)


def plural(n: int, one: str, many: str | None = None) -> str:
    """A count and its noun, as in "1 job" and "2,000 jobs"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def per_job(total: float | None, result: Mapping[str, Any]) -> float | None:
    """``total`` (a run's joules or dollars) for one completed job; None where none completed.

    Through the throughput, since with replications job counts are sums over them and everything else a mean.
    """
    jobs = result["throughput_per_s"] * result["simulated_s"]
    return total / jobs if total is not None and jobs else None


def unfinished(jobs: Mapping[str, int]) -> list[str]:
    """What became of the jobs that did not complete: "12 dropped", "3 running" ..., none that is zero."""
    return [f"{jobs[word]:,} {word}" for word in _UNFINISHED if jobs.get(word)]


_SPELLS = {"down": "failure", "unreachable": "link loss", "throttled": "throttling", "brown-out": "brown-out"}
"""What is wrong, by what struck; the plurals of the second differ."""
_MANY = {"link loss": "link losses", "throttling": "throttlings"}


def struck(faults: Mapping[str, Any]) -> list[str]:
    """How often what struck: "3 failures", "1 brown-out" ..., how many jobs straggled, and operations by kind."""
    counts = [(faults["events"].get(word), _SPELLS[word]) for word in _SPELLS] + [(faults["stragglers"], "straggler")]
    operations: dict[str, int] = {}
    for one in faults["by_fault"]:
        if one["eligible_operations"] is not None:
            operations[one["kind"]] = operations.get(one["kind"], 0) + one["occurrences"]
    return [plural(n, word, _MANY.get(word)) for n, word in counts if n] + [
        f"{n:,} {kind}" for kind, n in operations.items() if n
    ]


def never_struck(faults: Mapping[str, Any]) -> str | None:
    """The stated faults that struck nothing, by their place in the list: a run without them says the same."""
    idle = []
    for number, one in enumerate(faults["by_fault"]):
        if one["occurrences"] == 0:
            of = "" if one["eligible_operations"] is None else f", of {plural(one['eligible_operations'], 'operation')}"
            idle.append(f"faults[{number}] ({one['kind']}{of})")
    return f"never struck: {', '.join(idle)}" if idle else None


def fault_lines(result: Mapping[str, Any]) -> list[str]:
    """What went wrong and what became of the jobs, as lines; none where the scenario states no fault."""
    faults = result.get("faults")
    if faults is None:
        return []
    lines = [", ".join(struck(faults))] if struck(faults) else []
    if faults["events"].get("down") or faults["interrupted"]:
        lines.append(
            f"{share(result['availability'])} available; {plural(faults['interrupted'], 'job')} interrupted: "
            f"{faults['restarts']:,} tried again, {faults['failed']:,} given up"
        )
    if faults["corrupted_jobs"]:
        lines.append(f"{plural(faults['corrupted_jobs'], 'job')} completed with garbled data, unnoticed")
    idle = never_struck(faults)
    if idle is not None:
        lines.append(idle)
    return lines or ["none struck"]


def no_average(result: Mapping[str, Any]) -> str | None:
    """Why no time of the run has an average, where it has no steady state: "unstable: ..."; else None."""
    statistics = result.get("statistics") or {}
    if statistics.get("steady_state") != "unstable" or known((result["latency_s"].get("mean") or {}).get("value")):
        return None
    return f"unstable: {statistics['steady_state_reason']}"


def notes_beside_figures(result: Mapping[str, Any]) -> list[str]:
    """The notes, but for that of an unstable run where the figures' own place says it."""
    notes, said = [str(note) for note in result.get("notes") or ()], no_average(result)
    return notes if said is None else [note for note in notes if not note.startswith(said)]


def sureness(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(label, text) of what the intervals rest on: load and steady state, precision asked for, intervals missing."""
    statistics, found = result.get("statistics") or {}, []
    load, settled = statistics.get("offered_load"), statistics.get("steady_state")
    if settled is not None:
        state = {"reached": "settled", "not shown": "not shown to have settled", "unstable": "unstable"}[settled]
        of = " of the devices, the budget not counted" if result.get("power_budget") else ""
        found.append(("steady state", f"load {number(load)}{of}, {state}" if load is not None else state))
    stopped = statistics.get("stopped")
    if stopped is not None:
        reached = (
            "without an interval" if stopped["achieved_error"] is None else f"at {_error(stopped['achieved_error'])}"
        )
        asked = f"{_error(stopped['requested_error'])} asked"
        found.append(
            ("precision", f"stopped {reached} of {stopped['metric']} after {stopped['jobs']:,} jobs ({asked})")
        )
    if no_average(result) is None:
        found += [("no interval" if i == 0 else "", line) for i, line in enumerate(missing_intervals(result))]
    return found


def _error(relative: float) -> str:
    return f"{relative * 100:.3g}%"


_ABOUT = re.compile(r"about (\d+(?:\.\d+)?)(?= independent)")


def missing_intervals(part: Mapping[str, Any]) -> list[str]:
    """Which times of a result (or of a workload) have no interval and why, those of one reason together."""
    reasons: dict[str, tuple[list[str], list[float]]] = {}
    for metric in METRICS:
        timed = distribution(part, metric) or {}
        missing = ((part.get("statistics") or {}).get("missing_interval_reasons") or {}).get(f"{metric}_s") or {}
        for statistic, reason in missing.items():
            if reason and known((timed.get(statistic) or {}).get("value")):
                # Reasons that differ in how many observations there were are one reason.
                alike = _ABOUT.sub("about {}", str(reason), count=1)
                names, counts = reasons.setdefault(alike, ([], []))
                names.append(f"{metric.replace('_', ' ')} {statistic}")
                counts += [float(found[1]) for found in [_ABOUT.search(str(reason))] if found]
    lines = []
    for reason, (names, counts) in reasons.items():
        least, most = (f"{bound(counts):.1f}" for bound in (min, max)) if counts else ("", "")
        about = f"about {least}" if least == most else f"about {least} to {most}"
        lines.append(f"{', '.join(_grouped(names))}: {reason.replace('about {}', about)}")
    return lines


def _grouped(names: Sequence[str]) -> list[str]:
    """Statistics of one metric together: latency mean and p99, waiting p99."""
    statistics: dict[str, list[str]] = {}
    for name in names:
        metric, _, statistic = name.rpartition(" ")
        statistics.setdefault(metric, []).append(statistic)
    return [
        f"all of {metric}" if len(some) == len(STATISTICS) else f"{metric} {' and '.join(some)}"
        for metric, some in statistics.items()
    ]


def power_lines(result: Mapping[str, Any]) -> list[str]:
    """The fleet's power, and what limits it: the devices themselves, or on a second line a budget."""
    power = f"{quantity(result['average_power_w'], 'W')} average, {quantity(result['peak_power_w'], 'W')} peak"
    limits = power_limits(result)
    return [power, "; ".join(limits)] if len(limits) > 1 else [", ".join([power, *limits])]


def power_limits(result: Mapping[str, Any]) -> list[str]:
    """What limits the fleet's power: a budget, where there is one, and what its devices can draw at most."""
    limit, budget = result.get("power_limit_w"), result.get("power_budget")
    limits = [budget_text(budget)] if budget is not None else []
    return [*limits, f"devices' limit {quantity(limit, 'W')}"] if limit else limits


def budget_text(budget: Mapping[str, Any]) -> str:
    """The budget of power, and how low it fell: "budget 5 kW, 3 kW in a brown-out"."""
    normal, least = budget["normal_w"], budget["min_w"]
    low = f"{stated(least, 'W')} in a brown-out" if least is not None and least != normal else ""
    return ", ".join(filter(None, [f"budget {stated(normal, 'W')}" if normal is not None else "no budget", low]))


def never_started(result: Mapping[str, Any]) -> str:
    """How many devices a budget kept from ever starting; empty where none was idle or it is not the budget's doing."""
    feeds = (result.get("power_budget") or {}).get("max_active_devices")
    devices = result["devices"]
    idle = sum(not device["utilisation"] and not device["jobs"] for device in devices)
    # Idle devices are the budget's doing only where as many as it feeds at once have work.
    if feeds is None or not idle or len(devices) - idle < feeds:
        return ""
    return f"{idle:,} of {plural(len(devices), 'device')} were never started: the budget feeds {feeds:,} at once"


@dataclass(frozen=True)
class TargetLine:
    """One target as it is shown. ``bound`` is the limit with its sign.

    ``sure`` is false where the value's 95% interval reaches past the limit. ``reach`` is value over limit (1 is on the
    limit), None where nothing was measured.
    """

    text: str
    met: bool
    sure: bool
    measured: str
    limit: str
    bound: str
    margin: str
    reach: float | None

    @property
    def state(self) -> str:
        """How it is coloured: met, missed, or unsure."""
        return ("met" if self.met else "missed") if self.sure else "unsure"


def target_line(target: Mapping[str, Any]) -> TargetLine:
    """A target of the result, in words: what was measured, against what, by how much, and how sure that is."""
    unit = target.get("unit") or "1"
    # The result gives all of them in the target's own unit; numbers are shown from SI.
    to_si = parse_unit(unit).factor
    value, limit, low, high = (
        None if target.get(key) is None else target[key] * to_si for key in ("value", "limit", "low", "high")
    )
    if unit == "1" and "%" in str(target["text"]):
        unit = "%"
    sign = _SIGNS.get(str(target.get("comparison")), "")
    met, sure = bool(target["met"]), target.get("confidence") != "inconclusive"
    margin, reach = "", None
    if value is not None and limit:
        reach = value / limit
        margin = _margin(value, limit)
        if target.get("confidence") == "no interval" and target.get("metric") in METRICS:
            margin += ", no interval"
    if value is None and target.get("reason"):
        margin = str(target["reason"])
    if not sure:
        end = high if met == (target.get("comparison") == "<=") else low
        margin = f"{'met' if met else 'missed'} by the value; its 95% interval reaches {quantity(end, unit)}"
    return TargetLine(
        text=re.sub(r"(?<=\d) %", "%", str(target["text"]).replace("<=", "≤").replace(">=", "≥")),
        met=met,
        sure=sure,
        measured=quantity(value, unit)
        if value is not None
        else NOTHING
        if target.get("reason")
        else "nothing measured",
        limit=stated(limit, unit),
        bound=f"{sign} {stated(limit, unit)}".strip(),
        margin=margin,
        reach=reach,
    )


def _margin(value: float, limit: float) -> str:
    """How far a value is from its limit, which is not zero."""
    if value == limit:
        return "on the limit"
    if value / limit >= 2:
        return f"{number(value / limit, 2)} times the limit"
    return f"{share(abs(value - limit) / abs(limit))} {'below' if value < limit else 'above'} the limit"


def badge(line: TargetLine) -> str:
    """A target's outcome in one word, with a question mark where the interval reaches past the limit."""
    return ("met" if line.met else "MISSED") + ("" if line.sure else "?")


def verdict(targets: Sequence[Mapping[str, Any]]) -> str:
    """The answer in one line: the values' own, and of how many of them the 95% interval reaches past the limit."""
    if not targets:
        return "No targets were set"
    missed = sum(not target["met"] for target in targets)
    unsure = sum(target.get("confidence") == "inconclusive" for target in targets)
    if len(targets) == 1:
        return f"The target is {'missed' if missed else 'met'}{' by the value, but not surely' if unsure else ''}"
    everyone = "Both" if len(targets) == 2 else f"All {len(targets)}"
    if missed in (0, len(targets)):
        said = f"{everyone} targets {'missed' if missed else 'met'}"
    else:
        said = f"{missed} of {len(targets)} targets missed"
    return said + (f" by their values, {unsure} not surely" if unsure else "")


@dataclass(frozen=True)
class EntryShare:
    """All devices of one fleet entry together. Powers in W, energy in J, utilisations as fractions of one."""

    name: str
    sku: str
    kind: str
    count: int
    mean: float
    least: float
    most: float
    energy_j: float
    jobs: int
    power_limit_w: float
    idle_power_w: float

    @property
    def label(self) -> str:
        """The entry's name, with its SKU where the name does not say it."""
        return self.name if self.name == self.sku else f"{self.name} ({self.sku})"


def entry_of(device: Mapping[str, Any]) -> str:
    """The name of the fleet entry that a device of a result belongs to."""
    return str(device.get("entry") or device["sku"])


def _by_rent(devices: Sequence[Mapping[str, Any]], used: Sequence[float]) -> float:
    """The mean utilisation, each device's by how long it was rented."""
    weights = [device.get("rented_s") for device in devices]
    if None in weights or len(set(weights)) == 1:
        return math.fsum(used) / len(used)
    known = [float(weight or 0.0) for weight in weights]
    return math.fsum(u * weight for u, weight in zip(used, known, strict=True)) / math.fsum(known)


def by_entry(devices: Sequence[Mapping[str, Any]]) -> list[EntryShare]:
    """The fleet by entry, in the order of the scenario."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for device in devices:
        groups.setdefault(entry_of(device), []).append(device)
    shares = []
    for name, members in groups.items():
        # What was never rented had nothing to do, and does not count.
        rented = [device for device in members if device.get("rented_s") != 0] or members
        used = [float(device["utilisation"]) for device in rented]
        shares.append(
            EntryShare(
                name=name,
                sku=str(members[0]["sku"]),
                kind=str(members[0].get("kind", "")),
                count=len(members),
                mean=_by_rent(rented, used),
                least=min(used),
                most=max(used),
                energy_j=math.fsum(device["energy_j"] for device in members),
                jobs=sum(device["jobs"] for device in members),
                power_limit_w=math.fsum(device.get("power_limit_w") or 0.0 for device in members),
                idle_power_w=math.fsum(device.get("idle_power_w") or 0.0 for device in members),
            )
        )
    return shares


def printable(text: str) -> str:
    """``text`` without line breaks or terminal control codes: names come from files people are sent."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
