"""`windtunnel check`: runs kernels of CUDA C, OpenCL C or Python under all detectors."""

from __future__ import annotations

import ast
import contextlib
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from windtunnel.app.check_arguments import (
    CheckParameter,
    LaunchRequest,
    MadeUp,
    arguments_of,
    c_options,
    local_room,
)
from windtunnel.app.check_grids import GridSizes, grid_sizes
from windtunnel.app.check_headers import is_binary, naming_headers
from windtunnel.app.check_made_up import Scope
from windtunnel.app.check_rows import row_starts
from windtunnel.app.check_sizes import SecondSize, is_count, second_size, states_conditions
from windtunnel.core.errors import (
    BarrierDivergence,
    ChecksSkippedWarning,
    Deadlock,
    DeviceError,
    DivisionByZero,
    Finding,
    InputError,
    Location,
    OutOfBounds,
)
from windtunnel.core.yamlfile import Document, parse, read_text
from windtunnel.csource.ctype import Void, member_name
from windtunnel.csource.facts import stored
from windtunnel.csource.kernel import SUFFIXES, CFunction, CModule, instance_of
from windtunnel.emulate.common.current import largest_shared_bytes
from windtunnel.language import ir
from windtunnel.language.opencl_words import in_opencl
from windtunnel.language.parameters import parameters_of
from windtunnel.language.specialise import kernel_source
from windtunnel.language.types import Array, Scalar
from windtunnel.library.devices import open_device
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.profile import LaunchProfile, Profile

DEVICE = "h100-sxm-80gb"
"""The device that is emulated unless another is asked for."""
OPTED_IN_ABOVE = 49_152
"""Bytes of dynamic shared memory above which CUDA launches a kernel only if the program has allowed it."""
_KEYS = ("file", "kernel", "grid", "block", "args", "shared_bytes", "defines", "include")


@dataclass(frozen=True)
class Found:
    """A finding: its class in `windtunnel.errors`, its place, and its message."""

    finding: str
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


@dataclass(frozen=True)
class CheckedKernel:
    """A kernel that is to be launched, and what its parameters take."""

    function: Callable[..., Any]
    name: str
    parameters: Sequence[CheckParameter]


def dims(text: str, option: str) -> tuple[int, ...]:
    """Return sizes along x, y and z, given as ``X[,Y[,Z]]``. Raises InputError."""
    parts = str(text).strip().strip("[]()").split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"'{text}' is no size", where=Location(field=option), expected="X[,Y[,Z]], each from 1")
    return (*(int(part) for part in parts), *(1,) * (3 - len(parts)))


def launches_of(file: Path) -> list[LaunchRequest]:
    """Return the launches that a LAUNCHES.yaml lists. Raises InputError."""
    document = parse(read_text(file, "list of launches"), str(file))
    if not isinstance(document.data, list) or not document.data:
        raise InputError(
            "no list of launches", where=document.where(()), expected="- {file, kernel, grid, block, args}"
        )
    return [_request(document, file, number) for number in range(len(document.data))]


# Long: one check for each key.
def _request(document: Document, file: Path, number: int) -> LaunchRequest:
    given = document.data[number]
    where = document.where((number,))
    if not isinstance(given, dict):
        raise InputError("this launch is no mapping", where=where, expected="{file, kernel, grid, block, args}")
    for key in given:
        if key not in _KEYS:
            raise InputError(
                f"no key '{key}' of a launch",
                where=document.where((number, key), key=True),
                expected=f"one of {', '.join(_KEYS)}",
            )
    for key in ("file", "grid", "block"):
        if key not in given:
            raise InputError(f"a launch without '{key}'", where=where, expected=f"{key}: ...")
    sizes = []
    for key in ("grid", "block"):
        value = given[key]
        text = ",".join(str(one) for one in value) if isinstance(value, list) else str(value)
        try:
            sizes.append(dims(text, key))
        except InputError as error:
            raise error.at(document.where((number, key))) from None
    arguments = given.get("args") or {}
    if not isinstance(arguments, dict):
        raise InputError("args that are no mapping", where=document.where((number, "args")), expected="{name: SPEC}")
    defines, include = c_options(given, lambda key: document.where((number, key)), file.parent)
    shared = given.get("shared_bytes")
    if shared is not None and (not isinstance(shared, int) or shared < 0):
        raise InputError(
            f"shared_bytes of {shared!r}", where=document.where((number, "shared_bytes")), expected="a number from 0"
        )
    return LaunchRequest(
        Path(os.path.normpath(file.parent / str(given["file"]))),
        given.get("kernel"),
        sizes[0],
        sizes[1],
        {str(name): str(value) for name, value in arguments.items()},
        shared,
        defines,
        include,
        where,
    )


def check(
    requests: Sequence[LaunchRequest],
    device: str | None = None,
    *,
    schedules: int = 0,
    strict: bool = False,
    quiet: bool = False,
) -> Checked:
    """Run launches in order, on one device, and return what the detectors find.

    Args:
        requests: The launches. Buffers of one name are one buffer.
        device: The emulated device, SKU or SKU@API.
        schedules: The number of further runs, each with another order of threads.
        strict: Whether unordered writes of one equal value are a finding.
        quiet: Whether what kernels print goes to standard error.

    Raises InputError for a wrong source or argument.
    """
    try:
        return _checked(requests, device or DEVICE, schedules, strict=strict, quiet=quiet)
    except InputError as error:
        for request in requests:
            if request.file.suffix in SUFFIXES:
                error = naming_headers(error, request.file, request.include)
        raise error from None


def _checked(requests: Sequence[LaunchRequest], chosen: str, schedules: int, *, strict: bool, quiet: bool) -> Checked:
    kernels = kernels_of(requests)
    found: dict[tuple[str, str, tuple[int, ...]], Found] = {}
    predicted: Sequence[Predicted] = []
    made_up: Sequence[str] = []
    fewer: SecondSize | None = None
    grids = _grid_sizes(kernels, requests)
    first = MadeUp() if grids is None else MadeUp(numbers=grids.first.numbers, counts=grids.first.elements)
    if len(requests) == 1 and isinstance(kernels[0].function, CFunction):
        starts = row_starts(_program(kernels[0], requests[0]), kernels[0].parameters, requests[0])
        first = replace(first, rising=starts)
    output = contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext()
    with output, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ChecksSkippedWarning)
        for schedule in [None, *range(schedules)]:
            # Each run begins with new buffers, and new variables of the files.
            kernels = kernels if schedule is None else kernels_of(requests)
            ran = _run(kernels, requests, chosen, schedule, first, strict=strict, grids=grids)
            first, findings = ran.made, list(ran.findings)
            predicted, made_up = predicted or ran.times, made_up or ran.notes
            if not findings and schedule is None:
                second, fewer = _second(kernels, requests, grids, first)
                if second is not None:
                    again = kernels_of(requests)
                    findings += _run(
                        again, requests, chosen, None, second, strict=strict, fewer=fewer, grids=grids
                    ).findings
            for each in findings:
                found.setdefault((each.finding, each.file, each.lines), each)
    notes = [*made_up, *_notes(kernels, requests, caught)]
    return Checked(
        list(found.values()), notes, len(requests), schedules, predicted, None if fewer is None else fewer.described()
    )


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


def kernels_of(requests: Sequence[LaunchRequest]) -> list[CheckedKernel]:
    """Return the kernel of each launch. Launches of one file share its variables. Raises InputError."""
    modules: dict[tuple[Any, ...], CModule] = {}
    made = []
    for request in requests:
        suffix = request.file.suffix
        if is_binary(request.file):
            raise InputError(
                "a binary file", where=Location(str(request.file)), expected="the source of a kernel, as text"
            )
        if suffix == ".py":
            made.append(_python(request))
            continue
        if suffix not in SUFFIXES:
            raise InputError(
                "no kernel file",
                where=Location(str(request.file)),
                expected="FILE.cu, FILE.cl, FILE.py or LAUNCHES.yaml",
            )
        instance = instance_of(request.kernel)
        key = (str(request.file), tuple(request.defines), tuple(request.include), instance)
        if key not in modules:
            modules[key] = CModule(
                request.file, request.defines, request.include, instances=[instance] if instance else [], made_up=True
            )
        function = modules[key].kernel(instance or request.kernel)
        made.append(CheckedKernel(function, function.__name__, _parameters(function)))
    return made


def _parameters(function: CFunction) -> list[CheckParameter]:
    made = []
    for parameter in function.parameters:
        kind = parameter.type
        pointee = getattr(kind, "pointee", None)
        element = kind if pointee is None else pointee
        dtypes = tuple(stored(leaf).dtype for _, leaf in element.leaves) or (np.dtype(np.uint8),)
        size, offsets = max(element.size, 1), tuple(at for at, _ in element.leaves)
        if isinstance(element, Void):  # of a type that the kernel states: as large as the largest number
            dtypes, size = (np.dtype(np.uint8),) * 8, 8
            offsets = tuple(range(8))
        role = "local" if parameter.space == "local" else "pointer" if parameter.space else "number"
        members: tuple[str, ...] = ()
        if role == "number" and len(dtypes) > 1:
            members = tuple(f"{parameter.name}.{member_name(kind, at)}" for at, _ in kind.leaves)
        made.append(CheckParameter(parameter.name, role, dtypes, size, offsets=offsets, members=members))
    return made


def _marks(file: Path) -> dict[str, tuple[int, str]]:
    """Return the line and the last decorator of each function of a file that has one. The file is not executed."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError):
        return {}  # whoever executes it says so
    return {
        node.name: (node.lineno, ast.unparse(mark.func if isinstance(mark, ast.Call) else mark))
        for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
        for mark in node.decorator_list[-1:]
    }  # fmt: skip


def _python(request: LaunchRequest) -> CheckedKernel:
    from windtunnel.codegen.load import kernels_in
    from windtunnel.codegen.load import load as load_kernel

    name = request.kernel
    marks = _marks(request.file)
    of_numba = {one: line for one, (line, mark) in marks.items() if mark.endswith("cuda.jit")}
    if name in of_numba or (name is None and of_numba and not any(m.endswith("kernel") for _, m in marks.values())):
        wanted = name or next(iter(of_numba))
        raise InputError(
            f"'{wanted}' is a kernel of Numba CUDA, whose arguments have no types",
            where=Location(str(request.file), of_numba[wanted]),
            expected=f"windtunnel emulate {request.file}, which runs the program with its launches",
        )
    if name is None:
        known = kernels_in(request.file)
        if len(known) != 1:
            problem = f"{len(known)} kernels" if known else "no kernel"
            listed = f"--kernel, one of {', '.join(known)}" if known else "a function marked @windtunnel.kernel"
            raise InputError(problem, where=Location(str(request.file)), expected=listed)
        name = known[0]
    function = load_kernel(f"{request.file}:{name}")
    parameters = []
    for parameter in parameters_of(function):
        kind = parameter.annotation
        if isinstance(kind, Array):
            dtype = kind.element.dtype
            parameters.append(CheckParameter(parameter.name, "pointer", (dtype,), dtype.itemsize, kind.dimensions))
        elif isinstance(kind, Scalar):
            parameters.append(CheckParameter(parameter.name, "number", (kind.dtype,), kind.dtype.itemsize))
        else:
            where = Location(str(request.file), parameter.line, field=parameter.name)
            raise InputError(
                f"'{parameter.name}' has no type", where=where, expected=f"such as {parameter.name}: f32[:]"
            )
    return CheckedKernel(function, name, parameters)


def _program(kernel: CheckedKernel, request: LaunchRequest) -> ir.Program:
    """Return a kernel's typed tree."""
    if not isinstance(kernel.function, CFunction):
        return kernel_source(kernel.function).declared({})
    values = {"local": math.prod(request.block), "number": 1}
    nulls = [name for name, text in request.arguments.items() if text.strip() == "0"]
    return kernel.function.typed([
        0 if p.name in nulls else values[p.kind] * p.size if p.kind in values else b"" for p in kernel.parameters
    ])  # fmt: skip


def _grid_sizes(kernels: Sequence[CheckedKernel], requests: Sequence[LaunchRequest]) -> GridSizes | None:
    """Return what is made up for a launch of two or three dimensions; None for another one, or several launches."""
    (kernel, *_), (request, *others) = kernels, requests
    free = [p for p in kernel.parameters if p.name not in request.arguments and not p.members]
    integers = [p.name for p in free if p.kind == "number" and p.dtypes[0].kind in "iu"]
    if others or not isinstance(kernel.function, CFunction) or not any(p.kind == "pointer" for p in free):
        return None
    # The buffers of which the size is known, in elements of the parameters.
    sizes = {p.name: p.size for p in free if p.kind == "pointer"}
    return grid_sizes(_program(kernel, request), integers, request.grid, request.block, sizes)


def _second(
    kernels: Sequence[CheckedKernel], requests: Sequence[LaunchRequest], grids: GridSizes | None, first: MadeUp
) -> tuple[MadeUp | None, SecondSize | None]:
    """Return a further launch, with fewer elements than threads; None for no such launch."""
    (kernel, *_), (request, *others) = kernels, requests
    if others or (
        isinstance(kernel.function, CFunction) and states_conditions(kernel.function.module.unit.lines)
    ):  # fmt: skip
        return None, None
    if grids is not None:
        second = grids.second
        if second is None:
            return None, None
        return replace(first, numbers=second.numbers, counts={**first.counts, **second.elements}), SecondSize(
            math.prod(grids.sides.values()), several=True, sides=grids.sides
        )
    threads = request.grid[0] * request.block[0]
    if math.prod(request.grid) * math.prod(request.block) != threads:
        return None, None
    free = [p for p in kernel.parameters if p.name not in request.arguments and not p.members]
    counts = [p.name for p in free if p.kind == "number" and p.dtypes[0].kind in "iu" and is_count(p.name)]
    if not any(p.kind == "pointer" for p in free):
        return None, None
    fewer = second_size(_program(kernel, request), counts, threads, request.block[0])
    if fewer is None:
        return None, None
    # Integers that replace others with which a division by zero follows may be too large here.
    integer = None if (first.integer or 0) > fewer.elements else first.integer
    return replace(first, elements=fewer.elements, integer=integer), fewer


class _Ran(NamedTuple):
    """What a run has found, the times of its launches up to the first finding, and what was made up in the end."""

    findings: Sequence[Found]
    times: Sequence[Predicted]
    made: MadeUp
    notes: Sequence[str]


def _run(
    kernels: Sequence[CheckedKernel],
    requests: Sequence[LaunchRequest],
    device: str,
    schedule: int | None,
    made: MadeUp,
    *,
    strict: bool,
    fewer: SecondSize | None = None,
    grids: GridSizes | None = None,
) -> _Ran:
    """Run the launches, again with other memory as long as a finding comes from what is made up.

    ``fewer``: the number of elements of what is not stated, for the second launch. ``grids``: the sizes of a launch of
    two or three dimensions.
    """
    past: tuple[str | None, Found] | None = None
    while True:
        finding, scope, times = _launched(kernels, requests, device, schedule, made, strict=strict, grids=grids)
        if finding is None:
            break
        if past is not None and finding.array == past[0] and isinstance(finding, OutOfBounds):
            past = None  # far beyond the end, too
        second = fewer is not None and grids is None and isinstance(finding, OutOfBounds)
        again = None if second else scope.after(made, finding)
        if again is None and isinstance(finding, DivisionByZero):

            def divides(other: MadeUp) -> bool:
                _begin_again(kernels)
                again = _launched(kernels, requests, device, schedule, other, strict=strict, grids=grids)
                return isinstance(again[0], DivisionByZero)

            again = scope.without_division_by_zero(made, divides)
        if again is None:
            break
        if scope.is_just_past(made, finding):
            past = finding.array, _found(finding, requests, scope, fewer)
        made = again
        _begin_again(kernels)
    findings = [] if past is None else [past[1]]
    if finding is not None and not (fewer and _of_a_thread_with_an_element(finding, requests[0], fewer)):
        findings.append(_found(finding, requests, scope, fewer))
    return _Ran(findings, times, made, scope.notes(made, None if past is None else past[0]))


def _begin_again(kernels: Sequence[CheckedKernel]) -> None:
    for kernel in kernels:
        if isinstance(kernel.function, CFunction):
            kernel.function.module.begin_again()


def _launched(
    kernels: Sequence[CheckedKernel],
    requests: Sequence[LaunchRequest],
    device: str,
    schedule: int | None,
    made: MadeUp,
    *,
    strict: bool,
    grids: GridSizes | None,
) -> tuple[Finding | None, Scope, list[Predicted]]:
    """Return the first finding of launches, what the arguments of the last launch have made up, and the times."""
    profile, found, scope = Profile(device), None, Scope()
    try:
        with open_device(device, schedule=schedule, strict=strict) as accelerator, accelerator.profile() as profile:
            buffers: dict[str, Buffer] = {}
            for kernel, request in zip(kernels, requests, strict=True):
                scope = _scope(kernel, request, buffers, made, grids, accelerator.info.limits.shared_bytes)
                arguments = arguments_of(accelerator, kernel.parameters, request, buffers, made)
                function = Kernel(kernel.function)
                shared = made.shared_bytes if request.shared_bytes is None else request.shared_bytes
                if accelerator.info.api == "cuda" and shared:
                    function.allowed_shared_bytes = largest_shared_bytes(accelerator)
                accelerator.launch(function, request.grid, request.block, *arguments, shared_bytes=shared)
            accelerator.synchronize()
    except Finding as finding:
        found = finding
        if isinstance(finding, (Deadlock, BarrierDivergence)):
            del profile.launches[-1:]  # it never ends
    except DeviceError as error:
        raise InputError(str(error), where=requests[0].where) from None
    return found, scope, _times(profile.launches, device)


# Long: one entry for each kind of parameter.
def _scope(
    kernel: CheckedKernel,
    request: LaunchRequest,
    buffers: Mapping[str, Buffer],
    made: MadeUp,
    grids: GridSizes | None,
    shared_bytes: int,
) -> Scope:
    """Return what of a launch's arguments is made up; memory of kernels in Python has no size of its own to grow to."""
    free = [p for p in kernel.parameters if p.name not in request.arguments and p.name not in buffers]
    sides = [g * b for g, b in zip(request.grid, request.block, strict=True)]
    sides[0] = sides[0] if made.elements is None else made.elements
    integer = math.prod(sides) if made.integer is None else made.integer
    integers = {
        p.name: min(made.numbers.get(p.name, integer), int(np.iinfo(p.dtypes[0]).max))
        for p in free if p.kind == "number" and p.dtypes[0].kind in "iu" and not p.members
    }  # fmt: skip
    more = {p.name: p.name in made.rising for p in free}
    pointers = {p.name: made.counts.get(p.name, math.prod(sides) + more[p.name]) for p in free if p.kind == "pointer"}
    if not isinstance(kernel.function, CFunction):
        return Scope(dict.fromkeys(pointers, 0), buffers=pointers, integers=integers)
    counts = {"pointer": math.prod(request.grid) * math.prod(request.block), "local": math.prod(request.block)}
    known = () if grids is None else grids.first.elements
    declared = _program(kernel, request).declared if any(p.kind == "local" for p in free) else {}
    static = {d.name: math.prod(d.shape) * d.element.dtype.itemsize for d in declared.values() if d.space == "shared"}
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
        plain=grids is None,
    )


def _found(finding: Finding, requests: Sequence[LaunchRequest], scope: Scope, fewer: SecondSize | None) -> Found:
    """Return what is said of a finding, with which sizes were made up."""
    size = ""
    if fewer is not None:
        size = (
            f"; in a second launch, which check adds, with {fewer.described()}, fewer than the threads: if the "
            "kernel needs an element for each thread, state the number (--arg)"
        )
    elif isinstance(finding, OutOfBounds) and finding.array is not None and finding.array in scope.elements:
        size = f"; '{finding.array}' is not given, so it is made up: {scope.spec(finding.array)} states its size"
    if fewer is None and (described := scope.described(finding)):
        size = f"; {described}{size}"
    size = in_opencl(size) if requests[0].file.suffix == ".cl" else size
    name, file = type(finding).__name__, finding.file or ""
    return Found(name, file, tuple(finding.lines), finding.columns, finding.places, f"{finding}{size}")


def _of_a_thread_with_an_element(finding: Finding, request: LaunchRequest, fewer: SecondSize) -> bool:
    """Return whether the thread of an access out of bounds is one of those that have an element of their own along x.

    Without a guard, it is the others that are out of bounds. A thread with an element that is out of bounds needs
    several of them, of which the number is not known.
    """
    if not isinstance(finding, OutOfBounds) or not finding.threads or fewer.several:
        return False
    block, thread = finding.threads[0]
    return block[0] * request.block[0] + thread[0] < fewer.elements


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
