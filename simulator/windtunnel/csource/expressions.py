"""Expressions of C: constants, names, conversions and lists in braces."""

from __future__ import annotations

from windtunnel.csource import build
from windtunnel.csource.bits import with_bits
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
from windtunnel.csource.operators import Operators
from windtunnel.csource.places import CASTS, bare, operands
from windtunnel.csource.values import NULL, Aggregate, Closure, Mem, Place, Ptr, Value
from windtunnel.language import ir
from windtunnel.language.types import I32

_LITERALS = ("INTEGER_LITERAL", "CHARACTER_LITERAL", "FLOATING_LITERAL", "CXX_BOOL_LITERAL_EXPR", "CXX_UNARY_EXPR")
_PLACES = (
    "DECL_REF_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", "UNARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR",
    "STRING_LITERAL",
)  # fmt: skip


class Expressions(Operators):
    """Translates expressions."""

    folds = False
    """Whether expressions of constants are numbers, as in initial values of the file's variables."""

    # Long: one case for each kind of expression, each a line or two.
    def value(self, node: Node) -> Value:
        """Translate an expression and return its value."""
        kind, line = node.kind, self.line(node)
        if isinstance(node.type, Void) and node.type.is_opaque:
            return None
        if self.folds and isinstance(node.type, Number):
            known = node.evaluated()
            if isinstance(known, (int, float)):
                return build.literal(line, known, node.type.scalar)
        if kind in _LITERALS:
            found = node.evaluated()
            if isinstance(found, (int, float)) and isinstance(node.type, Number):
                return build.literal(line, found, node.type.scalar)
            raise node.refused(f"the constant '{node.name}'", "one that is known when the kernel is compiled")
        if kind == "PAREN_EXPR":
            return self.value(node.kids[0])
        if kind == "UNEXPOSED_EXPR" and node.selected is not None:
            return self.load(line, self.place(node))
        if kind in CASTS:
            return self._cast(node)
        if kind == "BINARY_OPERATOR":
            return self._binary(node)
        if kind == "UNARY_OPERATOR" and node.unary not in ("*", "++x", "--x"):
            return self._unary(node)
        if kind == "CONDITIONAL_OPERATOR":
            return self._choice(node)
        if kind == "CALL_EXPR":
            made = self.call(node)
            return self.load(line, made) if isinstance(made, Place) else made
        if kind == "INIT_LIST_EXPR":
            return self.listed(node, node.type)
        if kind == "COMPOUND_LITERAL_EXPR":
            return self.listed(operands(node)[-1], node.type)
        if kind == "LAMBDA_EXPR":
            return Closure(node, self._captured(node))
        if kind in ("CXX_NULL_PTR_LITERAL_EXPR", "GNU_NULL_EXPR"):
            return Ptr(frozenset({NULL}))
        if kind == "DECL_REF_EXPR":
            target = node.referred
            if target is not None and target.kind in ("FUNCTION_DECL", "CXX_METHOD"):
                return self.function_pointer(node, target)
            if target is None and node.kids and not isinstance(node.type, Number):
                return self.value(node.kids[-1])  # the pointer or the function that is a template's argument
            constant = self._named_constant(node)
            if constant is not None:
                return constant
            bound = self._bound(node)
            if isinstance(bound, (Closure, Ptr)):
                return bound
        if kind == "CXX_THIS_EXPR":
            return self._address(node, self._this(node))
        if kind == "StmtExpr":
            return self.statement_expression(node)
        if kind == "CXX_NEW_EXPR":
            return self.allocated(node)
        if kind == "CXX_DELETE_EXPR":
            self.value(operands(node)[0])
            return None  # memory is not given back
        if kind not in _PLACES:
            raise node.refused(f"the expression {kind.lower()}", "an expression of C")
        place = self.place(node)
        if (
            isinstance(place, Mem)
            and isinstance(place.type, Number)
            and (self.is_swapped(node) or self.is_relaxed(node, place))
        ):
            return self.atomic_read(node, place.at, place.type)
        return self.load(line, place)

    def discarded(self, node: Node) -> None:
        """Translate an expression for its effect alone."""
        node = bare(node)
        if node.kind == "BINARY_OPERATOR" and node.binary == ",":
            left, right = operands(node)
            self.discarded(left)
            self.discarded(right)
        elif node.kind == "CONDITIONAL_OPERATOR" and isinstance(node.type, Void):
            self._choice(node)
        elif node.kind == "UNARY_OPERATOR" and node.unary in ("x++", "x--", "++x", "--x"):
            self._step(node)
        elif node.kind == "BINARY_OPERATOR" and node.binary == "=":
            self._assign(node)
        elif node.kind == "COMPOUND_ASSIGNMENT_OPERATOR":
            self._update(node)
        elif node.kind in CASTS and isinstance(node.type, Void) and operands(node):
            self.discarded(operands(node)[-1])
        elif node.kind == "UNEXPOSED_EXPR" and len(operands(node)) == 1:
            self.discarded(operands(node)[0])
        elif node.kind == "CALL_EXPR":
            self.call(node)
        else:
            value = self.value(node)
            # A volatile read, for instance, is an access.
            if isinstance(value, ir.Expr) and any(isinstance(one, ir.Load) for one in ir.inside(value)):
                self.hold(value, "unused")

    def _named_constant(self, node: Node) -> ir.Expr | None:
        """Return the number that a name stands for: an enumerator, a template's argument, a constant of the file."""
        target = node.referred
        if target is not None and target.kind == "UNEXPOSED_DECL" and isinstance(node.type, Number):
            constant = node.evaluated()  # a variable that is a template, such as std::is_same_v
            if isinstance(constant, (int, float)):
                return build.literal(self.line(node), constant, node.type.scalar)
        if target is None or (
            target.kind not in ("ENUM_CONSTANT_DECL", "VAR_DECL", "PARM_DECL", "FUNCTION_DECL") and (node.kids)
        ):
            return self.number(node.kids[-1]) if node.kids else None
        if target.kind == "ENUM_CONSTANT_DECL":
            assert isinstance(node.type, Number)  # noqa: S101  an enumerator is a number
            return build.literal(self.line(node), target.cursor.enum_value, node.type.scalar)
        if target.kind == "VAR_DECL" and isinstance(node.type, Number) and self.frame.find(target.key) is None:
            if target.name == "warpSize":
                return ir.Warp(self.line(node), "warp_size", [], type=I32)
            if (
                target.cursor.type.is_const_qualified()
                and target.initial is not None
                and not target.has("CUDASHARED_ATTR")
            ):
                found = target.initial.evaluated()
                if isinstance(found, (int, float)):
                    return build.literal(self.line(node), found, node.type.scalar)
        return None

    # Conversions.

    def _cast(self, node: Node) -> Value:
        inner = operands(node)
        if not inner:
            found = node.evaluated()
            if isinstance(found, (int, float)) and isinstance(node.type, Number):
                return build.literal(self.line(node), found, node.type.scalar)
            if isinstance(node.type, (Number, Record, Array, Vector)):
                return self.zero(node, node.type)
            raise node.refused("this expression")
        operand = inner[-1]
        kind = node.type
        if isinstance(kind, Void):
            self.discarded(operand)
            return None
        if bare(operand).kind == "INIT_LIST_EXPR" and not isinstance(kind, Vector):
            return self.listed(bare(operand), kind)
        if isinstance(kind, Vector):
            return self.vector_cast(node, operand, kind)
        value = self.value(operand)
        return self._to(node, value, operand.type, kind)

    # Lists in braces.

    def zero(self, node: Node, kind: CType) -> Value:
        """Return the zero of a type."""
        line = self.line(node)
        if isinstance(kind, Number):
            return build.literal(line, 0, kind.scalar)
        if isinstance(kind, Pointer):
            return Ptr(frozenset({NULL}))
        return Aggregate(kind, {at: self.zero(node, leaf) for at, leaf in kind.leaves})  # type: ignore[misc]

    def listed(self, node: Node, kind: CType) -> Value:
        """Return the value of a type that a list in braces gives."""
        if isinstance(kind, (Number, Pointer)):
            kids = operands(node)
            return self._to(node, self.value(kids[0]), kids[0].type, kind) if kids else self.zero(node, kind)
        if isinstance(kind, Vector):
            return self.vector_listed(node, operands(node), kind)
        parts: dict[int, ir.Expr | Ptr] = {}
        rest = self._fill(node, list(operands(node)), kind, 0, parts)
        if rest:
            raise rest[0].refused("more values than the type has members")
        for at, leaf in kind.leaves:
            if at not in parts:
                parts[at] = self.zero(node, leaf)  # type: ignore[assignment]
        return Aggregate(kind, parts)

    def _fill(self, node: Node, given: list[Node], kind: CType, at: int, parts: dict[int, ir.Expr | Ptr]) -> list[Node]:
        """Take the values of a type from a list; return those that are left."""
        if isinstance(kind, Array):
            members = [(number * kind.element.size, kind.element) for number in range(kind.count or 0)]
        elif isinstance(kind, Record):
            if any(one.bits is not None for one in kind.fields) and given:
                return self._fill_bits(node, given, kind, at, parts)
            members = [(one.offset, one.type) for one in kind.fields]
            if kind.union:
                members = members[:1]
        elif isinstance(kind, Vector):
            members = [(number * kind.element.size, kind.element) for number in range(kind.count)]
        else:
            members = [(0, kind)]
        by_name = {one.name: (one.offset, one.type) for one in kind.fields} if isinstance(kind, Record) else {}
        for place in members:
            offset, member = place
            if not given:
                break
            one = given[0]
            if one.kind == "UNEXPOSED_EXPR" and one.kids and one.kids[0].kind == "MEMBER_REF":
                offset, member = by_name[one.kids[0].name]
                one = one.kids[-1]
            self._fill_one(one, given, member, at + offset, parts)
        return given

    def _fill_bits(
        self, node: Node, given: list[Node], kind: Record, at: int, parts: dict[int, ir.Expr | Ptr]
    ) -> list[Node]:
        """Take the values of a record with bit-fields from a list; return those that are left."""
        line = self.line(node)
        for one in kind.fields:
            if not given:
                break
            if one.bits is None:
                self._fill_one(given[0], given, one.type, at + one.offset, parts)
                continue
            before = parts.get(at + one.offset, build.literal(line, 0, one.unit.scalar))
            assert isinstance(before, ir.Expr)  # noqa: S101  bit-fields are numbers
            made = with_bits(line, before, one.bits, self.number(given.pop(0)))
            parts[at + one.offset] = self.hold(made)
        return given

    def _fill_one(self, one: Node, given: list[Node], member: CType, at: int, parts: dict[int, ir.Expr | Ptr]) -> None:
        if one.kind == "INIT_LIST_EXPR":
            given.pop(0)
            value = self.listed(one, member)
        elif isinstance(member, (Array, Record)) and not self._is_whole(one, member) and one.kind != "STRING_LITERAL":
            given[:] = self._fill(one, given, member, at, parts)
            return
        else:
            given.pop(0)
            value = self._to(one, self.value(one), one.type, member)
        if isinstance(value, Aggregate):
            for offset, part in value.parts.items():
                parts[at + offset] = self.hold_value(part)  # type: ignore[assignment]
        elif isinstance(value, (ir.Expr, Ptr)):
            parts[at] = self.hold_value(value)  # type: ignore[assignment]

    def _is_whole(self, node: Node, kind: CType) -> bool:
        return isinstance(kind, Record) and isinstance(node.type, Record)
