"""The state of translating one kernel: its lines, names, statements and variables, and the pointers in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd

from windtunnel.csource import build
from windtunnel.csource.clang import Node, Unit
from windtunnel.csource.ctype import CType, Number, Pointer, Record, Void, member_name, member_path
from windtunnel.csource.facts import Facts
from windtunnel.csource.includes import PRELUDE
from windtunnel.csource.values import NULL, Aggregate, Frame, Mem, Obj, Place, Ptr, Reg, Swizzle, Value, Var
from windtunnel.language import ir, types
from windtunnel.language.types import I32, I64, Scalar

_PRELUDE = str(PRELUDE)


class Variables:
    """The state of translating one kernel, and its variables."""

    def __init__(self, unit: Unit, facts: Facts) -> None:
        self.unit, self.facts, self.found = unit, facts, Facts()
        self.body: list[ir.Stmt] = []
        """The statements that are being emitted."""
        self.variables: dict[str, Scalar] = {}
        self.scalars: dict[str, Scalar] = {}
        self.objects: dict[str, Obj] = {}
        self.ids: dict[str, int] = {NULL: 0}
        self.places: list[tuple[str, int, int]] = [(unit.file, 0, 0)]
        self._lines: dict[tuple[str, int, int], int] = {}
        self.names: set[str] = set()
        self.collectives: dict[int, str] = {}
        """The lines of functions that all threads of a group compute together, with the functions' names."""
        self.spellings: dict[str, str] = {}
        """How messages call variables and objects."""
        self._numbers: dict[str, int] = {}
        self.statics: dict[int, Obj] = {}
        self.hidden: list[str] = []
        """The objects of the file, which are passed as further arguments."""
        self.images: dict[int, Node] = {}
        """What the parameters of inlined functions that are images stand for."""
        self.temporaries: set[str] = set()
        """The variables that hold values of expressions."""
        self.called_at: list[int] = []
        """The lines of the calls of the functions that are being translated."""
        self.frame = Frame("")
        self.copies: dict[str, set[str]] = {}
        """For members of struct variables, the variables that they are copied from."""
        self.rows_of_members: dict[int, tuple[str, ir.Expr, int]] = {}
        """For an element that is a row of a member: the member, the row's number, and how many rows there are."""
        self.copying = 0
        self.products: dict[int, ir.Binary] = {}
        """The products of operators, by identity, which a sum may be contracted with."""

    # Lines, names, statements.

    def line(self, node: Node) -> int:
        """Return the number that stands for a node's file, line and column in the tree."""
        place = node.place
        if self.called_at and place[0].startswith(_PRELUDE):
            return self.called_at[-1]  # of our own headers, the line that calls them
        number = self._lines.get(place)
        if number is None:
            number = self._lines[place] = len(self.places)
            self.places.append(place)
        return number

    def fresh(self, name: str) -> str:
        """Return a name that nothing else has."""
        name = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "value"
        made, number = name, self._numbers.get(name, 1)
        while made in self.names:
            made, number = f"{name}_{number}", number + 1
        self._numbers[name] = number
        self.names.add(made)
        return made

    def emit(self, statement: ir.Stmt) -> None:
        """Append a statement."""
        self.body.append(statement)

    @contextmanager
    def block(self) -> Iterator[list[ir.Stmt]]:
        """Collect the statements that are emitted within."""
        outer, self.body = self.body, []
        try:
            yield self.body
        finally:
            self.body = outer

    def temporary(self, name: str, kind: Scalar) -> str:
        """Return a new variable that no source names."""
        made = self.fresh(name)
        self.variables[made] = kind
        self.temporaries.add(made)
        return made

    def hold(self, e: ir.Expr, name: str = "held") -> ir.Expr:
        """Return an expression's value as of now: a variable that it is assigned to."""
        if isinstance(e, (ir.Literal, ir.Index)) or build.is_plain(e):
            return e
        assert e.type is not None  # noqa: S101  all expressions here have types
        made = self.temporary(name, e.type)
        self.emit(ir.Assign(e.line, made, e))
        inner = e
        while isinstance(inner, ir.Convert):
            inner = inner.operand
        # What was never set may be copied.
        return ir.Variable(e.line, made, type=e.type, copied=isinstance(inner, ir.Variable) and inner.copied)

    def hold_value(self, value: Value) -> Value:
        """Return any value as of now."""
        if isinstance(value, ir.Expr):
            return self.hold(value)
        if isinstance(value, Ptr):
            return self.hold_pointer(value)
        if isinstance(value, Aggregate):
            return Aggregate(value.type, {at: self.hold_value(part) for at, part in value.parts.items()})  # type: ignore[misc]
        return value

    def hold_pointer(self, at: Ptr) -> Ptr:
        """Return a pointer's value as of now."""
        which = None if at.which is None else self.hold(at.which, "of")
        return Ptr(at.bases, at.const, tuple((self.hold(e, "at"), scale) for e, scale in at.parts), which)

    def fixed(self, place: Place) -> Place:
        """Return the same place as of now: the expressions in it are evaluated once."""
        if isinstance(place, Mem):
            return Mem(self.hold_pointer(place.at), place.type)
        if isinstance(place, Swizzle):
            return Swizzle(self.fixed(place.of), place.numbers, place.type)
        return place

    # Variables.

    def variable(self, name: str, kind: CType) -> Var:
        """Return a new variable that is not in memory."""
        made = Var(self.fresh(name), kind)
        single = len(kind.leaves) == 1 and kind.leaves[0][0] == 0 and not isinstance(kind, Record)
        for offset, leaf in kind.leaves:
            own = made.name if single else self.fresh(f"{made.name}_{member_name(kind, offset)}")
            made.leaves[offset] = own
            self.spellings[own] = name + member_path(kind, offset)
            if isinstance(leaf, Number):
                self.variables[own] = leaf.scalar
        return made

    def forget(self, line: int, place: Place) -> None:
        """Emit that a variable is not set."""
        if isinstance(place, Mem):
            (name,) = place.at.bases
            self.emit(ir.Forget(line, name))
            return
        for offset, leaf in place.type.leaves:
            if isinstance(leaf, Number) and isinstance(place, Reg):
                self.emit(ir.Forget(line, place.var.leaves[offset]))

    def new_object(
        self, name: str, space: str, size: int | None, kind: CType, line: int, declaration: int | None = None
    ) -> Obj:
        """Return a new object in memory; ``declaration``: of a function, or a variable of the file, its key."""
        made = Obj(self.fresh(name), space, size, kind, line)
        self.objects[made.name] = made
        self.spellings.setdefault(made.name, name)
        self.ids[made.name] = len(self.ids) if declaration is None else self.unit.number_of(declaration)
        return made

    def start_of(self, made: Obj) -> Ptr:
        """Return the pointer to an object."""
        return Ptr(frozenset({made.name}))

    # Pointers in variables.

    def read_pointer(self, line: int, name: str) -> Ptr:
        """Return the pointer that a variable holds."""
        bases = self.facts.bases.get(name, frozenset())
        # A scale of 0 leaves open what is not known yet; a pointer that never moves stays at 0.
        unit = self.facts.units.get(name, 0)
        self.variables.setdefault(name, I64)
        at = ir.Variable(line, name, type=I64)
        which = None
        if len(bases) > 1:
            which = ir.Variable(line, self._which(name), type=I32)
        return Ptr(bases, 0, ((at, unit),), which)

    def _which(self, name: str) -> str:
        self.variables.setdefault(f"{name}_of", I32)
        return f"{name}_of"

    def write_pointer(self, line: int, name: str, value: Ptr) -> None:
        """Assign a pointer to a variable."""
        self.found.bases[name] = self.found.bases.get(name, frozenset()) | value.bases
        self.found.units[name] = gcd(self.found.units.get(name, 0), value.unit)
        unit = self.facts.units.get(name, 0) or 1
        self.variables.setdefault(name, I64)
        if len(self.facts.bases.get(name, frozenset())) > 1:
            which = self.hold(self.which(line, value), "of")
            at = self.linear(line, value, unit)
            self.emit(ir.Assign(line, name, at))
            self.emit(ir.Assign(line, self._which(name), which))
            return
        self.emit(ir.Assign(line, name, self.linear(line, value, unit)))

    def which(self, line: int, value: Ptr) -> ir.Expr:
        """Return the number of the object that a pointer points into."""
        if value.which is not None:
            return value.which
        base = next(iter(value.bases), NULL)
        return build.literal(line, self.ids[base], I32)

    def linear(self, line: int, at: Ptr, unit: int) -> ir.Expr:
        """Return a pointer's offset in units of bytes of which it is a multiple."""
        if any(scale % unit for _, scale in at.parts) or at.const % unit:
            whole = self.linear(line, at, 1)
            return ir.Call(line, "index.divided", [whole, build.literal(line, unit, I64)], type=I64)
        parts = [(build.as_index(e), scale // unit) for e, scale in at.parts]
        const = at.const // unit
        if not parts:
            return build.literal(line, const, I64)
        if len(parts) == 1 and parts[0][1] == 1 and const == 0:
            return parts[0][0]
        arguments: list[ir.Expr] = [build.literal(line, const, I64)]
        for e, scale in parts:
            arguments += [e, build.literal(line, scale, I64)]
        return ir.Call(line, "index.linear", arguments, type=I64)

    def encoded(self, line: int, value: Ptr) -> ir.Expr:
        """Return a pointer as the number that stands for it in memory."""
        self.found.escaped |= value.bases
        which = build.converted(self.which(line, value), I64)
        high = build.binary(line, "<<", which, build.literal(line, 48, I64))
        low = ir.Call(line, "index.exact", [self.linear(line, value, 1)], type=I64)
        kept = build.binary(line, "&", low, build.literal(line, 2**48 - 1, I64))
        return build.converted(build.binary(line, "|", high, kept), types.U64)

    def decoded(self, line: int, value: ir.Expr, kind: Pointer | None = None) -> Ptr:
        """Return the pointer that a number stands for; one to a function points to functions only."""
        whole = self.hold(build.converted(value, I64), "address")
        sixteen = build.literal(line, 16, I64)
        low = build.binary(line, ">>", build.binary(line, "<<", whole, sixteen), sixteen)
        function = kind is not None and isinstance(kind.pointee, Void) and kind.pointee.is_function
        bases = frozenset(
            base for base in self.facts.escaped
            if base == NULL or (base in self.objects and self.objects[base].space == "code") == function
        ) or frozenset({NULL})  # fmt: skip
        which = None
        if len(bases) > 1:
            which = build.converted(build.binary(line, ">>", whole, build.literal(line, 48, I64)), I32)
            which = self.hold(which, "of")
        return Ptr(bases, 0, ((self.hold(low, "at"), 1),), which)
