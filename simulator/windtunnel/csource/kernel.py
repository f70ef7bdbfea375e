"""Kernels of a C file: their parameters, and their translation for the arguments of a launch."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.csource.clang import Node, Unit
from windtunnel.csource.ctype import Array, CType, Number, Pointer, Record, Vector
from windtunnel.csource.memory import Facts, member_name, stored
from windtunnel.csource.opencl import OpenCL
from windtunnel.csource.own import own_text
from windtunnel.csource.places import operands
from windtunnel.csource.values import NULL, Aggregate, Frame, Mem, Place, Ptr, Reg, Value, Var
from windtunnel.language import ir, types
from windtunnel.language import types as kinds
from windtunnel.language.source import KernelSource, OwnText

BENIGN = re.compile(r"//\s*windtunnel:\s*benign\b")
"""The comment of a line whose accesses may race."""
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


@dataclass(eq=False)
class CProgram(ir.Program):
    """A kernel of a C file. A line of the tree is the number of a place: file, line and column."""

    places: Sequence[tuple[str, int, int]] = ()
    unit: Unit | None = None

    def text_of(self, line: int) -> str:
        """Return a line of the source, stripped."""
        file, number = self.place_of(line)
        return "" if self.unit is None else self.unit.text_of(file, number)

    def place_of(self, line: int) -> tuple[str, int]:
        """Return the file and the line in it of a line of the tree."""
        file, number, _ = self.places[line] if line < len(self.places) else self.places[0]
        return file, number

    @cached_property
    def benign_lines(self) -> frozenset[int]:
        """The lines marked ``// windtunnel: benign``, whose accesses may race."""
        return frozenset(n for n in range(1, len(self.places)) if BENIGN.search(self.text_of(n)))

    def column_of(self, line: int) -> int | None:
        """Return the column of a line of the tree."""
        return self.places[line][2] if line < len(self.places) else None


class Translator(OpenCL):
    """Translates one kernel."""

    def __init__(
        self, unit: Unit, facts: Facts, kernel: Node, sizes: Mapping[str, int], nulls: Collection[str] = ()
    ) -> None:
        super().__init__(unit, facts)
        self.kernel, self.sizes, self.nulls = kernel, sizes, nulls
        self.functions = [kernel]
        self.hidden: list[str] = []
        """The objects of the file, which are passed as further arguments."""

    def space_of(self, node: Node) -> str | None:
        """Return the memory that a variable is declared in: shared, global; None for a thread's own."""
        if node.has("CUDASHARED_ATTR"):
            return "shared"
        if node.has("CUDADEVICE_ATTR", "CUDACONSTANT_ATTR"):
            return "global"
        if self.unit.opencl:
            spelled = node.cursor.type.spelling
            if "__local" in spelled.split("*")[-1]:
                return "shared"
            if "__constant" in spelled.split("*")[-1] or "__global" in spelled.split("*")[-1]:
                return "global"
        return None

    def static(self, node: Node, space: str) -> Place:
        """Return the place of a variable that all threads of a block, or of the grid, share."""
        kind = node.type
        key = node.key
        if space == "shared" and isinstance(kind, Array) and kind.count is None:
            key = 0  # all such arrays are one piece of memory
        made = self.statics.get(key)
        if made is None:
            size = None if key == 0 else kind.size
            if not self.unit.opencl and space == "shared" and node.initial is not None and operands(node):
                trivial = node.initial.kind == "CALL_EXPR"
                if not trivial:
                    raise node.refused(f"an initial value of the shared variable '{node.name}'", "an assignment")
            made = self.statics[key] = self.new_object(node.name, space, size, kind, self.line(node))
            if space == "global":
                self.hidden.append(made.name)
                made.initial = _constants(node, kind, self)
        return Mem(self.start_of(made), kind)

    def declared_later(self, node: Node) -> Var | Place | Ptr | None:
        """Return what a name that no function declares stands for: a variable of the file."""
        if node.kind != "VAR_DECL":
            return None
        space = self.space_of(node)
        if space is None and (node.cursor.type.is_const_qualified() or "const " in node.cursor.type.spelling):
            space = "global"
        if space is None:
            if node.cursor.semantic_parent is not None and node.cursor.semantic_parent.kind.name == "FUNCTION_DECL":
                return None
            raise node.refused(f"'{node.name}', a variable of the host", "__device__, __constant__ or __shared__")
        return self.static(node, space)

    def program(self) -> CProgram:
        """Translate the kernel."""
        node = self.kernel
        parameters: list[ir.Parameter] = []
        arrays: dict[str, types.Array] = {}
        self.frame = Frame(node.name, kernel=True)
        assigned = self.assigned_in(node) | self.in_memory(node)
        listed = [kid for kid in node.kids if kid.kind == "PARM_DECL"]
        objects: list[tuple[str, int]] = []
        for number, parameter in enumerate(listed):
            self._parameter(number, parameter, assigned, parameters, objects)
        self.statements(next(kid for kid in node.kids if kid.kind == "COMPOUND_STMT"))
        for name, line in [*objects, *((name, 0) for name in self.hidden)]:
            element = self.storage_of(name)
            arrays[name] = types.Array(element, 1)
            if name in self.hidden:
                parameters.append(ir.Parameter(name, arrays[name], line))
        ordered = [p if p.name not in arrays else ir.Parameter(p.name, arrays[p.name], p.line) for p in parameters]
        declared: dict[str, ir.Declare] = {}
        for made in self.objects.values():
            if made.space not in ("shared", "local"):
                continue
            element = self.storage_of(made.name)
            size = self.sizes.get(made.name, 0) if made.bytes is None else made.bytes
            count = -(-size // (element.bits // 8)) if made.bytes is not None else size // (element.bits // 8)
            declared[made.name] = ir.Declare(made.line, made.name, made.space, (max(count, 0),), element)
            arrays[made.name] = types.Array(element, 1)
        program = CProgram(
            node.name, self.unit.file, self.line(node), "", ordered, [*declared.values(), *self.body], (),
            arrays=dict(arrays), scalars=self.scalars, declared=declared, places=tuple(self.places), unit=self.unit,
            temporaries=frozenset(self.temporaries), warp=None if self.unit.opencl else 32,
        )  # fmt: skip
        program.variables = {name: kind for name, kind in self.variables.items() if name not in self.scalars}
        return program

    def _parameter(
        self, number: int, node: Node, assigned: frozenset[int], parameters: list[ir.Parameter],
        objects: list[tuple[str, int]],
    ) -> None:  # fmt: skip
        line, kind = self.line(node), node.type
        name = node.name or f"argument_{number}"
        if isinstance(kind, Pointer):
            start = Ptr(frozenset({NULL}))
            if name not in self.nulls:
                space = "shared" if kind.space == "local" else "parameter"
                made = self.new_object(name, space, None, kind.pointee, line)
                start = self.start_of(made)
                if space == "parameter":
                    objects.append((made.name, line))
                    parameters.append(ir.Parameter(made.name, None, line))
            if kind.reference:
                self.frame.bound[node.key] = Mem(start, kind.pointee)
            elif node.key in assigned:
                self.frame.bound[node.key] = self.bind(node, kind, start, line, self.kernel)
            else:
                self.frame.bound[node.key] = start
            return
        if not kind.leaves:
            raise node.refused(f"the parameter '{name}' of this type", "numbers, vectors, structs of numbers, pointers")
        var = self.variable(name, kind)
        for offset, leaf in kind.leaves:
            own = var.leaves[offset]
            if isinstance(leaf, Pointer) and f"{name}.{member_name(kind, offset)}" in self.nulls:
                self.write_pointer(line, own, Ptr(frozenset({NULL})))
                continue
            if isinstance(leaf, Pointer):
                made = self.new_object(own, "parameter", None, leaf.pointee, line)
                objects.append((made.name, line))
                parameters.append(ir.Parameter(made.name, None, line))
                self.write_pointer(line, own, self.start_of(made))
                continue
            del self.variables[own]
            self.scalars[own] = leaf.scalar
            parameters.append(ir.Parameter(own, leaf.scalar, line))
        if node.key in self.in_memory(self.kernel) or (isinstance(kind, Record) and kind.in_memory):
            value: Value = self.load(line, Reg(var, 0, kind))
            self.frame.bound[node.key] = self.bind(node, kind, value, line, self.kernel)
        else:
            self.frame.bound[node.key] = var


# Long: one case for each form of an initial value.
def _constants(node: Node, kind: CType, translator: Translator) -> list[tuple[int, float | int, str]]:
    """Return the numbers that a variable of the file begins with: (offset, number, type)."""
    initial = node.initial
    leaves = {at: stored(leaf).name for at, leaf in kind.leaves}
    if initial is None:
        return [(at, 0, name) for at, name in leaves.items()]
    with translator.block() as body:
        value = translator.listed(initial, kind) if initial.kind == "INIT_LIST_EXPR" else None
        if value is None and isinstance(kind, (Number, Pointer, Vector)):
            value = translator.value(initial)
        elif value is None and initial.kind == "STRING_LITERAL" and isinstance(kind, Array):
            text = str(initial.evaluated() or "").encode() + b"\0"
            return [(at, text[at] if at < len(text) else 0, "u8") for at in range(kind.count or 0)]
        elif value is None and initial.kind == "CALL_EXPR":
            return [(at, 0, name) for at, name in leaves.items()]
    if isinstance(value, ir.Literal):
        value = Aggregate(kind, {0: value})
    if body or not isinstance(value, Aggregate) or not all(isinstance(p, ir.Literal) for p in value.parts.values()):
        raise initial.refused(f"the initial value of '{node.name}'", "constants")
    return [(at, part.value, leaves[at]) for at, part in value.parts.items() if isinstance(part, ir.Literal)]


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
            if _has_pointers(kind):
                parts = [(f"{name}.{member_name(kind, offset)}", leaf) for offset, leaf in kind.leaves]
            for part, leaf in parts:
                space = (leaf.space or "global") if isinstance(leaf, Pointer) else ""
                found.append(KernelParameter(part, leaf, space, kid.place[1]))
        return found

    def __call__(self, *arguments: Any) -> Any:
        """Raise InputError: a kernel in C runs on a device only."""
        raise InputError(f"'{self.__name__}' is a kernel in C", expected="accelerator.launch(...)")

    def typed(self, arguments: Sequence[Any]) -> CProgram:
        """Return the typed tree, which depends on the sizes of ``__local`` arguments, and on which pointers are null.

        Dynamic shared memory is a shared array without a size. Raises InputError for what is not supported.
        """
        self._check_count(arguments)
        pairs = list(zip(arguments, self.parameters, strict=True))
        sizes = {
            parameter.name: _bytes_of(given, parameter) for given, parameter in pairs if parameter.space == "local"
        }
        nulls = frozenset(parameter.name for given, parameter in pairs if _is_null(given, parameter))
        key = (*sizes.values(), nulls)
        program = self._programs.get(key)
        if program is None:
            for _ in range(_PASSES):
                translator = Translator(self.module.unit, self._facts, self.node, sizes, nulls)
                program = _translated(translator)
                found = _joined(self._facts, translator.found)
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

    def adapted(self, arguments: Sequence[Any]) -> list[tuple[int | None, Any]]:
        """Return the arguments of the tree's parameters: arrays of its elements, numbers, the file's variables.

        Raises InputError for a wrong number of arguments, or an argument that is no number where one is asked.
        """
        program, stated = self.typed(arguments), self.parameters
        made: list[tuple[int | None, Any]] = []
        parameters = iter(program.parameters)
        for number, (given, parameter) in enumerate(zip(arguments, stated, strict=True)):
            if parameter.space == "local" or _is_null(given, parameter):
                continue
            if parameter.space:
                name = next(parameters).name
                element = program.arrays[name].element
                made.append((number, self._viewed(given, element.dtype, parameter)))
            else:
                for value in _numbers(given, parameter):
                    next(parameters)
                    made.append((number, value))
        made += [(None, self.module.variable(p.name, program.arrays[p.name].element.dtype)) for p in parameters]
        return made

    def own_text(self, target: str) -> OwnText | None:
        """Return the kernel's own source for CUDA, or for OpenCL, if it is written for it; None for other targets.

        A struct with pointers is passed as its members, which only the tree takes.
        """
        opencl = self.module.unit.opencl
        if target != ("opencl" if opencl else "cuda") or any("." in parameter.name for parameter in self.parameters):
            return None
        stated = [(parameter.name, parameter.type, parameter.space) for parameter in self.parameters]
        return own_text(self.module.unit, self._qualified, stated, self.module.defines, self.module.include)

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


def _translated(translator: Translator) -> CProgram:
    """Translate a kernel. What the translator does not expect is an error at the statement that it stands in."""
    try:
        return translator.program()
    except (
        AssertionError,
        AttributeError,
        IndexError,
        KeyError,
        StopIteration,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        at = translator.current or translator.kernel
        raise at.refused(
            f"internal error while this statement was translated ({type(error).__name__}: {error}). Please report it."
        ) from error


def _joined(old: Facts, new: Facts) -> Facts:
    """Return the facts of the last pass, with all objects that were ever found, so that the passes end."""
    bases = {n: new.bases.get(n, frozenset()) | old.bases.get(n, frozenset()) for n in {*new.bases}}
    accessed = {n: new.accessed.get(n, set()) | old.accessed.get(n, set()) for n in {*new.accessed, *old.accessed}}
    return Facts({**old.bases, **bases}, {**old.units, **new.units}, accessed, new.escaped | old.escaped)


class CModule:
    """The kernels of a C file, by name, and the variables of the file, which live as long as it."""

    def __init__(
        self,
        file: str | Path,
        defines: Sequence[str] = (),
        include: Sequence[str] = (),
        text: str | None = None,
        instance: str | None = None,
    ) -> None:
        self.unit = Unit(str(file), defines, include, text, instance)
        self.defines, self.include = tuple(defines), tuple(include)
        self._memory: dict[str, np.ndarray] = {}
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
        """Allocate the variables of the file that a kernel uses, with their initial values."""
        for name in translator.hidden:
            if name in self._memory:
                continue
            made = translator.objects[name]
            memory = np.zeros(made.bytes or 0, np.uint8)
            for offset, value, kind in made.initial:
                dtype = kinds.SCALARS[kind].dtype
                number = _cast(value, kinds.SCALARS[kind])
                memory[offset : offset + dtype.itemsize] = np.array([number], dtype).view(np.uint8)
            self._memory[name] = memory

    def variable(self, name: str, dtype: np.dtype[Any]) -> np.ndarray:
        """Return the memory of a variable of the file, as an array."""
        memory = self._memory[name]
        return memory[: len(memory) // dtype.itemsize * dtype.itemsize].view(dtype)


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
        if token.spelling in ("(", "{"):
            break
        head.append(token.spelling)
    if any(word in ("__kernel", "kernel") for word in head):
        return True
    # A macro may stand for the word.
    words = "|".join(map(re.escape, head))
    defined = rf"\s*#\s*define\s+({words})\s.*\b(__)?kernel\b"
    return any(re.match(defined, line) for line in node.unit.lines)
