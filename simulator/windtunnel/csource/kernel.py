"""Kernels of a C file: their parameters, and their translation for the arguments of a launch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.csource.clang import Node, Unit
from windtunnel.csource.ctype import CType, Number, Pointer, Record, Void, is_function_pointer, member_name
from windtunnel.csource.facts import Facts, stored
from windtunnel.csource.own import own_text
from windtunnel.csource.translator import CProgram, Translator, constants, joined, translated
from windtunnel.language import types
from windtunnel.language import types as kinds
from windtunnel.language.source import KernelSource, OwnText

SUFFIXES = (".cu", ".cl", ".cuh", ".cpp", ".c")
"""The ends of the names of files with kernels in C; those of ``.cl`` are in OpenCL C."""
_PASSES = 24
"""Passes until what pointers point into no longer changes."""


@dataclass(frozen=True)
class KernelParameter:
    """A parameter: ``space`` is global, constant, local for a pointer, and empty for a number."""

    name: str
    type: CType
    space: str
    line: int


class CFunction(KernelSource):
    """A kernel of a C file.

    Args:
        module: The file's kernels, which share its variables.
        node: The kernel's declaration.
        instance: The name of an instance of a template, such as ``scale<float>``.
    """

    structs = True

    def __init__(self, module: CModule, node: Node, instance: str | None = None) -> None:
        self.module, self.node = module, node
        self._qualified = instance or _qualified(node)
        self.name = self.__name__ = self.__qualname__ = node.name
        self.__doc__ = None
        self._programs: dict[Any, CProgram] = {}
        self._facts = Facts()

    @cached_property
    def parameters(self) -> list[KernelParameter]:
        """The parameters, in order."""
        found = []
        for number, kid in enumerate(k for k in self.node.kids if k.kind == "PARM_DECL"):
            kind, name = kid.type, kid.name or f"argument_{number}"
            # A struct with pointers is passed as its members, one by one.
            parts: Sequence[tuple[str, CType]] = [(name, kind)]
            if isinstance(kind, Void) and kind.is_opaque:
                if not self.module.unit.made_up:
                    raise kid.refused(f"the {kind.name} '{name}', whose contents are not known here", "buffers")
                continue
            if is_function_pointer(kind):
                parts = [(name, Number(types.U64))]  # the number of a function
            if _has_pointers(kind):
                parts = [(f"{name}.{member_name(kind, offset)}", leaf) for offset, leaf in kind.leaves]
            for part, leaf in parts:
                space = (leaf.space or "global") if isinstance(leaf, Pointer) else ""
                found.append(KernelParameter(part, leaf, space, kid.place[1]))
        return found

    def __call__(self, *arguments: Any) -> Any:
        """Raise InputError: a kernel in C runs on a device only."""
        raise InputError(f"'{self.__name__}' is a kernel in C", expected="accelerator.launch(...)")

    def typed(self, arguments: Sequence[Any], starts: Sequence[int] = ()) -> CProgram:
        """Return the typed tree, which depends on the sizes of ``__local`` arguments, and on which pointers are null.

        Dynamic shared memory is a shared array without a size. Raises InputError for what is not supported.
        """
        if self.node.cursor.type.kind.name == "FUNCTIONPROTO" and self.node.cursor.type.is_function_variadic():
            raise self.node.refused(f"the variadic kernel '{self.name}'", "a kernel that states all of its parameters")
        self._check_count(arguments)
        pairs = list(zip(arguments, self.parameters, strict=True))
        sizes = {
            parameter.name: _bytes_of(given, parameter) for given, parameter in pairs if parameter.space == "local"
        }
        nulls = frozenset(parameter.name for given, parameter in pairs if _is_null(given, parameter))
        steps = self._steps(starts)
        key = (*sizes.values(), nulls, *steps.items())
        program = self._programs.get(key)
        if program is None:
            for _ in range(_PASSES):
                translator = Translator(self.module.unit, self._facts, self.node, sizes, nulls, steps)
                program = translated(translator)
                found = joined(self._facts, translator.found)
                if found == self._facts:
                    break
                self._facts = found
            else:
                raise self.node.refused("pointers that change what they point into without end")
            assert program is not None  # noqa: S101  there is a pass
            self._programs[key] = program
            self.module.prepare(translator)
        return program

    def _check_count(self, arguments: Sequence[Any]) -> None:
        stated = self.parameters
        if len(arguments) != len(stated):
            raise InputError(
                f"{len(arguments)} arguments for kernel '{self.name}'",
                where=Location(*self.node.place),
                expected=f"{len(stated)}: {', '.join(p.name for p in stated)}",
            )

    def declared(self, local_bytes: Mapping[str, int]) -> CProgram:
        """Return the typed tree. Raises InputError for what is not supported, and without the size of ``__local``."""
        known = [parameter.name for parameter in self.parameters if parameter.space == "local"]
        for name in local_bytes:
            if name not in known:
                problem = f"'{name}' is no __local parameter of '{self.name}'"
                raise InputError(problem, where=Location(*self.node.place), expected=list_choices(known) or "none")
        for name in known:
            if name not in local_bytes:
                raise InputError(
                    f"the size of the __local parameter '{name}' is not known",
                    where=Location(*self.node.place),
                    expected=f"--arg {name}=local:N",
                )
        return self.typed([local_bytes.get(parameter.name) for parameter in self.parameters])

    def _steps(self, starts: Sequence[int]) -> dict[str, int]:
        """Return, for the pointers that do not begin at the start of their memory, of what the start is a multiple."""
        if not any(starts):
            return {}
        return {p.name: gcd(at, 16) for p, at in zip(self.parameters, starts, strict=False) if at and "." not in p.name}

    # Long: one case for each kind of parameter.
    def adapted(self, arguments: Sequence[Any], starts: Sequence[int] = ()) -> list[tuple[int | None, Any]]:
        """Return the arguments of the tree's parameters: arrays of its elements, numbers, the file's variables.

        Raises InputError for a wrong number of arguments, or an argument that is no number where one is asked.
        """
        program, stated, steps = self.typed(arguments, starts), self.parameters, self._steps(starts)
        made: list[tuple[int | None, Any]] = []
        parameters = iter(program.parameters)
        for number, (given, parameter) in enumerate(zip(arguments, stated, strict=True)):
            if parameter.space == "local" or _is_null(given, parameter):
                continue
            if parameter.space:
                name = next(parameters).name
                element = program.arrays[name].element
                made.append((number, self._viewed(given, element.dtype, parameter)))
                if parameter.name in steps:
                    next(parameters)
                    made.append((None, np.int32(starts[number] // steps[parameter.name])))
            else:
                for value in _numbers(given, parameter):
                    next(parameters)
                    made.append((number, value))
        made += [
            (None, self.module.variable(program.of_file[p.name], program.arrays[p.name].element.dtype))
            for p in parameters
        ]
        return made

    def own_text(self, target: str) -> OwnText | None:
        """Return the kernel's own source for CUDA, or for OpenCL, if it is written for it; None for other targets.

        A struct with pointers is passed as its members, which only the tree takes.
        """
        opencl = self.module.unit.opencl
        if target != ("opencl" if opencl else "cuda") or any("." in parameter.name for parameter in self.parameters):
            return None
        if any(is_function_pointer(kid.type) for kid in self.node.kids if kid.kind == "PARM_DECL"):
            return None
        stated = [(parameter.name, parameter.type, parameter.space) for parameter in self.parameters]
        kernels = list(dict.fromkeys(one._qualified for one in self.module.kernels.values()))
        return own_text(self.module.unit, self._qualified, stated, self.module.defines, self.module.include, kernels)

    def own_arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """Return what the kernel's own source takes: buffers (None for null), numbers, bytes of structs, sizes."""
        self._check_count(arguments)
        made: list[Any] = []
        for given, parameter in zip(arguments, self.parameters, strict=True):
            if parameter.space == "local":
                made.append(_bytes_of(given, parameter))
            elif parameter.space:
                null = _is_null(given, parameter)
                made.append(None if null else self._viewed(given, np.dtype(np.uint8), parameter))
            else:
                numbers = _numbers(given, parameter)
                made.append(numbers[0] if isinstance(parameter.type, Number) else _packed(numbers, parameter.type))
        return made

    def _viewed(self, given: Any, dtype: np.dtype[Any], parameter: KernelParameter) -> Any:
        if not isinstance(given, np.ndarray):
            if hasattr(given, "memory"):
                return given  # a buffer of a real device, which has no type
            raise InputError(
                f"the argument '{parameter.name}' of '{self.__name__}' is {given!r}", expected="a buffer, or 0 for null"
            )
        flat = given.reshape(-1).view(np.uint8)
        return flat[: len(flat) // dtype.itemsize * dtype.itemsize].view(dtype)


def _is_null(given: Any, parameter: KernelParameter) -> bool:
    """Return whether an argument is a null pointer."""
    pointer = parameter.space not in ("", "local")
    return pointer and isinstance(given, (int, np.integer)) and not isinstance(given, bool) and int(given) == 0


def _bytes_of(given: Any, parameter: KernelParameter) -> int:
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 0:
        raise InputError(f"the argument '{parameter.name}' is {given!r}", expected="bytes of __local memory")
    return int(given)


def _numbers(given: Any, parameter: KernelParameter) -> list[Any]:
    kind = parameter.type
    leaves = [(at, stored(leaf)) for at, leaf in kind.leaves]
    if isinstance(given, np.void):
        data = np.frombuffer(given.tobytes(), np.uint8)
    elif isinstance(given, (list, tuple, np.ndarray)) and np.ndim(given) == 1:
        values = list(given)
        if len(values) != len(leaves):
            raise InputError(f"{len(values)} numbers for '{parameter.name}'", expected=f"{len(leaves)}")
        return [leaf.dtype.type(value) for value, (_, leaf) in zip(values, leaves, strict=True)]
    else:
        if isinstance(given, np.ndarray) and given.ndim == 0:
            given = given[()]
        if isinstance(given, np.ndarray):
            raise InputError(f"the argument '{parameter.name}' is a buffer", expected="a number")
        return [_cast(given, leaf) for _, leaf in leaves]
    return [data[at : at + leaf.bits // 8].view(leaf.dtype)[0] for at, leaf in leaves]


def _packed(numbers: Sequence[Any], kind: CType) -> np.ndarray:
    """Return the bytes of a struct or a vector."""
    data = np.zeros(kind.size, np.uint8)
    for number, (offset, leaf) in zip(numbers, kind.leaves, strict=True):
        value = np.array([number], stored(leaf).dtype).view(np.uint8)
        data[offset : offset + len(value)] = value
    return data


def _qualified(node: Node) -> str:
    """Return a function's name with those of the namespaces that it stands in."""
    names, at = [node.name], node.cursor.semantic_parent
    while at is not None and at.kind.name == "NAMESPACE":
        names += [at.spelling] if at.spelling else []
        at = at.semantic_parent
    return "::".join(reversed(names))


def _cast(given: Any, kind: types.Scalar) -> Any:
    if kind.kind in ("int", "uint"):
        return np.array(int(given) & (2**kind.bits - 1), f"u{kind.bits // 8}").astype(kind.dtype)[()]
    return kind.dtype.type(given)


class CModule:
    """The kernels of a C file, by name, and the variables of the file, which live as long as it."""

    def __init__(
        self,
        file: str | Path,
        defines: Sequence[str] = (),
        include: Sequence[str] = (),
        text: str | None = None,
        instances: Sequence[str] = (),
        origins: Sequence[tuple[str, int]] = (),
        *,
        warnings: bool = False,
        made_up: bool = False,
        fmad: bool = True,
    ) -> None:
        self.unit = Unit(str(file), defines, include, text, instances, origins, warnings=warnings, fmad=fmad)
        self.unit.made_up = made_up
        self.defines, self.include = tuple(defines), tuple(include)
        self._memory: dict[str, Any] = {}
        self._first: dict[str, np.ndarray] = {}
        self.kernels: dict[str, CFunction] = {}
        self.templates: list[str] = []
        for node in self.unit.declarations():
            if (
                node.kind == "FUNCTION_DECL"
                and node.cursor.is_definition()
                and _is_kernel(node, opencl=self.unit.opencl)
            ):
                self.kernels[node.name] = CFunction(self, node)
            elif node.kind == "FUNCTION_TEMPLATE" and node.has("CUDAGLOBAL_ATTR"):
                self.templates.append(node.name)
        for name, node in self.unit.named_instances():
            self.kernels[name] = CFunction(self, node, name)
        # An instance may go by the template's name if there is no other.
        for name in self.templates:
            instances = [one for one in self.kernels if one.startswith(f"{name}<")]
            if len(instances) == 1:
                self.kernels.setdefault(name, self.kernels[instances[0]])

    def kernel(self, name: str | None) -> CFunction:
        """Return a kernel. Raises InputError if there is none of this name, or several and no name."""
        known = list(self.kernels)
        where = Location(self.unit.file)
        if name is None:
            known = [one for one in known if f"{one}<" not in "".join(known) or "<" in one]
        if not known and self.templates:
            example = f"--kernel '{self.templates[0]}<...>'"
            raise InputError("kernels that are templates only", where=where, expected=f"an instance: {example}")
        if not known:
            raise InputError("no kernel", where=where, expected="a function with __global__ or __kernel")
        if name is None:
            if len(known) > 1:
                raise InputError(f"{len(known)} kernels", where=where, expected=f"--kernel, {list_choices(known)}")
            return self.kernels[known[0]]
        if name not in self.kernels:
            raise InputError(
                f"no kernel '{name}'", where=where, expected=list_choices(known), nearest=nearest(name, known)
            )
        return self.kernels[name]

    def prepare(self, translator: Translator) -> None:
        """Allocate the variables of the file that a kernel uses, with the values that they begin with."""
        for name in translator.hidden:
            made = translator.objects[name]
            if made.declared not in self._memory:
                self._set_first(made.declared, _initial(made.bytes or 0, made.initial))

    def variable(self, name: str, dtype: np.dtype[Any]) -> Any:
        """Return the memory of a variable of the file, as an array, or as what stands for it on a device."""
        memory = self._memory[name]
        if not isinstance(memory, np.ndarray):
            return memory.viewed(dtype)
        return memory[: len(memory) // dtype.itemsize * dtype.itemsize].view(dtype)

    def contents(self, name: str) -> np.ndarray | None:
        """Return the bytes that a variable of the file begins with; None if there is none of this name."""
        if name not in self._first:
            for node in self.unit.declarations():
                if node.kind == "VAR_DECL" and node.name == name and node.has("CUDADEVICE_ATTR", "CUDACONSTANT_ATTR"):
                    translator = Translator(self.unit, Facts(), node, {})
                    self._set_first(name, _initial(node.type.size, constants(node, node.type, translator)))
        return self._first.get(name)

    def _set_first(self, name: str, value: np.ndarray) -> None:
        self._first[name], self._memory[name] = value, value.copy()

    def begin_again(self) -> None:
        """Give the variables of the file the values that they begin with, as another device has them."""
        self._memory = {name: value.copy() for name, value in self._first.items()}

    def place_on_device(self, name: str, buffer: Any) -> None:
        """Keep a variable of the file in memory of a device: ``buffer.viewed(dtype)`` gives it to a launch."""
        self._memory[name] = buffer


def _initial(size: int, numbers: Sequence[tuple[int, float | int, str]]) -> np.ndarray:
    """Return the bytes of a variable that begins with some numbers."""
    memory = np.zeros(size, np.uint8)
    for offset, value, kind in numbers:
        dtype = kinds.SCALARS[kind].dtype
        memory[offset : offset + dtype.itemsize] = np.array([_cast(value, kinds.SCALARS[kind])], dtype).view(np.uint8)
    return memory


def instance_of(name: str | None) -> str | None:
    """Return the instance of a template that a kernel's name asks for, without blanks; None for a plain name."""
    return "".join(name.split()) if name is not None and "<" in name else None


def _has_pointers(kind: CType) -> bool:
    return isinstance(kind, Record) and any(isinstance(leaf, Pointer) for _, leaf in kind.leaves)


def _is_kernel(node: Node, *, opencl: bool) -> bool:
    if not opencl:
        return node.has("CUDAGLOBAL_ATTR")
    head: list[str] = []
    for token in node.cursor.get_tokens():
        if token.spelling == "{" or (token.spelling == "(" and head[-1:] == [node.name]):
            break
        head.append(token.spelling)
    if any(word in ("__kernel", "kernel") for word in head):
        return True
    # A macro may stand for the word.
    words = "|".join(map(re.escape, head))
    defined = rf"\s*#\s*define\s+({words})\s.*\b(__)?kernel\b"
    return any(re.match(defined, line) for line in node.unit.lines)
