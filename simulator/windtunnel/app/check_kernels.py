"""The kernels that `windtunnel check` launches: of CUDA C, OpenCL C and Python, with what their parameters take."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.app.check_arguments import CheckParameter, LaunchRequest
from windtunnel.app.check_headers import is_binary
from windtunnel.core.errors import InputError, Location
from windtunnel.csource.ctype import Void, member_name
from windtunnel.csource.facts import stored
from windtunnel.csource.kernel import SUFFIXES, CFunction, CModule, instance_of
from windtunnel.language import ir
from windtunnel.language.parameters import parameters_of
from windtunnel.language.specialise import kernel_source
from windtunnel.language.types import Array, Scalar


@dataclass(frozen=True)
class CheckedKernel:
    """A kernel that is to be launched, and what its parameters take."""

    function: Callable[..., Any]
    name: str
    parameters: Sequence[CheckParameter]


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
        _check_template(modules[key], instance, request)
        function = modules[key].kernel(instance or request.kernel)
        made.append(CheckedKernel(function, function.__name__, _parameters(function)))
    return made


def _check_template(module: CModule, instance: str | None, request: LaunchRequest) -> None:
    """Raise InputError for a template of which the file has no instance, or not the one that is asked for."""
    name = (instance or request.kernel or "").partition("<")[0]
    if name not in module.templates or (instance or name) in module.kernels:
        return
    known = [one for one in module.kernels if one.startswith(f"{name}<")]
    template = next(n for n in module.unit.declarations() if n.kind == "FUNCTION_TEMPLATE" and n.name == name)
    types = [kid for kid in template.kids if kid.kind.startswith("TEMPLATE_")]
    example = ", ".join("float" if kid.kind == "TEMPLATE_TYPE_PARAMETER" else "32" for kid in types)
    problem = f"the template '{name}' has no instance '{instance}'" if instance else (
        f"'{name}' is a template with {f'{len(known)} instances' if known else 'no instance in the file'}"
    )  # fmt: skip
    expected = f"--kernel with its arguments, such as {' or '.join(map(repr, known)) or repr(f'{name}<{example}>')}"
    raise InputError(problem, where=Location(str(request.file)), expected=expected)


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


def program_of(kernel: CheckedKernel, request: LaunchRequest) -> ir.Program:
    """Return a kernel's typed tree."""
    if not isinstance(kernel.function, CFunction):
        return kernel_source(kernel.function).declared({})
    return kernel.function.typed(_stand_ins(kernel, request))


def _nulls(request: LaunchRequest) -> list[str]:
    return [name for name, text in request.arguments.items() if text.strip() == "0"]


def _stand_ins(kernel: CheckedKernel, request: LaunchRequest) -> list[Any]:
    """Return what stands for the arguments of a kernel in C as far as its tree depends on them."""
    values, nulls = {"local": math.prod(request.block), "number": 1}, _nulls(request)
    return [0 if p.name in nulls else values[p.kind] * p.size if p.kind in values else b"" for p in kernel.parameters]
