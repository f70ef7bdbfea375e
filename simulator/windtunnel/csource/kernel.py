"""Kernels of a C file: their parameters, and their translation for the arguments of a launch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.csource import build
from windtunnel.csource.clang import Node, Unit
from windtunnel.csource.ctype import Array, CType, Number, Pointer, Record, Vector
from windtunnel.csource.memory import Facts, member_name, stored
from windtunnel.csource.opencl import COPIES, OpenCL
from windtunnel.csource.places import operands
from windtunnel.csource.values import NULL, Aggregate, Frame, Mem, Place, Ptr, Reg, Value, Var
from windtunnel.language import ir, types
from windtunnel.language import types as kinds
from windtunnel.language.source import CompiledSource

BENIGN = re.compile(r"//\s*windtunnel:\s*benign\b")
"""The comment of a line whose accesses may race."""
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
        self, unit: Unit, facts: Facts, kernel: Node, sizes: Mapping[str, int], nulls: frozenset[str] = frozenset()
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
        if COPIES in self.variables:
            self.body.insert(0, ir.Assign(self.line(node), COPIES, build.literal(self.line(node), 0, types.I32)))
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
            size = self.sizes.get(made.name, self.sizes.get("", 0)) if made.bytes is None else made.bytes
            count = -(-size // (element.bits // 8)) if made.bytes is not None else size // (element.bits // 8)
            declared[made.name] = ir.Declare(made.line, made.name, made.space, (max(count, 0),), element)
            arrays[made.name] = types.Array(element, 1)
        program = CProgram(
            node.name, self.unit.file, self.line(node), "", ordered, [*declared.values(), *self.body], (),
            arrays=dict(arrays), scalars=self.scalars, declared=declared, places=tuple(self.places), unit=self.unit,
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
            space = "shared" if kind.space == "local" else "parameter"
            made = self.new_object(name, space, None, kind.pointee, line)
            start = Ptr(frozenset({NULL})) if name in self.nulls else self.start_of(made)
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
            if isinstance(leaf, Pointer):
                made = self.new_object(own, "parameter", None, leaf.pointee, line)
                objects.append((made.name, line))
                parameters.append(ir.Parameter(made.name, None, line))
                null = f"{name}.{member_name(kind, offset)}" in self.nulls
                self.write_pointer(line, own, Ptr(frozenset({NULL})) if null else self.start_of(made))
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


class CFunction(CompiledSource):
    """A kernel of a C file, as `runtime.kernels.Kernel` holds it.

    Args:
        module: The file's kernels, which share its variables.
        node: The kernel's declaration.
    """

    def __init__(self, module: CModule, node: Node) -> None:
        self.module, self.node = module, node
        self.__name__ = self.__qualname__ = node.name
        self.__doc__ = None
        self._programs: dict[Any, CProgram] = {}
        self._facts = Facts()
        unit = module.unit
        del unit

    @property
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

    def typed(self, arguments: Sequence[Any], shared_bytes: int) -> CProgram:
        """Return the typed tree for the arguments of a launch. Raises InputError for what is not supported."""
        given = list(zip(arguments, self.parameters, strict=False))
        local = (int(a) for a, parameter in given if parameter.space == "local")
        nulls = frozenset(parameter.name for a, parameter in given if parameter.space and _is_null(a, parameter))
        key = (shared_bytes, nulls, *local)
        program = self._programs.get(key)
        if program is None:
            sizes = {"": shared_bytes}
            sizes |= {parameter.name: int(a) for a, parameter in given if parameter.space == "local"}
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

    # Long: one case for each kind of parameter.
    def adapted(self, arguments: Sequence[Any], shared_bytes: int) -> list[tuple[int | None, Any]]:
        """Return the arguments of the tree's parameters: arrays of its elements, numbers, the file's variables.

        Raises InputError for a wrong number of arguments, or an argument that is no number where one is asked.
        """
        stated = self.parameters
        if len(arguments) != len(stated):
            raise InputError(
                f"{len(arguments)} arguments for kernel '{self.__name__}'",
                where=Location(*self.node.place),
                expected=f"{len(stated)}: {', '.join(p.name for p in stated)}",
            )
        program = self.typed(arguments, shared_bytes)
        made: list[tuple[int | None, Any]] = []
        parameters = iter(program.parameters)
        for number, (given, parameter) in enumerate(zip(arguments, stated, strict=True)):
            if parameter.space == "local":
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

    def _viewed(self, given: Any, dtype: np.dtype[Any], parameter: KernelParameter) -> np.ndarray:
        if not isinstance(given, np.ndarray):
            if _is_null(given, parameter):
                return np.zeros(0, dtype)  # a null pointer: any access is out of bounds
            raise InputError(
                f"the argument '{parameter.name}' of '{self.__name__}' is {given!r}", expected="a buffer, or 0 for null"
            )
        flat = given.reshape(-1).view(np.uint8)
        return flat[: len(flat) // dtype.itemsize * dtype.itemsize].view(dtype)


def _is_null(given: Any, parameter: KernelParameter) -> bool:
    """Return whether the argument of a pointer is a null pointer."""
    return parameter.space != "local" and isinstance(given, (int, np.integer)) and int(given) == 0


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
        *,
        fmad: bool = True,
    ) -> None:
        self.unit = Unit(str(file), defines, include, text, instance, fmad=fmad)
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
            self.kernels[name] = CFunction(self, node)
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
