"""The emitter of one kernel: statements, checks of types, and the order of the source text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from windtunnel.codegen.expressions import Block, ExpressionEmitter
from windtunnel.codegen.lowering import NOT_FOLLOWED
from windtunnel.codegen.signature import Buffer, Side, Value
from windtunnel.codegen.text import ADD, COMPARE, PRIMARY, WRAPS, Piece, updated
from windtunnel.codegen.tokens import Tokens
from windtunnel.language import ir
from windtunnel.language.types import BOOL, Scalar


class Emitter(ExpressionEmitter):
    """Writes one kernel as source text. Subclasses add the syntax of a language."""

    def __init__(self, program: ir.Program, block: Block, tokens: Tokens) -> None:
        super().__init__(program, block, tokens)
        self.before, self.direct, self.top = self.facts.places()

    # Checks.

    def check(self) -> None:
        """Raise KernelError at the first line that needs a type that the language lacks."""
        for parameter in self.program.parameters:
            kind = self.program.arrays.get(parameter.name)
            self.check_type(kind.element if kind else self.program.scalars[parameter.name], parameter.line)
            if kind is not None:
                self.check_element(kind.element, parameter.line)
        for declared in self.program.declared.values():
            self.check_type(declared.element, declared.line)
        self.check_sizes([array for array in self.program.declared.values() if array.shape == (0,)])
        for statement in ir.walk(self.body):
            for e in ir.expressions(statement):
                if e.type is not None:
                    self.check_type(e.type, e.line)

    def check_type(self, kind: Scalar, line: int) -> None:
        """Raise KernelError if the language lacks a type."""
        if kind.name in self.tokens.missing:
            self.refuse(line, f"{self.tokens.title} has no {kind}", self.tokens.missing[kind.name])

    def check_sizes(self, unsized: Sequence[ir.Declare]) -> None:
        """Raise KernelError for a shared array whose size the launch sets, if the language has none."""
        if self.tokens.dynamic_shared is not None:
            return
        for declared in unsized:
            self.refuse(
                declared.line,
                f"{self.tokens.title} has no shared array whose size the launch sets",
                f"a size: {declared.name} = shared.array(256, {declared.element})",
            )

    def check_element(self, kind: Scalar, line: int) -> None:
        """Raise KernelError if no array may have elements of a type."""

    # The whole.

    def emit(self) -> str:
        """Return the source text."""
        self.check()
        body = self.lines_of(lambda: self.statements(self.body))
        text: list[str] = []
        for line in [*self.comment(), *self.whole(body)]:
            if line or (text and text[-1]):
                text.append(line)
        return "\n".join(text) + "\n"

    def comment(self) -> Iterator[str]:
        """Yield the kernel's docstring and the compiler options."""
        doc = self.program.doc.strip()
        if doc:
            yield from (f"// {line.rstrip()}".rstrip().rstrip("\\") for line in doc.splitlines())
            yield "//"
        yield f"// Written by Windtunnel from the kernel '{self.program.name}': {self.tokens.title}."
        if self.program.warp is not None and self.facts.has_warps:
            yield f"// It is written for warps of {self.program.warp} threads."
        if self.tokens.options:
            yield f"// Compile with {' '.join(self.tokens.options)}: {self.tokens.option_note}"
        elif self.tokens.option_note:
            yield f"// {self.tokens.option_note}"
        yield ""

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        """Yield everything after the comment; ``body`` is the kernel's statements, indented once."""
        raise NotImplementedError

    @contextmanager
    def inner(self, head: str, tail: str = "}") -> Iterator[None]:
        """Write a block."""
        self.put(head)
        self.depth += 1
        yield
        self.depth -= 1
        self.put(tail)

    # Statements.

    def statements(self, body: Sequence[ir.Stmt]) -> None:
        """Write the statements of a block."""
        for statement in body:
            for name in self.before.get(id(statement), ()):
                self.declare(name, None)
            self.statement(statement)

    def statement(self, statement: ir.Stmt) -> None:
        """Write a statement."""
        match statement:
            case ir.Declare():
                self.declare_array(statement)
            case ir.Assign():
                self.assign(statement)
            case ir.Store():
                self.store(statement)
            case ir.ExpressionStatement():
                self.do(statement.value)
            case ir.If():
                self.choice(statement)
            case ir.While():
                self.loop(statement)
            case ir.For():
                self.count(statement)
            case ir.Break():
                self.put("break;")
            case ir.Continue():
                self.put("continue;")
            case ir.Return():
                self.put("return;")
            case ir.Require() if statement.finding == NOT_FOLLOWED:
                self.refuse(statement.line, f"{self.tokens.title}: {statement.message}", "a loop")
            case ir.Require():
                self.require(statement)
            case ir.Print():
                self.print_line(statement)
            case ir.Barrier(scope="grid") if not self.tokens.grid_barrier:
                self.refuse(statement.line, f"{self.tokens.title} has no barrier of the grid", "two kernels")
            case ir.Barrier():
                self.barrier(statement)

    def require(self, statement: ir.Require) -> None:
        """Write an assertion, which is not checked unless the language can end the kernel."""
        self.put(f"// Not checked here: {' '.join(statement.message.split())}.".rstrip("\\"))

    def print_line(self, statement: ir.Print) -> None:
        """Write a line that each thread prints."""
        self.refuse(statement.line, f"{self.tokens.title} has no printf", "an array for what is printed")

    def tops(self) -> None:
        """Declare the variables that are used in more than one block."""
        for name in self.top:
            self.declare(name, None)

    def declare(self, name: str, value: str | None) -> None:
        """Declare a local variable."""
        kind = self.value_type(self.kinds[name])
        self.put(f"{kind} {self.name(name)}{f' = {value}' if value is not None else ''};")

    def assign(self, assignment: ir.Assign) -> None:
        """Write an assignment to a variable; the first one declares it."""
        value = self.whole_value(assignment.value, assignment.name in self.facts.addresses)
        if id(assignment) in self.direct:
            self.declare(assignment.name, value)
        else:
            self.put(updated(self.name(assignment.name), assignment.value, value))

    def whole_value(self, e: ir.Expr, address: bool = False) -> str:
        """Return the right side of an assignment."""
        return self.expression(e, address).text

    def store(self, store: ir.Store) -> None:
        """Write an assignment to an element."""
        self.put(updated(self.element(store.array, store.indices), store.value, self.whole_value(store.value)))

    def do(self, e: ir.Expr) -> None:
        """Write an expression for its effect; one without an effect is omitted."""
        if any(isinstance(inner, (ir.Atomic, ir.Warp)) for inner in ir.inside(e)):
            self.put(f"{self.expression(e).text};")

    def choice(self, branch: ir.If) -> None:
        """Write ``if``, ``else if`` and ``else``."""
        head = f"if ({self.expression(branch.condition).text}) {{"
        self.put(head)
        while True:
            self.depth += 1
            self.statements(branch.body)
            self.depth -= 1
            if not branch.orelse:
                break
            follows = branch.orelse[0]
            if len(branch.orelse) == 1 and isinstance(follows, ir.If) and self.joins(follows):
                self.put(f"}} else if ({self.expression(follows.condition).text}) {{")
                branch = follows
                continue
            self.put("} else {")
            self.depth += 1
            self.statements(branch.orelse)
            self.depth -= 1
            break
        self.put("}")

    def joins(self, branch: ir.If) -> bool:
        """Return whether an ``if`` alone in an ``else`` can be written as ``else if``."""
        return id(branch) not in self.before

    def loop(self, loop: ir.While) -> None:
        """Write a ``while`` loop."""
        with self.inner(f"while ({self.expression(loop.condition).text}) {{"):
            self.statements(loop.body)

    def count(self, loop: ir.For) -> None:
        """Write a loop over a range. Its stop and step are evaluated once, as in Python."""
        kind = self.kinds[loop.name]
        own = loop.name in self.facts.loop_variables
        changed = self.facts.changes_in(loop.body) | {loop.name}
        start = self.whole_value(loop.start)
        stop = self.bound(loop.stop, changed, f"{loop.name}_stop", kind)
        step = self.bound(loop.step, changed, f"{loop.name}_step", kind)
        counter = self.name(loop.name) if own else self.fresh(f"{loop.name}_at")
        here = Piece(counter, PRIMARY)
        if isinstance(loop.step, ir.Literal):
            condition = f"{counter} {'<' if loop.step.value > 0 else '>'} {self.at(stop, ADD)}"
        elif self.facts.is_nonnegative(loop.step) or kind.kind == "uint":
            condition = f"{counter} < {self.at(stop, ADD)}"
        else:
            up, down = (Piece(f"{counter} {op} {self.at(stop, ADD)}", COMPARE) for op in "<>")
            rising = Piece(f"{self.at(step, ADD)} > {self.literal(0, kind).text}", COMPARE)
            condition = self.chosen(rising, up, down, BOOL).text
        with self.inner(
            f"for ({self.counter(counter, kind, start)}; {condition}; {self.stepped(here, loop.step, step)}) {{"
        ):
            if not own:
                self.put(f"{self.name(loop.name)} = {counter};")
            self.statements(loop.body)

    def counter(self, name: str, kind: Scalar, start: str) -> str:
        """Return the declaration of a loop's counter."""
        return f"{self.value_type(kind)} {name} = {start}"

    def stepped(self, counter: Piece, step: ir.Expr, text: Piece) -> str:
        """Return the step of a loop's counter."""
        if isinstance(step, ir.Literal) and step.value in (1, -1):
            return f"{'++' if step.value == 1 else '--'}{counter.text}"
        if isinstance(step, ir.Literal) and step.value < 0 and step.type is not None and step.type.kind == "int":
            return f"{counter.text} -= {self.literal(-step.value, step.type).text}"
        return f"{counter.text} += {text.text}"

    def bound(self, e: ir.Expr, changed: set[str], name: str, kind: Scalar) -> Piece:
        """Return a range's stop or step; if the loop may change it, as a constant that is declared before."""
        if self._steady(e, changed):
            return self.expression(e)
        held = self.fresh(name)
        self.constant(held, kind, self.whole_value(e))
        return Piece(held, PRIMARY)

    def _steady(self, e: ir.Expr, changed: set[str]) -> bool:
        match e:
            case ir.Literal() | ir.Size() | ir.Index():
                return True
            case ir.Variable(name=name):
                return name not in changed
            case ir.Binary(op=op, left=left, right=right):
                return op in (*WRAPS, "//") and self._steady(left, changed) and self._steady(right, changed)
        return False

    def constant(self, name: str, kind: Scalar, value: str) -> None:
        """Declare a constant."""
        self.put(f"const {self.value_type(kind)} {name} = {value};")

    def declare_array(self, array: ir.Declare) -> None:
        """Declare a shared or local array."""
        raise NotImplementedError

    def barrier(self, barrier: ir.Barrier) -> None:
        """Write a barrier or a fence."""
        raise NotImplementedError

    def sorted_arguments(self) -> Iterator[Buffer | Side | Value]:
        """Yield the kernel's own arguments in order."""
        yield from (argument for argument in self.signature.arguments if isinstance(argument, (Buffer, Side, Value)))
