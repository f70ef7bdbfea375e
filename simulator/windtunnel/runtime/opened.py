"""An opened device: its clock, energy, counters, faults, budgets and end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self

from windtunnel.core.errors import InputError, InvalidArgument, Leak, UnsupportedOperationError
from windtunnel.runtime.budget import Budget, checked_limits
from windtunnel.runtime.buffers import leak_of
from windtunnel.runtime.codes import ErrorKind, Reason, code_of, same_kind
from windtunnel.runtime.fault_injection import ArmedFaults, FaultInjector
from windtunnel.runtime.faults import KINDS, Fault, FaultPlan, fault_from
from windtunnel.runtime.interface import Context, DeviceInfo
from windtunnel.runtime.profile import Profile


@dataclass
class Counters:
    """The number of calls of a program to an accelerator so far."""

    launches: int = 0
    copied_bytes: int = 0
    allocations: int = 0


class OpenedDevice:
    """A device from when it is opened until it is closed, apart from the work on it.

    ``context`` is the opened device. With ``leaks="error"``, closing it raises Leak if memory or a ring kernel is left.
    """

    def __init__(self, context: Context, *, leaks: Literal["ignore", "error"] = "ignore") -> None:
        self.context, self.leaks = context, leaks
        self.injector = FaultInjector(context, self.make_error)
        self.counters = Counters()
        self.findings = context.findings  # all that were raised, in order, also those that the program caught
        self.error_kind: ErrorKind = same_kind
        """What replaces the classes of errors by those of another interface, for a program that is written for it."""
        self.seed = 0
        """The seed of faults that are armed without a seed of their own."""
        self.closed = False
        self.left_bytes = 0
        """The memory (bytes) that was still allocated when the device was closed."""
        self.left: Leak | None = None
        """The finding for memory and ring kernels that were left when the device was closed; None if nothing was."""

    @property
    def info(self) -> DeviceInfo:
        """The description of the device."""
        return self.context.info

    @property
    def name(self) -> str:
        """The device's label."""
        return self.context.info.name

    @property
    def plan(self) -> FaultPlan | None:
        """The faults that are armed now."""
        return self.injector.plan

    @property
    def injected_faults(self) -> list[str]:
        """A log line for each fault that was injected so far, over all plans."""
        return self.injector.log

    def leak(self) -> Leak | None:
        """Return a finding for what is allocated or running now, or was when the device was closed; None if nothing."""
        return self.left if self.closed else leak_of(self.name, self.context.live_allocations(), self.running)

    @property
    def clock_s(self) -> float:
        """The host's clock (s); it is virtual for an emulated device."""
        return self.context.clock_s

    @property
    def trace_hash(self) -> str:
        """With a ``schedule``, a hash of all steps that threads can observe of each other, in order; else ""."""
        return self.context.trace_hash

    @property
    def provenance(self) -> str:
        """The least certain origin of the inputs of ``clock_s`` and ``energy_j`` so far.

        It is ``measured``, ``published``, ``datasheet`` or ``assumed``, as in the columns of `windtunnel predict`.
        """
        return self.context.provenance

    def sleep(self, seconds: float) -> None:
        """Let the host wait: virtual time on an emulated device, real time on a real one."""
        if not 0.0 <= seconds < math.inf:
            raise InputError(f"a sleep of {seconds!r} s", expected="seconds from 0")
        self.context.pass_time(seconds)

    @property
    def energy_j(self) -> float:
        """The energy of the device since it was opened (J); NaN for a real device without an energy counter."""
        return self.context.energy_j

    @property
    def allocated_bytes(self) -> int:
        """The device memory in use (bytes)."""
        return self.context.allocated_bytes

    @property
    def running(self) -> list[str]:
        """The names of ring kernels that have not been terminated."""
        return self.context.running

    # Faults.

    def faults(self, *faults: Mapping[str, object] | str | Fault, seed: int | None = None) -> ArmedFaults:
        """Arm faults for a ``with`` block or a decorated function: see ``runtime.faults``.

        Args:
            *faults: Faults, their kinds, or mappings such as ``{"kind": "ecc", "call": 3}``.
            seed: The seed of random faults; default: the accelerator's.

        Returns:
            A context manager, which is also a decorator. It raises FaultNotFired if a fault did not occur.

        Raises:
            InputError: If a fault is not valid, or a real device cannot be made to fail in this way.
        """
        parsed = [fault if isinstance(fault, Fault) else fault_from(fault) for fault in faults]
        for fault in parsed:
            if not self.info.virtual and KINDS[fault.kind].error is None:
                raise InputError(
                    f"'{fault.kind}' cannot be injected into a real device",
                    expected="a fault that raises an error, or an emulated device",
                )
        return ArmedFaults(self.injector, parsed, self.seed if seed is None else seed)

    def clear(self) -> None:
        """Free all memory and end all ring kernels that a program left; reset a device that failed permanently."""
        if self.injector.needs_reset:
            self.reset()
            return
        self.context.clear()

    def reset(self) -> None:
        """Reset the device after a sticky error. All memory is lost, and the device works again."""
        if self.closed:
            self.injector.check_working("reset")
        self.injector.clear()
        self.context.close()

    # Budgets.

    def expect(
        self,
        *,
        time_s: float | None = None,
        energy_j: float | None = None,
        launches: int | None = None,
        copied_bytes: int | None = None,
        **unknown: object,
    ) -> AbstractContextManager[None]:
        """Return a context manager that raises BudgetExceeded if the work inside exceeds a limit.

        Work that is enqueued inside counts until it has ended, whether the program waits for it or not. The time for
        which a real device's kernels are translated and compiled, at their first launches, does not count.
        Raises InputError if no limit is given, a limit is unknown or is not a finite number of at least 0, and
        UnsupportedOperationError if energy is limited and the device has no energy counter.
        """
        given = {"time_s": time_s, "energy_j": energy_j, "launches": launches, "copied_bytes": copied_bytes}
        limits = checked_limits(given, unknown)
        if energy_j is not None and math.isnan(self.energy_j):
            raise UnsupportedOperationError(f"{self.name} has no energy counter, so energy_j cannot be checked")
        return Budget(self.name, limits, self.usage, lambda: self.context.program_clock_s)

    def usage(self) -> dict[str, float]:
        """Return the usage so far, including work that is under way: time (s), energy (J), launches, copied bytes."""
        (clock_s, energy_j), calls = self.context.totals_when_idle(), vars(self.counters)
        return {"time_s": clock_s, "energy_j": energy_j, **{n: calls[n] for n in ("launches", "copied_bytes")}}

    @contextmanager
    def profile(self) -> Iterator[Profile]:
        """Profile the launches of the block: see docs/testing.md. A real device has profilers of its own."""
        if not self.info.virtual:
            raise UnsupportedOperationError(f"{self.name} is a real device; use its profiler, such as Nsight Compute")
        profile, work = Profile(self.name), self.context.work
        before, work.profile = work.profile, profile.launches
        try:
            yield profile
        finally:
            work.profile = before

    def start_trace(self) -> list[Any]:
        """Return a list that grows with all later work: name, engine, stream, start and end in ticks."""
        return self.context.start_trace()

    def close(self) -> None:
        """Close the device and free everything left on it. Later calls raise InvalidArgument.

        The clock, the energy and the counters can still be read. Closing again has no effect. Raises Leak if memory or
        a ring kernel was left and the device was opened with ``leaks="error"``.
        """
        if not self.closed:
            self.left = self.leak()
            self.closed = True
            self.injector.close(self.make_error(InvalidArgument, "close", "the accelerator was closed"))
            self.left_bytes = self.context.allocated_bytes
            self.context.close()
            if self.left is not None and self.leaks == "error":
                raise self.left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except Leak:
            if kind is None:  # else the program's own error is the primary one
                raise

    def __repr__(self) -> str:
        return f"<{'emulated' if self.info.virtual else 'real'} {self.name}>"

    def make_error(self, error: type[Any], operation: str, problem: str, reason: Reason | None = None) -> Any:
        """Create an error of this device, with the API's code for it."""
        kind = self.error_kind(error, operation, reason)
        return kind(problem, operation=operation, device=self.name, code=code_of(self.info.api, error, reason))
