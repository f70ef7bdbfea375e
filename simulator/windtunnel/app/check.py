"""`windtunnel check`: runs kernels of CUDA C, OpenCL C or Python under all detectors."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from windtunnel.app.check_arguments import LaunchRequest, MadeUp
from windtunnel.app.check_contents import Contents, contents_of
from windtunnel.app.check_grids import GridSizes, grid_sizes
from windtunnel.app.check_headers import naming_headers
from windtunnel.app.check_kernels import CheckedKernel, kernels_of, program_of
from windtunnel.app.check_running import Found, Launches, Predicted
from windtunnel.app.check_sizes import SecondSize, is_count, second_size, states_conditions
from windtunnel.core.errors import ChecksSkippedWarning, InputError
from windtunnel.csource.kernel import SUFFIXES, CFunction
from windtunnel.runtime.steps import Steps, StepsExceededError

DEVICE = "h100-sxm-80gb"
"""The device that is emulated unless another is asked for."""
STEPS = 1_000_000
"""The steps of a launch that are executed unless another number is asked for."""
OPTED_IN_ABOVE = 49_152
"""Bytes of dynamic shared memory above which CUDA launches a kernel only if the program has allowed it."""


@dataclass(frozen=True)
class Checked:
    """What the check has found, notes on what was not checked, and the time of the launches on the device.

    ``elements``: the elements of a further launch, in words, which has fewer of them than threads. A launch that has a
    finding counts with the time of the kernel as it is, unless it never ends.
    """

    findings: Sequence[Found]
    notes: Sequence[str]
    launches: int
    schedules: int
    predicted: Sequence[Predicted] = ()
    elements: str | None = None


def check(
    requests: Sequence[LaunchRequest],
    device: str | None = None,
    *,
    schedules: int = 0,
    strict: bool = False,
    quiet: bool = False,
    steps: int | None = None,
    report: Callable[[int], None] | None = None,
) -> Checked:
    """Run launches in order, on one device, and return what the detectors find.

    Args:
        requests: The launches. Buffers of one name are one buffer.
        device: The emulated device, SKU or SKU@API.
        schedules: The number of further runs, each with another order of threads.
        strict: Whether unordered writes of one equal value are a finding.
        quiet: Whether what kernels print goes to standard error.
        steps: The most steps of a launch: turns of loops as the emulator executes them. 0 for any number; `STEPS`
            unless given.
        report: Called with the steps of a launch so far, from time to time.

    Raises InputError for a wrong source or argument.
    """
    try:
        first = Launches(
            kernels_of(requests),
            requests,
            device or DEVICE,
            strict,
            steps=Steps(STEPS if steps is None else steps, report),
        )
        output = contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext()
        with output:
            return _checked(first, schedules)
    except InputError as error:
        for request in requests:
            if request.file.suffix in SUFFIXES:
                error = naming_headers(error, request.file, request.include)
        raise error from None


# Long: what is made up, and the launches, one after the other.
def _checked(launches: Launches, schedules: int) -> Checked:
    kernels, requests = launches.kernels, launches.requests
    launches.check_sizes()
    found: dict[tuple[str, str, tuple[int, ...]], Found] = {}
    predicted: Sequence[Predicted] = []
    made_up: list[str] = []
    tried: list[str] = []
    grids = _grid_sizes(kernels, requests)
    contents = [_contents(kernel, request) for kernel, request in zip(kernels, requests, strict=True)]
    launches = replace(launches, grids=grids, contents=contents)
    rising = contents[0].rising if len(requests) == 1 else frozenset[str]()
    places = {name: one.start for name, one in contents[0].counters.items() if one.is_place}
    first = MadeUp(rising=rising, filled=places if len(requests) == 1 else {})
    if grids is not None:
        first = replace(first, numbers=grids.first.numbers, counts=_with_ends(grids.first.elements, rising))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ChecksSkippedWarning)
        for schedule in [None, *range(schedules)]:
            try:
                ran = (launches if schedule is None else launches.anew()).run(first, schedule)
            except StepsExceededError as error:
                if not found:
                    raise
                made_up.append(str(error))  # what was found before counts
                break
            first, findings = ran.made, list(ran.findings)
            predicted, made_up = predicted or ran.times, made_up or list(ran.notes)
            further: list[tuple[MadeUp, str, SecondSize | None]] = []
            if schedule is None and len(requests) == 1:
                made, filled = _with_counters(contents[0], first)
                further += [(made, filled, None)] if filled else []
                pairs = _further(kernels, requests, grids, first)
                further += [(made, fewer.described(), fewer) for made, fewer in pairs]
            for made, words, fewer in further:
                if not findings:
                    try:
                        findings += launches.anew(fewer, "" if fewer else words).run(made).findings
                        tried.append(words)
                    except StepsExceededError as error:
                        made_up.append(f"in a further launch, with {words}: {error}")
            for each in findings:
                found.setdefault((each.finding, each.file, each.lines), each)
    notes = [*made_up, *_notes(kernels, requests, caught)]
    return Checked(
        list(found.values()),
        notes,
        len(requests),
        schedules,
        predicted,
        ", and one with ".join(tried) or None,
    )


def _contents(kernel: CheckedKernel, request: LaunchRequest) -> Contents:
    """Return what the buffers of a kernel are for. Nothing is known of those of kernels in Python."""
    if not isinstance(kernel.function, CFunction):
        return Contents()
    return contents_of(program_of(kernel, request), kernel.parameters, request)


def _with_ends(elements: Mapping[str, int], rising: Collection[str]) -> dict[str, int]:
    """Return the elements of buffers with the end of the last row."""
    return {name: count + (name in rising) for name, count in elements.items()}


def _with_counters(contents: Contents, made: MadeUp) -> tuple[MadeUp, str]:
    """Return what is made up with counters that are as before a first use, and in words; no words if nothing is new."""
    counters = {name: one.start for name, one in contents.counters.items() if name not in made.filled}
    words = [f"{'zeros' if start == 0 else f'{start:,}'} in '{name}'" for name, start in sorted(counters.items())]
    return replace(made, filled={**made.filled, **counters}), " and ".join(words)


def _notes(
    kernels: Sequence[CheckedKernel], requests: Sequence[LaunchRequest], caught: Sequence[warnings.WarningMessage]
) -> list[str]:
    """Return notes on what was left out or not checked, and on what the program has to do for the launches."""
    notes: list[str] = []
    for kernel in kernels:
        if isinstance(kernel.function, CFunction):
            notes += [note for note in kernel.function.module.unit.notes if note not in notes]
    for kernel, request in zip(kernels, requests, strict=True):
        if (request.shared_bytes or 0) > OPTED_IN_ABOVE and isinstance(kernel.function, CFunction):
            unit = kernel.function.module.unit
            if not (unit.opencl or any("MaxDynamicSharedMemorySize" in line for line in unit.lines)):
                notes.append(
                    f"{request.file}: more than {OPTED_IN_ABOVE:,} bytes of dynamic shared memory need "
                    f"cudaFuncSetAttribute({kernel.name}, cudaFuncAttributeMaxDynamicSharedMemorySize, "
                    f"{request.shared_bytes}) in the program"
                )
    for one in caught:
        if issubclass(one.category, ChecksSkippedWarning) and str(one.message) not in notes:
            notes.append(str(one.message))
    return notes


def _grid_sizes(kernels: Sequence[CheckedKernel], requests: Sequence[LaunchRequest]) -> GridSizes | None:
    """Return what is made up for a launch of two or three dimensions; None for another one, or several launches."""
    (kernel, *_), (request, *others) = kernels, requests
    free = [p for p in kernel.parameters if p.name not in request.arguments and not p.members]
    integers = [p.name for p in free if p.kind == "number" and p.dtypes[0].kind in "iu"]
    if others or not isinstance(kernel.function, CFunction) or not any(p.kind == "pointer" for p in free):
        return None
    # The buffers of which the size is known, in elements of the parameters.
    sizes = {p.name: p.size for p in free if p.kind == "pointer"}
    return grid_sizes(program_of(kernel, request), integers, request.grid, request.block, sizes)


def _further(
    kernels: Sequence[CheckedKernel], requests: Sequence[LaunchRequest], grids: GridSizes | None, first: MadeUp
) -> list[tuple[MadeUp, SecondSize]]:
    """Return further launches, with fewer elements than threads."""
    (kernel, *_), (request, *others) = kernels, requests
    if others or (
        isinstance(kernel.function, CFunction) and states_conditions(kernel.function.module.unit.lines)
    ):  # fmt: skip
        return []
    if grids is not None:
        return [
            (
                replace(
                    first, numbers=sizes.numbers, counts={**first.counts, **_with_ends(sizes.elements, first.rising)}
                ),
                SecondSize(math.prod(sizes.sides.values()), several=True, sides=sizes.sides),
            )
            for sizes in grids.further
        ]
    threads = request.grid[0] * request.block[0]
    if math.prod(request.grid) * math.prod(request.block) != threads:
        return []
    free = [p for p in kernel.parameters if p.name not in request.arguments and not p.members]
    counts = [p.name for p in free if p.kind == "number" and p.dtypes[0].kind in "iu" and is_count(p.name)]
    if not any(p.kind == "pointer" for p in free):
        return []
    fewer = second_size(program_of(kernel, request), counts, threads, request.block[0])
    if fewer is None:
        return []
    # Integers that replace others with which a division by zero follows may be too large here.
    integer = None if (first.integer or 0) > fewer.elements else first.integer
    return [(replace(first, elements=fewer.elements, integer=integer), fewer)]
