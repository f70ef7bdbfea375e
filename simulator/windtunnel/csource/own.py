"""A kernel's own source for the compiler of its language: NVRTC for CUDA C, an OpenCL driver for OpenCL C.

Floats are rounded after every operation, as on emulated devices. NVRTC compiles code of the device only and has no
headers of C: functions of the host are left out, and what headers of C define is defined here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from windtunnel.csource.clang import Node, Unit
from windtunnel.csource.ctype import CType, Number
from windtunnel.csource.includes import INCLUDE, NAMED
from windtunnel.language.source import OwnText
from windtunnel.language.types import Scalar

_TOOLKIT = re.compile(
    r"(cuda_fp16|cuda_bf16|cooperative_groups|cuda_pipeline|cuda_pipeline_primitives|math_constants)\.h$"
    r"|(cooperative_groups|cuda)/"
)
"""The headers of the CUDA toolkit that NVRTC takes. All others are of the host, or NVRTC knows what they declare."""
_CUDA_OPTIONS = ("--device-as-default-execution-space",)
_OPENCL_OPTIONS = ("-cl-fp32-correctly-rounded-divide-sqrt",)
_C_HEADERS = """\
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef unsigned int uint; typedef unsigned short ushort;
typedef unsigned long ulong;
#ifndef assert
#define assert(e) ((e) ? (void)0 : __trap())
#endif
#ifndef NULL
#define NULL 0
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
#define CHAR_BIT 8
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 0xffffffffu
#define LLONG_MAX 0x7fffffffffffffffll
#define LLONG_MIN (-LLONG_MAX - 1)
#define ULLONG_MAX 0xffffffffffffffffull
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-016
#define M_PI 3.14159265358979323846
"""
"""What headers of C define, for NVRTC."""


def own_text(
    unit: Unit,
    name: str,
    parameters: Sequence[tuple[str, CType, str]],
    defines: Sequence[str],
    include: Sequence[str],
    kernels: Sequence[str],
) -> OwnText:
    """Return a kernel's own source.

    Args:
        unit: The file.
        name: The kernel; an instance of a template with its arguments.
        parameters: Name, type and memory space of each parameter; the space is empty for a number.
        defines: The macros that the file is compiled with.
        include: The folders of headers that it is compiled with.
        kernels: The names of all kernels of the file.
    """
    folders = [Path(unit.file).resolve().parent, *(Path(folder).resolve() for folder in include)]
    given = [*(f"-I{folder}" for folder in folders), *(f"-D{one}" for one in defines)]
    place = unit.file.replace("\\", "\\\\").replace('"', '\\"')
    line = f'#line 1 "{place}"\n'
    if unit.opencl:
        contracts = "ON" if unit.fmad else "OFF"
        text = f"#pragma OPENCL FP_CONTRACT {contracts}\n{line}" + "\n".join(unit.lines) + "\n"
        options = [*_OPENCL_OPTIONS, *given]
    else:
        text = _C_HEADERS + line + _of_the_device(unit, folders)
        options = [f"--fmad={str(unit.fmad).lower()}", *_CUDA_OPTIONS, *given]
    return OwnText(text, name, options, [_role(*parameter) for parameter in parameters], unit, kernels)


def _role(name: str, kind: CType, space: str) -> tuple[str, str, Scalar | None]:
    if space == "local":
        return name, "local", None
    if space:
        return name, "array", None
    return (name, "number", kind.scalar) if isinstance(kind, Number) else (name, "struct", None)


def _of_the_device(unit: Unit, folders: Sequence[Path]) -> str:
    """Return the text of a file without functions of the host and headers that NVRTC does not take."""
    lines = list(unit.lines)
    for number, text in enumerate(lines):
        found = INCLUDE.match(text)
        named = NAMED.match(found[2]) if found is not None else None
        if named is not None:
            header = named[1] or named[2]
            if not _TOOLKIT.match(header) and not any((folder / header).is_file() for folder in folders):
                lines[number] = ""
    whole = "\n".join(lines) + "\n"
    for node in unit.declarations():
        if _is_of_the_host(unit, node):
            extent = node.cursor.extent
            first, last = (_offset(lines, at.line, at.column) for at in (extent.start, extent.end))
            # Lines keep their numbers.
            whole = whole[:first] + re.sub(r"[^\n]", " ", whole[first:last]) + whole[last:]
    return whole


def _is_of_the_host(unit: Unit, node: Node) -> bool:
    """Return whether a declaration is a function that only the host runs."""
    return (
        node.kind == "FUNCTION_DECL"
        and node.place[0] == unit.file
        and not node.has("CUDAGLOBAL_ATTR", "CUDADEVICE_ATTR")
        and not any(token.spelling == "constexpr" for token in node.cursor.get_tokens())
    )


def _offset(lines: Sequence[str], line: int, column: int) -> int:
    """Return the place of a line and a column (of bytes) in the text."""
    before = sum(len(text) + 1 for text in lines[: line - 1])
    if line > len(lines):
        return before
    return before + len(lines[line - 1].encode()[: column - 1].decode(errors="replace"))
