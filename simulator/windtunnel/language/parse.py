"""Parses a Python function into an `ir.Program`; what is not in the kernel language is an error with its line."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from windtunnel.core.stencil import form_of
from windtunnel.language import ir
from windtunnel.language.names import Name
from windtunnel.language.parameters import annotation_of, parameters_of
from windtunnel.language.reader import is_plain
from windtunnel.language.source import source_of
from windtunnel.language.stencil import StencilReader
from windtunnel.language.types import Scalar
from windtunnel.language.words import many as counted
from windtunnel.language.words import words_of

_STATEMENTS = "assignments, if, while, for over range, break, continue, return"


@cache
def parse(function: Callable[..., Any], arrays: frozenset[str]) -> ir.Program:
    """Return the program of a kernel. ``arrays`` are its array parameters. Raises KernelError if it is not a kernel."""
    return _Parser(source_of(function), arrays, form_of(function)).program()


def header(function: Callable[..., Any]) -> ir.Program:
    """Return a kernel without its statements: its name, its place and its parameters."""
    source = source_of(function)
    return ir.Program(source.tree.name, source.file, source.tree.lineno, "", parameters_of(function), [], ())


class _Parser(StencilReader):
    def program(self) -> ir.Program:
        """Parse the whole kernel."""
        source = self.source
        for parameter in self.parameters:
            if parameter.name not in self.scope.arrays:
                self.scope.variables[parameter.name] = parameter.name
        body = self._body(source.tree.body)
        return ir.Program(
            source.tree.name,
            source.file,
            source.tree.lineno,
            ast.get_docstring(source.tree) or "",
            self.parameters,
            [*self.inner, *body],
            source.lines[source.tree.lineno - source.line :],
            declared=self.declared,
            form=self.form,
            helpers=tuple(self.helpers.values()),
        )

    # Statements.

    def _body(self, nodes: Sequence[ast.stmt]) -> list[ir.Stmt]:
        statements: list[ir.Stmt] = []
        for node in nodes:
            self.ahead.append([])
            made = self._statement(node)
            statements += self.ahead.pop()
            statements += made
        return statements

    def _statement(self, node: ast.stmt) -> list[ir.Stmt]:
        line = node.lineno
        match node:
            case ast.Assign(targets=[target], value=value):
                return self._assign(target, value)
            case ast.Assign(targets=targets, value=value) if all(isinstance(target, ast.Name) for target in targets):
                return self._several(targets, value)
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
                kind = annotation_of(self.scope.source, ast.arg("x", node.annotation, lineno=line, col_offset=0))
                made = self._assign(target, value)
                if isinstance(kind, Scalar) and isinstance(made[-1], ir.Assign):
                    made[-1].value = ir.Convert(line, kind, made[-1].value)
                return made
            case ast.AugAssign(target=target, op=op, value=value):
                return self._update(node, target, self._operator(node, op), value)
            case ast.If(test=test, body=body, orelse=orelse):
                condition = self._expression(test)
                return [ir.If(line, condition, self._body(body), self._body(orelse))]
            case ast.While(test=test, body=body, orelse=[]):
                return self._while(node, test, body)
            case ast.For(target=ast.Name(id=name), iter=source, body=body, orelse=[]):
                return self._for(node, name, source, body)
            case ast.Break():
                return [ir.Break(line)]
            case ast.Continue():
                return [ir.Continue(line)]
            case ast.Pass():
                return []
            case ast.Expr(value=ast.Constant()):
                return []  # a docstring, or a comment in a string
            case ast.Expr(value=ast.Call() as call):
                return self._call_statement(call)
            case ast.Return(value=value):
                return self._return(node, value)
            case ast.While() | ast.For():
                self._refuse(node, "a loop with else, or over something other than a range", "for i in range(...)")
            case _:
                self._refuse(node, f"{words_of(node)}", _STATEMENTS)

    def _assign(self, target: ast.expr, value: ast.expr) -> list[ir.Stmt]:
        line = target.lineno
        match target:
            case ast.Name(id=name):
                if self._whole_grid(value):
                    self.scope.grids.add(name)
                    return []
                declared = self._declaration(name, value)
                if declared is not None:
                    return [] if declared in self.inner else [declared]
                many = self._grid(value)
                if many is not None and len(many) > 1:
                    return self._held_tuple(line, name, many, ast.unparse(value))
                if name in self.scope.arrays:
                    self._refuse(
                        target, f"'{name}' is an array and cannot be reassigned", f"an element of it: {name}[...]"
                    )
                if name in self.scope.positions:
                    self._refuse(target, f"'{name}' is the stencil's position and cannot be reassigned", "another name")
                source = many[0] if many is not None else self._expression(value)
                return [ir.Assign(line, self._variable(name), source)]
            case ast.Subscript():
                array, indices = self._element(target)
                return [ir.Store(line, array, indices, self._expression(value))]
            case ast.Tuple(elts=targets):
                return self._unpack(target, targets, value)
            case _:
                self._refuse(target, f"an assignment to {words_of(target)}", "a variable, or an element of an array")

    def _several(self, targets: Sequence[ast.expr], value: ast.expr) -> list[ir.Stmt]:
        """Read ``a = b = x``. The value is evaluated once; a literal takes the type of each variable."""
        source = self._expression(value)
        if isinstance(source, ir.Literal):
            return [statement for target in targets for statement in self._assign(target, value)]
        held = self._fresh("held")
        self.scope.variables[held] = held
        name = ast.copy_location(ast.Name(held, ast.Load()), value)
        made: list[ir.Stmt] = [ir.Assign(value.lineno, held, source)]
        return [*made, *(statement for target in targets for statement in self._assign(target, name))]

    def _unpack(self, node: ast.expr, targets: Sequence[ast.expr], value: ast.expr) -> list[ir.Stmt]:
        many = self._grid(value)
        if many is None:
            many = self._sides(value)
        if many is None and isinstance(value, ast.Tuple):
            many = [self._expression(element) for element in value.elts]
        if many is None:
            self._refuse(
                value, "something that cannot be unpacked", "a tuple, grid(n), gridsize(n) or an array's shape"
            )
        if len(many) != len(targets):
            self._refuse(node, f"{counted(len(targets), 'name')} for {counted(len(many), 'value')}", "equally many")
        made: list[ir.Stmt] = []
        last: list[ir.Stmt] = []
        for target, part in zip(targets, many, strict=True):
            # The whole right side is evaluated before an assignment.
            held = self._fresh("held")
            made.append(ir.Assign(node.lineno, held, part))
            value_held = ir.Variable(node.lineno, held)
            if isinstance(target, ast.Name):
                last.append(ir.Assign(node.lineno, self._variable(target.id), value_held))
            elif isinstance(target, ast.Subscript):
                array, indices = self._element(target)
                last.append(ir.Store(node.lineno, array, indices, value_held))
            else:
                self._refuse(target, f"{words_of(target)} on the left of several", "names and elements")
        return [*made, *last]

    def _held_tuple(self, line: int, name: str, many: Sequence[ir.Expr], text: str) -> list[ir.Stmt]:
        """Read ``position = grid(2)``: one variable for each part, accessed by a constant index."""
        parts = [self._fresh(name) for _ in many]
        self.scope.tuples[name], self.scope.several[name] = parts, text
        return [ir.Assign(line, part, value) for part, value in zip(parts, many, strict=True)]

    def _update(self, node: ast.AugAssign, target: ast.expr, op: str, value: ast.expr) -> list[ir.Stmt]:
        line = node.lineno
        match target:
            case ast.Name(id=name):
                if name in self.scope.arrays:
                    self._refuse(target, f"'{name}' is an array", f"an element of it: {name}[...]")
                self._known(target, name)
                variable = self._variable(name)
                return [
                    ir.Assign(line, variable, ir.Binary(line, op, ir.Variable(line, variable), self._expression(value)))
                ]
            case ast.Subscript():
                array, indices = self._element(target)
                if any(not is_plain(i) for i in indices):
                    held = [self._hold(i) for i in indices]
                    indices = held
                load = ir.Load(line, array, indices)
                return [ir.Store(line, array, indices, ir.Binary(line, op, load, self._expression(value)))]
            case _:
                self._refuse(target, f"an assignment to {words_of(target)}", "a variable, or an element of an array")

    def _while(self, node: ast.While, test: ast.expr, body: Sequence[ast.stmt]) -> list[ir.Stmt]:
        self.ahead.append([])
        condition = self._expression(test)
        before = self.ahead.pop()
        self.loops += 1
        inner = self._body(body)
        self.loops -= 1
        if not before:
            return [ir.While(node.lineno, condition, inner)]
        # The statements that the condition needs are executed in every iteration.
        leave = ir.If(node.lineno, ir.Unary(node.lineno, "not", condition), [ir.Break(node.lineno)], [])
        return [ir.While(node.lineno, ir.Literal(node.lineno, True), [*before, leave, *inner])]

    def _for(self, node: ast.For, name: str, source: ast.expr, body: Sequence[ast.stmt]) -> list[ir.Stmt]:
        line = node.lineno
        if not isinstance(source, ast.Call) or self.scope.source.static(source.func) is not range or source.keywords:
            self._refuse(
                source, f"a loop over {words_of(source)}", "range(stop), range(start, stop) or range(start, stop, step)"
            )
        given = [self._expression(argument) for argument in source.args]
        if not 1 <= len(given) <= 3:
            self._refuse(source, f"range of {counted(len(given), 'number')}", "one to three")
        start = ir.Literal(line, 0) if len(given) == 1 else given[0]
        stop = given[0] if len(given) == 1 else given[1]
        step = given[2] if len(given) == 3 else ir.Literal(line, 1)
        if isinstance(step, ir.Literal) and step.value == 0:
            self._refuse(source, "a step of 0", "a step other than 0")
        if name in self.scope.arrays:
            self._refuse(node.target, f"'{name}' is an array and cannot be reassigned", "another name")
        variable = self._variable(name)
        self.loops += 1
        inner = self._body(body)
        self.loops -= 1
        return [ir.For(line, variable, start, stop, step, inner)]

    def _return(self, node: ast.Return, value: ast.expr | None) -> list[ir.Stmt]:
        if self.result is None:
            if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
                self._refuse(node, "a kernel that returns a value", "return alone; results go into arrays")
            return [ir.Return(node.lineno)]
        if value is None:
            return [ir.Return(node.lineno)]
        return [ir.Assign(node.lineno, self.result, self._expression(value)), ir.Return(node.lineno)]

    def _whole_grid(self, node: ast.expr) -> bool:
        """Return whether an expression is the grid of cooperative groups."""
        if isinstance(node, ast.Name):
            return node.id in self.scope.grids
        called = self.scope.source.static(node.func) if isinstance(node, ast.Call) and not node.args else None
        return isinstance(called, Name) and called.op == "this_grid"

    def _call_statement(self, node: ast.Call) -> list[ir.Stmt]:
        if isinstance(node.func, ast.Attribute) and self._whole_grid(node.func.value):
            if node.func.attr != "sync" or node.args:
                self._refuse(node, f"{ast.unparse(node)} of the grid", "sync()")
            return [ir.Barrier(node.lineno, "grid")]
        called = self.scope.source.static(node.func)
        if isinstance(called, Name):
            kind, _, rest = called.op.partition(".")
            if called.op in ("barrier", "warp_barrier") or kind == "fence":
                if node.args and called.op != "warp_barrier":
                    self._refuse(node, f"{called.spelling} with an argument", f"{called.spelling}()")
                scope = {"barrier": "block", "warp_barrier": "warp"}.get(called.op, called.op)
                return [ir.Barrier(node.lineno, scope, self._expression(node.args[0]) if node.args else None)]
            del rest
        made = self._call(node, statement=True)
        # An inlined function leaves only its result, which is unused.
        return [] if isinstance(made, (ir.Variable, ir.Literal)) else [ir.ExpressionStatement(node.lineno, made)]
