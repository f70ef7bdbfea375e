"""Places of C expressions: variables, members, elements and what pointers point to; and their parts."""

from __future__ import annotations

from windtunnel.csource import build
from windtunnel.csource.bits import bits_of
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import (
    Array,
    CType,
    Number,
    Pointer,
    Record,
    Vector,
    Void,
)
from windtunnel.csource.memory import OUT_OF_BOUNDS, Memory
from windtunnel.csource.values import (
    NULL,
    Aggregate,
    Bits,
    Closure,
    Frame,
    Given,
    Mem,
    Place,
    Ptr,
    Reg,
    Swizzle,
    Value,
    Var,
)
from windtunnel.language import ir
from windtunnel.language.types import BOOL, I32, I64, U32, U64, Scalar

CASTS = (
    "CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR", "CXX_REINTERPRET_CAST_EXPR",
    "CXX_CONST_CAST_EXPR", "UNEXPOSED_EXPR", "CXX_ADDRSPACE_CAST_EXPR",
)  # fmt: skip
_NAMELESS = ("TYPE_REF", "TEMPLATE_REF", "NAMESPACE_REF")
SPECIAL = {"threadIdx": "thread", "blockIdx": "block", "blockDim": "block_size", "gridDim": "grid_size"}


def operands(node: Node) -> list[Node]:
    """Return the expressions directly below a node, without the names of types."""
    return [kid for kid in node.kids if kid.kind not in _NAMELESS]


def bare(node: Node) -> Node:
    """Return an expression without parentheses around it."""
    while node.kind == "PAREN_EXPR":
        node = node.kids[0]
    return node


class Places(Memory):
    """Translates expressions that are places. Effects become statements ahead of the one that is being translated."""

    def call(self, node: Node, target: Place | None = None) -> Value | Place:
        """Translate a call; a reference that it returns is a place. ``target``: where a constructor builds."""
        raise NotImplementedError

    def function_pointer(self, node: Node, function: Node) -> Ptr:
        """Return the pointer to a function."""
        raise NotImplementedError

    def declared_later(self, node: Node) -> Var | Place | Ptr | Closure | None:
        """Return what a name that no function declares stands for: a variable of the file."""
        raise NotImplementedError

    def string(self, node: Node) -> Place:
        """Return the place of a string."""
        raise NotImplementedError

    def is_swapped(self, node: Node) -> bool:
        """Return whether a place is also one that the function compares and swaps.

        What such a loop reads first may be old: the comparison finds out. So it is not a race, and read atomically.
        """
        raise NotImplementedError

    def statement_expression(self, node: Node) -> Value:
        """Translate ``({ ...; x; })``."""
        raise NotImplementedError

    def allocated(self, node: Node) -> Ptr:
        """Translate ``new``."""
        raise NotImplementedError

    def value(self, node: Node) -> Value:
        """Translate an expression and return its value."""
        raise NotImplementedError

    def discarded(self, node: Node) -> None:
        """Translate an expression for its effect alone."""
        raise NotImplementedError

    def _step(self, node: Node) -> tuple[Place, Value]:
        raise NotImplementedError

    def _assign(self, node: Node) -> Place:
        raise NotImplementedError

    def _update(self, node: Node) -> Place:
        raise NotImplementedError

    def _chosen_place(self, node: Node) -> Place:
        raise NotImplementedError

    def _captured(self, node: Node) -> Frame:
        """Return the frame in which a lambda's body is translated."""
        raise NotImplementedError

    def number(self, node: Node) -> ir.Expr:
        """Translate an expression that is a number."""
        value = self.value(node)
        if isinstance(value, ir.Expr):
            return value
        if isinstance(value, Ptr):
            return self.encoded(self.line(node), value)
        if isinstance(value, Aggregate) and len(value.parts) == 1:
            (part,) = value.parts.values()
            if isinstance(part, ir.Expr):
                return part
        raise node.refused("an expression that is no number here")

    def pointer(self, node: Node) -> Ptr:
        """Translate an expression that is a pointer."""
        value = self.value(node)
        if isinstance(value, Ptr):
            return value
        raise node.refused("an expression that is no pointer here")

    def condition(self, node: Node) -> ir.Expr:
        """Translate an expression that is true or false."""
        value = self.value(node)
        line = self.line(node)
        if isinstance(value, Ptr):
            return build.unary(line, "not", self._is_null(line, value))
        if isinstance(value, ir.Expr):
            return build.truth(value)
        raise node.refused("a condition that is no number")

    # Places.

    def _bound(self, node: Node) -> Var | Place | Ptr | Closure:
        target = node.referred
        if target is None:
            if node.kids:
                return self._bound(node.kids[-1])
            raise node.refused(f"the name '{node.name}'")
        bound = self.frame.find(target.key)
        if bound is None:
            bound = self.declared_later(target)
        if bound is None:
            raise node.refused(f"'{node.name}', which is not known in the kernel", "a variable of the device")
        return bound

    # Long: one case for each kind of place, each a line or two.
    def place(self, node: Node) -> Place:
        """Translate an expression that is a place: it can be assigned to, or a part of it can be read."""
        node = bare(node)
        kind, line = node.kind, self.line(node)
        if kind == "DECL_REF_EXPR":
            bound = self._bound(node)
            if isinstance(bound, Var):
                return Reg(bound, 0, bound.type)
            if isinstance(bound, Ptr):
                return self._temporary(line, node.type, bound)
            if isinstance(bound, Closure):
                raise node.refused(f"the lambda '{node.name}' as a value", "a call of it")
            return bound
        if kind == "STRING_LITERAL":
            return self.string(node)
        if kind == "MEMBER_REF_EXPR":
            return self._member(node)
        if kind == "ARRAY_SUBSCRIPT_EXPR":
            return self._element(node)
        if kind == "UNARY_OPERATOR":
            if node.unary == "*":
                inner = bare(operands(node)[0])
                if inner.kind == "CXX_THIS_EXPR":
                    return self._this(inner)
                if isinstance(node.type, Void) and node.type.is_function:
                    return self._temporary(line, Pointer(node.type), self.pointer(inner))  # a function
                return Mem(self.pointer(inner), node.type)
            if node.unary in ("++x", "--x"):
                return self._step(node)[0]
        if kind == "BINARY_OPERATOR" and node.binary == "=":
            return self._assign(node)
        if kind == "BINARY_OPERATOR" and node.binary == ",":
            self.discarded(operands(node)[0])
            return self.place(operands(node)[1])
        if kind == "COMPOUND_ASSIGNMENT_OPERATOR":
            return self._update(node)
        if (
            kind == "CONDITIONAL_OPERATOR"
            and not isinstance(node.type, Void)
            and all(map(is_place, operands(node)[1:]))
        ):
            return self._chosen_place(node)
        if kind == "UNEXPOSED_EXPR" and node.selected is not None:
            whole = self.place(node.kids[0])
            assert isinstance(whole.type, Vector)  # noqa: S101  `selected` has seen it
            return self._swizzle(node, node.selected, whole, whole.type)
        if kind == "UNEXPOSED_EXPR" or kind in CASTS:
            below = operands(node)
            keeps = len(below) == 1 and self._same_object(below[0], node)
            if keeps and (isinstance(below[0].type, Pointer) or not isinstance(node.type, Pointer)):
                found = self.place(below[0])
                if isinstance(found, Mem) and kind in ("CXX_REINTERPRET_CAST_EXPR", "CSTYLE_CAST_EXPR"):
                    return Mem(found.at, target_of(node.type))
                return self._as_base(found, target_of(node.type))
        if kind == "CALL_EXPR":
            made = self.call(node)
            if isinstance(made, Place):
                return made
            return self._temporary(line, node.type, made)
        if kind in ("MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", "COMPOUND_ASSIGNMENT_OPERATOR"):
            raise node.refused("this expression as a place")
        return self._temporary(line, node.type, self.value(node))

    def _same_object(self, inner: Node, outer: Node) -> bool:
        """Return whether a conversion leaves the object as it is: adds const, or names a base class."""
        a, b = target_of(inner.type), target_of(outer.type)
        return a == b or (isinstance(a, Record) and isinstance(b, Record)) or outer.kind == "CXX_REINTERPRET_CAST_EXPR"

    def _temporary(self, line: int, kind: CType, value: Value) -> Place:
        """Return a place that holds a value."""
        if isinstance(value, Aggregate):
            return Given(value, 0, value.type)
        if isinstance(value, (ir.Expr, Ptr)):
            if isinstance(kind, Pointer) and kind.reference:
                kind = kind.pointee
            return Given(Aggregate(kind, {0: value}), 0, kind)
        raise TypeError(f"a place for {value}")

    def _this(self, node: Node) -> Place:
        frame = self.frame
        while frame.this is None and frame.outer is not None:
            frame = frame.outer
        if frame.this is None:
            raise node.refused("'this' outside of a method")
        return frame.this

    # Long: one case for each form of the object of a member.
    def _member(self, node: Node) -> Place:
        line, kids = self.line(node), operands(node)
        if not kids:
            whole: Place = self._this(node)
        else:
            inner = bare(kids[0])
            special = self._special(node, inner)
            if special is not None:
                return special
            if is_this(inner):
                whole = self._as_base(self._this(inner), _pointee(inner))
            elif isinstance(inner.type, Pointer) and not inner.type.reference:
                whole = Mem(self.pointer(inner), inner.type.pointee)
            else:
                whole = self.place(inner)
        kind = whole.type
        if isinstance(kind, Vector):
            return self._swizzle(node, node.name, whole, kind)
        if not isinstance(kind, Record):
            raise node.refused(f"the member '{node.name}' of something that is no struct")
        found = kind.member(node.name) if node.name and "(" not in node.name else None
        if found is None:
            if not node.name or "(" in node.name:
                return whole  # the unnamed member
            target = node.referred
            if target is not None and target.kind == "VAR_DECL":
                constant = self.declared_later(target)
                if isinstance(constant, (Reg, Mem)):
                    return constant
            raise node.refused(f"the member '{node.name}' of {kind.name}")
        at = found.type
        if found.bits is not None:
            unit = self.part(whole, found.offset, found.unit)
            assert isinstance(at, Number)  # noqa: S101  bit-fields are numbers
            if isinstance(unit, (Reg, Mem)):
                return Bits(unit, *found.bits, at)
            number = self.load(line, unit)
            assert isinstance(number, ir.Expr)  # noqa: S101  as its type
            return self._temporary(line, at, bits_of(line, number, found.bits, at))
        if isinstance(at, Pointer) and at.reference:
            pointer = self.load(line, self.part(whole, found.offset, at))
            assert isinstance(pointer, Ptr)  # noqa: S101  a reference is a pointer
            return Mem(pointer, at.pointee)
        return self.part(whole, found.offset, at)

    def _as_base(self, whole: Place, base: CType | None) -> Place:
        """Return the part of an object that is a base class; the object itself for another type."""
        offset = whole.type.offset_of(base) if isinstance(whole.type, Record) and isinstance(base, Record) else None
        return whole if offset is None or base is None else self.part(whole, offset, base)

    def _special(self, node: Node, inner: Node) -> Place | None:
        """Return the index that ``threadIdx.x`` and its kin stand for."""
        while inner.kind == "UNEXPOSED_EXPR" and len(inner.kids) == 1:
            inner = bare(inner.kids[0])
        target = inner.referred if inner.kind == "DECL_REF_EXPR" else None
        if target is None or target.name not in SPECIAL or node.name not in "xyz" or self.frame.find(target.key):
            return None
        line = self.line(node)
        index = ir.Index(line, SPECIAL[target.name], "xyz".index(node.name), type=I32)
        kind = node.type
        assert isinstance(kind, Number)  # noqa: S101  as the prelude declares it
        return self._temporary(line, kind, ir.Convert(line, kind.scalar, index, type=kind.scalar))

    def _swizzle(self, node: Node, name: str, whole: Place, kind: Vector) -> Place:
        numbers = swizzled(name, kind.count)
        if numbers is None:
            raise node.refused(f"the elements '{name}' of a vector of {kind.count}")
        if isinstance(whole, Swizzle):
            numbers = [whole.numbers[number] for number in numbers]
            return Swizzle(whole.of, tuple(numbers), node.type)
        if isinstance(whole, Mem):
            self.aligned(self.line(node), whole.at, kind.align)
        if len(numbers) == 1:
            return self.part(whole, numbers[0] * kind.element.size, kind.element)
        return Swizzle(whole, tuple(numbers), node.type)

    def _element(self, node: Node) -> Place:
        first, second = operands(node)
        base, index = (first, second) if not isinstance(first.type, Number) else (second, first)
        if isinstance(base.type, Vector):
            found = self.number(index)
            whole = self.place(base)
            if isinstance(whole, Mem):
                return Mem(whole.at.moved(found, base.type.element.size), base.type.element)
            if not isinstance(found, ir.Literal):
                return self._chosen(node, whole, base.type, self.hold(found))
            return self.part(whole, int(found.value) * base.type.element.size, base.type.element)
        at = self.pointer(base)
        found = self._within_member(node, base, self.number(index))
        return Mem(at.moved(found, max(node.type.size, 1)), node.type)

    def _within_member(self, node: Node, base: Node, index: ir.Expr) -> ir.Expr:
        """Emit the check that an index is within an array that is a member of a struct; return the index.

        What is beyond is other members of the same object. An array of one element may stand for more of them, and the
        rows of an array are one object.
        """
        inner = bare(base)
        while inner.kind == "UNEXPOSED_EXPR" and len(inner.kids) == 1:
            inner = bare(inner.kids[0])
        kind, row = inner.type, None
        if inner.kind == "ARRAY_SUBSCRIPT_EXPR":
            row = self.rows_of_members.get(inner.key)
        elif inner.kind != "MEMBER_REF_EXPR":
            return index
        if not isinstance(kind, Array) or kind.count is None or (row is None and kind.count < 2):
            return index
        if row is None and inner.kind == "ARRAY_SUBSCRIPT_EXPR":
            return index
        assert index.type is not None  # noqa: S101  it is a number
        line, name, count, wide = self.line(node), inner.name, kind.count, U32 if index.type == I32 else U64
        index = self.hold(index, "index")
        number = build.converted(index, wide)
        if row is not None:  # of a row: what is beyond its end is the next row, if there is one
            name, above, rows = row
            count *= rows
            if isinstance(above, ir.Literal) and isinstance(index, ir.Literal):
                number = build.literal(line, int(above.value) * kind.count + int(index.value), wide)
            else:
                start = build.binary(line, "*", build.converted(above, wide), build.literal(line, kind.count, wide))
                number = self.hold(build.binary(line, "+", start, number), "index")
        self.rows_of_members[node.key] = name, number, count
        if not (isinstance(number, ir.Literal) and 0 <= number.value < count):
            inside = build.binary(line, "<", number, build.literal(line, count, wide))
            message = f"an index is out of bounds for the member '{name}' of {count} elements"
            self.emit(ir.Require(line, inside, OUT_OF_BOUNDS, message))
        return index

    def _chosen(self, node: Node, whole: Place, kind: Vector, index: ir.Expr) -> Place:
        """Return the element of a vector that is no variable, by a number that is known while the kernel runs."""
        line = self.line(node)
        value = self.hold_value(self.load(line, whole))
        assert isinstance(value, Aggregate) and index.type is not None  # noqa: S101  it is a vector
        made: ir.Expr | None = None
        for number in reversed(range(kind.count)):
            part = value.parts[number * kind.element.size]
            assert isinstance(part, ir.Expr)  # noqa: S101  vectors are of numbers
            here = build.binary(line, "==", index, build.literal(line, number, index.type))
            made = part if made is None else build.select(line, here, part, made)
        assert made is not None  # noqa: S101  a vector has an element
        return self._temporary(line, kind.element, made)

    def _address(self, node: Node, place: Place) -> Ptr:
        if isinstance(place, Mem):
            return place.at
        if isinstance(place, Given) and len(place.value.parts) == 1 and place.offset == 0:
            (value,) = place.value.parts.values()
            if isinstance(value, Ptr) and isinstance(place.type, Array):
                return value
        raise node.refused("the address of a value that is not in memory", "a variable, an element or a member")

    def _is_null(self, line: int, value: Ptr) -> ir.Expr:
        if NULL not in value.bases:
            return build.literal(line, False, BOOL)
        if len(value.bases) == 1:
            return build.literal(line, not value.parts, BOOL)
        return build.binary(line, "==", self.which(line, value), build.literal(line, 0, I32))


def is_this(node: Node) -> bool:
    """Return whether an expression is ``this``, perhaps converted to a pointer to a base class."""
    node = bare(node)
    wanted = _pointee(node)
    while node.kind in CASTS and isinstance(_pointee(node), Record) and operands(node):
        node = bare(operands(node)[-1])
    have = _pointee(node)
    of_base = isinstance(have, Record) and isinstance(wanted, Record) and have.offset_of(wanted) is not None
    return bool(node.kind == "CXX_THIS_EXPR" and (have is wanted or of_base))


def _pointee(node: Node) -> CType | None:
    return node.type.pointee if isinstance(node.type, Pointer) else None


def is_place(node: Node) -> bool:
    """Return whether an expression is a place whose value is not read: Clang converts what is read."""
    node = bare(node)
    return node.kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR") or (
        node.kind == "UNARY_OPERATOR" and node.unary == "*"
    )


def swizzled(name: str, count: int) -> list[int] | None:
    """Return the numbers of the elements that a name of OpenCL C selects; None if it is none."""
    halves = {"lo": range((count + 1) // 2), "hi": range((count + 1) // 2, count + count % 2)}
    halves |= {"even": range(0, count, 2), "odd": range(1, count + count % 2, 2)}
    if name in halves:
        return list(halves[name])
    if name[:1] in "sS" and len(name) > 1:
        digits = name[1:].lower()
        found = [int(c, 16) for c in digits] if all(c in "0123456789abcdef" for c in digits) else []
    else:
        letters = "xyzw" if name[:1] in "xyzw" else "rgba"
        found = [letters.index(c) for c in name] if all(c in letters for c in name) else []
    return found if found and max(found) < max(count, 1) else None


def target_of(kind: CType) -> CType:
    """Return the type of what a reference refers to, and any other type unchanged."""
    return kind.pointee if isinstance(kind, Pointer) and kind.reference else kind


def scalar_of_type(kind: CType, otherwise: Scalar) -> Scalar:
    """Return the type of a number; ``otherwise`` for a type that is none."""
    kind = target_of(kind)
    return kind.scalar if isinstance(kind, Number) else otherwise


def step_of(kind: CType) -> int:
    """Return the bytes by which adding 1 to a pointer moves it."""
    if isinstance(kind, Pointer):
        return max(kind.pointee.size, 1)
    return max(kind.element.size, 1) if isinstance(kind, Array) else 1


def negative(e: ir.Expr) -> ir.Expr:
    """Return a number with the other sign, as i64."""
    return build.unary(e.line, "-", build.converted(e, I64))


def plus(line: int, e: ir.Expr, by: int) -> ir.Expr:
    """Return the sum of a number and a constant."""
    assert e.type is not None  # noqa: S101  all expressions here have types
    return build.binary(line, "+", e, build.literal(line, by, e.type))


def type_name(kind: CType) -> str:
    """Return the name of a type, for messages."""
    if isinstance(kind, Number):
        return str(kind.scalar)
    return kind.name if isinstance(kind, (Record, Void)) else type(kind).__name__.lower()
