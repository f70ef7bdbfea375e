"""Operators of C: arithmetic by its conversions, comparisons, logic, choices and assignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.csource import build
from windtunnel.csource.atomics import Atomics
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import (
    BOOLEAN,
    Array,
    CType,
    Number,
    Pointer,
    Record,
    Vector,
    Void,
    common,
    promoted,
)
from windtunnel.csource.memory import DIVISION
from windtunnel.csource.places import (
    bare,
    negative,
    operands,
    plus,
    scalar_of_type,
    step_of,
    target_of,
    type_name,
)
from windtunnel.csource.values import NULL, Aggregate, Closure, Mem, Place, Ptr, Reg, Value
from windtunnel.language import ir
from windtunnel.language.types import BOOL, F32, F64, I32, I64


class Operators(Atomics):
    """Translates operators."""

    # Arithmetic.

    def _unary(self, node: Node) -> Value:
        line, op, operand = self.line(node), node.unary, operands(node)[0]
        if op in ("x++", "x--"):
            return self._step(node)[1]
        if op == "&":
            inner = bare(operand)
            if isinstance(inner.type, Void):
                return self.value(inner)
            return self._address(node, self.place(operand))
        if op == "!":
            value = self.value(operand)
            if isinstance(value, Aggregate):
                return self.vector_map(node, lambda e: self._vector_truth(line, e, node.type, negated=True), value)
            if isinstance(value, Ptr):
                made = self._is_null(line, value)
            else:
                assert isinstance(value, ir.Expr)  # noqa: S101  nothing else is negated
                made = build.unary(line, "not", build.truth(value))
            return build.converted(made, scalar_of_type(node.type, BOOL))
        value = self.value(operand)
        if op in ("+", "extension", "real"):
            return self._to(node, value, operand.type, node.type)
        if isinstance(value, Aggregate):
            return self.vector_map(node, lambda e: build.unary(line, op, e), value)
        if op in ("-", "~") and isinstance(value, ir.Expr):
            return build.unary(line, op, build.converted(value, scalar_of_type(node.type, I32)))
        raise node.refused(f"the operator {op} here")

    def _step(self, node: Node) -> tuple[Place, Value]:
        """Translate ``++x`` and its kin; return the place and the value before."""
        line, operand = self.line(node), operands(node)[0]
        place = self.fixed(self.place(operand))
        before = self.hold_value(self.load(line, place))
        by = 1 if "++" in node.unary else -1
        if isinstance(before, Ptr):
            assert isinstance(place.type, Pointer)  # noqa: S101  as its value
            self.store(line, place, before.moved(by, max(place.type.pointee.size, 1)))
        elif isinstance(before, ir.Expr):
            assert before.type is not None  # noqa: S101  all expressions here have types
            kind = promoted(before.type)
            one = build.literal(line, 1, kind)
            after = build.binary(line, "+" if by > 0 else "-", build.converted(before, kind), one)
            self.store(line, place, after)
        elif isinstance(before, Aggregate):
            self.store(line, place, self.vector_map(node, lambda e: plus(line, e, by), before))
        return place, before

    # Long: one case for each kind of operator, each a line or two.
    def _binary(self, node: Node) -> Value:
        op, line = node.binary, self.line(node)
        left, right = operands(node)
        if op == "=":
            return self.load(line, self._assign(node))
        if op == ",":
            self.discarded(left)
            return self.value(right)
        if op in ("&&", "||") and not isinstance(node.type, Vector):
            return self._logic(node, "and" if op == "&&" else "or", left, right)
        a, b = self.value(left), self.value(right)
        if isinstance(node.type, Vector):
            return self.vector_binary(node, op, a, b)
        if isinstance(a, Ptr) or isinstance(b, Ptr):
            return self._pointers(node, op, left, right, a, b)
        if not isinstance(a, ir.Expr) or not isinstance(b, ir.Expr):
            raise node.refused(f"the operator {op} on these operands")
        return self.arithmetic(node, op, a, b, node.type)

    def arithmetic(self, node: Node, op: str, a: ir.Expr, b: ir.Expr, kind: CType) -> ir.Expr:
        """Return an operation on two numbers, after C's conversions."""
        line = self.line(node)
        assert a.type is not None and b.type is not None  # noqa: S101  all expressions here have types
        if op in ("<<", ">>"):
            shared = promoted(a.type)
            right = build.converted(b, shared)
            if self.unit.opencl:  # OpenCL C takes the count modulo the number of bits
                right = build.binary(line, "&", right, build.literal(line, shared.bits - 1, shared))
            return build.binary(line, op, build.converted(a, shared), right)
        shared = common(a.type, b.type)
        if shared.kind == "float" and op in ("%", "&", "|", "^"):
            raise node.refused(f"{op} of floats")
        made = self.rounded(node, op, build.converted(a, shared), build.converted(b, shared))
        return build.converted(made, scalar_of_type(kind, made.type or shared))

    def rounded(self, node: Node, op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """Return an operation on two numbers of one type; a product is added in one operation, rounded once.

        C calls that contraction (`FP_CONTRACT`). As in Clang, the product on the left is the one that is contracted if
        both sides are products. One that is stored in a variable, or a function's result, is rounded.
        """
        line, kind = self.line(node), a.type
        made: ir.Expr
        if op in ("+", "-") and kind in (F32, F64) and self.unit.contracts(*node.place[:2]):
            left, right = self.products.get(id(a)), self.products.get(id(b))
            if left is not None:
                addend = b if op == "+" else build.unary(line, "-", b)
                return ir.Call(line, "fma", [left.left, left.right, addend], type=kind)
            if right is not None:
                first = right.left if op == "+" else build.unary(line, "-", right.left)
                return ir.Call(line, "fma", [first, right.right, a], type=kind)
        if op in ("/", "%") and build.is_integer(kind):
            b = self._divisor(line, b)
        made = build.binary(line, op, a, b)
        if op == "*" and isinstance(made, ir.Binary):
            self.products[id(made)] = made
        return made

    def _divisor(self, line: int, e: ir.Expr) -> ir.Expr:
        """Emit the check that a divisor is not zero, if that is not certain; return the divisor."""
        assert e.type is not None  # noqa: S101  all expressions here have types
        if build.is_positive(e):
            return e
        if any(isinstance(one, (ir.Load, ir.Call, ir.Select, ir.Logic)) for one in ir.inside(e)):
            e = self.hold(e, "divisor")
        condition = build.binary(line, "!=", e, build.literal(line, 0, e.type or I32))
        self.emit(ir.Require(line, condition, DIVISION, "an integer is divided by zero"))
        return e

    # Long: one case for each operator of pointers.
    def _pointers(self, node: Node, op: str, left: Node, right: Node, a: Value, b: Value) -> Value:
        line = self.line(node)
        if isinstance(a, Ptr) and isinstance(b, ir.Expr) and op in "+-":
            by = b if op == "+" else build.unary(line, "-", build.converted(b, I64))
            return a.moved(by, step_of(left.type))
        if isinstance(b, Ptr) and isinstance(a, ir.Expr) and op == "+":
            return b.moved(a, step_of(right.type))
        if not isinstance(a, Ptr) or not isinstance(b, Ptr):
            raise node.refused(f"the operator {op} on a pointer and a number")
        if op == "-":
            size = step_of(left.type)
            difference = Ptr(a.bases, a.const - b.const, (*a.parts, *((negative(e), s) for e, s in b.parts)))
            return ir.Call(line, "index.exact", [self.linear(line, difference, size)], type=I64)
        result = scalar_of_type(node.type, BOOL)
        if a.bases == b.bases and len(a.bases) == 1:
            unit = 1
            sides: list[ir.Expr] = [
                ir.Call(line, "index.exact", [self.linear(line, side, unit)], type=I64) for side in (a, b)
            ]
            return build.converted(build.binary(line, op, *sides), result)
        if NULL in (*a.bases, *b.bases) and {NULL} in ({*a.bases}, {*b.bases}) and op in ("==", "!="):
            other = b if a.bases == {NULL} else a
            equal = self._is_null(line, other)
            return build.converted(equal if op == "==" else build.unary(line, "not", equal), result)
        sides = [self.hold(build.converted(self.encoded(line, side), I64)) for side in (a, b)]
        return build.converted(build.binary(line, op, *sides), result)

    def _logic(self, node: Node, op: str, left: Node, right: Node) -> ir.Expr:
        line = self.line(node)
        first = self.condition(left)
        kind = scalar_of_type(node.type, BOOL)
        if isinstance(first, ir.Literal) and bool(first.value) == (op == "or"):
            return build.converted(first, kind)
        with self.block() as ahead:
            second = self.condition(right)
        if isinstance(first, ir.Literal):
            self.body += ahead
            return build.converted(second, kind)
        if not ahead:
            return build.converted(ir.Logic(line, op, first, second, type=BOOL), kind)
        result = self.fresh("decided")
        self.variables[result] = BOOL
        self.emit(ir.Assign(line, result, first))
        variable = ir.Variable(line, result, type=BOOL)
        ahead.append(ir.Assign(line, result, second))
        condition = variable if op == "and" else build.unary(line, "not", variable)
        self.emit(ir.If(line, condition, ahead, []))
        return build.converted(variable, kind)

    def _choice(self, node: Node) -> Value:
        line = self.line(node)
        if isinstance(node.type, Array):
            return self.load(line, self.place(node))
        test, yes, no = operands(node)
        if isinstance(test.type, Vector):
            return self.vector_choice(node, *(self.value(one) for one in (test, yes, no)))
        condition = self.condition(test)
        if isinstance(condition, ir.Literal):
            return self.value(yes if condition.value else no)
        with self.block() as if_yes:
            a = self._side(yes, node.type)
        with self.block() as if_no:
            b = self._side(no, node.type)
        if a is None or b is None:
            self.emit(ir.If(line, condition, if_yes, if_no))
            return None
        if isinstance(a, ir.Expr) and isinstance(b, ir.Expr) and not if_yes and not if_no:
            kind = scalar_of_type(node.type, common(a.type, b.type))  # type: ignore[arg-type]
            return build.select(line, condition, build.converted(a, kind), build.converted(b, kind))
        target_type = target_of(node.type)
        result = self.variable("chosen", Pointer(target_type) if isinstance(target_type, Void) else target_type)
        target = Reg(result, 0, result.type)
        for side, ahead in ((a, if_yes), (b, if_no)):
            outer, self.body = self.body, ahead
            self.store(line, target, side)
            self.body = outer
        self.emit(ir.If(line, condition, if_yes, if_no))
        return self.load(line, target)

    def _chosen_place(self, node: Node) -> Place:
        """Translate a choice between two places: the place in memory, or the value where one is not in memory."""
        line = self.line(node)
        test, yes, no = operands(node)
        condition = self.condition(test)
        if isinstance(condition, ir.Literal):
            return self.place(yes if condition.value else no)
        with self.block() as if_yes:
            a = self.place(yes)
        with self.block() as if_no:
            b = self.place(no)
        kind = target_of(node.type)
        memory = isinstance(a, Mem) and isinstance(b, Mem)
        result = self.variable("chosen", Pointer(kind) if memory else kind)
        target = Reg(result, 0, result.type)
        for side, ahead in ((a, if_yes), (b, if_no)):
            outer, self.body = self.body, ahead
            self.store(line, target, side.at if memory and isinstance(side, Mem) else self.load(line, side))
            self.body = outer
        self.emit(ir.If(line, condition, if_yes, if_no))
        if not memory:
            return target
        pointer = self.load(line, target)
        assert isinstance(pointer, Ptr)  # noqa: S101  as it was stored
        return Mem(pointer, kind)

    def _side(self, node: Node, kind: CType) -> Value:
        if isinstance(kind, Void) and not kind.is_function:
            self.discarded(node)
            return None
        return self._to(node, self.value(node), node.type, kind)

    # Assignments.

    def _assign(self, node: Node) -> Place:
        left, right = operands(node)
        line = self.line(node)
        value = self._to(node, self.value(right), right.type, left.type)
        with self.block() as ahead:
            place = self.fixed(self.place(left))
        if ahead:
            value = self.hold_value(value)
            self.body += ahead
        if isinstance(place, Mem) and isinstance(value, ir.Expr) and self.is_relaxed(left, place):
            assert isinstance(place.type, Number)  # noqa: S101  only numbers are
            self.atomic(node, "store", place.at, place.type, [value])
            return place
        self.store(line, place, value)
        return place

    def is_relaxed(self, node: Node, place: Mem) -> bool:
        """Return whether an access is of a volatile number in the grid's memory, which CUDA makes relaxed and atomic.

        So the PTX ISA defines ``ld.volatile`` and ``st.volatile``. Kernels wait for the flags of other blocks by them.
        """
        kind = place.type
        return (
            not self.unit.opencl
            and isinstance(kind, Number)
            and kind.scalar.bits in (32, 64)
            and node.cursor.type.is_volatile_qualified()
            and bool(place.at.bases)
            and all(
                base in self.objects and self.objects[base].space in ("parameter", "global") for base in place.at.bases
            )
        )

    def _update(self, node: Node) -> Place:
        left, right = operands(node)
        line, op = self.line(node), node.binary.removesuffix("=")
        value = self.value(right)
        with self.block() as ahead:
            place = self.fixed(self.place(left))
        if ahead:
            product = self.products.get(id(value))
            if product is None:
                value = self.hold_value(value)
            else:  # what is held are its factors, so that it can still be contracted
                value = self.rounded(node, "*", self.hold(product.left), self.hold(product.right))
            self.body += ahead
        before = self.load(line, place)
        if isinstance(before, Ptr) and isinstance(value, ir.Expr):
            by = value if op == "+" else build.unary(line, "-", build.converted(value, I64))
            self.store(line, place, before.moved(by, step_of(left.type)))
            return place
        if isinstance(before, Aggregate):
            self.store(line, place, self.vector_binary(node, op, before, value))
            return place
        if not isinstance(before, ir.Expr) or not isinstance(value, ir.Expr):
            raise node.refused(f"the assignment {op}= on these operands")
        assert before.type is not None and value.type is not None  # noqa: S101  they have types
        shared = promoted(before.type) if op in ("<<", ">>") else common(before.type, value.type)
        self.store(line, place, self.arithmetic(node, op, before, value, Number(shared)))
        return place

    def vector_listed(self, node: Node, given: Sequence[Node], kind: Vector) -> Value:
        """Return the vector of the elements that numbers and vectors give, one after another."""
        raise NotImplementedError

    def vector_choice(self, node: Node, test: Value, yes: Value, no: Value) -> Value:
        """Translate ``c ? a : b`` of vectors."""
        raise NotImplementedError

    def vector_cast(self, node: Node, operand: Node, kind: Vector) -> Value:
        """Translate a conversion to a vector."""
        raise NotImplementedError

    def vector_binary(self, node: Node, op: str, a: Value, b: Value) -> Value:
        """Translate an operation on vectors, element by element."""
        raise NotImplementedError

    def vector_map(self, node: Node, act: Callable[[ir.Expr], ir.Expr], value: Aggregate) -> Aggregate:
        """Apply an operation to each element of a vector."""
        kind = node.type
        if not isinstance(kind, Vector) or not isinstance(value.type, Vector):
            raise node.refused("an operation on a struct")
        size, have = kind.element.size, value.type.element.size
        parts = {at // have * size: act(part) for at, part in value.parts.items() if isinstance(part, ir.Expr)}
        return Aggregate(kind, parts)

    def _vector_truth(self, line: int, e: ir.Expr, kind: CType, *, negated: bool) -> ir.Expr:
        assert isinstance(kind, Vector)  # noqa: S101  the caller has seen it
        zero, all_bits = (build.literal(line, number, kind.element.scalar) for number in (0, -1))
        condition = build.truth(e)
        return build.select(line, condition, *((zero, all_bits) if negated else (all_bits, zero)))

    # Long: one case for each pair of kinds.
    def _to(self, node: Node, value: Value, have: CType, want: CType) -> Value:
        """Return a value converted to a type."""
        line = self.line(node)
        if isinstance(want, Pointer) and want.reference:
            want = want.pointee
        if isinstance(want, Number):
            if isinstance(value, ir.Expr):
                return build.converted(value, want.scalar)
            if isinstance(value, Ptr):
                if want == BOOLEAN:
                    return build.unary(line, "not", self._is_null(line, value))
                return build.converted(self.encoded(line, value), want.scalar)
            if isinstance(value, Aggregate) and len(value.parts) == 1:
                (part,) = value.parts.values()
                return self._to(node, part, have, want)
        elif isinstance(want, Pointer):
            if isinstance(value, Ptr):
                again = node.kind == "CXX_REINTERPRET_CAST_EXPR"
                return value if again else value.moved(_to_base(have, want), 1)
            if isinstance(value, ir.Expr):
                if isinstance(value, ir.Literal) and value.value == 0:
                    return Ptr(frozenset({NULL}))
                return self.decoded(line, build.converted(value, I64))
        elif isinstance(want, Vector):
            if isinstance(value, ir.Expr):
                element = build.converted(value, want.element.scalar)
                element = self.hold(element)
                return Aggregate(want, {at: element for at, _ in want.leaves})
            return value
        elif isinstance(want, (Record, Array, Void)):
            return value
        if value is None or isinstance(value, Closure):
            return value
        raise node.refused(f"a conversion from {type_name(have)} to {type_name(want)}")


def _to_base(have: CType, want: CType) -> int:
    """Return the bytes from an object to its base class, by the types of pointers to them; negative the other way."""
    a = have.pointee if isinstance(have, Pointer) else None
    b = want.pointee if isinstance(want, Pointer) else None
    if not isinstance(a, Record) or not isinstance(b, Record) or a is b:
        return 0
    return a.offset_of(b) or -(b.offset_of(a) or 0)
