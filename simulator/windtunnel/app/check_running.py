"""How `windtunnel check` runs launches: again with what else is made up, as long as a finding comes from that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from windtunnel.app.check_arguments import LaunchRequest, MadeUp, arguments_of, local_room
from windtunnel.app.check_contents import Contents
from windtunnel.app.check_grids import GridSizes
from windtunnel.app.check_kernels import CheckedKernel, program_of
from windtunnel.app.check_made_up import Scope
from windtunnel.app.check_sizes import SecondSize
from windtunnel.core.errors import (
    BarrierDivergence,
    Deadlock,
    DeviceError,
    DivisionByZero,
    Finding,
    InputError,
    LaunchError,
    OutOfBounds,
)
from windtunnel.csource.kernel import CFunction
from windtunnel.emulate.common.current import largest_shared_bytes
from windtunnel.language.opencl_words import in_opencl
from windtunnel.library.devices import open_device
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.limits import dims, exceeded
from windtunnel.runtime.profile import LaunchProfile, Profile
from windtunnel.runtime.steps import Steps, StepsExceededError

MOST_MADE_UP = 1 << 26
"""Threads of a launch with memory that is made up: a buffer of a number for each takes up to 2 GiB while it is made."""
MOST_THREADS = 1 << 32
"""Threads of any launch. Their memory is that of some millions, but this many take an hour."""


@dataclass(frozen=True)
class Found:
    """A finding: its class in `windtunnel.errors`, the kernel, its place, and its message."""

    finding: str
    kernel: str
    file: str
    lines: tuple[int, ...]
    columns: tuple[int, ...]
    places: tuple[tuple[str, int, int | None], ...]
    message: str


@dataclass(frozen=True)
class Predicted:
    """The time that the launches of a kernel take on the device, by its model, and the 90% interval (s)."""

    kernel: str
    launches: int
    device: str
    duration_s: float
    duration_low_s: float
    duration_high_s: float
    provenance: str


class Ran(NamedTuple):
    """What a run has found, the times of its launches up to the first finding, and what was made up in the end."""

    findings: Sequence[Found]
    times: Sequence[Predicted]
    made: MadeUp
    notes: Sequence[str]


@dataclass(frozen=True)
class Launches:
    """The launches of a check, on one device.

    Attributes:
        kernels: What is launched.
        requests: How, for each of them.
        device: The emulated device.
        strict: Whether unordered writes of one equal value are a finding.
        grids: The sizes of a launch of two or three dimensions; None for others.
        fewer: The number of elements of what is not stated, for the second launch.
        steps: Limits the turns of loops of a launch.
        contents: What the buffers of each launch are for.
        filled: What a further launch begins with, in words.
    """

    kernels: Sequence[CheckedKernel]
    requests: Sequence[LaunchRequest]
    device: str
    strict: bool = False
    grids: GridSizes | None = None
    fewer: SecondSize | None = None
    steps: Steps = field(default_factory=Steps)
    contents: Sequence[Contents] = ()
    filled: str = ""

    def check_sizes(self) -> None:
        """Raise InputError for a launch that the device does not allow, or that is too large to emulate."""
        named: set[str] = set()
        with open_device(self.device) as accelerator:
            for kernel, request in zip(self.kernels, self.requests, strict=True):
                problem = exceeded(accelerator.info.limits, dims(request.grid), dims(request.block), 0)
                if problem is not None:
                    error = accelerator.make_error(LaunchError, f"launch {kernel.name}", problem, "configuration")
                    raise InputError(_stated(error, request), where=request.where)
                pointers = [p.name for p in kernel.parameters if p.kind == "pointer"]
                made_up = [name for name in pointers if name not in request.arguments and name not in named]
                named.update(pointers)
                threads = math.prod(request.grid) * math.prod(request.block)
                expected = f"at most {MOST_THREADS:,}, or {MOST_MADE_UP:,} with buffers that are made up"
                if MOST_MADE_UP < threads <= MOST_THREADS:
                    expected = (
                        f"at most {MOST_MADE_UP:,}, or a size for each buffer (--arg {''.join(made_up[:1])}=zeros:N)"
                    )
                if threads > (MOST_MADE_UP if made_up else MOST_THREADS):
                    raise InputError(
                        f"{threads:,} threads are too many to emulate", where=request.where, expected=expected
                    )

    def anew(self, fewer: SecondSize | None = None, filled: str = "") -> Launches:
        """Return the launches, with variables of the files that begin again."""
        self._begin_again()
        return replace(self, fewer=fewer, filled=filled)

    def run(self, made: MadeUp, schedule: int | None = None) -> Ran:
        """Run the launches, again with other memory as long as a finding comes from what is made up.

        ``schedule``: the number of an order of the threads; None for the usual one.
        """
        past: tuple[str | None, Found] | None = None
        while True:
            finding, scope, times = self._launched(made, schedule)
            if finding is None:
                break
            if past is not None and finding.array == past[0] and isinstance(finding, OutOfBounds):
                past = None  # far beyond the end, too
            second = self.fewer is not None and self.grids is None and isinstance(finding, OutOfBounds)
            again = None if second else scope.after(made, finding)
            if again is None and isinstance(finding, DivisionByZero):

                def divides(other: MadeUp) -> bool:
                    self._begin_again()
                    return isinstance(self._launched(other, schedule)[0], DivisionByZero)

                again = scope.without_division_by_zero(made, divides)
            if again is None:
                break
            if scope.is_just_past(made, finding):
                past = finding.array, self._found(finding, scope)
            made = again
            self._begin_again()
        findings = [] if past is None else [past[1]]
        if finding is not None and not self._is_of_a_thread_with_an_element(finding):
            findings.append(self._found(finding, scope))
        return Ran(findings, times, made, scope.notes(made, None if past is None else past[0], finding))

    def _begin_again(self) -> None:
        for kernel in self.kernels:
            if isinstance(kernel.function, CFunction):
                kernel.function.module.begin_again()

    def _launched(self, made: MadeUp, schedule: int | None) -> tuple[Finding | None, Scope, list[Predicted]]:
        """Return the first finding of launches, what the arguments of the last launch have made up, and the times."""
        profile, found, scope = Profile(self.device), None, Scope()
        contents = Contents()
        try:
            with (
                open_device(self.device, schedule=schedule, strict=self.strict) as accelerator,
                accelerator.profile() as profile,
            ):
                context: Any = accelerator.context
                context.kernels.steps = self.steps
                buffers: dict[str, Buffer] = {}
                for kernel, request, contents in zip(self.kernels, self.requests, self.contents, strict=True):
                    shared_bytes = accelerator.info.limits.shared_bytes
                    scope = self._scope(kernel, request, buffers, made, shared_bytes)
                    scope = replace(scope, contents=contents, blocks=math.prod(request.grid), kernel=kernel.name)
                    arguments = arguments_of(accelerator, kernel.parameters, request, buffers, made)
                    function = Kernel(kernel.function)
                    shared = made.shared_bytes if request.shared_bytes is None else request.shared_bytes
                    if accelerator.info.api == "cuda" and shared:
                        function.allowed_shared_bytes = largest_shared_bytes(accelerator)
                    accelerator.launch(function, request.grid, request.block, *arguments, shared_bytes=shared)
                accelerator.synchronize()
        except Finding as finding:
            found = finding
            found.array = contents.names.get(found.array or "", found.array)
            if isinstance(finding, (Deadlock, BarrierDivergence)):
                del profile.launches[-1:]  # it never ends
        except StepsExceededError as error:
            raise self._smaller(error, scope) from None
        except MemoryError as error:
            problem = f"the launch is too large for the memory of this machine ({error})"
            raise InputError(problem, where=request.where, expected="smaller sizes (--grid, --arg)") from None
        except DeviceError as error:
            raise InputError(_stated(error, request), where=request.where) from None
        return found, scope, _times(profile.launches, self.device)

    def _smaller(self, error: StepsExceededError, scope: Scope) -> StepsExceededError:
        """Return what to do about a launch with too many steps."""
        made_up = scope.described(Finding(error.problem))
        return StepsExceededError(
            f"{error.problem}; {made_up}" if made_up else error.problem,
            where=error.where,
            expected="smaller numbers and sizes (--arg, --grid), or --steps N for another limit (0 for none)",
        )

    # Long: one entry for each kind of parameter.
    def _scope(
        self,
        kernel: CheckedKernel,
        request: LaunchRequest,
        buffers: Mapping[str, Buffer],
        made: MadeUp,
        shared_bytes: int,
    ) -> Scope:
        """Return what of a launch's arguments is made up. Memory of kernels in Python has no size to grow to."""
        free = [p for p in kernel.parameters if p.name not in request.arguments and p.name not in buffers]
        sides = [g * b for g, b in zip(request.grid, request.block, strict=True)]
        sides[0] = sides[0] if made.elements is None else made.elements
        integer = math.prod(sides) if made.integer is None else made.integer
        integers = {
            p.name: min(made.numbers.get(p.name, integer), int(np.iinfo(p.dtypes[0]).max))
            for p in free if p.kind == "number" and p.dtypes[0].kind in "iu" and not p.members
        }  # fmt: skip
        more = {p.name: p.name in made.rising for p in free}
        pointers = {
            p.name: made.counts.get(p.name, math.prod(sides) + more[p.name]) for p in free if p.kind == "pointer"
        }
        if not isinstance(kernel.function, CFunction):
            return Scope(dict.fromkeys(pointers, 0), buffers=pointers, integers=integers)
        counts = {"pointer": math.prod(request.grid) * math.prod(request.block), "local": math.prod(request.block)}
        known = () if self.grids is None else self.grids.first.elements
        declared = program_of(kernel, request).declared if any(p.kind == "local" for p in free) else {}
        static = {
            d.name: math.prod(d.shape) * d.element.dtype.itemsize for d in declared.values() if d.space == "shared"
        }
        return Scope(
            {
                p.name: made.counts.get(p.name, counts[p.kind] + more[p.name])
                for p in free
                if p.kind in counts and p.name not in known
            },
            local_room(kernel.parameters, request, made, static, shared_bytes),
            frozenset(p.name for p in kernel.parameters),
            buffers=pointers,
            integers=integers,
            numbers=any(p.kind == "number" and p.dtypes[0].kind in "iu" and p.name not in made.numbers for p in free),
            shared=request.shared_bytes is None,
            plain=self.grids is None,
        )

    def _found(self, finding: Finding, scope: Scope) -> Found:
        """Return what is said of a finding, with which sizes were made up."""
        size = ""
        if self.fewer is not None:
            size = (
                f"; in a second launch, which check adds, with {self.fewer.described()}, fewer than the threads: if "
                "the kernel needs an element for each thread, state the number (--arg)"
            )
        elif isinstance(finding, OutOfBounds) and finding.array is not None and finding.array in scope.elements:
            size = f"; '{finding.array}' is not given, so it is made up: {scope.spec(finding.array)} states its size"
        if self.fewer is None and (described := scope.described(finding)):
            size = f"; {described}{size}"
        if self.filled:
            size = f"{size}; in a further launch, which check adds, with {self.filled}"
        size = in_opencl(size) if self.requests[0].file.suffix == ".cl" else size
        name, file = type(finding).__name__, finding.file or ""
        return Found(
            name, scope.kernel, file, tuple(finding.lines), finding.columns, finding.places, f"{finding}{size}"
        )

    def _is_of_a_thread_with_an_element(self, finding: Finding) -> bool:
        """Return whether an access out of bounds is one of a thread that has an element of its own along x.

        Without a guard, it is the others that are out of bounds. A thread with an element that is out of bounds needs
        several of them, of which the number is not known.
        """
        if self.fewer is None or not isinstance(finding, OutOfBounds) or not finding.threads or self.fewer.several:
            return False
        block, thread = finding.threads[0]
        return block[0] * self.requests[0].block[0] + thread[0] < self.fewer.elements


def _stated(error: DeviceError, request: LaunchRequest) -> str:
    """Return the message of an error; for OpenCL without the code, which is one of the device's own API."""
    return f"{error.operation} on {error.device}: {error.problem}" if request.file.suffix == ".cl" else str(error)


def _times(launches: Sequence[LaunchProfile], device: str) -> list[Predicted]:
    """Return the sums of the launches of each kernel, in order."""
    kernels: dict[str, list[LaunchProfile]] = {}
    for one in launches:
        kernels.setdefault(one.name, []).append(one)
    return [
        Predicted(
            name,
            len(group),
            device,
            sum(one.duration_s for one in group),
            sum(one.duration_low_s for one in group),
            sum(one.duration_high_s for one in group),
            group[-1].provenance,
        )
        for name, group in kernels.items()
    ]
