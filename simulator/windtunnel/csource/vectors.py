"""Vectors: operators element by element, conversions, and the vector that numbers and vectors give."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Number, Vector, common
from windtunnel.csource.texels import Texels
from windtunnel.csource.values import Aggregate, Ptr, Value
from windtunnel.language import ir
from windtunnel.language.types import BOOL, SCALARS, Scalar


class Vectors(Texels):
    """Translates expressions of vectors."""

    def parts_of(self, node: Node, value: Value, count: int) -> list[ir.Expr]:
        """Return the elements of a vector, or a number as often as asked."""
        if isinstance(value, Aggregate) and isinstance(value.type, Vector):
            size = value.type.element.size
            made = [value.parts[number * size] for number in range(value.type.count)]
            return [part for part in made if isinstance(part, ir.Expr)]
        if isinstance(value, ir.Expr):
            return [self.hold(value)] * count
        raise node.refused("an operation on something that is neither a number nor a vector")

    def vector(self, kind: Vector, parts: Sequence[ir.Expr]) -> Aggregate:
        """Return the vector of these elements, converted to its type."""
        made: dict[int, ir.Expr | Ptr] = {}
        for number, part in enumerate(parts):
            made[number * kind.element.size] = build.converted(part, kind.element.scalar)
        return Aggregate(kind, made)

    def vector_binary(self, node: Node, op: str, a: Value, b: Value) -> Value:
        """Translate an operation on vectors, element by element."""
        line = self.line(node)
        operand = next((one.type for one in (a, b) if isinstance(one, Aggregate)), node.type)
        kind = node.type if isinstance(node.type, Vector) else operand
        assert isinstance(kind, Vector) and isinstance(operand, Vector)  # noqa: S101  one of them is a vector
        element = operand.element.scalar
        made = []
        rows = zip(self.parts_of(node, a, kind.count), self.parts_of(node, b, kind.count), strict=True)
        for left, right in rows:
            if op in build.COMPARISONS or op in ("&&", "||"):
                made.append(self._relation(node, op, left, right, kind))
                continue
            if op in ("<<", ">>"):
                count = build.converted(right, element)
                count = build.binary(line, "&", count, build.literal(line, element.bits - 1, element))
                made.append(build.binary(line, op, build.converted(left, element), count))
                continue
            sides = (build.converted(side, element) for side in (left, right))
            made.append(self.rounded(node, op, *sides))
        return self.vector(kind, made)

    def _relation(self, node: Node, op: str, left: ir.Expr, right: ir.Expr, kind: Vector) -> ir.Expr:
        """Return -1 where a relation holds, and 0 elsewhere."""
        line = self.line(node)
        if op in ("&&", "||"):
            word = "and" if op == "&&" else "or"
            condition: ir.Expr = ir.Logic(line, word, build.truth(left), build.truth(right), type=BOOL)
        else:
            assert left.type is not None and right.type is not None  # noqa: S101  they have types
            shared = common(left.type, right.type)
            condition = build.binary(line, op, build.converted(left, shared), build.converted(right, shared))
        scalar = kind.element.scalar
        return build.select(line, condition, build.literal(line, -1, scalar), build.literal(line, 0, scalar))

    def vector_choice(self, node: Node, test: Value, yes: Value, no: Value) -> Value:
        """Translate ``c ? a : b`` of vectors: by the top bit of each element of ``c``."""
        kind, line = node.type, self.line(node)
        if not isinstance(kind, Vector):
            raise node.refused("a choice by a vector between numbers")
        rows = (self.parts_of(node, value, kind.count) for value in (test, yes, no))
        made = []
        for c, a, b in zip(*rows, strict=True):
            assert c.type is not None  # noqa: S101  all expressions here have types
            signed = build.converted(c, SCALARS[f"i{c.type.bits}"])
            negative = build.binary(line, "<", signed, build.literal(line, 0, signed.type or c.type))
            sides = (build.converted(side, kind.element.scalar) for side in (a, b))
            made.append(build.select(line, negative, *sides))
        return self.vector(kind, made)

    def vector_cast(self, node: Node, operand: Node, kind: Vector) -> Value:
        """Translate a conversion to a vector."""
        value = self.value(operand)
        if isinstance(value, Aggregate) and isinstance(value.type, Vector) and value.type.count == kind.count:
            if value.type.element == kind.element:
                return Aggregate(kind, value.parts)
            if node.kind != "UNEXPOSED_EXPR" and value.type.size == kind.size:
                return self.reinterpreted(node, value, kind)
            return self.vector(kind, self.parts_of(node, value, kind.count))
        if isinstance(value, ir.Expr):
            return self.vector(kind, [self.hold(build.converted(value, kind.element.scalar))] * kind.count)
        if isinstance(value, Aggregate):
            return self.reinterpreted(node, value, kind)
        raise node.refused("a conversion to a vector")

    def vector_listed(self, node: Node, given: Sequence[Node], kind: Vector) -> Value:
        """Return the vector of the elements that numbers and vectors give, one after another."""
        parts: list[ir.Expr] = []
        for one in given:
            value = self.value(one)
            count = value.type.count if isinstance(value, Aggregate) and isinstance(value.type, Vector) else 1
            parts += [self.hold(part) for part in self.parts_of(one, value, count)]
        if len(parts) == 1:
            parts *= kind.count
        while len(parts) < kind.count:
            parts.append(build.literal(self.line(node), 0, kind.element.scalar))
        return self.vector(kind, parts[: kind.count])

    def reinterpreted(self, node: Node, value: Value, kind: Number | Vector) -> Value:
        """Return the bits of numbers or vectors in another type of the same size (``as_float4``)."""
        line = self.line(node)
        element = kind.element if isinstance(kind, Vector) else kind
        given = self.parts_of(node, value, 1)
        count = kind.count if isinstance(kind, Vector) else 1
        bits = given[0].type.bits if given[0].type is not None else 32
        made: list[ir.Expr] = []
        want = element.scalar.bits
        unsigned = _unsigned(bits)
        numbers = [self.hold(build.bits_as(part, unsigned)) for part in given]
        for number in range(count):
            first = number * want
            if want == bits:
                whole = numbers[number] if number < len(numbers) else build.literal(line, 0, unsigned)
            elif want < bits:
                moved = build.binary(line, ">>", numbers[first // bits], build.literal(line, first % bits, unsigned))
                whole = build.converted(moved, _unsigned(want))
            else:
                whole = build.literal(line, 0, _unsigned(want))
                for piece in range(want // bits):
                    at = first // bits + piece
                    if at >= len(numbers):
                        break
                    wide = build.converted(numbers[at], _unsigned(want))
                    moved = build.binary(line, "<<", wide, build.literal(line, piece * bits, _unsigned(want)))
                    whole = build.binary(line, "|", whole, moved)
            made.append(build.bits_as(whole, element.scalar))
        if isinstance(kind, Vector):
            return self.vector(kind, made)
        return made[0]


def _unsigned(bits: int) -> Scalar:
    return SCALARS[f"u{bits}"]
