"""The translation of one kernel in C: its parameters, the variables that it uses, and its tree."""

from __future__ import annotations

import re
import traceback
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from windtunnel.core.errors import Location, TranslatorError
from windtunnel.core.version import __version__
from windtunnel.csource import build
from windtunnel.csource.assembly import CARRY
from windtunnel.csource.clang import Node, Unit
from windtunnel.csource.copies import COPIES
from windtunnel.csource.ctype import (
    Array,
    CType,
    Number,
    Pointer,
    Record,
    Vector,
    Void,
    is_function_pointer,
    member_name,
)
from windtunnel.csource.facts import Facts, stored
from windtunnel.csource.mathematics import CLOCK
from windtunnel.csource.opencl import OpenCL
from windtunnel.csource.places import operands
from windtunnel.csource.values import NULL, Aggregate, Frame, Given, Mem, Place, Ptr, Reg, Value, Var
from windtunnel.language import ir, types

BENIGN = re.compile(r"//\s*windtunnel:\s*benign\b")
"""The comment of a line whose accesses may race."""


_SPLIT_BARRIER = ["__wt_expected", "__wt_pending", "__wt_phase"]
"""The members of ``cuda::barrier``."""
_SHOWN = 24
"""Characters of a string that messages show."""


@dataclass(eq=False)
class CProgram(ir.Program):
    """A kernel of a C file. A line of the tree is the number of a place: file, line and column."""

    places: Sequence[tuple[str, int, int]] = ()
    unit: Unit | None = None
    of_file: Mapping[str, str] = field(default_factory=dict)
    """The parameters that are variables of the file, with their names there."""

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
    """Translates one kernel.

    ``sizes``: the bytes of arrays that the launch sizes. ``nulls``: the pointers that are null. ``steps``: for pointers
    that do not begin at the start of their memory, the bytes of which their start is a multiple.
    """

    def __init__(
        self,
        unit: Unit,
        facts: Facts,
        kernel: Node,
        sizes: Mapping[str, int],
        nulls: Collection[str] = (),
        steps: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(unit, facts)
        self.kernel, self.sizes, self.nulls, self.steps = kernel, sizes, nulls, steps or {}
        self.functions = [kernel]

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
            of_file = key if space == "global" else None
            made = self.statics[key] = self.new_object(node.name, space, size, kind, self.line(node), of_file)
            if space == "global":
                self.found.of_file[made.name] = node
                self.hidden.append(made.name)
                made.declared = _name_in_file(node)
                made.initial = constants(node, kind, self)
        return Mem(self.start_of(made), kind)

    def address(self, line: int, value: Ptr) -> ir.Expr | Ptr:
        """Return the number that stands for a pointer in an initial value; the pointer if it is not constant."""
        if value.parts or value.which is not None or len(value.bases) != 1:
            return value
        (base,) = value.bases
        self.found.escaped |= value.bases
        number = 0 if base == NULL else self.ids[base] << 48 | value.const & 2**48 - 1
        return build.literal(line, number, types.U64)

    def string(self, node: Node) -> Place:
        """Return the place of a string: constants of the file."""
        found = node.evaluated()
        if found is None:  # as part of a larger expression
            found = node.name[1:-1].encode().decode("unicode_escape")
        text = str(found).encode("latin-1", errors="replace") + b"\0"
        key = -2 - zlib.crc32(text)
        made = self.statics.get(key)
        if made is None:
            kind = Array(Number(types.I8), len(text))
            made = self.statics[key] = self.new_object(f"string_{-key}", "global", len(text), kind, self.line(node))
            made.initial = [(at, value, "u8") for at, value in enumerate(text)]
            self.hidden.append(made.name)
            literal = text[:-1].decode("latin-1").encode("unicode_escape").decode()
            self.spellings[made.name] = f'"{literal if len(literal) <= _SHOWN else literal[:_SHOWN] + "..."}"'
        return Mem(self.start_of(made), Array(Number(types.I8), len(text)))

    def declared_later(self, node: Node) -> Var | Place | Ptr | None:
        """Return what a name that no function declares stands for: a variable of the file."""
        if node.kind != "VAR_DECL":
            return None
        space = self.space_of(node)
        if isinstance(node.type, Record) and node.type.name.startswith(("texture<", "surface<")):
            return Given(Aggregate(node.type, {}), 0, node.type)
        if space is None and (node.cursor.type.is_const_qualified() or "const " in node.cursor.type.spelling):
            space = "global"
        if space is None:
            if node.cursor.semantic_parent is not None and node.cursor.semantic_parent.kind.name == "FUNCTION_DECL":
                return None
            raise node.refused(f"'{node.name}', a variable of the host", "__device__, __constant__ or __shared__")
        return self.static(node, space)

    # Long: one case for each kind of object.
    def statement_expression(self, node: Node) -> Value:
        """Translate statements in parentheses, of which the last one is the value: ``({ int a = f(); a + 1; })``."""
        body = next(kid for kid in node.kids if kid.kind == "COMPOUND_STMT")
        if isinstance(node.type, Void) or not body.kids:
            self.statements(body)
            return None
        for kid in body.kids[:-1]:
            self.statement(kid)
        return self.hold_value(self.value(body.kids[-1]))

    def program(self) -> CProgram:
        """Translate the kernel."""
        node = self.kernel
        node.require_known()
        parameters: list[ir.Parameter] = []
        arrays: dict[str, types.Array] = {}
        self.frame = Frame(node.name, kernel=True)
        assigned = self.uses.assigned(node) | self.uses.in_memory(node)
        listed = [kid for kid in node.kids if kid.kind == "PARM_DECL"]
        objects: list[tuple[str, int]] = []
        for number, parameter in enumerate(listed):
            self._parameter(number, parameter, assigned, parameters, objects)
        self._begin_escaped(node)
        self.statements(next(kid for kid in node.kids if kid.kind == "COMPOUND_STMT"))
        for name, line in [*objects, *((name, self.objects[name].line or self.line(node)) for name in self.hidden)]:
            element = self.storage_of(name)
            arrays[name] = types.Array(element, 1)
            if name in self.hidden:
                parameters.append(ir.Parameter(name, arrays[name], line))
        self.read_through_copies()
        self._begin_barriers(self.line(node))
        self._begin_counters(self.line(node))
        ordered = [p if p.name not in arrays else ir.Parameter(p.name, arrays[p.name], p.line) for p in parameters]
        declared = self._declared()
        arrays |= {name: types.Array(made.element, 1) for name, made in declared.items()}
        variables = {name: self.objects[name].declared for name in self.hidden}
        program = CProgram(
            node.name, self.unit.file, self.line(node), "", ordered, [*declared.values(), *self.body], (),
            arrays=dict(arrays), scalars=self.scalars, declared=declared, places=tuple(self.places), unit=self.unit,
            temporaries=frozenset(self.temporaries), warp=None if self.unit.opencl else 32, of_file=variables,
            block=required_block(node), awaits_copies=self.unit.opencl, is_opencl=self.unit.opencl,
            units=self._units({**arrays}), spellings=self.spellings, collectives=self.collectives,
            split_barriers=[name for name, one in arrays.items() if one.element.bits == 32 and self._is_split(name)],
        )  # fmt: skip
        program.variables = {name: kind for name, kind in self.variables.items() if name not in self.scalars}
        return program

    def _begin_escaped(self, node: Node) -> None:
        """Make the file's variables and functions known that pointers in memory may point to."""
        # This pass may come to such a pointer before it comes to them.
        for name, one in self.facts.of_file.items():
            if name in self.facts.escaped and one.kind == "VAR_DECL":
                self.static(one, "global")
            elif name in self.facts.escaped:
                self.function_pointer(node, one)

    def _begin_counters(self, line: int) -> None:
        """Let the counters of copies and of time begin at 0, if the kernel has them."""
        for counter in (COPIES, CLOCK, CARRY):
            if counter in self.variables:
                zero = build.literal(line, 0, self.variables[counter])
                self.body.insert(0, ir.Assign(line, counter, zero))

    def _is_split(self, name: str) -> bool:
        """Return whether an object is a barrier of which arriving and waiting are apart, or an array of such."""
        kind = self.objects[name].type if name in self.objects else None
        while isinstance(kind, Array):
            kind = kind.element
        return isinstance(kind, Record) and [one.name for one in kind.fields] == _SPLIT_BARRIER

    def _units(self, arrays: Mapping[str, types.Array]) -> dict[str, tuple[int, int]]:
        """Return the arrays that are kept in smaller units than their elements, with the bytes of both."""
        found = {}
        for name, array in arrays.items():
            kind = self.objects[name].type if name in self.objects else None
            while isinstance(kind, Array):
                kind = kind.element
            unit = array.element.dtype.itemsize
            if kind is not None and not isinstance(kind, Void) and kind.size > unit:
                found[name] = (unit, kind.size)
        return found

    def _begin_barriers(self, line: int) -> None:
        """Let the barriers that have numbers begin at 0, if the kernel has any."""
        made = next((one for one in self.objects.values() if one.name.startswith("named_barriers")), None)
        if made is None or made.bytes is None:
            return
        with self.block() as begin:
            with self.block() as zeros:
                for number in range(made.bytes // 4):
                    place = Mem(self.start_of(made).moved(number, 4), Number(types.I32))
                    self.store(line, place, build.literal(line, 0, types.I32))
            rank = self.thread_rank(line)
            self.emit(ir.If(line, build.binary(line, "==", rank, build.literal(line, 0, types.I32)), zeros, []))
            self.emit(ir.Barrier(line, "block"))
        self.body[:0] = begin

    def _declared(self) -> dict[str, ir.Declare]:
        """Return the arrays of blocks and of threads, by their names."""
        found: dict[str, ir.Declare] = {}
        for made in self.objects.values():
            if made.space not in ("shared", "local"):
                continue
            element = self.storage_of(made.name)
            size = self.sizes.get(made.name, 0) if made.bytes is None else made.bytes
            count = -(-size // (element.bits // 8)) if made.bytes is not None else size // (element.bits // 8)
            found[made.name] = ir.Declare(made.line, made.name, made.space, (max(count, 0),), element)
        return found

    def _function_of_number(self, node: Node, name: str) -> Ptr:
        """Return the pointer to the function of a number: among those of its type that the file's variables point to.

        The number counts from 0, modulo how many there are.
        """
        wanted = node.cursor.type.get_canonical().get_pointee().spelling
        found: dict[int, Node] = {}
        for declared in self.unit.declarations():
            if declared.kind == "VAR_DECL" and declared.has("CUDADEVICE_ATTR", "CUDACONSTANT_ATTR"):
                for one in declared.walk():
                    function = one.referred if one.kind == "DECL_REF_EXPR" else None
                    of_type = function is not None and function.cursor.type.get_canonical().spelling == wanted
                    if function is not None and of_type and function.definition is not None:
                        found.setdefault(function.key, function)
        if not found:
            raise node.refused(f"no variable of the file points to a function of the type of '{name}'")
        line = self.line(node)
        ids = [(base, self.ids[base]) for one in found.values() for base in self.function_pointer(node, one).bases]
        chosen = build.binary(
            line, "%", ir.Variable(line, name, type=types.U64), build.literal(line, len(ids), types.U64)
        )
        chosen = self.hold(chosen, "chosen")
        which: ir.Expr = build.literal(line, ids[0][1], types.I32)
        for number, (_, own) in enumerate(ids[1:], 1):
            equal = build.binary(line, "==", chosen, build.literal(line, number, types.U64))
            which = build.select(line, equal, build.literal(line, own, types.I32), which)
        return Ptr(frozenset(base for base, _ in ids), which=which)

    # Long: one case for each kind of object.
    def _parameter(
        self, number: int, node: Node, assigned: frozenset[int], parameters: list[ir.Parameter],
        objects: list[tuple[str, int]],
    ) -> None:  # fmt: skip
        line, kind = self.line(node), node.type
        name = node.name or f"argument_{number}"
        if isinstance(kind, Void) and kind.is_opaque:
            return
        if is_function_pointer(kind):
            parameters.append(ir.Parameter(name, types.U64, line))
            self.scalars[name] = types.U64
            self.frame.bound[node.key] = self.bind(node, kind, self._function_of_number(node, name), line, self.kernel)
            return
        if isinstance(kind, Pointer):
            start = Ptr(frozenset({NULL}))
            if name not in self.nulls:
                space = "shared" if kind.space == "local" else "parameter"
                made = self.new_object(name, space, None, kind.pointee, line)
                start = self.start_of(made)
                if space == "parameter":
                    objects.append((made.name, line))
                    parameters.append(ir.Parameter(made.name, None, line))
                if name in self.steps:
                    own = self.fresh(f"{name}_start")
                    self.scalars[own] = types.I32
                    parameters.append(ir.Parameter(own, types.I32, line))
                    start = start.moved(ir.Variable(line, own, type=types.I32), self.steps[name])
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
                self.spellings[made.name] = f"{name}.{member_name(kind, offset)}"
                objects.append((made.name, line))
                parameters.append(ir.Parameter(made.name, None, line))
                self.write_pointer(line, own, self.start_of(made))
                continue
            del self.variables[own]
            self.scalars[own] = leaf.scalar
            parameters.append(ir.Parameter(own, leaf.scalar, line))
        if node.key in self.uses.in_memory(self.kernel) or (isinstance(kind, Record) and kind.in_memory):
            value: Value = self.load(line, Reg(var, 0, kind))
            self.frame.bound[node.key] = self.bind(node, kind, value, line, self.kernel)
        else:
            self.frame.bound[node.key] = var


# Long: one case for each form of an initial value.
def constants(node: Node, kind: CType, translator: Translator) -> list[tuple[int, float | int, str]]:
    """Return the numbers that a variable of the file begins with: (offset, number, type). The others are 0."""
    initial = node.initial
    if initial is None:
        return []
    leaves = {at: stored(leaf).name for at, leaf in kind.leaves}
    with translator.block() as body:
        translator.folds = True
        value = translator.listed(initial, kind) if initial.kind == "INIT_LIST_EXPR" else None
        if value is None and isinstance(kind, (Number, Pointer, Vector)):
            value = translator.value(initial)
        translator.folds = False
        if value is None and initial.kind == "STRING_LITERAL" and isinstance(kind, Array):
            text = str(initial.evaluated() or "").encode() + b"\0"
            return [(at, text[at] if at < len(text) else 0, "u8") for at in range(kind.count or 0)]
        if value is None and initial.kind == "CALL_EXPR":
            return []
    if isinstance(value, (ir.Literal, Ptr)):
        value = Aggregate(kind, {0: value})
    if isinstance(value, Aggregate):
        line = translator.line(initial)
        value = Aggregate(kind, {
            at: translator.address(line, part) if isinstance(part, Ptr) else part for at, part in value.parts.items()
        })  # fmt: skip
    if body or not isinstance(value, Aggregate) or not all(isinstance(p, ir.Literal) for p in value.parts.values()):
        raise initial.refused(f"the initial value of '{node.name}'", "constants")
    return [(at, part.value, leaves[at]) for at, part in value.parts.items() if isinstance(part, ir.Literal)]


def required_block(node: Node) -> tuple[int, ...] | None:
    """Return the size of a work-group that a kernel in OpenCL C requires; None if it requires none."""
    for kid in node.kids:
        words = [token.spelling for token in kid.cursor.get_tokens()] if kid.kind == "UNEXPOSED_ATTR" else []
        if words[:2] == ["reqd_work_group_size", "("] or words[:2] == ["__reqd_work_group_size__", "("]:
            sizes = [_number_of(node, word) for word in words[2:7:2]]
            return None if None in sizes else tuple(size for size in sizes if size is not None)
    return None


def _number_of(node: Node, word: str) -> int | None:
    """Return the number that a word of the source is, or that a macro of the file gives it; None for another word."""
    defined = re.compile(rf"\s*#\s*define\s+{re.escape(word)}\s+(\d+)\s*$")
    found = (match for line in node.unit.lines if (match := defined.match(line)) is not None)
    text = word if word.isdigit() else next((match[1] for match in found), "")
    return int(text) if text else None


def translated(translator: Translator) -> CProgram:
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
        file, line, column = at.place
        text = at.unit.text_of(file, line)
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        raise TranslatorError(
            f"this statement cannot be translated, which is an error in Windtunnel {__version__}: please report the "
            f"statement{f' ({text})' if text else ''}, the declarations that it uses, and "
            f"'{type(error).__name__}{f': {error}' if str(error) else ''} in {where}'",
            where=Location(file, line, column),
        ) from error


def joined(old: Facts, new: Facts) -> Facts:
    """Return the facts of the last pass, with all objects that were ever found, so that the passes end."""
    bases = {n: new.bases.get(n, frozenset()) | old.bases.get(n, frozenset()) for n in {*new.bases}}
    accessed = {n: new.accessed.get(n, set()) | old.accessed.get(n, set()) for n in {*new.accessed, *old.accessed}}
    return Facts(
        {**old.bases, **bases}, {**old.units, **new.units}, accessed, new.escaped | old.escaped,
        {**old.of_file, **new.of_file}, old.read | new.read, old.written | new.written,
    )  # fmt: skip


def _name_in_file(node: Node) -> str:
    """Return the name of a variable of the file; one of a function has its place in it."""
    parent = node.cursor.semantic_parent
    within = parent is not None and parent.kind.name in ("FUNCTION_DECL", "CXX_METHOD", "FUNCTION_TEMPLATE")
    return f"{node.name}, line {node.place[1]}" if within else node.name
