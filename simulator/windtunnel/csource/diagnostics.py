"""Clang's errors: which of them concern a file, a kernel of it, or nothing that a device runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError, Location
from windtunnel.csource.includes import PRELUDE, without_comments
from windtunnel.csource.libclang import library

_OF_EITHER = ("FUNCTION_DECL", "FUNCTION_TEMPLATE", "VAR_DECL", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR")
"""Declarations of the host or of the device, by their attributes."""
_NAMES = ("TYPEDEF_DECL", "TYPE_ALIAS_DECL", "ENUM_DECL")
_DEVICE = ("CUDAGLOBAL_ATTR", "CUDADEVICE_ATTR", "CUDACONSTANT_ATTR", "CUDASHARED_ATTR")
_FUNCTIONS = ("FUNCTION_DECL", "FUNCTION_TEMPLATE")
_STATED = re.compile(r"\s*(#\s*error|static_assert|_Static_assert)\b")
"""What an author states to be an error of the whole file, for whichever side it is compiled."""
_UNKNOWN = re.compile(
    r"undeclared identifier|no member named|no matching (?:member )?function|unknown type name|no type named"
    r"|no template named|reference to __(?:global|host)__"
)
"""Errors about names that are not known: those of libraries, perhaps."""
_KERNEL = re.compile(r"\b(?:__global__|(?:__)?kernel)\b")
_LAMBDA = re.compile(r"\]\s*(?:__(?:host|device)__\s*)+")
"""The beginning of a lambda that is marked for the device."""
_NOTES = 8
"""Errors in the host's declarations that are shown."""


@dataclass(frozen=True)
class Unknown:
    """A name in a function of the device that is not known: the function's extent in its file, and the error."""

    file: str
    first: int
    last: int
    problem: str
    where: Location

    def error(self) -> InputError:
        """Return the error of a kernel that needs the function."""
        return InputError(self.problem, where=self.where)


def note_missing(unit: Any, missing: dict[str, str]) -> None:
    """Note the headers that are not found, and are taken as empty."""
    for included in unit.clang.get_includes():
        name = missing.pop(str(included.include.name), None)
        if name is not None:
            at = included.location
            unit.notes.append(f"{at.file}:{at.line}: the header '{name}' is not found, and is taken as empty")


def note_warnings(unit: Any) -> None:
    """Note Clang's warnings about the file."""
    for found in unit.clang.diagnostics:
        if found.severity == library().Diagnostic.Warning and str(found.location.file) == unit.file:
            name, line = unit.origin(unit.file, found.location.line)
            unit.notes.append(f"{name}:{line}: warning: {found.spelling}")


# Long: one case for each kind of error.
def sort_errors(unit: Any, lines: int, launched: int) -> None:
    """Raise the first error that concerns the whole file.

    Errors in the host's declarations, and in instances that these name, are notes. Names that are not known in a
    function of the device are errors of the kernels that need it, unless there is one kernel only.
    """
    device: list[tuple[str, int, int]] = []
    bodies: list[Any] = []
    for found in unit.clang.diagnostics:
        if found.severity < library().Diagnostic.Error or "shadows template parameter" in found.spelling:
            continue  # the latter is no error of nvcc
        where = found.location
        name = str(where.file) if where.file is not None else unit.file
        if not unit.opencl and found.severity == library().Diagnostic.Error:
            if name == unit.file and 0 < where.line - lines <= launched:
                continue  # an instance that the host names within a template of its own
            device = device or list(_of_device(unit))
            if not any(name == other and a <= where.line <= b for other, a, b in device) and (
                _is_of_host(unit, name, where.line) and not _STATED.match(unit.own_text(name, where.line))
            ):
                unit.wrong.setdefault((name, where.line), str(found.spelling))
                continue
        file, line = unit.origin(name, where.line)
        at = Location(file, line or None, where.column or None)
        bodies = bodies or _bodies(unit)
        if not _is_unknown(unit, found, name, at, bodies):
            raise InputError(f"{found.spelling}", where=at)
    if unit.unknown and len(_KERNEL.findall(without_comments("\n".join(unit.lines)))) < 2:
        raise unit.unknown[0].error()
    unit.notes += [f"{one.where}: kernels that need this function are refused: {one.problem}" for one in unit.unknown]
    for place, problem in [*unit.wrong.items()][:_NOTES]:
        name, line = unit.origin(*place)
        unit.notes.append(f"{name}:{line}: in a declaration of the host, which is not run: {problem}")
    if len(unit.wrong) > _NOTES:
        unit.notes.append(f"{len(unit.wrong) - _NOTES} more errors in declarations of the host")


def _is_unknown(unit: Any, found: Any, name: str, at: Location, bodies: list[Any]) -> bool:
    """Return whether an error is, or follows from, a name that is not known in a function; note the first of each."""
    if found.severity != library().Diagnostic.Error:
        return False
    place = found.location.offset
    if any(one.file == name and one.first <= place <= one.last for one in unit.unknown):
        return True
    body = next((b for b in bodies if str(b.start.file) == name and b.start.offset <= place <= b.end.offset), None)
    if body is None or not _UNKNOWN.search(found.spelling):
        return False
    unit.unknown.append(Unknown(name, body.start.offset, body.end.offset, str(found.spelling), at))
    return True


def _bodies(unit: Any) -> list[Any]:
    """Return the extents of the bodies of functions."""
    return [
        kid.cursor.extent
        for node in unit.declarations() if node.kind in _FUNCTIONS
        for kid in node.kids if kid.kind == "COMPOUND_STMT"
    ]  # fmt: skip


def _of_device(unit: Any) -> Iterator[tuple[str, int, int]]:
    """Yield file, first and last line of the declarations that the device has, and of types that they name.

    A class may be used on the device too. One with an error in it is refused then.
    """
    named: list[tuple[str, tuple[str, int, int]]] = []
    text: list[str] = []
    for node in unit.declarations():
        extent, file = node.cursor.extent, str(node.cursor.location.file)
        span = file, extent.start.line, extent.end.line
        if node.kind in _OF_EITHER and node.has(*_DEVICE):
            if not Path(file).is_relative_to(PRELUDE):
                text += [unit.own_text(file, line) for line in range(span[1], span[2] + 1)]
            yield span
        elif node.kind in _NAMES:
            named.append((node.name, span))
    words = set(re.findall(r"\w+", " ".join(text)))
    yield from (span for name, span in named if name in words)


def _is_of_host(unit: Any, file: str, line: int) -> bool:
    """Return whether the declaration at a line, which Clang may have dropped, has no word of the device in it."""
    above = []
    for number in range(line - 1, max(line - 20, 0), -1):
        text = unit.own_text(file, number)
        if text.endswith((";", "}")) or text.startswith("#"):
            break
        above.append(text)
    # A lambda of the host may be one for the device: ``[=] __device__ (int i) { ... }``.
    text = _LAMBDA.sub("]", " ".join([*above, unit.own_text(file, line)]))
    return not re.search(r"__(global|device|shared|constant)__|\b(__kernel|asm)\b", text)
