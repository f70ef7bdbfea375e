"""What trees of kernels in C have beside those of the kernel language, in terms that all emitters know.

Offsets of pointers are sums of numbers times steps, exact in 64 bits. Where only the low 32 bits of a sum matter, as in
an element's index (an array has fewer than 2^31 elements) or in a conversion to 32 bits, it is computed in 32 bits. So
languages without 64-bit integers express most pointers.

Marks of asynchronous copies, which are done when they begin, and conditions that only detectors check are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.codegen.ranges import Ranges, in_elements, is_wide
from windtunnel.language import ir
from windtunnel.language.types import BOOL, I32, I64, Scalar

_LOW = ("+", "-", "*", "&", "|", "^")
"""The operations whose low bits depend on the low bits of their operands only."""
_COMPARED = ("<", "<=", ">", ">=", "==", "!=")
_BARRIERS = ("block.shared", "block.global", "block.none")
ASSERTION = "AssertionFailed"
NOT_FOLLOWED = "InputError"
"""What a condition raises after which the tree does not say what the kernel does (deep recursion)."""
"""The finding of a condition that the program states itself."""


def lower(program: ir.Program, *, wide: bool = True) -> None:
    """Change a typed tree in place. Without ``wide``, the language has no integers of 64 bits."""
    program.body = _kept(program.body)
    ranges = Ranges(program, assumed=not wide)
    narrow = _narrow_variables(program, ranges)
    for name in narrow:
        program.variables[name] = I32
    for statement in ir.walk(program.body):
        _Rewriter(narrow, ranges).statement(statement)
    if program.temporaries:
        program.body = _Temporaries(program).without(program.body)


def warp_line(program: ir.Program) -> int | None:
    """Return the first line at which threads of a warp exchange values or wait; None if there is none."""
    for statement in ir.walk(program.body):
        if isinstance(statement, ir.Barrier) and statement.scope == "warp":
            return statement.line
        for e in ir.expressions(statement):
            if isinstance(e, ir.Warp) and e.op != "warp_size":
                return e.line
    return None


def _kept(body: Sequence[ir.Stmt]) -> list[ir.Stmt]:
    """Return the statements that are emitted."""
    made: list[ir.Stmt] = []
    for statement in body:
        if isinstance(statement, (ir.Flight, ir.Forget)) or (
            isinstance(statement, ir.Require) and statement.finding not in (ASSERTION, NOT_FOLLOWED)
        ):
            continue
        if isinstance(statement, ir.Barrier) and statement.scope in _BARRIERS:
            statement.scope = "block"  # it orders more than was asked for
        elif isinstance(statement, ir.If):
            statement.body, statement.orelse = _kept(statement.body), _kept(statement.orelse)
        elif isinstance(statement, (ir.While, ir.For)):
            statement.body = _kept(statement.body)
        made.append(statement)
    return made


def _is_integer(kind: Scalar | None) -> bool:
    return kind is not None and kind.kind != "float" and kind != BOOL


def _low_operands(e: ir.Expr, ranges: Ranges) -> tuple[Sequence[ir.Expr], Sequence[ir.Expr]]:
    """Return the operands of which only the low bits matter for the low bits of the result, and all others."""
    match e:
        case ir.Binary(op=op, left=left, right=right) if op in _LOW:
            return (left, right), ()
        case ir.Unary(op=op, operand=operand) if op in ("-", "~", "+"):
            return (operand,), ()
        case ir.Select(condition=condition, yes=yes, no=no):
            return (yes, no), (condition,)
        case ir.Convert(operand=operand) if _is_integer(operand.type):
            return (operand,), ()
        case ir.Binary(left=left, right=right) if _fit(e, ranges):
            return (left, right), ()
        case ir.Call(op="index.linear", arguments=arguments):
            return arguments[1::2], ()
        case ir.Call(op="index.exact", arguments=arguments):
            return arguments, ()
    return (), tuple(e.children())


def _fit(e: ir.Binary, ranges: Ranges) -> bool:
    """Return whether a comparison or a division of 64-bit integers may be one of their low 32 bits."""
    known = e.op in _COMPARED or (e.op in ("//", "%", ">>") and ranges.fits(e))
    return known and is_wide(e.left.type) and ranges.fits(e.left) and ranges.fits(e.right)


def _narrow_variables(program: ir.Program, ranges: Ranges) -> frozenset[str]:
    """Return the variables of 64 bits of which only the low 32 bits are used."""
    wide = {name for name, kind in program.variables.items() if is_wide(kind)}
    if not wide:
        return frozenset()
    # A counter is compared with its bounds, so all of its bits matter.
    wide -= {one.name for one in ir.walk(program.body) if isinstance(one, ir.For) and not ranges.counts(one)}

    def use(e: ir.Expr, low: bool, used: set[str]) -> None:
        if isinstance(e, ir.Variable):
            if not low:
                used.add(e.name)
            return
        if isinstance(e, (ir.Load, ir.Atomic)):
            for index in e.indices:
                use(index, True, used)
            for value in e.values if isinstance(e, ir.Atomic) else ():
                use(value, not is_wide(value.type), used)
            return
        # A conversion to a narrower type drops the high bits itself.
        low = (_is_integer(e.type) and (low or not is_wide(e.type))) or (isinstance(e, ir.Binary) and _fit(e, ranges))
        mattering, rest = _low_operands(e, ranges)
        for operand in mattering:
            use(operand, low, used)
        for operand in rest:
            use(operand, False, used)

    while True:
        used: set[str] = set()
        for statement in ir.walk(program.body):
            match statement:
                case ir.Assign(name=name, value=value):
                    use(value, name in wide or not is_wide(program.variables.get(name, value.type)), used)
                case ir.Store(indices=indices, value=value):
                    for index in indices:
                        use(index, True, used)
                    use(value, not is_wide(value.type), used)
                case _:
                    counter = isinstance(statement, ir.For) and statement.name in wide
                    for e in _direct(statement):
                        use(e, counter, used)
        if not used & wide:
            return frozenset(wide)
        wide -= used


def _direct(statement: ir.Stmt) -> list[ir.Expr]:
    """Return the expressions directly in a statement."""
    found: list[ir.Expr] = []
    for value in vars(statement).values():
        if isinstance(value, ir.Expr):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, ir.Expr)]
    return found


class _Rewriter:
    """Rewrites expressions: offsets as sums, in 32 bits where only these matter."""

    def __init__(self, narrow: frozenset[str], ranges: Ranges) -> None:
        self.narrow, self.ranges = narrow, ranges

    def statement(self, statement: ir.Stmt) -> None:
        """Rewrite the expressions of a statement, without those of inner statements."""
        if isinstance(statement, ir.Assign) and statement.name in self.narrow:
            statement.value = self.low(statement.value)
            return
        if isinstance(statement, ir.For) and statement.name in self.narrow:
            self._inside(statement, self.low)
            return
        self._inside(statement, self.whole)

    def _inside(self, holder: ir.Stmt | ir.Expr, act: Callable[[ir.Expr], ir.Expr]) -> None:
        for name, value in list(vars(holder).items()):
            rewritten = self.index if name == "indices" else act
            if isinstance(value, ir.Expr):
                setattr(holder, name, rewritten(value))
            elif isinstance(value, (list, tuple)) and any(isinstance(item, ir.Expr) for item in value):
                setattr(holder, name, [rewritten(item) for item in value])

    def index(self, e: ir.Expr) -> ir.Expr:
        """Return the index of an element."""
        return self.low(e) if is_wide(e.type) else self.whole(e)

    def whole(self, e: ir.Expr) -> ir.Expr:
        """Return an expression of which all bits matter."""
        assert e.type is not None  # noqa: S101  the tree is typed
        if isinstance(e, ir.Variable) and e.name in self.narrow:
            return ir.Variable(e.line, e.name, type=I32)  # in a part of an expression that is narrow already
        if isinstance(e, ir.Convert) and _is_integer(e.to) and e.to.bits <= 32 and is_wide(e.operand.type):
            return _converted(self.low(e.operand), e.to)
        if isinstance(e, ir.Call) and e.op.startswith("index."):
            return self._offset(e)
        if isinstance(e, ir.Binary) and e.op in _COMPARED and _fit(e, self.ranges):
            left, right = in_elements(e.left, e.right)
            return ir.Binary(e.line, e.op, self.low(left), self.low(right), type=BOOL)
        self._inside(e, self.whole)
        return e

    def _offset(self, e: ir.Call) -> ir.Expr:
        if e.op == "index.exact":
            return _converted(self.whole(e.arguments[0]), I64)
        if e.op == "index.divided":
            offset, unit = (_converted(self.whole(argument), I64) for argument in e.arguments)
            return ir.Binary(e.line, "//", offset, unit, type=I64)
        return self._sum(e, I64, self.whole)

    def _sum(self, e: ir.Call, kind: Scalar, act: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
        """Return a constant plus the sum of numbers times steps."""
        total: ir.Expr | None = None
        for value, step in zip(e.arguments[1::2], e.arguments[2::2], strict=True):
            assert isinstance(step, ir.Literal)  # noqa: S101  steps are constants
            term = _converted(act(value), kind)
            if step.value != 1:
                term = ir.Binary(e.line, "*", term, _literal(step, kind), type=kind)
            total = term if total is None else ir.Binary(e.line, "+", total, term, type=kind)
        first = e.arguments[0]
        assert isinstance(first, ir.Literal)  # noqa: S101  the tree has it as a constant
        if total is None:
            return _literal(first, kind)
        if first.value < 0:
            return ir.Binary(e.line, "-", total, _literal(ir.Literal(e.line, -first.value), kind), type=kind)
        return total if first.value == 0 else ir.Binary(e.line, "+", total, _literal(first, kind), type=kind)

    def low(self, e: ir.Expr) -> ir.Expr:
        """Return the low 32 bits of an integer expression, as i32."""
        match e:
            case ir.Literal():
                return _literal(e, I32)
            case ir.Variable(name=name) if name in self.narrow:
                return ir.Variable(e.line, name, type=I32)
            case ir.Call(op="index.linear"):
                return self._sum(e, I32, self.low)
            case ir.Call(op="index.exact", arguments=arguments):
                return self.low(arguments[0])
            case ir.Convert(operand=operand) if _is_integer(operand.type) and is_wide(e.type):
                return self.low(operand) if is_wide(operand.type) else _converted(self.whole(operand), I32)
            case ir.Binary(op=op, left=left, right=right) if is_wide(e.type) and op in _LOW:
                return ir.Binary(e.line, op, self.low(left), self.low(right), type=I32)
            case ir.Binary(op=op, left=left, right=right) if is_wide(e.type) and _fit(e, self.ranges):
                return ir.Binary(e.line, op, self.low(left), self.low(right), type=I32)
            case ir.Unary(op=op, operand=operand) if is_wide(e.type) and op in ("-", "~", "+"):
                return ir.Unary(e.line, op, self.low(operand), type=I32)
            case ir.Select(condition=condition, yes=yes, no=no) if is_wide(e.type):
                return ir.Select(e.line, self.whole(condition), self.low(yes), self.low(no), type=I32)
        return _converted(self.whole(e), I32)


def _literal(e: ir.Literal, kind: Scalar) -> ir.Literal:
    value = int(e.value) & (2**kind.bits - 1)
    return ir.Literal(e.line, value - 2**kind.bits if value >= 2 ** (kind.bits - 1) else value, type=kind)


def _converted(e: ir.Expr, to: Scalar) -> ir.Expr:
    return e if e.type == to else ir.Convert(e.line, to, e, type=to)


class _Temporaries:
    """Puts the values of temporary variables where they are used, if the next statement does so once.

    Variables that nothing reads are left out.
    """

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.uses: dict[str, int] = {}
        self.assigned: dict[str, int] = {}
        for statement in ir.walk(program.body):
            if isinstance(statement, ir.Assign):
                self.assigned[statement.name] = self.assigned.get(statement.name, 0) + 1
            for e in ir.expressions(statement):
                if isinstance(e, ir.Variable):
                    self.uses[e.name] = self.uses.get(e.name, 0) + 1

    def without(self, body: Sequence[ir.Stmt]) -> list[ir.Stmt]:
        """Return the statements of a block."""
        made: list[ir.Stmt] = []
        for statement in reversed(body):
            if isinstance(statement, ir.If):
                statement.body, statement.orelse = self.without(statement.body), self.without(statement.orelse)
            elif isinstance(statement, (ir.While, ir.For)):
                statement.body = self.without(statement.body)
            elif isinstance(statement, ir.Assign) and statement.name in self.program.variables:
                used = self.uses.get(statement.name, 0)
                if not used:
                    made += self._effect(statement)
                    continue
                once = used == 1 and self.assigned[statement.name] == 1 and statement.name in self.program.temporaries
                if once and made and self._moved(statement, made[-1]):
                    self.program.variables.pop(statement.name)
                    continue
            made.append(statement)
        return made[::-1]

    def _effect(self, statement: ir.Assign) -> list[ir.Stmt]:
        """Return what is left of an assignment whose value nobody uses."""
        self.assigned[statement.name] -= 1
        if not self.assigned[statement.name]:
            self.program.variables.pop(statement.name)
        value = statement.value
        # Conversions of an atomic operation's result have no effect.
        while isinstance(value, ir.Convert) or (isinstance(value, ir.Call) and value.op.startswith("bits.as_")):
            value = value.operand if isinstance(value, ir.Convert) else value.arguments[0]
        if _acts(value):
            return [ir.ExpressionStatement(statement.line, value)]
        for e in ir.inside(value):
            if isinstance(e, ir.Variable):
                self.uses[e.name] -= 1
        return []

    def _moved(self, statement: ir.Assign, follows: ir.Stmt) -> bool:
        """Put the value into the next statement, if that evaluates it once; return whether it did."""
        if not isinstance(follows, (ir.Assign, ir.Store, ir.ExpressionStatement, ir.If)):
            return False
        value = statement.value
        if any(_acts(e) for e in (value, *_direct(follows))) and (_acts(value) or _reads(value)):
            return False
        kind = self.program.variables[statement.name]
        return _replaced(follows, statement.name, _converted(value, kind))


def _acts(e: ir.Expr) -> bool:
    return any(isinstance(one, (ir.Atomic, ir.Warp)) for one in ir.inside(e))


def _reads(e: ir.Expr) -> bool:
    return any(isinstance(one, ir.Load) for one in ir.inside(e))


def _replaced(holder: ir.Stmt | ir.Expr, name: str, value: ir.Expr) -> bool:
    """Replace a variable in the expressions of a statement by a value; return whether it is there."""
    for field, held in vars(holder).items():
        if isinstance(held, ir.Variable) and held.name == name:
            setattr(holder, field, value)
            return True
        if isinstance(held, ir.Expr) and _replaced(held, name, value):
            return True
        if isinstance(held, (list, tuple)):
            items = list(held)
            for number, item in enumerate(items):
                if isinstance(item, ir.Variable) and item.name == name:
                    items[number] = value
                    setattr(holder, field, items)
                    return True
                if isinstance(item, ir.Expr) and _replaced(item, name, value):
                    return True
    return False
