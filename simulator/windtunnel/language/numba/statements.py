"""Statements of a Numba kernel: assignments, branches, loops, returns."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from windtunnel.language import ir
from windtunnel.language.numba.arithmetic import converted, truth
from windtunnel.language.numba.assignments import assigned_in, loads
from windtunnel.language.numba.branches import as_branches, as_expression
from windtunnel.language.numba.calls import CallReader
from windtunnel.language.numba.reader import Frame, Loop
from windtunnel.language.numba.values import (
    Closure,
    Const,
    Cplx,
    Generated,
    Num,
    Records,
    Tup,
    Unusable,
    Value,
    View,
    literal,
    memory_of,
)
from windtunnel.language.returns import without_returns
from windtunnel.language.types import BOOL, I32, I64, U64, Scalar
from windtunnel.language.words import many, words_of

_MAX_DEPTH = 24
"""The largest depth of inlined functions; a larger one means recursion."""


class StatementReader(CallReader):
    """Reads statements, and functions that are called."""

    def body(self, nodes: Sequence[ast.stmt]) -> list[ir.Stmt]:
        """Read a block and return its statements. Afterwards ``dead`` says whether its end can be reached."""
        block: list[ir.Stmt] = []
        self.blocks.append(block)
        self.dead = False
        for node in nodes:
            self.statement(node)
            if self.dead:
                break
        self.blocks.pop()
        return block

    # Long: one case for each kind of statement, each a line or two.
    def statement(self, node: ast.stmt) -> None:
        """Read a statement."""
        match node:
            case ast.Assign(targets=targets, value=value):
                self._assign(node, targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(node, [target], value)
            case ast.AnnAssign() | ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case ast.AugAssign():
                self._update(node)
            case ast.If():
                self._if(node)
            case ast.While():
                self._while(node)
            case ast.For():
                self._for(node)
            case ast.Break():
                loop = self.frame.loops[-1]
                self._to_heads(node.lineno, loop)
                if loop.broke is not None:
                    self.emit(ir.Assign(node.lineno, loop.broke, literal(node.lineno, True, BOOL)))
                self.emit(ir.Break(node.lineno))
                self.dead = True
            case ast.Continue():
                loop = self.frame.loops[-1]
                self._to_heads(node.lineno, loop)
                self.emit(ir.Break(node.lineno) if loop.unrolled else ir.Continue(node.lineno))
                self.dead = True
            case ast.Expr(value=value):
                self.effect(value)
            case ast.Return(value=value):
                self._return(node, value)
            case ast.FunctionDef():
                self.frame.env[node.name] = Closure(node, self.frame)
            case ast.Assert():
                self._assert(node)
            case ast.Raise():
                self._raise(node)
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Delete():
                pass
            case ast.Match():
                self._match(node)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                assigned = set(names) & set(assigned_in(ast.iter_child_nodes(self.frame.tree)))
                if assigned:
                    self.refuse(node, f"an assignment to '{min(assigned)}' outside of the kernel", "an array's element")
            case _:
                self.refuse(node, words_of(node), "assignments, if, while, for, break, continue, return")

    def effect(self, node: ast.expr) -> None:
        """Read an expression for its effect."""
        if isinstance(node, ast.Call):
            value = self.call(node, statement=True)
            for e in _effects(value):
                self.emit(ir.ExpressionStatement(node.lineno, e))
            return
        self.expression(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.refuse(node, "import within a kernel", "imports at the top of the module")

    # Assignments.

    def _assign(self, node: ast.stmt, targets: Sequence[ast.expr], value: ast.expr) -> None:
        stem = targets[0].id if isinstance(targets[0], ast.Name) else "held"
        self.naming = stem
        made = self.expression(value)
        self.naming = "held"
        if len(targets) > 1:
            made = self.stored(self.loaded(value, made), "held")
        for target in targets:
            self.assign(target, made, value)
        del node

    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        """Assign a value to a name, an element, an attribute or several of these."""
        match target:
            case ast.Name(id=name):
                if isinstance(value, View) and not value.dims:
                    value = self.load(node, value)
                if isinstance(value, Unusable):
                    self.refuse(node, value.problem, "one type on every path")
                self.frame.env[name] = self.stored(value, name)
                if self.undefined and self.undefined_key(name) in self.undefined:
                    self._learn(self.undefined_key(name), value)
            case ast.Subscript(value=owner, slice=index):
                self.store_item(target, self.expression(owner), index, value)
            case ast.Attribute(value=owner, attr=name):
                self.store_attribute(target, self.expression(owner), name, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                items = self.items(node, value, len(targets))
                if len(items) != len(targets):
                    self.refuse(target, f"{many(len(targets), 'name')} for {many(len(items), 'value')}", "equally many")
                held = [self.stored(self.loaded(node, item), "held") for item in items]
                for inner, item in zip(targets, held, strict=True):
                    self.assign(inner, item, node)
            case _:
                self.refuse(target, f"an assignment to {words_of(target)}", "a variable, or an element of an array")

    def _update(self, node: ast.AugAssign) -> None:
        op = self.operator(node, node.op)
        match node.target:
            case ast.Name(id=name):
                old = self.expression(ast.copy_location(ast.Name(name, ast.Load()), node))
                made = self.binary(node, op, old, self.expression(node.value))
                self.frame.env[name] = self.stored(made, name)
            case ast.Subscript(value=owner, slice=index):
                where = self.held_index(self.element(node, self.expression(owner), index))
                old = self.numeric(node, where) if isinstance(where, View) and not where.dims else where
                mark = len(self.blocks[-1])
                by = self.expression(node.value)
                made = self.binary(node, op, self.before_effects(owner, old, mark), by)
                self.store_value(node, where, made)
            case ast.Attribute(value=owner, attr=name):
                target = self.expression(owner)
                old = self.attribute(node.target, target, name)
                self.store_attribute(node.target, target, name, self.binary(node, op, old, self.expression(node.value)))
            case _:
                self.refuse(node.target, f"an assignment to {words_of(node.target)}", "a variable or an element")

    # Branches.

    def condition(self, node: ast.expr) -> ir.Expr | bool:
        """Return a condition, or its value if that is known now."""
        value = self.expression(node)
        known = self.known_truth(value)
        return truth(self.numeric(node, value)) if known is None else known

    def _if(self, node: ast.If) -> None:
        condition = self.condition(node.test)
        if isinstance(condition, bool):
            for statement in node.body if condition else node.orelse:
                self.statement(statement)
                if self.dead:
                    return
            return
        before = dict(self.frame.env)
        body = self.body(node.body)
        after, left = self.frame.env, self.dead
        self.frame.env = dict(before)
        orelse = self.body(node.orelse)
        other, other_left = self.frame.env, self.dead
        self.dead = left and other_left
        if left or other_left:
            self.frame.env = other if left else after
        else:
            self.frame.env = self.merge(node.lineno, [(after, body), (other, orelse)])
        self.emit(ir.If(node.lineno, condition, body, orelse))

    def _match(self, node: ast.Match) -> None:
        branches = as_branches(node, self.fresh("subject"))
        if branches is None:
            self.refuse(node, "a pattern of a sequence, a class or with a name and a guard", "values, alternatives, _")
        for statement in branches:
            self.statement(statement)
            if self.dead:
                return

    # Loops.

    def _enter(self, node: ast.AST, body: Sequence[ast.stmt], targets: Sequence[str] = ()) -> Loop:
        """Begin a loop: give the variables that it assigns versions at its head."""
        loop = Loop((*self.frame.path, id(node)))
        line: int = node.lineno  # type: ignore[attr-defined]
        inside = loads([node])
        everywhere = loads([self.frame.tree])
        for name in [*targets, *(other for other in assigned_in(body) if other not in targets)]:
            before, key = self.frame.env.get(name), (*loop.key, name)
            known = self.known.get(key)
            if before is None:
                if inside.get(name, 0) >= everywhere.get(name, 0):
                    continue  # nothing reads it after the loop
                loop.wanted.add(name)
                if known is None or not isinstance(known, (Num, Cplx, Tup)):
                    continue
                loop.heads[name] = self.frame.env[name] = self.slot(name, known)
                continue
            if isinstance(known, Unusable):
                self.frame.env[name] = known
                continue
            like = before if known is None else self.unify(before, known)
            if isinstance(like, Const) and self._static(like):
                loop.constants[name] = like
                continue
            if isinstance(like, (Closure, Records, Unusable)):
                continue
            slot = self.slot(name, like)
            self.hope(key, slot)
            self.assign_slot(line, slot, before)
            loop.heads[name] = self.frame.env[name] = slot
        self.frame.loops.append(loop)
        return loop

    def _static(self, value: Const) -> bool:
        return self.slot_type(value) is None

    def _to_heads(self, line: int, loop: Loop) -> None:
        """Assign the versions of now to those of a loop's head."""
        moved: list[tuple[Value, Value]] = []
        for name, value in self.frame.env.items():
            head = loop.heads.get(name)
            if head is None:
                if name in loop.wanted and isinstance(self.slot_type(value), (Num, Cplx, Tup)):
                    self._learn((*loop.key, name), value)
                constant = loop.constants.get(name)
                if constant is not None and self.unify(constant, value) is not constant:
                    self.known[*loop.key, name] = self.unify(constant, value)
                    self.changed = True
                continue
            if value is head:
                continue
            both = self.unify(head, value)
            if isinstance(both, Unusable):
                # The next reading begins the loop with a variable that cannot be read.
                self.known[*loop.key, name] = both
                self.changed = True
                continue
            if not self.same_type(both, head):
                self._learn((*loop.key, name), both)
            moved.append((head, value))
        # A version at the head may be read by the assignment to another: x, y = y, x.
        if len(moved) > 1:
            moved = [(head, self._apart(value, moved)) for head, value in moved]
        for head, value in moved:
            self.assign_slot(line, head, value)

    def _apart(self, value: Value, moved: Sequence[tuple[Value, Value]]) -> Value:
        """Return a value that does not change when the other versions are moved to a loop's head."""
        return self.stored(value, "held") if isinstance(value, View) or _swaps(value, moved) else value

    def _learn(self, key: tuple[object, ...], value: Value) -> None:
        made = self.slot_type(value)
        if made is None:
            return
        known = self.known.get(key)
        both = made if known is None else self.unify(known, made)
        if known is None or not self.same_type(known, both):
            self.known[key] = both
            self.changed = True

    def _leave(self, loop: Loop, line: int, env: dict[str, Value]) -> None:
        """End a loop: after it, its variables have the versions of its head."""
        if not self.dead:
            self._to_heads(line, loop)
        self.frame.loops.pop()
        ended = self.frame.env
        self.frame.env = {**env, **loop.heads}
        for name, value in ended.items():
            # What has no version of its own is known, or it is not read after the loop.
            if name not in self.frame.env:
                self.frame.env[name] = value
        self.dead = False

    def _while(self, node: ast.While) -> None:
        line = node.lineno
        loop = self._enter(node, node.body)
        if node.orelse:
            loop.broke = self.variable("broke", BOOL)
            self.emit(ir.Assign(line, loop.broke, literal(line, False, BOOL)))
        env = dict(self.frame.env)
        self.blocks.append([])
        condition = self.condition(node.test)
        before = self.blocks.pop()
        test = literal(line, condition, BOOL) if isinstance(condition, bool) else condition
        body = self.body(node.body)
        self.blocks.append(body)
        self._leave(loop, line, env)
        self.blocks.pop()
        if before:
            leave = ir.If(line, ir.Unary(line, "not", test, type=BOOL), [ir.Break(line)], [])
            self.emit(ir.While(line, literal(line, True, BOOL), [*before, leave, *body]))
        else:
            self.emit(ir.While(line, test, body))
        self._orelse(node, loop)

    def _orelse(self, node: ast.While | ast.For, loop: Loop) -> None:
        if not node.orelse or loop.broke is None:
            return
        line = node.lineno
        before = dict(self.frame.env)
        body = self.body(node.orelse)
        if self.dead:
            self.frame.env = before
        else:
            nothing: list[ir.Stmt] = []
            self.frame.env = self.merge(line, [(self.frame.env, body), (before, nothing)])
            body_else = nothing
            self.dead = False
            self.emit(ir.If(line, ir.Unary(line, "not", self.read(line, loop.broke), type=BOOL), body, body_else))
            return
        self.dead = False
        self.emit(ir.If(line, ir.Unary(line, "not", self.read(line, loop.broke), type=BOOL), body, []))

    def _for(self, node: ast.For) -> None:
        source = self.expression(node.iter)
        if not isinstance(source, View):
            source = self._evaluated(source)
        if isinstance(source, Generated) and source.kind == "range":
            self._counted(node, source)
            return
        length = self.length(node.iter, source)
        if isinstance(length, int):
            self._unrolled(node, [self.item_at(node.iter, source, at) for at in range(length)])
            return
        held = self.hold(converted(length, I64), "length")
        self._counted(
            node, Generated("range", (Num(literal(node.lineno, 0)), Num(held), Num(literal(node.lineno, 1)))), source
        )

    def _evaluated(self, source: Value) -> Value:
        """Return what a loop iterates over, with the items of tuples as they are before the loop."""
        match source:
            case Generated(kind=kind, items=items) if kind != "range":
                return Generated(kind, tuple(map(self._evaluated, items)))
            case Tup() if memory_of(source):
                return self.stored(source, "item")
            case _:
                return source

    def _counted(self, node: ast.For, source: Generated, over: Value | None = None) -> None:
        line = node.lineno
        given = [self.num(node.iter, item) for item in source.items]
        kind = _range_type([item.type for item in given])
        start, stop, step = (converted(item.expr, kind) for item in given)
        if isinstance(step, ir.Literal) and step.value == 0:
            self.refuse(node.iter, "a step of 0", "a step other than 0")
        if not isinstance(step, ir.Literal):
            step = self.hold(step)
        targets = assigned_in([node.target])
        loop = self._enter(node, node.body, targets)
        if node.orelse:
            loop.broke = self.variable("broke", BOOL)
            self.emit(ir.Assign(line, loop.broke, literal(line, False, BOOL)))
        env = dict(self.frame.env)
        counter = self.variable(targets[0] if len(targets) == 1 and over is None else "counter", kind)
        self.changing.add(counter)
        # A counter that rises from 0 on is an index that does not wrap around.
        if self.is_nonnegative(start) and self.is_nonnegative(step):
            self.nonnegative.add(counter)
        block: list[ir.Stmt] = []
        self.blocks.append(block)
        value: Value = Num(self.read(line, counter))
        if over is not None:
            value = self.item_at(node.iter, over, value)
        self.assign(node.target, value, node.iter)
        self.blocks.pop()
        body = self.body(node.body)
        body[:0] = block
        self.blocks.append(body)
        self._leave(loop, line, env)
        self.blocks.pop()
        self.emit(ir.For(line, counter, start, stop, step, body))
        self._orelse(node, loop)

    def _unrolled(self, node: ast.For, items: Sequence[Value]) -> None:
        """Read the body once for each item of a tuple, whose items may have different types."""
        line = node.lineno
        if not _jumps(node.body):
            for item in items:
                self.assign(node.target, item, node.iter)
                for statement in node.body:
                    self.statement(statement)
                    if self.dead:
                        return
            for statement in node.orelse:
                self.statement(statement)
            return
        targets = assigned_in([node.target])
        loop = self._enter(node, node.body, targets)
        loop.unrolled, loop.broke = True, self.variable("broke", BOOL)
        self.emit(ir.Assign(line, loop.broke, literal(line, False, BOOL)))
        env = dict(self.frame.env)
        for at, item in enumerate(items):
            block: list[ir.Stmt] = []
            self.frame.env = {**env, **loop.heads}
            self.blocks.append(block)
            self.assign(node.target, item, node.iter)
            self.blocks.pop()
            body = self.body(node.body)
            self.blocks.append(body)
            if not self.dead:
                self._to_heads(line, loop)
                self.emit(ir.Break(line))
            self.blocks.pop()
            turn = ir.While(line, literal(line, True, BOOL), [*block, *body])
            goes_on = ir.Unary(line, "not", self.read(line, loop.broke), type=BOOL)
            self.emit(turn if at == 0 else ir.If(line, goes_on, [turn], []))
        self.frame.loops.pop()
        self.frame.env = {**env, **loop.heads}
        self.dead = False
        self._orelse(node, loop)

    # Functions.

    def _return(self, node: ast.Return, value: ast.expr | None) -> None:
        made = Const(None) if value is None else self.expression(value)
        frame = self.frame
        if frame.depth == 0:
            if not (isinstance(made, Const) and made.value is None):
                self.refuse(node, "a kernel that returns a value", "return alone; results go into arrays")
        elif frame.single:
            frame.returns.append(self._returned(value, made))
            self.dead = True
            return
        else:
            if isinstance(made, View) and not made.dims:
                made = self.load(node, made)
            self._result(node, made)
        self.emit(ir.Return(node.lineno))
        self.dead = True

    def _returned(self, node: ast.expr | None, value: Value) -> Value:
        """Return the result of a function; an element is read at the function's line, and not at that of its call."""
        return value if node is None or isinstance(node, ast.Name) else self.loaded(node, value)

    def _result(self, node: ast.AST, made: Value) -> None:
        frame = self.frame
        key = (*frame.path, "result")
        known = self.known.get(key)
        frame.returns.append(made)
        if frame.result is None:
            like = self.slot_type(made) if known is None else known
            frame.result = made if like is None else self.slot("result", like)
        both = self.unify(frame.result, made)
        if isinstance(both, Unusable):
            self.refuse(node, f"a function that returns {frame.result.description} and {made.description}", "one type")
        if not self.same_type(both, frame.result):
            self._learn(key, both)
        self.assign_slot(node.lineno, frame.result, made)  # type: ignore[attr-defined]

    def inline(self, node: ast.AST, frame: Frame) -> Value:
        """Read a function that is called, and return its result."""
        line: int = node.lineno  # type: ignore[attr-defined]
        if frame.depth > _MAX_DEPTH:
            self.refuse(
                node,
                f"functions within functions, {_MAX_DEPTH} deep: only functions that call themselves may recurse",
                "a loop",
            )
        if isinstance(frame.tree, ast.Lambda):
            outer, self.frame = self.frame, frame
            value = self._returned(frame.tree.body, self.expression(frame.tree.body))
            self.frame = outer
            return value
        body = as_expression(frame.tree.body)
        returns = [inner for statement in body for inner in ast.walk(statement) if isinstance(inner, ast.Return)]
        frame.single = len(returns) == 0 or (len(returns) == 1 and body[-1] is returns[0])
        outer, self.frame = self.frame, frame
        if frame.single:
            for statement in body:
                self.statement(statement)
                if self.dead:
                    break
            self.frame, self.dead = outer, False
            return frame.returns[0] if frame.returns else Const(None)
        statements = self.body(body)
        self.frame, self.dead = outer, False
        statements = without_returns(statements, line, lambda stem: self.variable(stem, BOOL))
        for made in statements:
            self.emit(made)
        return Const(None) if frame.result is None else self.at(line, frame.result)

    # Errors of the program.

    def _assert(self, node: ast.Assert) -> None:
        condition = self.condition(node.test)
        if condition is True:
            return
        before = dict(self.frame.env)
        self.blocks.append([])
        self.dead = False
        said = [] if node.msg is None else [self.expression(node.msg)]
        self._fail(node, AssertionError, tuple(text.value for text in said if isinstance(text, Const)))
        body = self.blocks.pop()
        self.frame.env, self.dead = before, False
        line = node.lineno
        if not body:
            return
        test = literal(line, False, BOOL) if isinstance(condition, bool) else condition
        self.emit(ir.If(line, ir.Unary(line, "not", test, type=BOOL), body, []))

    def _raise(self, node: ast.Raise) -> None:
        if node.cause is not None:
            self.refuse(node, "Multiple argument raise is not supported", "raise without 'from'")
        raised, kind = node.exc, None
        arguments: tuple[object, ...] = ()
        if isinstance(raised, ast.Call):
            called = self.expression(raised.func)
            kind = called.value if isinstance(called, Const) else None
            given = [self.expression(argument) for argument in raised.args]
            if not all(isinstance(argument, Const) for argument in given):
                self.refuse(node, "an error whose arguments are known only while the kernel runs", "constants")
            arguments = tuple(argument.value for argument in given if isinstance(argument, Const))
        elif raised is not None:
            called = self.expression(raised)
            kind = called.value if isinstance(called, Const) else None
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            self.refuse(node, "raise of something that is not an exception", "raise ValueError(...)")
        self._fail(node, kind, arguments)

    def _fail(self, node: ast.AST, kind: type[BaseException], arguments: tuple[object, ...]) -> None:
        line: int = node.lineno  # type: ignore[attr-defined]
        if self.debug:
            self.record_error(node, kind, arguments)
        elif kind is AssertionError:
            return
        if self.frame.depth == 0 or not self.frame.single:
            self.emit(ir.Return(line))
            self.dead = True


def _range_type(kinds: Sequence[Scalar]) -> Scalar:
    if all(kind.kind == "uint" for kind in kinds):
        return U64
    if all(kind.kind in ("int", "bool") and kind.bits <= 32 for kind in kinds):
        return I32
    return I64


def _effects(value: Value) -> list[ir.Expr]:
    """Return the expressions of a value that have an effect."""
    found: list[ir.Expr] = []
    for e in (value.expr,) if isinstance(value, Num) else (value.re, value.im) if isinstance(value, Cplx) else ():
        if any(isinstance(part, (ir.Atomic, ir.Warp)) for part in ir.inside(e)):
            inner = e
            while isinstance(inner, ir.Convert):
                inner = inner.operand
            found.append(inner)
    return found


def _jumps(body: Sequence[ast.stmt]) -> bool:
    """Return whether a loop's body leaves it or its turn; inner loops have their own."""
    for statement in body:
        if isinstance(statement, (ast.Break, ast.Continue)):
            return True
        if isinstance(statement, ast.If) and (_jumps(statement.body) or _jumps(statement.orelse)):
            return True
    return False


def _swaps(value: Value, moved: Sequence[tuple[Value, Value]]) -> bool:
    """Return whether a value reads a version at a loop's head, which an assignment may have changed."""
    heads = {head.expr.name for head, _ in moved if isinstance(head, Num) and isinstance(head.expr, ir.Variable)}
    return isinstance(value, Num) and isinstance(value.expr, ir.Variable) and value.expr.name in heads
