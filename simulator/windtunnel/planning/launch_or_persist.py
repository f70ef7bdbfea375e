"""Compares a kernel launch for each command with a persistent kernel that receives commands.

A command copies its input to the device, runs steps of one or more kernels, and copies its output back. The device
model's own primitives give both costs:

launch per command  the copies, the latency of the first kernel and of the completion, and the longer of enqueuing the
                    kernels and executing them
persistent          a write to mapped memory, the same bytes over the same link without the set-up of a copy, the same
                    execution, and a poll that reads the reply. Instead of the floor of a launched kernel there is a
                    barrier across the grid: ``BARRIER``, assumed

Without a stated workload (``BENCHMARK``) it is that of the founding documents' benchmark: a state of 64x64x64 float32
cells on the device. A launched command uploads two whole arrays from pageable memory, because the host holds the master
copy, and runs steps of two kernels each (update, boundary). A command to the persistent kernel uploads nothing there,
so most of the saving comes from the copies. ``like_for_like`` is the saving if both forms copy the same.

One host thread sends commands one after another, so a command also waits for earlier ones: an M/D/1 queue, whose
mean queueing delay is s rho / (2 (1 - rho)) for service time s and utilisation rho (Pollaczek and Khinchine).

A persistent kernel occupies the whole device even without commands. So it is recommended if it shortens the mean
response by at least a tenth (``WORTH``), and launches otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from windtunnel.core.device import Device, Parameters
from windtunnel.core.errors import InputError, Location
from windtunnel.core.ops import OPERATIONS, Rows, one_row
from windtunnel.core.provenance import Provenance, SourcedValue, assumed
from windtunnel.core.results.advice import LaunchAdvice, Primitives, Side
from windtunnel.core.units import format_quantity as show

SIDE = 64
"""Cells along each edge of the state."""
WORTH = 0.10
"""The share of the mean response that a persistent kernel must save, because it occupies the device."""
BARRIER = assumed(
    1.0,
    0.5,
    2.0,
    "a barrier across a grid takes a microsecond to a few, as the floor of a kernel does; cooperative grids are "
    "studied by Zhang et al., arXiv:2004.05371, and not measured on these devices",
)
"""The time of a barrier across the grid of a persistent kernel, over the floor of a launched one."""
MOST_STEPS = 10**7
LAUNCH, PERSISTENT = "launch", "persistent"


_BENCHMARK_ARRAY = 4 * SIDE**3


@dataclass(frozen=True)
class Workload:
    """What a command copies, in bytes, and the kernels of one step: operations, or a stated time of one kernel (s).

    ``persistent_copies`` is false if only the launched form copies. ``copies`` is the number of copies to the device.
    """

    text: str
    kernels: tuple[Rows, ...] = ()
    kernel_s: float | None = None
    upload_bytes: float = 0.0
    download_bytes: float = 0.0
    copies: int = 1
    memory: str = "pinned"
    persistent_copies: bool = True


BENCHMARK = Workload(
    f"the founding documents' benchmark: a launched command uploads 2 arrays of {show(_BENCHMARK_ARRAY, 'B')} from "
    "pageable memory, a command to a persistent kernel uploads nothing; a step is 2 stencil kernels",
    kernels=tuple(one_row(OPERATIONS.find("stencil"), {"nx": SIDE, "ny": SIDE, "nz": nz}) for nz in (SIDE, 6)),
    upload_bytes=2 * _BENCHMARK_ARRAY,
    copies=2,
    memory="pageable",
    persistent_copies=False,
)


def primitives(device: Device, barrier: float = BARRIER.value, workload: Workload = BENCHMARK) -> Primitives:
    """Return the primitives of ``device``; raises UnsupportedOperationError if it cannot run the workload."""
    p = Parameters(device)
    powers_w: list[float] = []
    if workload.kernel_s is not None:
        kernels = [workload.kernel_s]
    else:
        costs = [device.cost(rows, intervals=False) for rows in workload.kernels]
        kernels = [float(cost.duration_s[0]) for cost in costs]
        powers_w = [float(cost.power_w[0]) for cost in costs]
    # A round trip includes an empty kernel, which takes its floor.
    floor = min(device.number("kernel_floor_s") or 0.0, *kernels)
    dispatch = p.api_cost("dispatch_s")
    persists = p.feature("persistent")
    into_s, into_mapped_s, into_w = _copied(device, workload, "h2d", workload.upload_bytes, workload.copies)
    out_s, out_mapped_s, out_w = _copied(device, workload, "d2h", workload.download_bytes, 1)
    return Primitives(
        copy_in_s=into_s,
        copy_out_s=out_s,
        start_s=max(p.api_cost("round_trip_s") - (device.number("kernel_floor_s") or 0.0), dispatch),
        enqueue_s=len(kernels) * dispatch,
        synchronize_s=p.api_cost("synchronize_s"),
        step_s=sum(kernels),
        barriers_s=len(kernels) * floor * (barrier - 1.0),
        write_s=p.api_cost("persistent_write_s") if persists else None,
        poll_s=p.api_cost("persistent_poll_s") if persists else None,
        mapped_copies_s=into_mapped_s + out_mapped_s if workload.persistent_copies else 0.0,
        idle_w=device.idle_power_w,
        copy_w=(into_s * into_w + out_s * out_w) / (into_s + out_s) if into_s + out_s else device.idle_power_w,
        # The power of a kernel of which only the time is stated is not known.
        step_w=sum(s * w for s, w in zip(kernels, powers_w, strict=True)) / sum(kernels) if powers_w else None,
        spin_w=device.idle_power_w + device.spin_power_w(1.0) if persists else None,
    )


def _copied(device: Device, workload: Workload, direction: str, size: float, copies: int) -> tuple[float, float, float]:
    """Return the time of the copies in one direction (s), of the same bytes without the set-up, and the power (W)."""
    if not size:
        return 0.0, 0.0, device.idle_power_w
    op = OPERATIONS.find("copy")
    whole, empty = (
        device.cost(one_row(op, values), intervals=False)
        for values in (
            {"bytes": part, "direction": direction, "memory": workload.memory}
            for part in (max(round(size / copies), 1), 1)
        )
    )
    seconds, empty_s = float(whole.duration_s[0]), float(empty.duration_s[0])
    return copies * seconds, copies * max(seconds - empty_s, 0.0), float(whole.power_w[0])


@dataclass(frozen=True)
class Choice:
    """Both forms at one rate and size of command; the recommendation follows from them."""

    parts: Primitives
    commands_per_s: float
    steps: float

    @property
    def launch(self) -> Side:
        """A launch for each command."""
        parts, steps = self.parts, self.steps
        executed, enqueued = steps * parts.step_s, steps * parts.enqueue_s
        latency = parts.copy_in_s + parts.start_s + max(executed, enqueued) + parts.copy_out_s
        calls = parts.copy_in_s + enqueued + parts.synchronize_s + parts.copy_out_s
        copied = parts.copy_in_s + parts.copy_out_s
        return self._side(latency, calls, executed, None, parts.idle_w, self._above_j(parts.idle_w, copied, executed))

    @property
    def persistent(self) -> Side | None:
        """A persistent kernel; None if the API does not support one."""
        parts = self.parts
        if parts.write_s is None or parts.poll_s is None:
            return None
        executed = self.steps * (parts.step_s + parts.barriers_s)
        calls = parts.write_s + parts.poll_s + parts.mapped_copies_s
        assert parts.spin_w is not None  # noqa: S101  stated with the times of a persistent kernel
        # The kernel polls all the time; work adds what it draws beyond polling.
        command_j = self._above_j(parts.spin_w, parts.mapped_copies_s, executed)
        return self._side(calls + executed, calls, executed, 1.0, parts.spin_w, command_j)

    def _above_j(self, rest_w: float, copied_s: float, executed_s: float) -> float | None:
        """Return what a command draws above ``rest_w`` (J); None if the power of its kernels is not known."""
        step_w, copy_w = self.parts.step_w, self.parts.copy_w
        if step_w is None:
            return None
        return copied_s * max(copy_w - rest_w, 0.0) + executed_s * max(step_w - rest_w, 0.0)

    def _side(
        self, latency: float, calls: float, executed: float, held: float | None, rest_w: float, command_j: float | None
    ) -> Side:
        """Return the figures of one form; ``rest_w``: power without commands, ``command_j``: what a command adds."""
        load = self.commands_per_s * latency
        busy = min(self.commands_per_s, 1.0 / latency)
        return Side(
            latency_s=latency,
            response_s=latency * (1.0 + load / (2.0 * (1.0 - load))) if load < 1.0 else None,
            capacity_per_s=1.0 / latency,
            host_busy=min(busy * calls, 1.0),
            device_busy=busy * executed,
            device_held=busy * executed if held is None else held,
            power_w=None if command_j is None else rest_w + busy * command_j,
        )

    @property
    def saving(self) -> float:
        """The share of the mean response that a persistent kernel saves; of one command if neither form keeps up."""
        launched, kept = self.launch, self.persistent
        if kept is None:
            return 0.0
        if kept.response_s is None:
            return 1.0 - kept.latency_s / launched.latency_s
        return 1.0 if launched.response_s is None else 1.0 - kept.response_s / launched.response_s

    @property
    def recommended(self) -> str:
        """``launch`` or ``persistent``."""
        return PERSISTENT if self.saving >= WORTH else LAUNCH


def crossover_steps(parts: Primitives, commands_per_s: float) -> int | None:
    """Return the fewest steps per command at which launches are recommended at this rate; None if they never are.

    Beyond it the saving grows again only if launches run out of capacity.
    """
    before = 0
    for steps in _spread():
        if Choice(parts, commands_per_s, steps).recommended == LAUNCH:
            first = steps
            while first - before > 1:
                middle = (before + first) // 2
                if Choice(parts, commands_per_s, middle).recommended == LAUNCH:
                    first = middle
                else:
                    before = middle
            return first
        before = steps
    return None


def _spread() -> Iterator[int]:
    """Yield whole numbers up to MOST_STEPS, each about 1% more than the previous one."""
    steps = 1
    while steps <= MOST_STEPS:
        yield steps
        steps = max(steps + 1, int(steps * 1.01))


def crossover_rate(parts: Primitives, steps: float) -> float | None:
    """Return the rate (commands/s) from which a persistent kernel is recommended; 0 for every rate, None for no rate.

    The saving grows with the rate, because the queue of the slower form grows earlier.
    """
    if Choice(parts, 0.0, steps).recommended == PERSISTENT:
        return 0.0
    low, high = 0.0, Choice(parts, 0.0, steps).launch.capacity_per_s
    if Choice(parts, high, steps).recommended == LAUNCH:
        return None
    for _ in range(100):
        middle = (low + high) / 2.0
        if Choice(parts, middle, steps).recommended == LAUNCH:
            low = middle
        else:
            high = middle
    return high


def advise(
    device: Device, commands_per_s: float, steps_per_command: int, workload: Workload = BENCHMARK
) -> LaunchAdvice:
    """Return the recommended form for ``device`` at this rate and size of command, both costs, and the crossovers.

    Raises InputError for a rate or a number of steps out of range, and UnsupportedOperationError if the device does not
    run the workload.
    """
    for field, value in (("--commands-per-s", commands_per_s), ("--steps-per-command", steps_per_command)):
        if not 0 < value < math.inf:
            raise InputError(f"this is {value:g}", where=Location(field=field), expected="more than zero, and finite")
    if steps_per_command > MOST_STEPS:
        raise InputError(
            f"this is {steps_per_command:,}",
            where=Location(field="--steps-per-command"),
            expected=f"at most {MOST_STEPS:,}",
        )
    parts = primitives(device, workload=workload)
    choice = Choice(parts, commands_per_s, steps_per_command)
    kept = choice.persistent
    ends = [primitives(device, end, workload) for end in (BARRIER.high, BARRIER.low) if end is not None]
    same = replace(choice, parts=primitives(device, workload=replace(workload, persistent_copies=True)))
    return LaunchAdvice(
        device=device.label,
        commands_per_s=commands_per_s,
        steps_per_command=steps_per_command,
        recommended=choice.recommended,
        why=_why(device, choice),
        workload=workload.text,
        saving=choice.saving,
        saving_like_for_like=None if kept is None else same.saving,
        crossover_steps_per_command=None if kept is None else crossover_steps(parts, commands_per_s),
        crossover_steps_ends=[] if kept is None else [crossover_steps(end, commands_per_s) for end in ends],
        crossover_commands_per_s=None if kept is None else crossover_rate(parts, steps_per_command),
        launch=choice.launch,
        persistent=kept,
        primitives=parts,
        assumed=[_assumption("barrier over kernel floor", BARRIER), *_spin_assumption(device, kept)],
    )


def _assumption(what: str, value: SourcedValue) -> str:
    return f"{what} is {value.value:g} ({value.low:g} to {value.high:g}): {value.reason}"


def _spin_assumption(device: Device, kept: Side | None) -> list[str]:
    """Return the assumption on the power of a kernel that polls, where the API has persistent kernels."""
    sourced = device.values.get("spin_power_share")
    if kept is None or sourced is None or sourced.provenance is not Provenance.ASSUMED:
        return []
    return [_assumption("share of the power range that a kernel on every unit draws while it polls", sourced)]


def _why(device: Device, choice: Choice) -> str:
    launched, kept = choice.launch, choice.persistent
    if kept is None:
        return f"{device.label} has no persistent kernels: the API '{device.api.name}' has no 'persistent'"
    fixed = choice.parts.copy_in_s + choice.parts.start_s + choice.parts.copy_out_s
    if kept.response_s is None:
        return (
            f"neither form keeps up with {choice.commands_per_s:,.10g} commands/s; the persistent kernel serves "
            f"{kept.capacity_per_s / launched.capacity_per_s - 1.0:.0%} more"
        )
    if launched.response_s is None:
        return (
            f"launches serve {_rate(launched.capacity_per_s)} at most, the persistent kernel "
            f"{_rate(kept.capacity_per_s)}"
        )
    if choice.recommended == PERSISTENT:
        return (
            f"the persistent kernel saves {choice.saving:.0%} of the mean response time; copies and launch of a "
            f"command take {show(fixed, 's')}"
        )
    return (
        f"copies and launch of a command, {show(fixed, 's')}, are a small part of it: the persistent kernel would save "
        f"{choice.saving:.1%} of the mean response time and occupy the device all the time"
    )


def _rate(value: float) -> str:
    return f"{value:,.0f} /s" if value >= 1000 else f"{value:.3g} /s"
