"""`windtunnel check`: runs kernels of CUDA C, OpenCL C or Python under all detectors."""

from __future__ import annotations

import ast
import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from windtunnel.app.check_arguments import (
    CheckParameter,
    Spec,
    array_of,
    as_record,
    check_names,
    default_array,
    default_number,
    default_numbers,
    parsed,
)
from windtunnel.app.check_headers import naming_headers
from windtunnel.app.check_made_up import MadeUp, Scope
from windtunnel.app.check_requests import LaunchRequest
from windtunnel.app.check_sizes import SecondSize, is_count, second_size, states_conditions
from windtunnel.core.errors import (
    BarrierDivergence,
    ChecksSkippedWarning,
    Deadlock,
    DeviceError,
    Finding,
    InputError,
    Location,
    OutOfBounds,
)
from windtunnel.csource.ctype import Void, member_name
from windtunnel.csource.facts import stored
from windtunnel.csource.kernel import SUFFIXES, CFunction, CModule, instance_of
from windtunnel.language.ir import Program
from windtunnel.language.parameters import parameters_of
from windtunnel.language.specialise import kernel_source
from windtunnel.language.types import Array, Scalar
from windtunnel.library.devices import open_device
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.profile import LaunchProfile, Profile

DEVICE = "h100-sxm-80gb"
"""The device that is emulated unless another is asked for."""


@dataclass(frozen=True)
class Found:
    """A finding: its class in `windtunnel.errors`, its place, and its message."""

    finding: str
    file: str
    lines: tuple[int, ...]
    columns: tuple[int, ...]
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

    ``elements``: the number of elements of a further launch, which has fewer of them than threads. A launch that has a
    finding counts with the time of the kernel as it is, unless it never ends.
    """

    findings: Sequence[Found]
    notes: Sequence[str]
    launches: int
    schedules: int
    predicted: Sequence[Predicted] = ()
    elements: int | None = None


@dataclass(frozen=True)
class CheckedKernel:
    """A kernel that is to be launched, and what its parameters take."""

    function: Callable[..., Any]
    name: str
    parameters: Sequence[CheckParameter]


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
    notes: list[str] = []
    predicted: Sequence[Predicted] = []
    fewer: SecondSize | None = None
    made = MadeUp()
    output = contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext()
    with output, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ChecksSkippedWarning)
        for schedule in [None, *range(schedules)]:
            # Each run begins with new buffers, and new variables of the files.
            kernels = kernels if schedule is None else kernels_of(requests)
            ran = _run(kernels, requests, chosen, schedule, made, strict=strict)
            made, findings = ran.made, list(ran.findings)
            predicted, notes = predicted or ran.times, notes or [*ran.notes]
            if not findings and schedule is None:
                fewer = _fewer(kernels, requests)
            if fewer is not None and schedule is None:
                again = kernels_of(requests)
                findings += _run(again, requests, chosen, None, made, strict=strict, fewer=fewer).findings
            for each in findings:
                found.setdefault((each.finding, each.file, each.lines), each)
    for kernel in kernels:
        if isinstance(kernel.function, CFunction):
            notes += [note for note in kernel.function.module.unit.notes if note not in notes]
    for one in caught:
        if issubclass(one.category, ChecksSkippedWarning) and str(one.message) not in notes:
            notes.append(str(one.message))
    return Checked(
        list(found.values()), notes, len(requests), schedules, predicted, None if fewer is None else fewer.elements
    )


def kernels_of(requests: Sequence[LaunchRequest]) -> list[CheckedKernel]:
    """Return the kernel of each launch. Launches of one file share its variables. Raises InputError."""
    modules: dict[tuple[Any, ...], CModule] = {}
    made = []
    for request in requests:
        suffix = request.file.suffix
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


def _fewer(kernels: Sequence[CheckedKernel], requests: Sequence[LaunchRequest]) -> SecondSize | None:
    """Return a further launch, with fewer elements than threads; None for no such launch."""
    (kernel, *_), (request, *others) = kernels, requests
    threads = request.grid[0] * request.block[0]
    if others or math.prod(request.grid) * math.prod(request.block) != threads:
        return None
    free = [p for p in kernel.parameters if p.name not in request.arguments and not p.members]
    counts = [p.name for p in free if p.kind == "number" and p.dtypes[0].kind in "iu" and is_count(p.name)]
    if not any(p.kind == "pointer" for p in free):
        return None
    if isinstance(kernel.function, CFunction):
        if states_conditions(kernel.function.module.unit.lines):
            return None
        values = {"local": math.prod(request.block), "number": 1}
        nulls = [name for name, text in request.arguments.items() if text.strip() == "0"]
        program: Program = kernel.function.typed([
            0 if p.name in nulls else values[p.kind] * p.size if p.kind in values else b"" for p in kernel.parameters
        ])  # fmt: skip
    else:
        program = kernel_source(kernel.function).declared({})
    return second_size(program, counts, threads, request.block[0])


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
) -> _Ran:
    """Run the launches, again with other memory as long as a finding comes from what is made up.

    ``fewer``: the number of elements of what is not stated; by default that of the threads.
    """
    past: tuple[str | None, Found] | None = None
    while True:
        finding, scope, times = _launched(kernels, requests, device, schedule, made, strict=strict, fewer=fewer)
        found = [] if finding is None else [_found(finding, requests[0], scope, fewer)]
        if past is not None and finding is not None and finding.array == past[0] and isinstance(finding, OutOfBounds):
            past = None  # far beyond the end, too
        second = fewer is not None and isinstance(finding, OutOfBounds)
        again = None if finding is None or second else made.after(finding, scope)
        if finding is None or again is None:
            kept = [one for one in found if one is not None]
            return _Ran(
                kept if past is None else [past[1], *kept],
                times,
                made,
                made.notes(scope, None if past is None else past[0]),
            )
        if made.is_just_past(finding, scope) and found[0] is not None:
            past = finding.array, found[0]
        made = again
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
    fewer: SecondSize | None,
) -> tuple[Finding | None, Scope, list[Predicted]]:
    """Return the first finding of launches, what the arguments of the last launch have made up, and the times."""
    profile, found, scope = Profile(device), None, Scope()
    elements = None if fewer is None else fewer.elements
    try:
        with open_device(device, schedule=schedule, strict=strict) as accelerator, accelerator.profile() as profile:
            buffers: dict[str, Buffer] = {}
            for kernel, request in zip(kernels, requests, strict=True):
                scope = _scope(kernel, request, buffers, made)
                arguments = arguments_of(accelerator, kernel, request, buffers, elements, made)
                shared = made.shared_bytes if request.shared_bytes is None else request.shared_bytes
                accelerator.launch(
                    Kernel(kernel.function), request.grid, request.block, *arguments, shared_bytes=shared
                )
            accelerator.synchronize()
    except Finding as finding:
        found = finding
        if isinstance(finding, (Deadlock, BarrierDivergence)):
            del profile.launches[-1:]  # it never ends
    except DeviceError as error:
        raise InputError(str(error), where=requests[0].where) from None
    return found, scope, _times(profile.launches, device)


def _scope(kernel: CheckedKernel, request: LaunchRequest, buffers: Mapping[str, Buffer], made: MadeUp) -> Scope:
    """Return what of a launch's arguments is made up; memory of kernels in Python has no size of its own to grow to."""
    free = [p for p in kernel.parameters if p.name not in request.arguments and p.name not in buffers]
    if not isinstance(kernel.function, CFunction):
        return Scope({p.name: 0 for p in free if p.kind == "pointer"})
    counts = {"pointer": math.prod(request.grid) * math.prod(request.block), "local": math.prod(request.block)}
    return Scope(
        {p.name: made.elements.get(p.name, counts[p.kind]) for p in free if p.kind in counts},
        frozenset(p.name for p in free if p.kind == "local"),
        numbers=any(p.kind == "number" and p.dtypes[0].kind in "iu" for p in free),
        shared=request.shared_bytes is None,
    )


def _found(finding: Finding, request: LaunchRequest, scope: Scope, fewer: SecondSize | None) -> Found | None:
    """Return what is said of a finding; None for one of the second launch that may have come from its size."""
    size = ""
    if fewer is not None:
        if isinstance(finding, OutOfBounds) and _of_a_thread_with_an_element(finding, request, fewer):
            return None
        size = (
            f"; in a second launch, which check adds, with {fewer.elements:,} elements, fewer than the threads: if "
            "the kernel needs an element for each thread, state the number (--arg)"
        )
    elif isinstance(finding, OutOfBounds) and finding.array is not None and finding.array in scope.elements:
        size = f"; '{finding.array}' is not given, so it is made up: {scope.spec(finding.array)} states its size"
    place = finding.file or "", tuple(finding.lines), finding.columns
    return Found(type(finding).__name__, *place, f"{finding}{size}")


def _of_a_thread_with_an_element(finding: OutOfBounds, request: LaunchRequest, fewer: SecondSize) -> bool:
    """Return whether the thread of a finding is one of those that have an element of their own along x.

    Without a guard, it is the others that are out of bounds. A thread with an element that is out of bounds needs
    several of them, of which the number is not known.
    """
    if not finding.threads or fewer.several:
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


def arguments_of(
    accelerator: Accelerator,
    kernel: CheckedKernel,
    request: LaunchRequest,
    buffers: dict[str, Buffer],
    elements: int | None = None,
    made_up: MadeUp | None = None,
) -> list[Any]:
    """Return the arguments of a launch; ``buffers`` are those of earlier launches, by name. Raises InputError.

    What is not stated is made for as many elements as there are threads, or for ``elements`` along x, except what
    ``made_up`` says.
    """
    made_up = made_up or MadeUp()
    check_names(request.arguments, kernel.parameters, request.where)
    sides = [g * b for g, b in zip(request.grid, request.block, strict=True)]
    if elements is not None:
        sides[0] = elements
    threads = math.prod(sides) if made_up.integer is None else made_up.integer
    made: list[Any] = []
    for parameter in kernel.parameters:
        text = request.arguments.get(parameter.name)
        where = Location(request.where.file, request.where.line, request.where.column, f"--arg {parameter.name}")
        spec = None if text is None else parsed(text, where)
        if parameter.members:
            made.append(_record(parameter, request, threads))
        elif parameter.kind == "number":
            made.append(_number(parameter, spec, threads, where))
        elif parameter.kind == "local":
            count = made_up.elements.get(parameter.name, math.prod(request.block))
            made.append(_local(parameter, spec, count, where))
        else:
            made.append(_buffer(accelerator, parameter, spec, sides, buffers, where, made_up))
    return made


def _record(parameter: CheckParameter, request: LaunchRequest, threads: int) -> Any:
    """Return a struct or a vector that is passed by value, of the numbers that are given for its members."""
    values = default_numbers(parameter, threads)
    for place, (name, dtype) in enumerate(zip(parameter.members, parameter.dtypes, strict=True)):
        text = request.arguments.get(name)
        if text is not None:
            where = Location(request.where.file, request.where.line, request.where.column, f"--arg {name}")
            member = CheckParameter(name, "number", (dtype,), dtype.itemsize)
            values[place] = dtype.type(_number(member, parsed(text, where), threads, where))
    return as_record(values, parameter)


def _number(parameter: CheckParameter, spec: Spec | None, threads: int, where: Location) -> Any:
    if spec is None:
        return default_number(parameter, threads)
    if spec.kind != "number":
        raise InputError(f"'{parameter.name}' is a number, not an array", where=where, expected="such as 64 or 0.5")
    dtype = parameter.dtypes[0]
    if dtype.kind in "iu" and isinstance(spec.value, float) and not spec.value.is_integer():
        raise InputError(f"{spec.value} for '{parameter.name}', an integer", where=where, expected="a whole number")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if not int(info.min) <= int(spec.value) <= 2 ** (8 * dtype.itemsize) - 1:
            raise InputError(
                f"{spec.value} does not fit into {dtype}", where=where, expected=f"{info.min} to {info.max}"
            )
        return int(spec.value)
    return spec.value


def _local(parameter: CheckParameter, spec: Spec | None, count: int, where: Location) -> int:
    if spec is None:
        return count * parameter.size
    if spec.kind not in ("local", "empty"):
        raise InputError(f"'{parameter.name}' is local memory of a group", where=where, expected="local:N")
    return spec.count * (parameter.size if spec.dtype is None else spec.dtype.itemsize)


def _buffer(
    accelerator: Accelerator,
    parameter: CheckParameter,
    spec: Spec | None,
    sides: Sequence[int],
    buffers: dict[str, Buffer],
    where: Location,
    made_up: MadeUp,
) -> Any:
    if spec is not None and spec.kind == "number":
        if spec.value == 0:
            return 0
        raise InputError(
            f"'{parameter.name}' is a pointer, not a number", where=where, expected="such as zeros:64, or 0"
        )
    if spec is not None and spec.kind == "local":
        raise InputError(f"'{parameter.name}' is no local memory", where=where, expected="such as zeros:64")
    name = parameter.name if spec is None or spec.kind != "name" else spec.name
    if name in buffers:
        return buffers[name]
    if spec is not None and spec.kind == "name":
        raise InputError(f"no buffer '{name}'", where=where, expected="the name of a buffer of an earlier launch")
    if spec is None:
        made = accelerator.to_device(
            default_array(parameter, sides, made_up.elements.get(name), positive=made_up.positive)
        )
    else:
        contents = array_of(spec, parameter, where)
        if contents is None:
            single = spec.dtype or (parameter.dtypes[0] if len(set(parameter.dtypes)) == 1 else np.dtype(np.uint8))
            size = spec.count * (parameter.size if spec.dtype is None else spec.dtype.itemsize)
            made = accelerator.empty(max(size // single.itemsize, 1), single)
        else:
            made = accelerator.to_device(contents)
    buffers[name] = made
    return made
