"""WGSL, the shading language of WebGPU. The size of a workgroup is a part of the source.

The language has i32, u32, f32, bool and, as an extension, f16. Arrays are buffers at bindings 0, 1 ... of group 0.
Sizes and scalars are members of one uniform struct after them. All elements of an array with atomic operations are
atomics, and floats in it are held as their bits.

WGSL lets an implementation contract, reassociate, flush subnormal numbers and assume that there is no NaN. No compiler
option prevents that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from windtunnel.codegen.emitter import Emitter
from windtunnel.codegen.signature import Argument, Conventions, Value
from windtunnel.codegen.text import CHOICE, PRIMARY, UNARY, Piece, bits_of, folded_value
from windtunnel.codegen.tokens import Subgroup, Tokens
from windtunnel.codegen.wgsl_helpers import helper_text
from windtunnel.language import ir
from windtunnel.language.types import BOOL, F16, F32, I32, U32, Scalar

_INDICES = {
    "thread": ("threadIdx", "local_invocation_id"),
    "block": ("blockIdx", "workgroup_id"),
    "grid_size": ("gridDim", "num_workgroups"),
}
_MATH = {"fabs": "abs", "rsqrt": "inverseSqrt", "rint": "round"}
_SAME = frozenset((
    "sqrt", "exp", "exp2", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "floor",
    "ceil", "trunc", "atan2", "pow", "fma", "asinh", "acosh", "atanh", "ldexp",
))  # fmt: skip
"""The functions that have the same name as in the kernel language."""
_TESTS = {
    "isnan": "({} & 0x7fffffffu) > 0x7f800000u", "isinf": "({} & 0x7fffffffu) == 0x7f800000u",
    "isfinite": "({} & 0x7fffffffu) < 0x7f800000u", "signbit": "({} & 0x80000000u) != 0u",
    "isnormal": "({} & 0x7fffffffu) - 0x800000u < 0x7f000000u",
}  # fmt: skip
"""Tests of the bits of a float."""
_LAZY = (ir.Load, ir.Atomic, ir.Warp)
"""Expressions that must not be evaluated where Python would not evaluate them."""
WGSL = Tokens(
    title="WGSL",
    conventions=Conventions(fixed_block=True, uniform=True, passed={"bool": U32, "f16": F32, "bf16": F32}),
    wraps=True,
    missing={
        **dict.fromkeys(("i8", "i16", "u8", "u16", "i64", "u64"), "i32 or u32"), "f64": "f32", "bf16": "f16 or f32",
    },
    option_note=(
        "There is no option against contraction: if an implementation fuses operations or flushes subnormals, "
        "the last bit may differ."
    ),
    subgroup=Subgroup(
        lane="subgroup_invocation_id",
        size="subgroup_size",
        one="1u",
        ballot="subgroupBallot({}).x",
        any="subgroupAny",
        all="subgroupAll",
        shuffle="subgroupShuffle",
        source_arguments=("subgroup_invocation_id", "subgroup_size"),
        bool_as=U32,
    ),
)  # fmt: skip


class WgslEmitter(Emitter):
    """Writes one kernel as WGSL."""

    def check_element(self, kind: Scalar, line: int) -> None:
        """Raise KernelError for an array of bools."""
        if kind == BOOL:
            self.refuse(line, "a WGSL buffer holds no bool", "u32")

    # The whole.

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        """Yield extensions, the struct of numbers, buffers, shared arrays, helper functions and the kernel."""
        tops = self.lines_of(self.tops)
        if self._has_half():
            yield "enable f16;"
        if self.facts.calls:
            yield "enable subgroups;"
        yield ""
        numbers = [argument for argument in self.sorted_arguments() if argument not in self.signature.buffers]
        yield from self._globals(numbers)
        for text in self.helpers.values():
            yield from text.splitlines()
            yield ""
        yield f"@compute @workgroup_size({', '.join(map(str, self.block))})"
        builtins = [f"@builtin({name}) {name}: vec3<u32>" for what, (_, name) in _INDICES.items() if what in self.used]
        for what, name in (("lane", "subgroup_invocation_id"), ("warp_size", "subgroup_size")):
            if what in self.used:
                builtins.append(f"@builtin({name}) {name}: u32")
        yield f"fn {self.spelled[self.program.name]}({', '.join(builtins)}) {{"
        for what, (name, builtin) in _INDICES.items():
            if what in self.used:
                yield f"    let {name} = vec3<i32>({builtin});"
        for argument in numbers:
            if isinstance(argument, Value):
                yield from self._taken(argument)
        yield from tops
        yield from body
        yield "}"

    def _globals(self, numbers: Sequence[Argument]) -> Iterator[str]:
        """Yield the declarations outside of functions."""
        if numbers:
            yield "struct Params {"
            yield from (f"    {self.spelled[argument.name]}: {self._member(argument)}," for argument in numbers)
            yield "}"
            yield ""
        for buffer in self.signature.buffers:
            access = "read_write" if buffer.written else "read"
            element = self.stored(buffer.name, buffer.element)
            name = self.spelled[buffer.name]
            yield f"@group(0) @binding({buffer.position}) var<storage, {access}> {name}: array<{element}>;"
        if numbers:
            yield f"@group(0) @binding({self.signature.uniform}) var<uniform> params: Params;"
        for array in self.program.declared.values():
            if array.space == "shared":
                kind = f"array<{self.stored(array.name, array.element)}, {math.prod(array.shape)}>"
                yield f"var<workgroup> {self.spelled[array.name]}: {kind};"
        if "block_size" in self.used:
            yield f"const blockDim = vec3<i32>({', '.join(map(str, self.block))});"
        yield ""

    def _has_half(self) -> bool:
        """Return whether the kernel uses f16."""
        kinds = [*self.kinds.values(), *(a.element for a in self.program.arrays.values())]
        inner = (e.type for statement in ir.walk(self.body) for e in ir.expressions(statement))
        return F16 in kinds or F16 in inner

    def _member(self, argument: object) -> str:
        return self.value_type(argument.passed) if isinstance(argument, Value) else "i32"

    def _taken(self, scalar: Value) -> Iterator[str]:
        """Yield the declaration of a scalar's variable."""
        how = "var" if scalar.name in self.facts.assigned else "let"
        name = self.spelled[scalar.name]
        value = f"params.{name}"
        if scalar.type == BOOL:
            value += " != 0u"
        elif scalar.type != scalar.passed:
            value = f"{self.value_type(scalar.type)}({value})"
        yield f"    {how} {name} = {value};"

    def stored(self, array: str, element: Scalar) -> str:
        """Return the type of an array's elements; floats with atomic operations are held as their bits."""
        if array in self.facts.atomic:
            return "atomic<i32>" if element == I32 else "atomic<u32>"
        return self.value_type(element)

    # Statements.

    def declare(self, name: str, value: str | None) -> None:
        """Declare a local variable."""
        kind = self.value_type(self.kinds[name])
        self.put(f"var {self.name(name)}: {kind}{f' = {value}' if value is not None else ''};")

    def constant(self, name: str, kind: Scalar, value: str) -> None:
        """Declare a constant."""
        self.put(f"let {name}: {self.value_type(kind)} = {value};")

    def counter(self, name: str, kind: Scalar, start: str) -> str:
        """Return the declaration of a loop's counter."""
        return f"var {name}: {self.value_type(kind)} = {start}"

    def stepped(self, counter: Piece, step: ir.Expr, text: Piece) -> str:
        """Return the step of a loop's counter."""
        if isinstance(step, ir.Literal) and step.value in (1, -1) and step.type == I32:
            return f"{counter.text}{'++' if step.value == 1 else '--'}"
        if isinstance(step, ir.Literal) and step.value == 1:
            return f"{counter.text}++"
        return super().stepped(counter, step, text)

    def declare_array(self, array: ir.Declare) -> None:
        """Declare a local array; shared ones are global declarations."""
        if array.space == "local":
            self.put(f"var {self.name(array.name)}: array<{self.value_type(array.element)}, {math.prod(array.shape)}>;")

    def store(self, store: ir.Store) -> None:
        """Write an assignment to an element."""
        if store.array not in self.facts.atomic:
            super().store(store)
            return
        value = self.expression(store.value)
        if store.value.type == F32:
            value = Piece(f"bitcast<u32>({value.text})", PRIMARY)
        self.put(f"atomicStore(&{self.element(store.array, store.indices)}, {value.text});")

    def do(self, e: ir.Expr) -> None:
        """Write an expression for its effect; an unused value must be assigned to ``_``."""
        if isinstance(e, (ir.Atomic, ir.Warp)):
            self.put(f"{'_ = ' if isinstance(e, ir.Warp) else ''}{self.expression(e).text};")
        elif any(isinstance(inner, (ir.Atomic, ir.Warp)) for inner in ir.inside(e)):
            self.put(f"_ = {self.expression(e).text};")

    def barrier(self, barrier: ir.Barrier) -> None:
        """Write a barrier of the block."""
        if barrier.scope != "block":
            what = "barrier of a warp" if barrier.scope == "warp" else "fence without a barrier"
            self.refuse(barrier.line, f"WGSL has no {what}", "syncthreads()")
        self.put("workgroupBarrier();")
        self.put("storageBarrier();")

    def loop(self, loop: ir.While) -> None:
        """Write a ``while`` loop; one whose condition needs statements ends by a ``break``."""
        condition, ahead = self._ahead(loop.condition)
        if not ahead:
            with self.inner(f"while ({condition.text}) {{"):
                self.statements(loop.body)
            return
        with self.inner("loop {"):
            self.lines += ["    " + line for line in ahead]
            self.put(f"if (!{self.at(condition, UNARY)}) {{ break; }}")
            self.statements(loop.body)

    def _ahead(self, e: ir.Expr) -> tuple[Piece, list[str]]:
        """Return an expression and the statements that must precede it."""
        pieces: list[Piece] = []
        lines = self.lines_of(lambda: pieces.append(self.expression(e)))
        return pieces[0], lines

    def joins(self, branch: ir.If) -> bool:
        """Return whether an ``if`` alone in an ``else`` can be written as ``else if``."""
        return super().joins(branch) and not any(isinstance(e, ir.Select) for e in ir.inside(branch.condition))

    # Expressions.

    def value_type(self, kind: Scalar) -> str:
        """Return the type of a local variable."""
        return kind.name

    def literal(self, value: float, kind: Scalar) -> Piece:
        """Return a number with the suffix of its type."""
        value = bits_of(value, kind)
        if kind == BOOL:
            return Piece("true" if value else "false", PRIMARY)
        if kind.kind == "float":
            if math.isnan(value) or math.isinf(value):
                # WGSL has no literals for them and rejects constant expressions of them: a helper converts their bits.
                bits = int(np.float32(value).view(np.uint32))
                made = self.function(self.need("from_bits"), Piece(f"0x{bits:x}u", PRIMARY))
                return made if kind == F32 else self.cast(kind, made)
            number = np.float16(value) if kind == F16 else np.float32(value)
            text = np.format_float_positional(number, trim="0")
            if len(text) > 18:
                text = np.format_float_scientific(number, trim="0")
            return Piece(text + ("h" if kind == F16 else "f"), UNARY if text.startswith("-") else PRIMARY)
        if kind == I32 and value == -(2**31):
            return Piece("i32(-2147483648)", PRIMARY)
        return Piece(f"{value}{'u' if kind == U32 else ''}", PRIMARY if value >= 0 else UNARY)

    def cast(self, to: Scalar, inner: Piece) -> Piece:
        """Return a conversion."""
        return Piece(f"{self.value_type(to)}({inner.text})", PRIMARY)

    def converted(self, e: ir.Convert) -> Piece:
        """Return a conversion of the kernel language."""
        if isinstance(e.operand, ir.Literal) and e.to in (I32, U32) and e.operand.type in (I32, U32):
            return self.literal(e.operand.value, e.to)
        return super().converted(e)

    def function(self, name: str, *arguments: Piece) -> Piece:
        """Return a function call."""
        # WGSL would parse f(a < b, c > d) as template parameters.
        return Piece(
            f"{name}({', '.join(self.at(a, CHOICE + 6) if '<' in a.text else a.text for a in arguments)})", PRIMARY
        )

    def thread_index(self, e: ir.Index) -> Piece:
        """Return an index of the thread."""
        self.used.add(e.what)
        name = "blockDim" if e.what == "block_size" else _INDICES[e.what][0]
        return Piece(f"{name}.{'xyz'[e.axis]}", PRIMARY)

    def size(self, e: ir.Size) -> Piece:
        """Return the length of a dimension."""
        size = super().size(e)
        return size if e.array in self.program.declared else Piece(f"params.{size.text}", PRIMARY)

    def load(self, e: ir.Load) -> Piece:
        """Return the value of an element."""
        text = self.element(e.array, e.indices)
        if e.array not in self.facts.atomic:
            return Piece(text, PRIMARY)
        loaded = f"atomicLoad(&{text})"
        return Piece(f"bitcast<f32>({loaded})" if e.type == F32 else loaded, PRIMARY)

    def expression(self, e: ir.Expr, address: bool = False) -> Piece:
        """Return an expression; a conditional one may need statements before it."""
        if isinstance(e, ir.Select) and folded_value(e) is None:
            return self._choose(e)
        return super().expression(e, address)

    def _choose(self, e: ir.Select) -> Piece:
        """Return ``select`` if both sides may be evaluated, else a variable that statements before it assign."""
        assert e.type is not None  # noqa: S101  inference has been here
        if not any(isinstance(i, _LAZY) or _divides(i) for side in (e.yes, e.no) for i in ir.inside(side)):
            return self.chosen(self.expression(e.condition), self.expression(e.yes), self.expression(e.no), e.type)
        condition = self.expression(e.condition)
        name = self.fresh("chosen")
        self.put(f"var {name}: {self.value_type(e.type)};")
        with self.inner(f"if ({condition.text}) {{", "} else {"):
            self.put(f"{name} = {self.expression(e.yes).text};")
        self.depth += 1
        self.put(f"{name} = {self.expression(e.no).text};")
        self.depth -= 1
        self.put("}")
        return Piece(name, PRIMARY)

    def logic(self, op: str, left: ir.Expr, right: ir.Expr) -> Piece:
        """Return ``and`` or ``or``."""
        left_value = self.expression(left)
        self.depth += 1
        right_value, ahead = self._ahead(right)
        self.depth -= 1
        if not ahead:
            return self.infix("&&" if op == "and" else "||", left_value, right_value)
        # The statements of the right side are executed only if Python would evaluate that side.
        name = self.fresh("holds")
        self.put(f"var {name}: bool = {left_value.text};")
        self.put(f"if ({name}) {{" if op == "and" else f"if (!{name}) {{")
        self.lines += ahead
        self.depth += 1
        self.put(f"{name} = {right_value.text};")
        self.depth -= 1
        self.put("}")
        return Piece(name, PRIMARY)

    def chosen(self, condition: Piece, yes: Piece, no: Piece, kind: Scalar) -> Piece:
        """Return a conditional expression that evaluates both sides."""
        del kind
        return self.function("select", no, yes, condition)

    def extreme(self, e: ir.Binary, kind: Scalar) -> Piece:
        """Return a minimum or maximum."""
        sides = [self.expression(side) for side in (e.left, e.right)]
        if kind == BOOL:
            return self.infix("&&" if e.op == "min" else "||", *sides)
        return self.function(e.op, *sides)

    def absolute(self, e: ir.Unary, inner: Piece, kind: Scalar) -> Piece:
        """Return the absolute value."""
        return inner if kind == U32 else self.function("abs", inner)

    def shift_amount(self, e: ir.Expr) -> Piece:
        """Return the number of bits of a shift, an unsigned number."""
        if isinstance(e, ir.Literal):
            return self.literal(e.value, U32)
        amount = self.expression(e)
        return amount if e.type == U32 else self.cast(U32, amount)

    def math(self, name: str, kind: Scalar, line: int) -> str:
        """Return the name of a function of floats."""
        del kind
        if name == "pow":
            return self.need(name)
        asked, name = name, _MATH.get(name, name)
        if name not in _SAME and name not in ("abs", "inverseSqrt") and (name != "round" or _MATH.get(asked) != name):
            self.refuse(line, f"WGSL has no {name}", "an approximation of your own")
        return name

    def call(self, e: ir.Call) -> Piece:
        """Return a call of a mathematical function."""
        given = [self.expression(a) for a in e.arguments]
        worked, kind = e.arguments[0].type, e.type
        assert worked is not None and kind is not None  # noqa: S101  inference has been here
        if e.op.startswith(("int.", "bits.as_", "round.f32_")):
            return self._of_c(e, given, worked, kind)
        name = e.op.removeprefix("math.").removeprefix("bits.")
        match name:
            case "popc" | "clz":
                made = self.function("countOneBits" if name == "popc" else "countLeadingZeros", *given)
                return made if worked == I32 else self.cast(I32, made)
            case "ffs":
                # firstTrailingBit(0) has all bits set, and plus one it is 0.
                made = self.function("firstTrailingBit", *given)
                return self.infix("+", made if worked == I32 else self.cast(I32, made), Piece("1", PRIMARY))
            case "brev":
                return self.function("reverseBits", *given)
            case "round.tf32":
                return self.function(self.need("round_tf32"), *given)
            case "isnan" | "isinf" | "isfinite" | "signbit" | "isnormal":
                value = given[0] if worked == F32 else self.cast(F32, given[0])
                return Piece(f"({_TESTS[name].format(f'bitcast<u32>({value.text})')})", PRIMARY)
        if kind == F16:
            # As in NumPy, computed in 32 bits and rounded. A product is exact there, so no fma is needed.
            wide = [self.cast(F32, g) for g in given]
            if name == "fma":
                return self.cast(kind, self.infix("+", self.infix("*", wide[0], wide[1]), wide[2]))
            return self.cast(kind, self._float_call(name, wide, e.line))
        return self._float_call(name, given, e.line)

    def _of_c(self, e: ir.Call, given: Sequence[Piece], worked: Scalar, kind: Scalar) -> Piece:
        """Return a function that only kernels in C have."""
        op = e.op.partition(".")[2]
        if e.op.startswith("bits.as_") and worked.bits == kind.bits == 32:
            return Piece(f"bitcast<{kind}>({given[0].text})", PRIMARY)
        if op in ("quotient", "remainder"):
            return self.infix("/" if op == "quotient" else "%", *given)
        if op.startswith("saturated"):
            value = given[0] if worked == F32 else self.cast(F32, given[0])
            return self.function(self.need(f"saturated_{kind}"), value)
        if op.startswith("limited") and (worked, kind) in ((I32, U32), (U32, I32)):
            limit = Piece("0", PRIMARY) if worked == I32 else Piece("2147483647u", PRIMARY)
            return self.cast(kind, self.function("max" if worked == I32 else "min", given[0], limit))
        if worked != kind or not op.startswith("limited"):
            self.refuse(e.line, f"WGSL has no such function ({e.op})", "operators on i32, u32 and f32")
        return given[0]

    def _float_call(self, name: str, given: Sequence[Piece], line: int) -> Piece:
        """Return a function of f32."""
        match name:
            case "fmod":
                return self.infix("%", *given)
            case "log10" | "copysign" | "round":
                return self.function(self.need(name), *given)
        return self.function(self.math(name, F32, line), *given)

    # Warps and atomic operations.

    def lane_number(self, e: ir.Expr) -> Piece:
        """Return the index of a lane as an unsigned number."""
        return self.converted(ir.Convert(e.line, U32, e, type=U32))

    def atomically(self, e: ir.Atomic) -> Piece:
        """Return an atomic operation."""
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        op = e.op.rstrip("_")
        values = [self.expression(v) for v in e.values]
        whole = kind in (I32, U32)
        if whole and op not in ("inc", "dec", "cas"):
            name = {"exch": "Exchange"}.get(op, op.title())
            return Piece(f"atomic{name}(&{self.element(e.array, e.indices)}, {values[0].text})", PRIMARY)
        place = self.expression(self.place(e.array, e.indices), address=True)
        if self.place(e.array, e.indices).type == U32:
            place = self.cast(I32, place)
        # A buffer's array cannot be passed to a function, so each array has its own.
        helper = self.need(f"atomic_{op}_{kind}_{self.spelled[e.array]}")
        return self.function(helper, place, *values)

    def need(self, helper: str) -> str:
        """Add a helper function to the source, and return its name."""
        name = f"wt_{helper}"
        if name not in self.helpers:
            self.helpers[name] = helper_text(helper, name)
        return name


def _divides(e: ir.Expr) -> bool:
    """Return whether an expression is a division that a condition may guard against a divisor of 0."""
    return isinstance(e, ir.Binary) and e.op in ("//", "%") and not isinstance(e.right, ir.Literal)
