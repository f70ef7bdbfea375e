"""Expressions as source text: precedence, integer and float semantics, conversions.

The numbers of all targets equal the emulator's. Integers wrap: where a signed operation may overflow and the language
leaves that undefined, it is computed on unsigned numbers. ``//`` and ``%`` round down. ``min`` and ``max`` of floats
ignore a NaN. Every float operation is rounded separately, without contraction. A 16-bit float is the language's own
type or, where that would not round every operation, an ``f32`` that is rounded after each one (`Tokens.emulated`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import NoReturn

from windtunnel.codegen.analysis import Facts, sequenced, typed, unpacked
from windtunnel.codegen.keywords import FUNCTIONS
from windtunnel.codegen.lowering import lower
from windtunnel.codegen.signature import Side, Signature, signature_of
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
)
from windtunnel.codegen.tokens import Tokens
from windtunnel.core.errors import Location
from windtunnel.language import ir
from windtunnel.language.source import KernelError
from windtunnel.language.types import BF16, BOOL, F16, F32, I32, I64, U32, U64, Scalar

Block = tuple[int, int, int]
"""The number of threads of a block along x, y and z."""


class ExpressionEmitter:
    """Writes the expressions of one kernel for the target that ``tokens`` describes."""

    def __init__(self, program: ir.Program, block: Block, tokens: Tokens) -> None:
        self.program = deepcopy(program)  # emitters rename variables and fold constants
        lower(self.program, wide="i64" not in tokens.missing)
        self.block, self.tokens = block, tokens
        self.body = self.lower()
        self.facts = Facts(self.program, self.body)
        self.signature: Signature = signature_of(self.program, self.facts, tokens.conventions)
        self.kinds = {**self.program.variables, **self.program.scalars}
        self.helpers: dict[str, str] = {}
        """The texts of the helper functions that the kernel needs, by name."""
        self.lines: list[str] = []
        self.depth = 1
        self.spelled = self._spell()
        self.signature = replace(self.signature, name=self.spelled[program.name])
        self.used: set[str] = set()
        """The built-in indices that the text uses."""
        self.extensions: set[str] = set()
        """The language extensions that the text uses."""

    def lower(self) -> list[ir.Stmt]:
        """Return the statements to write."""
        return sequenced(self.program, unpacked(self.program))

    def put(self, text: str) -> None:
        """Append one line at the current depth."""
        self.lines.append("    " * self.depth + text if text else "")

    def lines_of(self, write: Callable[[], object]) -> list[str]:
        """Return the lines that ``write`` appends."""
        kept, self.lines = self.lines, []
        write()
        lines, self.lines = self.lines, kept
        return lines

    # Names and errors.

    def refuse(self, line: int, problem: str, expected: str | None = None) -> NoReturn:
        """Raise KernelError at a line of the kernel's file."""
        where = Location(*self.program.place_of(line), self.program.column_of(line))
        raise KernelError(problem, where=where, expected=expected)

    def _spell(self) -> dict[str, str]:
        """Return a valid name of the target for each of the kernel's names."""
        spelled: dict[str, str] = {}
        names = [
            self.program.name,
            *(argument.name for argument in self.signature.arguments),
            *self.program.declared,
            *self.program.variables,
        ]
        for name in dict.fromkeys(names):
            target_name = name if name.isascii() else "".join(c if c.isascii() else f"u{ord(c):x}" for c in name)
            target_name = re.sub(r"\W+", "_", target_name)  # an instance of a template
            if target_name.startswith(("wt_", "__", "gl_")) or target_name == "_":
                target_name = f"v{target_name}"
            taken = {*self.tokens.reserved, *spelled.values(), *(FUNCTIONS if name == self.program.name else ())}
            while target_name in taken:
                target_name += "_"
            spelled[name] = target_name
        return spelled

    def name(self, variable: str) -> str:
        """Return a variable as it is read and assigned."""
        return self.spelled[variable]

    def fresh(self, name: str) -> str:
        """Return an unused name. Two leading underscores, as of a loop over ``_``, are reserved and removed."""
        candidate = name = name.lstrip("_") if name.startswith("__") else name
        number = 1
        while candidate in self.tokens.reserved or candidate in self.spelled.values():
            candidate = f"{name}{number}"
            number += 1
        self.spelled[candidate] = candidate
        return candidate

    # Methods of each language.

    def value_type(self, kind: Scalar) -> str:
        """Return the type of a local variable."""
        raise NotImplementedError

    def literal(self, value: float, kind: Scalar) -> Piece:
        """Return a number."""
        raise NotImplementedError

    def cast(self, to: Scalar, inner: Piece) -> Piece:
        """Return a conversion between two types of the language."""
        raise NotImplementedError

    def thread_index(self, e: ir.Index) -> Piece:
        """Return an index of the thread, as i32."""
        raise NotImplementedError

    def extreme(self, e: ir.Binary, kind: Scalar) -> Piece:
        """Return a minimum or maximum."""
        raise NotImplementedError

    def call(self, e: ir.Call) -> Piece:
        """Return a call of a mathematical function."""
        raise NotImplementedError

    def math(self, name: str, kind: Scalar, line: int) -> str:
        """Return the language's name of a function of floats; raise KernelError if it has none."""
        raise NotImplementedError

    def atomically(self, e: ir.Atomic) -> Piece:
        """Return an atomic operation."""
        raise NotImplementedError

    def need(self, helper: str) -> str:
        """Add a helper function to the source, and return its name."""
        raise NotImplementedError

    # Warps.

    def warp(self, e: ir.Warp) -> Piece:
        """Return an exchange between the threads of a warp."""
        group = self.tokens.subgroup
        if group is None:
            self.refuse(e.line, f"{self.tokens.title} has no warps", "shared memory and syncthreads()")
        if e.op == "active":
            self.refuse(e.line, f"{self.tokens.title} does not say which lanes of a warp execute together", "a mask")
        self.use_feature("any")
        lane, size = Piece(group.lane, PRIMARY), Piece(group.size, PRIMARY)
        if e.op in ("lane", "warp_size"):
            self.used.add(e.op)
            return self.cast(I32, lane if e.op == "lane" else size)
        kind, value = e.type, self.expression(e.arguments[1])
        assert kind is not None  # noqa: S101  inference has been here
        self.check_exchange(kind, e.line)
        if e.op == "vote.ballot":
            self.use_feature("ballot")
            return Piece(group.ballot.format(value.text), group.ballot_level)
        if e.op.startswith("vote"):
            self.use_feature("vote")
            vote = self.function(group.any if e.op == "vote.any" else group.all, value)
            return self.infix("!=", vote, Piece("0", PRIMARY)) if group.vote_is_number else vote
        self.use_feature("shuffle")
        self.used |= {"lane", "warp_size"}
        other, how = self.expression(e.arguments[2]), e.op.removeprefix("shuffle.")
        if how == "index":
            source = self.infix("&", self.lane_number(e.arguments[2]), Piece(f"({group.size} - {group.one})", PRIMARY))
            if group.index_cast != "{}":
                source = Piece(group.index_cast.format(source.text), PRIMARY)
        else:
            wanted = self.infix({"up": "-", "down": "+", "xor": "^"}[how], self.cast(I32, lane), other)
            arguments = (Piece(text, PRIMARY) for text in group.source_arguments)
            source = self.function(self.need("source_lane"), wanted, *arguments)
        if kind != BOOL or group.bool_as is None:
            return self.function(group.shuffle, value, source)
        shuffle = self.function(group.shuffle, self.cast(group.bool_as, value), source)
        return self.infix("!=", shuffle, self.literal(0, group.bool_as))

    def lane_number(self, e: ir.Expr) -> Piece:
        """Return the index of a lane as an unsigned number."""
        return self.unsigned(e)

    def check_exchange(self, kind: Scalar, line: int) -> None:
        """Raise KernelError if the threads of a warp cannot exchange numbers of a type."""

    def use_feature(self, operation: str) -> None:
        """Enable the extension of an operation of warps."""
        feature = self.tokens.subgroup.features.get(operation) if self.tokens.subgroup is not None else None
        if feature is not None:
            self.extensions.add(feature)

    # Expressions.

    def at(self, piece: Piece, level: int) -> str:
        """Return a piece's text, in parentheses if it binds less tightly than ``level``."""
        return piece.text if piece.level >= level else f"({piece.text})"

    def expression(self, e: ir.Expr, address: bool = False) -> Piece:
        """Return an expression. ``address``: it is (a part of) an element's position, and cannot overflow."""
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
                return self.atomically(_changing(e))
        raise AssertionError(type(e).__name__)

    def variable(self, name: str) -> Piece:
        """Return the value of a variable."""
        return Piece(self.name(name), PRIMARY)

    def size(self, e: ir.Size) -> Piece:
        """Return the length of a dimension: a constant or an argument."""
        declared = self.program.declared.get(e.array)
        if declared is not None and declared.shape == (0,):
            self.refuse(
                e.line, f"{self.tokens.title} does not provide the size of '{e.array}'", "a parameter with the size"
            )
        if declared is not None:
            return self.literal(declared.shape[e.side], I32)
        kind = self.program.arrays[e.array]
        if not -kind.dimensions <= e.side < kind.dimensions:
            self.refuse(e.line, f"'{e.array}' has no dimension {e.side}; it has {kind.dimensions}")
        side = e.side % kind.dimensions
        name = next(
            argument.name
            for argument in self.signature.arguments
            if isinstance(argument, Side) and argument.array == e.array and argument.side == side
        )
        return Piece(self.name(name), PRIMARY)

    def binary(self, e: ir.Binary, address: bool) -> Piece:
        """Return an operation on two numbers."""
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
            # In C, bitwise operators of bools give an int.
            both = {"&": "&&", "|": "||", "^": "!="}[e.op]
            if both == "!=":
                return self.infix(both, self.expression(e.left), self.expression(e.right))
        if e.op == "/" and self.is_native_narrow(kind):
            # A 16-bit quotient may have an error of some units; a 32-bit one is accurate enough to round correctly.
            return self.cast(kind, self.infix("/", *self.wide_floats(kind, e.left, e.right)))
        if kind.kind == "float":
            return self.rounded(self.infix(e.op, self.expression(e.left), self.expression(e.right)), kind)
        if e.op in WRAPS and not self.tokens.wraps:
            return self.wrapping(e, kind, address)
        return self.narrowed(
            self.infix(e.op, self.expression(e.left, address), self.expression(e.right, address)), kind, e.op
        )

    def wrapping(self, e: ir.Binary, kind: Scalar, address: bool) -> Piece:
        """Return ``+``, ``-`` or ``*`` of integers; if it may overflow, it is computed on unsigned numbers."""
        if kind.bits < 32:
            if e.op == "*":
                return self.cast(kind, self.unsigned(e))
        elif kind.kind == "int" and not address and not self.facts.is_geometric(e):
            return self.cast(kind, self.unsigned(e))
        inner = address or kind.kind == "uint" or kind.bits < 32
        return self.narrowed(
            self.infix(e.op, self.expression(e.left, inner), self.expression(e.right, inner)), kind, e.op
        )

    def unsigned(self, e: ir.Expr) -> Piece:
        """Return an integer expression as an unsigned number of its width, at least 32 bits."""
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
        """Convert the result of C's arithmetic in int to its narrow type."""
        if kind.kind in ("int", "uint") and kind.bits < 32 and op not in BITS:
            return self.cast(kind, piece)
        return piece

    def infix(self, op: str, left: Piece, right: Piece) -> Piece:
        """Return an operator between two pieces, with the parentheses that precedence, readers and WGSL need."""
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
        """Return ``and`` or ``or``."""
        return self.infix("&&" if op == "and" else "||", self.expression(left), self.expression(right))

    def chosen(self, condition: Piece, yes: Piece, no: Piece, kind: Scalar) -> Piece:
        """Return a conditional expression."""
        del kind
        text = f"{self.at(condition, EITHER)} ? {self.at(yes, CHOICE + 1)} : {self.at(no, CHOICE)}"
        return Piece(text, CHOICE)

    def function(self, name: str, *arguments: Piece) -> Piece:
        """Return a function call."""
        return Piece(f"{name}({', '.join(a.text for a in arguments)})", PRIMARY)

    def unary(self, e: ir.Unary) -> Piece:
        """Return an operation on one number."""
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
            if self.tokens.wraps and kind.kind == "int":
                return self.minus(inner)
            if kind.bits >= 32 and (kind.kind == "uint" or not self.facts.is_nonnegative(e.operand)):
                wide = Scalar(f"u{kind.bits}", "uint", kind.bits)
                negated = self.infix("-", self.literal(0, wide), self.unsigned(e.operand))
                return negated if kind == wide else self.cast(kind, negated)
        if e.op == "~" and kind == BOOL:
            self.refuse(e.line, "~ of a bool", "not")
        piece = self.minus(inner) if e.op == "-" else Piece(f"~{self.at(inner, UNARY)}", UNARY)
        return self.narrowed(piece, kind, e.op)

    def minus(self, inner: Piece) -> Piece:
        """Return the negative number; two signs in a row would be another operator."""
        text = self.at(inner, UNARY)
        return Piece(f"-({text})" if text.startswith("-") else f"-{text}", UNARY)

    def converted(self, e: ir.Convert) -> Piece:
        """Return a conversion of the kernel language."""
        kind = e.operand.type
        assert kind is not None  # noqa: S101  inference has been here
        if isinstance(e.operand, ir.Literal) and e.to.kind == "float":
            return self.literal(e.operand.value, e.to)
        if not self.tokens.wraps and e.to in (U32, U64) and kind.kind == "int" and kind.bits == e.to.bits:
            return self.unsigned(e.operand)
        inner = self.expression(e.operand)
        if kind == e.to:
            return inner
        if e.to == BOOL:
            return self.infix("!=", inner, self.literal(0, kind))
        if e.to in self.tokens.emulated:
            value = inner if kind in (F16, BF16) or kind == F32 else self.cast(F32, inner)
            return self.rounded(value, e.to)
        if kind in self.tokens.emulated:
            return inner if e.to == F32 else self.cast(e.to, inner)
        return self.cast(e.to, inner)

    def place(self, array: str, indices: Sequence[ir.Expr]) -> ir.Expr:
        """Return the position of an element in the flat array."""
        wide = any(e.type is not None and e.type.bits == 64 for e in indices)
        kind = I64 if wide else I32
        if len(indices) == 1:
            return indices[0]
        position: ir.Expr | None = None
        for side, original in enumerate(indices):
            index = original if original.type == kind else ir.Convert(original.line, kind, original, type=kind)
            if position is None:
                position = index
                continue
            length: ir.Expr = ir.Size(original.line, array, side, type=I32)
            if wide:
                length = ir.Convert(original.line, I64, length, type=I64)
            position = typed("+", typed("*", position, length, kind), index, kind)
        assert position is not None  # noqa: S101  an element has an index
        return position

    def element(self, array: str, indices: Sequence[ir.Expr]) -> str:
        """Return an element, as it is read and assigned."""
        return f"{self.name(array)}[{self.expression(self.place(array, indices), address=True).text}]"

    def load(self, e: ir.Load) -> Piece:
        """Return the value of an element."""
        return Piece(self.element(e.array, e.indices), PRIMARY)

    def rounded(self, piece: Piece, kind: Scalar) -> Piece:
        """Round a 16-bit result that was computed in 32 bits."""
        return self.function(self.need(f"round_{kind}"), piece) if kind in self.tokens.emulated else piece

    def absolute(self, e: ir.Unary, inner: Piece, kind: Scalar) -> Piece:
        """Return the absolute value; that of the smallest integer is itself."""
        if kind.kind == "float":
            return self.function(self.math("fabs", kind, e.line), inner)
        if kind.kind == "uint":
            return inner
        wide = kind if kind.bits >= 32 else I32
        return self.narrowed(self.function(self.need(f"abs_{wide}"), inner), kind, "abs")

    def floored(self, e: ir.Binary, kind: Scalar) -> Piece:
        """Return ``//`` or ``%``: the language's own operator if neither side can be negative."""
        left, right = e.left, e.right
        name = "floor_div" if e.op == "//" else "floor_mod"
        if kind.kind == "float":
            worked = F32 if kind in (F16, BF16) else kind
            result = self.function(self.need(f"{name}_{worked}"), *self.wide_floats(kind, left, right))
            return self.from_wide(result, kind)
        if kind.kind == "uint" or (self.facts.is_nonnegative(left) and self.facts.is_nonnegative(right)):
            return self.narrowed(self.infix(e.op, self.expression(left), self.expression(right)), kind, e.op)
        wide = kind if kind.bits >= 32 else I32
        result = self.function(self.need(f"{name}_{wide}"), self.expression(left), self.expression(right))
        return self.narrowed(result, kind, e.op)

    def wide_floats(self, kind: Scalar, *expressions: ir.Expr) -> list[Piece]:
        """Return floats in at least 32 bits."""
        native = self.is_native_narrow(kind)
        return [self.cast(F32, self.expression(e)) if native else self.expression(e) for e in expressions]

    def is_native_narrow(self, kind: Scalar) -> bool:
        """Return whether a type is a 16-bit float in which the target itself computes."""
        return kind in (F16, BF16) and kind not in self.tokens.emulated

    def from_wide(self, piece: Piece, kind: Scalar) -> Piece:
        """Convert a result of `wide_floats` back to its own type."""
        if kind in self.tokens.emulated:
            return self.rounded(piece, kind)
        return self.cast(kind, piece) if kind in (F16, BF16) else piece

    def power(self, e: ir.Binary, kind: Scalar) -> Piece:
        """Return a power; that of an integer, and a square, by multiplication."""
        exponent = e.right.value if isinstance(e.right, ir.Literal) else None
        if exponent == 2 and isinstance(e.left, (ir.Variable, ir.Literal)):
            return self.binary(ir.Binary(e.line, "*", e.left, e.left, type=kind), False)
        if kind.kind == "float":
            if exponent == 2:
                worked = F32 if kind in (F16, BF16) else kind
                result = self.function(self.need(f"square_{worked}"), *self.wide_floats(kind, e.left))
                return self.from_wide(result, kind)
            name = self.math("pow", F32 if kind in (F16, BF16) else kind, e.line)
            return self.from_wide(self.function(name, *self.wide_floats(kind, e.left, e.right)), kind)
        wide = kind if kind.bits >= 32 else I32 if kind.kind == "int" else U32
        exponent_text = Piece(str(exponent), PRIMARY)
        base = self.expression(e.left)
        if kind.bits < 32 and self.tokens.wraps:
            base = self.cast(wide, base)
        return self.narrowed(self.function(self.need(f"power_{wide}"), base, exponent_text), kind, "**")

    def shifted(self, e: ir.Binary, kind: Scalar) -> Piece:
        """Return a shift; one by the number's width or more shifts all bits out."""
        amount = e.right
        is_small = (isinstance(amount, ir.Literal) and 0 <= amount.value < kind.bits) or (
            isinstance(amount, ir.Binary)
            and amount.op == "&"
            and any(isinstance(s, ir.Literal) and 0 <= s.value < kind.bits for s in (amount.left, amount.right))
        )
        if not is_small:
            return self.any_shift(e, kind)
        if kind.bits < 32:
            left = self.expression(e.left)
            if e.op == "<<":
                left = self.cast(U32, left)
            return self.cast(kind, self.infix(e.op, left, self.shift_amount(amount)))
        if e.op == "<<" and kind.kind == "int" and not self.tokens.wraps:
            return self.cast(kind, self.infix("<<", self.unsigned(e.left), self.shift_amount(amount)))
        return self.infix(e.op, self.expression(e.left), self.shift_amount(amount))

    def shift_amount(self, e: ir.Expr) -> Piece:
        """Return the number of bits of a shift."""
        return self.expression(e)

    def any_shift(self, e: ir.Binary, kind: Scalar) -> Piece:
        """Return a shift by a number of bits that may exceed the width."""
        wide = kind if kind.bits >= 32 else (I32 if kind.kind == "int" else U32)
        name = "shift_left" if e.op == "<<" else "shift_right"
        result = self.function(self.need(f"{name}_{wide}"), self.expression(e.left), self.expression(e.right))
        return self.narrowed(result, kind, e.op)


def _moves(e: ir.Binary, bits: int) -> bool:
    """Return whether a shift is by a literal smaller than the number's width."""
    return isinstance(e.right, ir.Literal) and 0 <= e.right.value < bits and folded_value(e) is None


def _changing(e: ir.Atomic) -> ir.Atomic:
    """Return an atomic operation that all targets have: for a load a compare-and-swap, for a store an exchange."""
    if e.op == "load":
        assert e.type is not None  # noqa: S101  all expressions here have types
        zero = ir.Literal(e.line, 0.0 if e.type.kind == "float" else 0, type=e.type)
        return replace(e, op="cas", values=[zero, zero])
    return replace(e, op="exch") if e.op == "store" else e
