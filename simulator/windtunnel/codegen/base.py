"""What all emitters share: statements, precedence, names, the order of things. Targets say how they spell them.

Numbers are made to come out as the emulator's. Integers wrap: where a signed operation may overflow and the target
leaves that undefined, it is done on unsigned numbers. ``//`` and ``%`` round down. ``min`` and ``max`` of floats ignore
a NaN. Every float operation is rounded on its own (no contraction). 16-bit floats are either the target's own or, where
it would not round each operation, ``f32`` that is rounded after every one: `Emitter.emulated`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import NoReturn

from windtunnel.codegen.analysis import Facts, sequenced, typed, unpacked
from windtunnel.codegen.keywords import FUNCTIONS
from windtunnel.codegen.signature import Buffer, Side, Signature, Value, signature_of
from windtunnel.codegen.spelling import Spelling
from windtunnel.codegen.text import (
    ADD,
    BITS,
    BOTH,
    CHOICE,
    COMPARE,
    COMPARISONS,
    EITHER,
    EQUAL,
    LEVELS,
    PRIMARY,
    UNARY,
    WRAPS,
    Piece,
    folded_value,
    updated,
)
from windtunnel.core.errors import Where
from windtunnel.language import ir
from windtunnel.language.source import KernelError
from windtunnel.language.types import BF16, BOOL, F16, F32, I32, I64, U32, U64, Scalar


class Emitter(Spelling):
    """Writes one kernel as source text for one target. Subclasses say what differs."""

    def __init__(self, program: ir.Program, block: tuple[int, int, int]) -> None:
        # The emitters change names and fold numbers.
        self.program = deepcopy(program)
        self.block = block
        self.body = self.lower()
        self.facts = Facts(self.program, self.body)
        self.signature: Signature = signature_of(self.program, self.facts, self.target)
        self.kinds = {**self.program.variables, **self.program.scalars}
        self.helpers: dict[str, str] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.spelled = self._spell()
        self.signature = replace(self.signature, name=self.spelled[program.name])
        self.before, self.direct, self.top = self.facts.places()
        self.used: set[str] = set()
        """What the text asks of its surroundings: headers, extensions, indices of threads."""

    def lower(self) -> list[ir.Stmt]:
        """The statements to write."""
        return sequenced(self.program, unpacked(self.program))

    # Names and errors.

    def refuse(self, line: int, problem: str, expected: str | None = None) -> NoReturn:
        """KernelError at a line of the kernel's file."""
        raise KernelError(problem, where=Where(*self.program.place_of(line)), expected=expected)

    def _spell(self) -> dict[str, str]:
        """Each of the kernel's names as the target may have it."""
        found: dict[str, str] = {}
        every = [
            self.program.name,
            *(one.name for one in self.signature.arguments),
            *self.program.declared,
            *self.program.variables,
        ]
        for name in every:
            if name in found:
                continue
            made = name if name.isascii() else "".join(c if c.isascii() else f"u{ord(c):x}" for c in name)
            if made.startswith(("wt_", "__", "gl_")) or made == "_":
                made = f"v{made}"
            kernel = name == self.program.name
            while made in self.reserved or made in found.values() or (kernel and made in FUNCTIONS):
                made += "_"
            found[name] = made
        return found

    def fresh(self, name: str) -> str:
        """A name that nothing else has. One of two underscores, as ``_`` gives its loop, is the languages' own."""
        made = name = name.lstrip("_") if name.startswith("__") else name
        number = 1
        while made in self.reserved or made in self.spelled.values():
            made = f"{name}{number}"
            number += 1
        self.spelled[made] = made
        return made

    def check(self) -> None:
        """Refuse types that the target lacks, at the first line that needs one."""
        for parameter in self.program.parameters:
            kind = self.program.arrays.get(parameter.name)
            self.check_type(kind.element if kind else self.program.scalars[parameter.name], parameter.line)
            if kind is not None:
                self.check_element(kind.element, parameter.line)
        for declared in self.program.declared.values():
            self.check_type(declared.element, declared.line)
        self.check_sizes([one for one in self.program.declared.values() if one.shape == (0,)])
        for one in ir.walk(self.body):
            for e in ir.expressions(one):
                if e.type is not None:
                    self.check_type(e.type, e.line)

    def check_type(self, kind: Scalar, line: int) -> None:
        """Refuse a type that the target has not."""
        if kind.name in self.missing:
            self.refuse(line, f"{self.title} has no {kind}", self.missing[kind.name])

    def check_sizes(self, unsized: Sequence[ir.Declare]) -> None:
        """Refuse shared arrays whose size the launch gives, where the target's arrays have theirs in the source."""
        for declared in unsized:
            self.refuse(
                declared.line,
                f"{self.title} has no shared array of a size that the launch gives",
                f"a size: {declared.name} = shared.array(256, {declared.element})",
            )

    def check_element(self, kind: Scalar, line: int) -> None:
        """Refuse a type that no array of the target's memory may have."""

    # The whole.

    def emit(self) -> str:
        """The source text."""
        self.check()
        body = self.lines_of(lambda: self.statements(self.body))
        found: list[str] = []
        for line in [*self.comment(), *self.whole(body)]:
            if line or (found and found[-1]):
                found.append(line)
        return "\n".join(found) + "\n"

    def comment(self) -> Iterator[str]:
        """The docstring and what the compiler has to be told."""
        doc = self.program.doc.strip()
        if doc:
            yield from (f"// {line.rstrip()}".rstrip().rstrip("\\") for line in doc.splitlines())
            yield "//"
        yield f"// Written by Windtunnel from the kernel '{self.program.name}': {self.title}."
        if self.options:
            yield f"// Compile with {' '.join(self.options)}: {self.option_note}"
        elif self.option_note:
            yield f"// {self.option_note}"
        yield ""

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        """Everything after the comment; ``body``: the kernel's statements, indented once."""
        raise NotImplementedError

    def lines_of(self, write: Callable[[], None]) -> list[str]:
        """What ``write`` puts out."""
        kept, self.lines = self.lines, []
        write()
        found, self.lines = self.lines, kept
        return found

    def put(self, text: str) -> None:
        """One line, at the present depth."""
        self.lines.append("    " * self.depth + text if text else "")

    @contextmanager
    def inner(self, head: str, tail: str = "}") -> Iterator[None]:
        """A block."""
        self.put(head)
        self.depth += 1
        yield
        self.depth -= 1
        self.put(tail)

    # Statements.

    def statements(self, body: Sequence[ir.Stmt]) -> None:
        """A block's statements."""
        for one in body:
            for name in self.before.get(id(one), ()):
                self.declare(name, None)
            self.statement(one)

    def statement(self, one: ir.Stmt) -> None:
        """A statement."""
        match one:
            case ir.Declare():
                self.declare_array(one)
            case ir.Assign():
                self.assign(one)
            case ir.Store():
                self.store(one)
            case ir.ExpressionStatement():
                self.do(one.value)
            case ir.If():
                self.choice(one)
            case ir.While():
                self.loop(one)
            case ir.For():
                self.count(one)
            case ir.Break():
                self.put("break;")
            case ir.Continue():
                self.put("continue;")
            case ir.Return():
                self.put("return;")
            case ir.Barrier(scope="grid") if not self.grid_barrier:
                self.refuse(one.line, f"{self.title} has no barrier of the grid", "two kernels")
            case ir.Barrier():
                self.barrier(one)

    def tops(self) -> None:
        """Declarations of variables that no block has to itself."""
        for name in self.top:
            self.declare(name, None)

    def declare(self, name: str, value: str | None) -> None:
        """A local variable."""
        kind = self.value_type(self.kinds[name])
        self.put(f"{kind} {self.name(name)}{f' = {value}' if value is not None else ''};")

    def name(self, variable: str) -> str:
        """A variable as it is read and set."""
        return self.spelled[variable]

    def assign(self, one: ir.Assign) -> None:
        """To a variable; the first time with its type."""
        value = self.whole_value(one.value, one.name in self.facts.addresses)
        if id(one) in self.direct:
            self.declare(one.name, value)
        else:
            self.put(updated(self.name(one.name), one.value, value))

    def whole_value(self, e: ir.Expr, address: bool = False) -> str:
        """An expression that stands alone on the right side."""
        return self.expression(e, address).text

    def store(self, one: ir.Store) -> None:
        """To an element."""
        self.put(updated(self.element(one.array, one.indices), one.value, self.whole_value(one.value)))

    def do(self, e: ir.Expr) -> None:
        """For what it does; what does nothing is left out."""
        if any(isinstance(inner, (ir.Atomic, ir.Warp)) for inner in ir.inside(e)):
            self.put(f"{self.expression(e).text};")

    def choice(self, one: ir.If) -> None:
        """if, else if, else."""
        head = f"if ({self.expression(one.condition).text}) {{"
        self.put(head)
        while True:
            self.depth += 1
            self.statements(one.body)
            self.depth -= 1
            if not one.orelse:
                break
            follows = one.orelse[0]
            if len(one.orelse) == 1 and isinstance(follows, ir.If) and self.joins(follows):
                self.put(f"}} else if ({self.expression(follows.condition).text}) {{")
                one = follows
                continue
            self.put("} else {")
            self.depth += 1
            self.statements(one.orelse)
            self.depth -= 1
            break
        self.put("}")

    def joins(self, one: ir.If) -> bool:
        """Whether an if alone in an else can be written as else if."""
        return id(one) not in self.before

    def loop(self, one: ir.While) -> None:
        """While."""
        with self.inner(f"while ({self.expression(one.condition).text}) {{"):
            self.statements(one.body)

    def count(self, one: ir.For) -> None:
        """For over a range, whose stop and step are worked out once, as Python does."""
        kind = self.kinds[one.name]
        own = one.name in self.facts.loop_variables
        changed = self.facts.changes_in(one.body) | {one.name}
        start = self.whole_value(one.start)
        stop = self.bound(one.stop, changed, f"{one.name}_stop", kind)
        step = self.bound(one.step, changed, f"{one.name}_step", kind)
        counter = self.name(one.name) if own else self.fresh(f"{one.name}_at")
        here = Piece(counter, PRIMARY)
        if isinstance(one.step, ir.Literal):
            condition = f"{counter} {'<' if one.step.value > 0 else '>'} {self.at(stop, ADD)}"
        elif self.facts.is_nonnegative(one.step) or kind.kind == "uint":
            condition = f"{counter} < {self.at(stop, ADD)}"
        else:
            up, down = (Piece(f"{counter} {op} {self.at(stop, ADD)}", COMPARE) for op in "<>")
            rising = Piece(f"{self.at(step, ADD)} > {self.literal(0, kind).text}", COMPARE)
            condition = self.chosen(rising, up, down, BOOL).text
        with self.inner(
            f"for ({self.counter(counter, kind, start)}; {condition}; {self.stepped(here, one.step, step)}) {{"
        ):
            if not own:
                self.put(f"{self.name(one.name)} = {counter};")
            self.statements(one.body)

    def counter(self, name: str, kind: Scalar, start: str) -> str:
        """The declaration of a loop's counter."""
        return f"{self.value_type(kind)} {name} = {start}"

    def stepped(self, counter: Piece, step: ir.Expr, text: Piece) -> str:
        """A counter's next value."""
        if isinstance(step, ir.Literal) and step.value in (1, -1):
            return f"{'++' if step.value == 1 else '--'}{counter.text}"
        if isinstance(step, ir.Literal) and step.value < 0 and step.type is not None and step.type.kind == "int":
            return f"{counter.text} -= {self.literal(-step.value, step.type).text}"
        return f"{counter.text} += {text.text}"

    def bound(self, e: ir.Expr, changed: set[str], name: str, kind: Scalar) -> Piece:
        """A range's stop or step: as it stands where the loop changes nothing of it, else in a constant before."""
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
        """A local that does not change."""
        self.put(f"const {self.value_type(kind)} {name} = {value};")

    # Expressions.

    def at(self, piece: Piece, level: int) -> str:
        """A piece where at least ``level`` is needed."""
        return piece.text if piece.level >= level else f"({piece.text})"

    def expression(self, e: ir.Expr, address: bool = False) -> Piece:
        """An expression. ``address``: it is an element's place, or a part of one, and cannot overflow."""
        assert e.type is not None  # noqa: S101  inference has been here
        folded = None if isinstance(e, ir.Literal) else folded_value(e)
        if folded is not None:
            return self.literal(folded, e.type)
        match e:
            case ir.Literal(value=value):
                return self.literal(value, e.type)
            case ir.Variable(name=name):
                return self.variable(name)
            case ir.Index():
                return self.thread_index(e)
            case ir.Size():
                return self.size(e)
            case ir.Load():
                return self.load(e)
            case ir.Binary():
                return self.binary(e, address)
            case ir.Unary():
                return self.unary(e)
            case ir.Logic(op=op, left=left, right=right):
                return self.logic(op, left, right)
            case ir.Select(condition=condition, yes=yes, no=no):
                return self.chosen(self.expression(condition), self.expression(yes), self.expression(no), e.type)
            case ir.Convert():
                return self.converted(e)
            case ir.Call():
                return self.call(e)
            case ir.Warp():
                return self.warp(e)
            case ir.Atomic():
                return self.atomically(e)
        raise AssertionError(type(e).__name__)

    def variable(self, name: str) -> Piece:
        """A variable's value."""
        return Piece(self.name(name), PRIMARY)

    def size(self, e: ir.Size) -> Piece:
        """The length of a side: known, or an argument."""
        declared = self.program.declared.get(e.array)
        if declared is not None and declared.shape == (0,):
            self.refuse(
                e.line, f"the size of '{e.array}', which {self.title} does not tell", "a parameter that says it"
            )
        if declared is not None:
            return self.literal(declared.shape[e.side], I32)
        kind = self.program.arrays[e.array]
        if not -kind.dimensions <= e.side < kind.dimensions:
            self.refuse(e.line, f"side {e.side} of '{e.array}', which has {kind.dimensions}")
        side = e.side % kind.dimensions
        name = next(
            one.name
            for one in self.signature.arguments
            if isinstance(one, Side) and one.array == e.array and one.side == side
        )
        return Piece(self.name(name), PRIMARY)

    def binary(self, e: ir.Binary, address: bool) -> Piece:
        """An operation on two numbers."""
        kind, worked = e.type, e.left.type
        assert kind is not None and worked is not None  # noqa: S101  inference has been here
        if e.op in COMPARISONS:
            return self.infix(e.op, self.expression(e.left), self.expression(e.right))
        if e.op in ("min", "max"):
            return self.extreme(e, kind)
        if e.op in ("//", "%"):
            return self.floored(e, kind)
        if e.op == "**":
            return self.power(e, kind)
        if e.op in ("<<", ">>"):
            return self.shifted(e, kind)
        if kind == BOOL and e.op in BITS:
            # In C the bits of a bool are an int's.
            both = {"&": "&&", "|": "||", "^": "!="}[e.op]
            if both == "!=":
                return self.infix(both, self.expression(e.left), self.expression(e.right))
        if e.op == "/" and self.is_native_narrow(kind):
            # Quotients of 16 bits may be some units off where those of 32 are exact, or near enough to round well.
            return self.cast(kind, self.infix("/", *self.wide_floats(kind, e.left, e.right)))
        if kind.kind == "float":
            return self.rounded(self.infix(e.op, self.expression(e.left), self.expression(e.right)), kind)
        if e.op in WRAPS and not self.wraps:
            return self.wrapping(e, kind, address)
        return self.narrowed(
            self.infix(e.op, self.expression(e.left, address), self.expression(e.right, address)), kind, e.op
        )

    def wrapping(self, e: ir.Binary, kind: Scalar, address: bool) -> Piece:
        """``+ - *`` of integers where overflow is undefined: plain where there is none, else on unsigned numbers."""
        if kind.bits < 32:
            if e.op == "*":
                return self.cast(kind, self.unsigned(e))
        elif kind.kind == "int" and not address and not self.facts.is_geometric(e):
            return self.cast(kind, self.unsigned(e))
        inner = address or kind.kind == "uint" or kind.bits < 32
        found = self.infix(e.op, self.expression(e.left, inner), self.expression(e.right, inner))
        return self.narrowed(found, kind, e.op)

    def unsigned(self, e: ir.Expr) -> Piece:
        """An integer expression as the unsigned number of its width, or of 32 bits."""
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        wide = Scalar(f"u{max(kind.bits, 32)}", "uint", max(kind.bits, 32))
        if isinstance(e, ir.Literal):
            return self.literal(int(e.value) % 2**wide.bits, wide)
        if isinstance(e, ir.Binary) and e.op in WRAPS and kind.kind in ("int", "uint") and folded_value(e) is None:
            return self.infix(e.op, self.unsigned(e.left), self.unsigned(e.right))
        if isinstance(e, ir.Unary) and e.op == "-" and kind.bits >= 32:
            return self.infix("-", self.literal(0, wide), self.unsigned(e.operand))
        if isinstance(e, ir.Binary) and e.op == "<<" and kind.bits >= 32 and _moves(e, kind.bits):
            return self.infix("<<", self.unsigned(e.left), self.shift_amount(e.right))
        if isinstance(e, ir.Convert) and e.operand.type == wide:
            return self.expression(e.operand)
        if kind == wide and not isinstance(e, ir.Convert):
            return self.expression(e)
        if isinstance(e, ir.Convert) and kind == wide:
            return self.converted(e)
        return self.cast(wide, self.expression(e))

    def narrowed(self, piece: Piece, kind: Scalar, op: str) -> Piece:
        """What C works out in int, in the narrower type that it has here."""
        if kind.kind in ("int", "uint") and kind.bits < 32 and op not in BITS:
            return self.cast(kind, piece)
        return piece

    def infix(self, op: str, left: Piece, right: Piece) -> Piece:
        """An operator between two pieces, with the parentheses it needs, and those that readers and WGSL want."""
        if op == "//":
            op = "/"
        level = {"&&": BOTH, "||": EITHER}.get(op) or LEVELS[op]
        if op in ("<<", ">>"):
            return Piece(f"{self.at(left, UNARY)} {op} {self.at(right, UNARY)}", level)
        if op in BITS:
            same = left.level == level
            return Piece(f"{self.at(left, level if same else UNARY)} {op} {self.at(right, UNARY)}", level)
        if level in (COMPARE, EQUAL):
            return Piece(f"{self.at(left, ADD)} {op} {self.at(right, ADD)}", level)
        if op in ("&&", "||"):
            sides = (self.at(p, level if p.level == level else EQUAL) for p in (left, right))
            return Piece(f" {op} ".join(sides), level)
        return Piece(f"{self.at(left, level)} {op} {self.at(right, level + 1)}", level)

    def logic(self, op: str, left: ir.Expr, right: ir.Expr) -> Piece:
        """and, or."""
        return self.infix("&&" if op == "and" else "||", self.expression(left), self.expression(right))

    def chosen(self, condition: Piece, yes: Piece, no: Piece, kind: Scalar) -> Piece:
        """One of two."""
        del kind
        text = f"{self.at(condition, EITHER)} ? {self.at(yes, CHOICE + 1)} : {self.at(no, CHOICE)}"
        return Piece(text, CHOICE)

    def function(self, name: str, *arguments: Piece) -> Piece:
        """A call."""
        return Piece(f"{name}({', '.join(a.text for a in arguments)})", PRIMARY)

    def unary(self, e: ir.Unary) -> Piece:
        """An operation on one number."""
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        inner = self.expression(e.operand)
        if e.op == "+":
            return inner
        if e.op == "not":
            return Piece(f"!{self.at(inner, UNARY)}", UNARY)
        if e.op == "abs":
            return self.absolute(e, inner, kind)
        if e.op == "-" and kind.kind in ("int", "uint"):
            if self.wraps and kind.kind == "int":
                return self.minus(inner)
            if kind.bits >= 32 and (kind.kind == "uint" or not self.facts.is_nonnegative(e.operand)):
                wide = Scalar(f"u{kind.bits}", "uint", kind.bits)
                found = self.infix("-", self.literal(0, wide), self.unsigned(e.operand))
                return found if kind == wide else self.cast(kind, found)
        if e.op == "~" and kind == BOOL:
            self.refuse(e.line, "~ of a bool", "not")
        made = self.minus(inner) if e.op == "-" else Piece(f"~{self.at(inner, UNARY)}", UNARY)
        return self.narrowed(made, kind, e.op)

    def minus(self, inner: Piece) -> Piece:
        """The opposite sign; never two signs in a row, which is another operator."""
        text = self.at(inner, UNARY)
        return Piece(f"-({text})" if text.startswith("-") else f"-{text}", UNARY)

    def converted(self, e: ir.Convert) -> Piece:
        """A conversion."""
        kind = e.operand.type
        assert kind is not None  # noqa: S101  inference has been here
        if isinstance(e.operand, ir.Literal) and e.to.kind == "float":
            return self.literal(e.operand.value, e.to)
        if not self.wraps and e.to in (U32, U64) and kind.kind == "int" and kind.bits == e.to.bits:
            return self.unsigned(e.operand)
        inner = self.expression(e.operand)
        if kind == e.to:
            return inner
        if e.to == BOOL:
            return self.infix("!=", inner, self.literal(0, kind))
        if e.to in self.emulated:
            value = inner if kind in (F16, BF16) or kind == F32 else self.cast(F32, inner)
            return self.rounded(value, e.to)
        if kind in self.emulated:
            return inner if e.to == F32 else self.cast(e.to, inner)
        return self.cast(e.to, inner)

    def place(self, array: str, indices: Sequence[ir.Expr]) -> ir.Expr:
        """Where an element is, in a row of all."""
        wide = any(e.type is not None and e.type.bits == 64 for e in indices)
        kind = I64 if wide else I32
        if len(indices) == 1:
            return indices[0]
        found: ir.Expr | None = None
        for side, given in enumerate(indices):
            one = given if given.type == kind else ir.Convert(given.line, kind, given, type=kind)
            if found is None:
                found = one
                continue
            length: ir.Expr = ir.Size(given.line, array, side, type=I32)
            if wide:
                length = ir.Convert(given.line, I64, length, type=I64)
            found = typed("+", typed("*", found, length, kind), one, kind)
        assert found is not None  # noqa: S101  an element has an index
        return found

    def element(self, array: str, indices: Sequence[ir.Expr]) -> str:
        """An element, as it is set or taken."""
        return f"{self.name(array)}[{self.expression(self.place(array, indices), address=True).text}]"

    def load(self, e: ir.Load) -> Piece:
        """An element's value."""
        return Piece(self.element(e.array, e.indices), PRIMARY)

    def rounded(self, piece: Piece, kind: Scalar) -> Piece:
        """A result of 16 bits, where it was worked out in 32."""
        return self.function(self.need(f"round_{kind}"), piece) if kind in self.emulated else piece

    def absolute(self, e: ir.Unary, inner: Piece, kind: Scalar) -> Piece:
        """Without its sign; the smallest integer stays."""
        if kind.kind == "float":
            return self.function(self.math("fabs", kind, e.line), inner)
        if kind.kind == "uint":
            return inner
        wide = kind if kind.bits >= 32 else I32
        return self.narrowed(self.function(self.need(f"abs_{wide}"), inner), kind, "abs")

    def floored(self, e: ir.Binary, kind: Scalar) -> Piece:
        """``//`` and ``%``: plain operators where both sides are known not to be negative."""
        left, right = e.left, e.right
        name = "floor_div" if e.op == "//" else "floor_mod"
        if kind.kind == "float":
            worked = F32 if kind in (F16, BF16) else kind
            made = self.function(self.need(f"{name}_{worked}"), *self.wide_floats(kind, left, right))
            return self.from_wide(made, kind)
        if kind.kind == "uint" or (self.facts.is_nonnegative(left) and self.facts.is_nonnegative(right)):
            return self.narrowed(self.infix(e.op, self.expression(left), self.expression(right)), kind, e.op)
        wide = kind if kind.bits >= 32 else I32
        made = self.function(self.need(f"{name}_{wide}"), self.expression(left), self.expression(right))
        return self.narrowed(made, kind, e.op)

    def wide_floats(self, kind: Scalar, *given: ir.Expr) -> list[Piece]:
        """Floats in at least 32 bits."""
        native = self.is_native_narrow(kind)
        return [self.cast(F32, self.expression(e)) if native else self.expression(e) for e in given]

    def is_native_narrow(self, kind: Scalar) -> bool:
        """Whether a type is a float of 16 bits in which the target works itself."""
        return kind in (F16, BF16) and kind not in self.emulated

    def from_wide(self, piece: Piece, kind: Scalar) -> Piece:
        """What `wide_floats` gave, in its own type again."""
        if kind in self.emulated:
            return self.rounded(piece, kind)
        return self.cast(kind, piece) if kind in (F16, BF16) else piece

    def power(self, e: ir.Binary, kind: Scalar) -> Piece:
        """``**``: products where the exponent is a small literal of an integer, or two."""
        exponent = e.right.value if isinstance(e.right, ir.Literal) else None
        if exponent == 2 and isinstance(e.left, (ir.Variable, ir.Literal)):
            return self.binary(ir.Binary(e.line, "*", e.left, e.left, type=kind), False)
        if kind.kind == "float":
            if exponent == 2:
                worked = F32 if kind in (F16, BF16) else kind
                made = self.function(self.need(f"square_{worked}"), *self.wide_floats(kind, e.left))
                return self.from_wide(made, kind)
            name = self.math("pow", F32 if kind in (F16, BF16) else kind, e.line)
            return self.from_wide(self.function(name, *self.wide_floats(kind, e.left, e.right)), kind)
        wide = kind if kind.bits >= 32 else I32 if kind.kind == "int" else U32
        exponent_text = Piece(str(exponent), PRIMARY)
        base = self.expression(e.left)
        if kind.bits < 32 and self.wraps:
            base = self.cast(wide, base)
        return self.narrowed(self.function(self.need(f"power_{wide}"), base, exponent_text), kind, "**")

    def shifted(self, e: ir.Binary, kind: Scalar) -> Piece:
        """Shifts: by as many bits as there are or more, all are shifted out."""
        amount = e.right
        known = (isinstance(amount, ir.Literal) and 0 <= amount.value < kind.bits) or (
            isinstance(amount, ir.Binary)
            and amount.op == "&"
            and any(isinstance(s, ir.Literal) and 0 <= s.value < kind.bits for s in (amount.left, amount.right))
        )
        if not known:
            return self.any_shift(e, kind)
        if kind.bits < 32:
            left = self.expression(e.left)
            if e.op == "<<":
                left = self.cast(U32, left)
            return self.cast(kind, self.infix(e.op, left, self.shift_amount(amount)))
        if e.op == "<<" and kind.kind == "int" and not self.wraps:
            return self.cast(kind, self.infix("<<", self.unsigned(e.left), self.shift_amount(amount)))
        return self.infix(e.op, self.expression(e.left), self.shift_amount(amount))

    def shift_amount(self, e: ir.Expr) -> Piece:
        """By how much."""
        return self.expression(e)

    def any_shift(self, e: ir.Binary, kind: Scalar) -> Piece:
        """A shift by an amount that is not known."""
        wide = kind if kind.bits >= 32 else (I32 if kind.kind == "int" else U32)
        name = "shift_left" if e.op == "<<" else "shift_right"
        made = self.function(self.need(f"{name}_{wide}"), self.expression(e.left), self.expression(e.right))
        return self.narrowed(made, kind, e.op)

    # Arguments, for those that write them.

    def sorted_arguments(self) -> Iterator[Buffer | Side | Value]:
        """The arguments of the kernel in order, without what the target adds."""
        yield from (one for one in self.signature.arguments if isinstance(one, (Buffer, Side, Value)))


def _moves(e: ir.Binary, bits: int) -> bool:
    """Whether a shift is by a literal that leaves something."""
    return isinstance(e.right, ir.Literal) and 0 <= e.right.value < bits and folded_value(e) is None
