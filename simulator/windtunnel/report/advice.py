"""The result of `windtunnel advise` for a terminal: a launch for each command compared with a persistent kernel."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import wrap

from windtunnel.core.results.advice import LaunchAdvice, Side
from windtunnel.core.units import format_quantity
from windtunnel.report.numbers import plural
from windtunnel.report.text import table_lines

_NAMES = {"launch": "launch per command", "persistent": "persistent kernel"}


def advice_text(advice: LaunchAdvice) -> str:
    """Return the advice as text: the recommendation, the figures of both ways, and the crossovers."""
    launch, persistent = advice.launch, advice.persistent
    rate, steps = advice.commands_per_s, advice.steps_per_command
    rows = [["", *_NAMES.values()]]
    rows += [[label, show(launch), "–" if persistent is None else show(persistent)] for label, show in _ROWS]
    lines = [
        f"{advice.device}: {rate:,.10g} commands/s with {plural(steps, 'step')} each",
        f"recommended: {_NAMES[advice.recommended]}",
        f"  {advice.why}",
        *_copies(advice),
        *wrap(f"workload: {advice.workload}", 120, subsequent_indent="  "),
        "",
        *table_lines(rows, "<>"),
    ]
    if persistent is not None:
        low, high = ("never" if end is None else f"{end:,}" for end in advice.crossover_steps_ends)
        ends = "" if low == high else f" ({low} to {high} over the range of the assumed input)"
        highest = max(launch.capacity_per_s, persistent.capacity_per_s)
        lines += [
            "",
            f"crossover at {rate:,.10g} commands/s: {_by_steps(advice.crossover_steps_per_command)}{ends}",
            f"crossover at {plural(steps, 'step')} per command: {_by_rate(advice.crossover_commands_per_s)}; "
            f"neither keeps up above {_rate(highest)}",
            *(line for text in advice.assumed for line in wrap(f"assumed: {text}", 120, subsequent_indent="  ")),
        ]
    return "\n".join(lines)


def _copies(advice: LaunchAdvice) -> list[str]:
    """Return what a persistent kernel saves if both forms copy the same, where they do not."""
    same = advice.saving_like_for_like
    if same is None or f"{same:.0%}" == f"{advice.saving:.0%}":
        return []
    verdict = f"saves {same:.0%}" if same >= 0 else f"takes {-same:.0%} longer"
    return [f"  only the launches copy in this workload: with the same copies a persistent kernel {verdict}"]


def _seconds(value: float | None) -> str:
    return "does not keep up" if value is None else format_quantity(value, "s")


def _rate(value: float) -> str:
    return f"{value:,.0f} /s" if value >= 1000 else f"{value:.3g} /s"


def _share(value: float) -> str:
    return f"{value:.3%}" if value < 0.001 else f"{value:.1%}"


_ROWS: tuple[tuple[str, Callable[[Side], str]], ...] = (
    ("latency", lambda side: _seconds(side.latency_s)),
    ("mean response time", lambda side: _seconds(side.response_s)),
    ("maximum rate", lambda side: _rate(side.capacity_per_s)),
    ("host in API calls", lambda side: _share(side.host_busy)),
    ("device computing", lambda side: _share(side.device_busy)),
    ("device occupied", lambda side: _share(side.device_held)),
    ("mean power", lambda side: "–" if side.power_w is None else format_quantity(side.power_w, "W")),
)


def _by_steps(steps: int | None) -> str:
    if steps is None:
        return "none; the persistent kernel is better for every number of steps"
    if steps == 1:
        return "none; a launch per command is better for every number of steps"
    return f"a launch per command is better from {plural(steps, 'step')} per command"


def _by_rate(rate: float | None) -> str:
    if rate is None:
        return "none; a launch per command is better at every rate"
    if rate == 0.0:
        return "none; the persistent kernel is better at every rate"
    return f"the persistent kernel is better from {_rate(rate)}"
