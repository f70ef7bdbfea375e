"""Expressions of C: names, members, elements, arithmetic, assignments and conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import (
    BOOLEAN,
    INT,
    LONG,
    ULONG,
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
from windtunnel.csource.memory import Memory
from windtunnel.csource.values import NULL, Aggregate, Closure, Given, Mem, Place, Ptr, Reg, Swizzle, Value, Var
from windtunnel.language import ir
from windtunnel.language.types import BOOL, I32, I64, Scalar

_CASTS = (
    "CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR", "CXX_REINTERPRET_CAST_EXPR",
    "CXX_CONST_CAST_EXPR", "UNEXPOSED_EXPR", "CXX_ADDRSPACE_CAST_EXPR",
)  # fmt: skip
_LITERALS = ("INTEGER_LITERAL", "CHARACTER_LITERAL", "FLOATING_LITERAL", "CXX_BOOL_LITERAL_EXPR", "CXX_UNARY_EXPR")
_PLACES = (
    "DECL_REF_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", "UNARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR",
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


class Expressions(Memory):
    """Translates expressions. Effects become statements ahead of the one that is being translated."""

    def call(self, node: Node, target: Place | None = None) -> Value | Place:
        """Translate a call; a reference that it returns is a place. ``target``: where a constructor builds."""
        raise NotImplementedError

    def function_pointer(self, node: Node, function: Node) -> Ptr:
        """Return the pointer to a function."""
        raise NotImplementedError

    def declared_later(self, node: Node) -> Var | Place | Ptr | Closure | None:
        """Return what a name that no function declares stands for: a variable of the file."""
        raise NotImplementedError

    # Values.

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
        self.refuse(node, "an expression that is no number here")

    def pointer(self, node: Node) -> Ptr:
        """Translate an expression that is a pointer."""
        value = self.value(node)
        if isinstance(value, Ptr):
            return value
        self.refuse(node, "an expression that is no pointer here")

    def condition(self, node: Node) -> ir.Expr:
        """Translate an expression that is true or false."""
        value = self.value(node)
        line = self.line(node)
        if isinstance(value, Ptr):
            return build.unary(line, "not", self._is_null(line, value))
        if isinstance(value, ir.Expr):
            return build.truth(value)
        self.refuse(node, "a condition that is no number")

    # Long: one case for each kind of expression, each a line or two.
    def value(self, node: Node) -> Value:
        """Translate an expression and return its value."""
        kind, line = node.kind, self.line(node)
        if kind in _LITERALS:
            found = node.evaluated()
            if isinstance(found, (int, float)) and isinstance(node.type, Number):
                return build.literal(line, found, node.type.scalar)
            self.refuse(node, f"the constant '{node.name}'", "one that is known when the kernel is compiled")
        if kind == "PAREN_EXPR":
            return self.value(node.kids[0])
        if kind == "UNEXPOSED_EXPR" and node.selected is not None:
            return self.load(line, self.place(node))
        if kind in _CASTS:
            return self._cast(node)
        if kind == "BINARY_OPERATOR":
            return self._binary(node)
        if kind == "UNARY_OPERATOR" and node.unary not in ("*", "++x", "--x"):
            return self._unary(node)
        if kind == "CONDITIONAL_OPERATOR":
            return self._choice(node)
        if kind == "CALL_EXPR":
            made = self.call(node)
            return self.load(line, made) if isinstance(made, (Reg, Mem, Swizzle, Given)) else made
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
        if kind not in _PLACES:
            self.refuse(node, f"the expression {kind.lower()}", "an expression of C")
        place = self.place(node)
        if isinstance(place, Mem) and isinstance(place.type, Number) and self.is_swapped(node):
            return self.atomic_read(node, place.at, place.type)
        return self.load(line, place)

    def is_swapped(self, node: Node) -> bool:
        """Return whether a place is also one that the function compares and swaps.

        What such a loop reads first may be old: the comparison finds out. So it is not a race, and read atomically.
        """
        raise NotImplementedError

    def atomic_read(self, node: Node, at: Ptr, kind: Number) -> ir.Expr:
        """Return a number in memory, read by an atomic operation that changes nothing."""
        zero = build.literal(self.line(node), 0, kind.scalar)
        return self.atomic(node, "cas", at, kind, [zero, zero])

    def statement_expression(self, node: Node) -> Value:
        """Translate ``({ ...; x; })``."""
        raise NotImplementedError

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
        elif node.kind in _CASTS and isinstance(node.type, Void) and operands(node):
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
        if target is None or (target.kind not in ("ENUM_CONSTANT_DECL", "VAR_DECL", "PARM_DECL", "FUNCTION_DECL") and (
            node.kids
        )):
            return self.number(node.kids[-1]) if node.kids else None
        if target.kind == "ENUM_CONSTANT_DECL":
            assert isinstance(node.type, Number)  # noqa: S101  an enumerator is a number
            return build.literal(self.line(node), target.cursor.enum_value, node.type.scalar)
        if target.kind == "VAR_DECL" and isinstance(node.type, Number) and self.frame.find(target.key) is None:
            if target.name == "warpSize":
                return ir.Warp(self.line(node), "warp_size", [], type=I32)
            if target.cursor.type.is_const_qualified() and target.initial is not None and not target.has(
                "CUDASHARED_ATTR"
            ):
                found = target.initial.evaluated()
                if isinstance(found, (int, float)):
                    return build.literal(self.line(node), found, node.type.scalar)
        return None

    # Places.

    def _bound(self, node: Node) -> Var | Place | Ptr | Closure:
        target = node.referred
        if target is None:
            if node.kids:
                return self._bound(node.kids[-1])
            self.refuse(node, f"the name '{node.name}'")
        bound = self.frame.find(target.key)
        if bound is None:
            bound = self.declared_later(target)
        if bound is None:
            self.refuse(node, f"'{node.name}', which is not known in the kernel", "a variable of the device")
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
                self.refuse(node, f"the lambda '{node.name}' as a value", "a call of it")
            return bound
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
        if kind == "UNEXPOSED_EXPR" and node.selected is not None:
            whole = self.place(node.kids[0])
            assert isinstance(whole.type, Vector)  # noqa: S101  `selected` has seen it
            return self._swizzle(node, node.selected, whole, whole.type)
        if kind == "UNEXPOSED_EXPR" or kind in _CASTS:
            inner = operands(node)
            if len(inner) == 1 and self._same_object(inner[0], node):
                if isinstance(inner[0].type, Pointer) or not isinstance(node.type, Pointer):
                    found = self.place(inner[0])
                    if isinstance(found, Mem) and kind in ("CXX_REINTERPRET_CAST_EXPR", "CSTYLE_CAST_EXPR"):
                        return Mem(found.at, _target(node.type))
                    return found
        if kind == "CALL_EXPR":
            made = self.call(node)
            if isinstance(made, (Reg, Mem, Swizzle, Given)):
                return made
            return self._temporary(line, node.type, made)
        if kind in ("MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", "COMPOUND_ASSIGNMENT_OPERATOR"):
            self.refuse(node, "this expression as a place")
        return self._temporary(line, node.type, self.value(node))

    def _same_object(self, inner: Node, outer: Node) -> bool:
        """Return whether a conversion leaves the object as it is: adds const, or names a base class."""
        a, b = _target(inner.type), _target(outer.type)
        return (
            a == b
            or (isinstance(a, Record) and isinstance(b, Record))
            or outer.kind == "CXX_REINTERPRET_CAST_EXPR"
        )

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
            self.refuse(node, "'this' outside of a method")
        return frame.this

    def _member(self, node: Node) -> Place:
        line, kids = self.line(node), operands(node)
        if not kids:
            whole: Place = self._this(node)
        else:
            inner = bare(kids[0])
            special = self._special(node, inner)
            if special is not None:
                return special
            if inner.kind == "CXX_THIS_EXPR" or (inner.kind == "UNEXPOSED_EXPR" and inner.kids and (
                bare(inner.kids[0]).kind == "CXX_THIS_EXPR"
            )):
                whole = self._this(inner)
            elif isinstance(inner.type, Pointer) and not inner.type.reference:
                whole = Mem(self.pointer(inner), inner.type.pointee)
            else:
                whole = self.place(inner)
        kind = whole.type
        if isinstance(kind, Vector):
            return self._swizzle(node, node.name, whole, kind)
        if not isinstance(kind, Record):
            self.refuse(node, f"the member '{node.name}' of something that is no struct")
        found = kind.member(node.name) if node.name else None
        if found is None:
            if not node.name or node.name.startswith("("):
                return whole  # the unnamed member
            target = node.referred
            if target is not None and target.kind == "VAR_DECL":
                constant = self.declared_later(target)
                if isinstance(constant, (Reg, Mem)):
                    return constant
            self.refuse(node, f"the member '{node.name}' of {kind.name}")
        at = found.type
        if isinstance(at, Pointer) and at.reference:
            pointer = self.load(line, self.part(whole, found.offset, at))
            assert isinstance(pointer, Ptr)  # noqa: S101  a reference is a pointer
            return Mem(pointer, at.pointee)
        return self.part(whole, found.offset, at)

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
            self.refuse(node, f"the elements '{name}' of a vector of {kind.count}")
        if isinstance(whole, Swizzle):
            numbers = [whole.numbers[number] for number in numbers]
            return Swizzle(whole.of, tuple(numbers), node.type)
        if len(numbers) == 1:
            return self.part(whole, numbers[0] * kind.element.size, kind.element)
        return Swizzle(whole, tuple(numbers), node.type)

    def _element(self, node: Node) -> Place:
        first, second = operands(node)
        base, index = (first, second) if not isinstance(first.type, Number) else (second, first)
        if isinstance(base.type, Vector):
            found = self.number(index)
            whole = self.place(base)
            if not isinstance(found, ir.Literal):
                self.refuse(node, "an element of a vector by a number that is known only while the kernel runs")
            return self.part(whole, int(found.value) * base.type.element.size, base.type.element)
        at = self.pointer(base)
        return Mem(at.moved(self.number(index), max(node.type.size, 1)), node.type)

    def _address(self, node: Node, place: Place) -> Ptr:
        if isinstance(place, Mem):
            return place.at
        if isinstance(place, Given) and len(place.value.parts) == 1 and place.offset == 0:
            (value,) = place.value.parts.values()
            if isinstance(value, Ptr) and isinstance(place.type, Array):
                return value
        self.refuse(node, "the address of a value that is not in memory", "a variable, an element or a member")

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
            return build.converted(made, _scalar(node.type, BOOL))
        value = self.value(operand)
        if op in ("+", "extension", "real"):
            return self._to(node, value, operand.type, node.type)
        if isinstance(value, Aggregate):
            return self.vector_map(node, lambda e: build.unary(line, op, e), value)
        if op in ("-", "~") and isinstance(value, ir.Expr):
            return build.unary(line, op, build.converted(value, _scalar(node.type, I32)))
        self.refuse(node, f"the operator {op} here")

    def _is_null(self, line: int, value: Ptr) -> ir.Expr:
        if NULL not in value.bases:
            return build.literal(line, False, BOOL)
        if len(value.bases) == 1:
            return build.literal(line, not value.parts, BOOL)
        return build.binary(line, "==", self.which(line, value), build.literal(line, 0, I32))

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
            self.store(line, place, self.vector_map(node, lambda e: _plus(line, e, by), before))
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
            self.refuse(node, f"the operator {op} on these operands")
        return self.arithmetic(node, op, a, b, node.type)

    def arithmetic(self, node: Node, op: str, a: ir.Expr, b: ir.Expr, kind: CType) -> ir.Expr:
        """Return an operation on two numbers, after C's conversions."""
        line = self.line(node)
        assert a.type is not None and b.type is not None  # noqa: S101, PT018  all expressions here have types
        if op in ("<<", ">>"):
            shared = promoted(a.type)
            right = build.converted(b, shared)
            if self.unit.opencl:  # OpenCL C takes the count modulo the number of bits
                right = build.binary(line, "&", right, build.literal(line, shared.bits - 1, shared))
            return build.binary(line, op, build.converted(a, shared), right)
        shared = common(a.type, b.type)
        if shared.kind == "float" and op in ("%", "&", "|", "^"):
            self.refuse(node, f"{op} of floats")
        made = build.binary(line, op, build.converted(a, shared), build.converted(b, shared))
        return build.converted(made, _scalar(kind, made.type or shared))

    def _pointers(self, node: Node, op: str, left: Node, right: Node, a: Value, b: Value) -> Value:
        line = self.line(node)
        if isinstance(a, Ptr) and isinstance(b, ir.Expr) and op in "+-":
            by = b if op == "+" else build.unary(line, "-", build.converted(b, I64))
            return a.moved(by, _step_of(left.type))
        if isinstance(b, Ptr) and isinstance(a, ir.Expr) and op == "+":
            return b.moved(a, _step_of(right.type))
        if not isinstance(a, Ptr) or not isinstance(b, Ptr):
            self.refuse(node, f"the operator {op} on a pointer and a number")
        if op == "-":
            size = _step_of(left.type)
            difference = Ptr(a.bases, a.const - b.const, (*a.parts, *((_negative(e), s) for e, s in b.parts)))
            return ir.Call(line, "index.exact", [self.linear(line, difference, size)], type=I64)
        result = _scalar(node.type, BOOL)
        if a.bases == b.bases and len(a.bases) == 1:
            unit = 1
            sides = [ir.Call(line, "index.exact", [self.linear(line, side, unit)], type=I64) for side in (a, b)]
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
        kind = _scalar(node.type, BOOL)
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
            kind = _scalar(node.type, common(a.type, b.type))  # type: ignore[arg-type]
            return build.select(line, condition, build.converted(a, kind), build.converted(b, kind))
        target_type = _target(node.type)
        result = self.variable("chosen", Pointer(target_type) if isinstance(target_type, Void) else target_type)
        target = Reg(result, 0, result.type)
        for side, ahead in ((a, if_yes), (b, if_no)):
            outer, self.body = self.body, ahead
            self.store(line, target, side)
            self.body = outer
        self.emit(ir.If(line, condition, if_yes, if_no))
        return self.load(line, target)

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
        self.store(line, place, value)
        return place

    def _update(self, node: Node) -> Place:
        left, right = operands(node)
        line, op = self.line(node), node.binary.removesuffix("=")
        value = self.value(right)
        with self.block() as ahead:
            place = self.fixed(self.place(left))
        if ahead:
            value = self.hold_value(value)
            self.body += ahead
        before = self.load(line, place)
        if isinstance(before, Ptr) and isinstance(value, ir.Expr):
            by = value if op == "+" else build.unary(line, "-", build.converted(value, I64))
            self.store(line, place, before.moved(by, _step_of(left.type)))
            return place
        if isinstance(before, Aggregate):
            self.store(line, place, self.vector_binary(node, op, before, value))
            return place
        if not isinstance(before, ir.Expr) or not isinstance(value, ir.Expr):
            self.refuse(node, f"the assignment {op}= on these operands")
        assert before.type is not None and value.type is not None  # noqa: S101, PT018  they have types
        shared = promoted(before.type) if op in ("<<", ">>") else common(before.type, value.type)
        self.store(line, place, self.arithmetic(node, op, before, value, Number(shared)))
        return place

    # Conversions.

    def _cast(self, node: Node) -> Value:
        inner = operands(node)
        if not inner:
            found = node.evaluated()
            if isinstance(found, (int, float)) and isinstance(node.type, Number):
                return build.literal(self.line(node), found, node.type.scalar)
            if isinstance(node.type, (Number, Record, Array, Vector)):
                return self.zero(node, node.type)
            self.refuse(node, "this expression")
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
            self.refuse(node, "an operation on a struct")
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
                return value
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
        self.refuse(node, f"a conversion from {_name(have)} to {_name(want)}")

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
            self.refuse(rest[0], "more values than the type has members")
        for at, leaf in kind.leaves:
            if at not in parts:
                parts[at] = self.zero(node, leaf)  # type: ignore[assignment]
        return Aggregate(kind, parts)

    def _fill(self, node: Node, given: list[Node], kind: CType, at: int, parts: dict[int, ir.Expr | Ptr]) -> list[Node]:
        """Take the values of a type from a list; return those that are left."""
        if isinstance(kind, Array):
            members = [(number * kind.element.size, kind.element) for number in range(kind.count or 0)]
        elif isinstance(kind, Record):
            members = [(one.offset, one.type) for one in kind.fields]
            if kind.union:
                members = members[:1]
        elif isinstance(kind, Vector):
            members = [(number * kind.element.size, kind.element) for number in range(kind.count)]
        else:
            members = [(0, kind)]
        by_name = {one.name: (one.offset, one.type) for one in kind.fields} if isinstance(kind, Record) else {}
        for offset, member in members:
            if not given:
                break
            one = given[0]
            if one.kind == "UNEXPOSED_EXPR" and one.kids and one.kids[0].kind == "MEMBER_REF":
                offset, member = by_name[one.kids[0].name]
                one = one.kids[-1]
            self._fill_one(one, given, member, at + offset, parts)
        return given

    def _fill_one(
        self, one: Node, given: list[Node], member: CType, at: int, parts: dict[int, ir.Expr | Ptr]
    ) -> None:
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

    def _captured(self, node: Node) -> object:
        """Return the frame in which a lambda's body is translated."""
        raise NotImplementedError


def swizzled(name: str, count: int) -> list[int] | None:
    """Return the numbers of the elements that a name of OpenCL C selects; None if it is none."""
    halves = {"lo": range(0, (count + 1) // 2), "hi": range((count + 1) // 2, count + count % 2)}
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


def _target(kind: CType) -> CType:
    return kind.pointee if isinstance(kind, Pointer) and kind.reference else kind


def _scalar(kind: CType, otherwise: Scalar) -> Scalar:
    kind = _target(kind)
    return kind.scalar if isinstance(kind, Number) else otherwise


def _step_of(kind: CType) -> int:
    if isinstance(kind, Pointer):
        return max(kind.pointee.size, 1)
    return max(kind.element.size, 1) if isinstance(kind, Array) else 1


def _negative(e: ir.Expr) -> ir.Expr:
    return build.unary(e.line, "-", build.converted(e, I64))


def _plus(line: int, e: ir.Expr, by: int) -> ir.Expr:
    assert e.type is not None  # noqa: S101  all expressions here have types
    return build.binary(line, "+", e, build.literal(line, by, e.type))


def _name(kind: CType) -> str:
    if isinstance(kind, Number):
        return str(kind.scalar)
    return kind.name if isinstance(kind, (Record, Void)) else type(kind).__name__.lower()


def numbers_of(values: Sequence[Value]) -> list[ir.Expr]:
    """Return values that are all numbers."""
    return [value for value in values if isinstance(value, ir.Expr)]


WIDE = (LONG, ULONG, INT)
