"""Numbers as people read them: shared by the terminal's summary and the report.

Every value comes in SI and leaves as text with its unit; None (nothing was measured) leaves as a dash.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.core.errors import InputError
from windtunnel.core.units import format_quantity, format_share, parse_unit, to_unit

NOTHING = "–"

METRICS = {
    "latency": "Latency",
    "waiting": "Waiting",
    "first_token": "Time to first token",
    "next_token": "Time to next token",
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
    if parsed.factor == 1.0 or unit in ("%", "USD/h"):
        return format_quantity(value, unit, digits)
    # A unit that is a scale of the SI one (MHz, GB/s): the author's own unit reads best.
    return f"{number(to_unit(value, unit), digits)} {unit}"


def stated(value: float | None, unit: str) -> str:
    """Like ``quantity``, for what somebody wrote down: "15 s", not "15.0 s", as no measurement limits its digits."""
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
    jobs = result["throughput_per_s"] * result["span_s"]
    return total / jobs if total is not None and jobs else None


def unfinished(jobs: Mapping[str, int]) -> list[str]:
    """What became of the jobs that did not complete: "12 dropped", "3 running" ..., none that is zero."""
    return [f"{jobs[word]:,} {word}" for word in _UNFINISHED if jobs.get(word)]


_SPELLS = {"down": "failure", "unreachable": "link loss", "throttled": "throttling", "brown-out": "brown-out"}
"""What is wrong, by what struck; the plurals of the second differ."""
_MANY = {"link loss": "link losses", "throttling": "throttlings"}


def struck(faults: Mapping[str, Any]) -> list[str]:
    """How often what struck: "3 failures", "1 brown-out" ..., and how many jobs straggled."""
    counts = [(faults["events"].get(word), _SPELLS[word]) for word in _SPELLS] + [(faults["stragglers"], "straggler")]
    return [plural(n, word, _MANY.get(word)) for n, word in counts if n]


def fault_lines(result: Mapping[str, Any]) -> list[str]:
    """What went wrong and what became of the jobs, as lines; none where the scenario states no fault."""
    faults = result.get("faults")
    if faults is None:
        return []
    lines = [", ".join(struck(faults)) or "none struck"]
    if faults["events"].get("down"):
        lines.append(
            f"{share(result['availability'])} available; {plural(faults['interrupted'], 'job')} interrupted: "
            f"{faults['restarts']:,} tried again, {faults['lost']:,} given up"
        )
    return lines


@dataclass(frozen=True)
class TargetLine:
    """One target as it is shown. ``bound`` is the limit with its sign.

    ``reach`` is value over limit (1 is on the limit), None where nothing was measured.
    """

    text: str
    met: bool
    measured: str
    limit: str
    bound: str
    margin: str
    reach: float | None


def target_line(target: Mapping[str, Any]) -> TargetLine:
    """A target of the result, in words: what was measured, against what, and by how much it was met or missed."""
    value, limit, unit = target.get("value"), target.get("limit"), target.get("unit") or "1"
    # The result gives both in the target's own unit; numbers are shown from SI.
    to_si = parse_unit(unit).factor
    value, limit = (None if number is None else number * to_si for number in (value, limit))
    if unit == "1" and "%" in str(target["text"]):
        unit = "%"
    sign = _SIGNS.get(str(target.get("comparison")), "")
    margin, reach = "", None
    if value is not None and limit:
        reach = value / limit
        apart = abs(value - limit) / abs(limit)
        side = "below" if value < limit else "above"
        if value == limit:
            margin = "on the limit"
        elif reach >= 2:
            margin = f"{number(reach, 2)} times the limit"
        else:
            margin = f"{share(apart)} {side} the limit"
    return TargetLine(
        text=str(target["text"]).replace("<=", "≤").replace(">=", "≥"),
        met=bool(target["met"]),
        measured=quantity(value, unit) if value is not None else "nothing measured",
        limit=stated(limit, unit),
        bound=f"{sign} {stated(limit, unit)}".strip(),
        margin=margin,
        reach=reach,
    )


def verdict(targets: Sequence[Mapping[str, Any]]) -> str:
    """The answer in one line."""
    if not targets:
        return "No targets were set"
    missed = sum(not target["met"] for target in targets)
    if len(targets) == 1:
        return "The target is missed" if missed else "The target is met"
    everyone = "Both" if len(targets) == 2 else f"All {len(targets)}"
    if missed == 0:
        return f"{everyone} targets met"
    return f"{missed} of {len(targets)} targets missed" if missed < len(targets) else f"{everyone} targets missed"


@dataclass(frozen=True)
class SkuShare:
    """All devices of one SKU together. Powers in W, energy in J, utilisations as fractions of one."""

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


def _by_rent(devices: Sequence[Mapping[str, Any]], used: Sequence[float]) -> float:
    """The mean utilisation, each device's by how long it was rented."""
    weights = [device.get("rented_s") for device in devices]
    if None in weights or len(set(weights)) == 1:
        return math.fsum(used) / len(used)
    known = [float(weight or 0.0) for weight in weights]
    return math.fsum(u * weight for u, weight in zip(used, known, strict=True)) / math.fsum(known)


def by_sku(devices: Sequence[Mapping[str, Any]]) -> list[SkuShare]:
    """The fleet by SKU, in the order the SKUs first appear."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for device in devices:
        groups.setdefault(str(device["sku"]), []).append(device)
    shares = []
    for sku, members in groups.items():
        # What was never rented had nothing to do, and does not count.
        rented = [device for device in members if device.get("rented_s") != 0] or members
        used = [float(device["utilisation"]) for device in rented]
        shares.append(
            SkuShare(
                sku=sku,
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
