"""GLSL 4.50 for Vulkan: a compute shader. A workgroup's sizes are its specialisation constants 0, 1 and 2.

Arrays are storage buffers, bindings 0, 1 ... of set 0; sides and scalars are members of one push-constant block, each
at the next multiple of its own size. Buffers hold numbers of 8 and 16 bits as they are; the kernel works with them in
32 bits, wrapped or rounded after every operation: every device stores the narrow types, not every one reckons in them.
Arrays of floats with atomic operations are of their bits.

Vulkan lets a driver contract ``a * b + c`` unless each operation's result is marked NoContraction in the SPIR-V, and
lets a quotient be 2.5 units in the last place off, and a root nearly as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from windtunnel.codegen.c import CEmitter
from windtunnel.codegen.glsl_helpers import TO_BITS, exchange_loop, helper_text
from windtunnel.codegen.keywords import GLSL, RESERVED
from windtunnel.codegen.signature import Value
from windtunnel.codegen.text import PRIMARY, Piece, bits_of, closes_last
from windtunnel.language import ir
from windtunnel.language.types import BF16, BOOL, F16, F32, F64, I32, I64, U32, U64, Scalar

_INDICES = {
    "thread": "gl_LocalInvocationID",
    "block": "gl_WorkGroupID",
    "block_size": "gl_WorkGroupSize",
    "grid_size": "gl_NumWorkGroups",
}
_MATH = {"fabs": "abs", "rsqrt": "inversesqrt", "atan2": "atan"}
_BOTH = frozenset(("sqrt", "floor", "ceil", "trunc", "fabs", "rsqrt", "fma"))
"""Functions of f32 and f64."""
_SINGLE = frozenset((
    "exp", "exp2", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "atan2", "pow",
))  # fmt: skip
"""Functions of f32 alone."""
_HELPED = frozenset(("fmin", "fmax", "fmod", "copysign"))
_INT64, _INT64_BITS = "GL_EXT_shader_explicit_arithmetic_types_int64", "GL_ARB_gpu_shader_int64"
_SCOPES = "GL_KHR_memory_scope_semantics"
_MEMORY = "gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease"


class GlslEmitter(CEmitter):
    """GLSL for Vulkan."""

    target = "glsl"
    title = "GLSL for Vulkan"
    reserved = RESERVED | GLSL
    wraps = True
    emulated = frozenset((F16, BF16))
    short_suffix = ""
    wide_suffix = "l"
    infinity = "uintBitsToFloat(0x7f800000u)"
    not_a_number = "uintBitsToFloat(0x7fc00000u)"
    options = ("-V", "--target-env", "vulkan1.1")
    option_note = (
        "glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation."
    )
    types: ClassVar[Mapping[str, str]] = {
        "bool": "bool", "i8": "int", "i16": "int", "i32": "int", "i64": "int64_t", "u8": "uint", "u16": "uint",
        "u32": "uint", "u64": "uint64_t", "f16": "float", "bf16": "float", "f32": "float", "f64": "double",
    }  # fmt: skip
    held: ClassVar[Mapping[str, str]] = {
        **types, "bool": "uint8_t", "i8": "int8_t", "u8": "uint8_t", "i16": "int16_t", "u16": "uint16_t",
        "f16": "uint16_t", "bf16": "uint16_t",
    }  # fmt: skip
    """How buffers hold them."""

    # The whole.

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        tops = self.lines_of(self.tops)
        helpers = list(self.helper_lines(body))
        numbers = [one for one in self.sorted_arguments() if one not in self.signature.buffers]
        self._extensions()
        yield "#version 450"
        yield from (f"#extension {name} : require" for name in sorted(self.used))
        yield ""
        yield "layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;"
        yield ""
        if numbers:
            yield "layout(push_constant) uniform Params {"
            for one in numbers:
                kind = self.types[one.passed.name] if isinstance(one, Value) else "int"
                yield f"    {kind} {self.spelled[one.name]};"
            yield "} params;"
            yield ""
        fenced = any(isinstance(one, ir.Barrier) and one.scope.startswith("fence") for one in ir.walk(self.body))
        for buffer in self.signature.buffers:
            name = self.spelled[buffer.name]
            how = "" if buffer.written else "readonly "
            how += "coherent volatile " if buffer.name in self.facts.atomic else "coherent " if fenced else ""
            element = self._stored(buffer.name, self.held[buffer.element.name])
            yield (
                f"layout(set = 0, binding = {buffer.position}, std430) {how}buffer wt_buffer{buffer.position} "
                f"{{ {element} {name}[]; }};"
            )
        for declared in self.program.declared.values():
            if declared.space == "shared":
                kind = self._stored(declared.name, self.value_type(declared.element))
                yield f"shared {kind} {self.spelled[declared.name]}[{self.sides_product(declared.shape)}];"
        yield ""
        yield from helpers
        yield "void main() {"
        for one in numbers:
            if isinstance(one, Value) and self._copied(one):
                yield from self._taken(one)
        yield from tops
        yield from body
        yield "}"

    def _extensions(self) -> None:
        """What the text's types ask for."""
        buffers = {self.held[one.element.name] for one in self.signature.buffers}
        for bits in (8, 16):
            if buffers & {f"int{bits}_t", f"uint{bits}_t"}:
                self.used.add(f"GL_EXT_shader_{bits}bit_storage")
        kinds = {*self.kinds.values(), *(array.element for array in self.program.arrays.values())}
        for one in ir.walk(self.body):
            kinds |= {e.type for e in ir.expressions(one) if e.type is not None}
        if kinds & {I64, U64, F64}:
            self.used |= {_INT64, _INT64_BITS}

    def _copied(self, one: Value) -> bool:
        """Whether a scalar is more than a member of the block."""
        return one.name in self.facts.assigned or one.type != one.passed

    def _taken(self, one: Value) -> Iterator[str]:
        value = f"params.{self.spelled[one.name]}"
        if one.type == BOOL:
            value += " != 0u"
        yield f"    {self.value_type(one.type)} {self.spelled[one.name]} = {value};"

    def variable(self, name: str) -> Piece:
        one = next((v for v in self.signature.arguments if isinstance(v, Value) and v.name == name), None)
        own = self.name(name)
        return Piece(own if one is None or self._copied(one) else f"params.{own}", PRIMARY)

    def _stored(self, array: str, kind: str) -> str:
        """The type of an array's elements: of floats with atomic operations, their bits."""
        if array not in self.facts.atomic:
            return kind
        return {"float": "uint", "double": "uint64_t"}.get(kind, kind)

    # Statements.

    def declare_array(self, one: ir.Declare) -> None:
        if one.space == "local":
            self.put(f"{self.value_type(one.element)} {self.name(one.name)}[{self.sides_product(one.shape)}];")

    def store(self, one: ir.Store) -> None:
        kind = self.program.arrays[one.array].element
        declared = one.array in self.program.declared
        value = self.expression(one.value)
        if one.array in self.facts.atomic and kind.kind == "float":
            value = self.function(TO_BITS[kind.name][0], value)
        elif not declared and kind in self.emulated:
            rounding = f"wt_round_{kind}("
            text = value.text
            if text.startswith(rounding) and closes_last(text, len(rounding) - 1):
                value = Piece(text[len(rounding) : -1], 0)  # storing rounds
            value = Piece(f"uint16_t({self.function(self.need(f'store_{kind}'), value).text})", PRIMARY)
        elif not declared and kind.bits < 32:
            value = Piece(f"{self.held[kind.name]}({value.text})", PRIMARY)
        else:
            super().store(one)
            return
        self.put(f"{self.element(one.array, one.indices)} = {value.text};")

    def barrier(self, one: ir.Barrier) -> None:
        if one.scope == "warp":
            self.used.add("GL_KHR_shader_subgroup_basic")
            self.put("subgroupBarrier();")
            return
        self.used.add(_SCOPES)
        if one.scope == "block":
            self.put(f"controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, {_MEMORY});")
        else:
            scope = "gl_ScopeWorkgroup" if one.scope == "fence.block" else "gl_ScopeDevice"
            self.put(f"memoryBarrier({scope}, {_MEMORY});")

    # Numbers.

    def literal(self, value: float, kind: Scalar) -> Piece:
        value = bits_of(value, kind)
        if kind.kind == "uint" and kind.bits < 32:
            return Piece(f"{value}u", PRIMARY)
        return super().literal(value, kind)

    def float_suffix(self, kind: Scalar) -> str:
        return "lf" if kind == F64 else "f"

    def cast(self, to: Scalar, inner: Piece) -> Piece:
        if to.kind == "int" and to.bits < 32:
            return Piece(f"bitfieldExtract(int({inner.text}), 0, {to.bits})", PRIMARY)
        if to.kind == "uint" and to.bits < 32:
            return self.infix("&", Piece(f"uint({inner.text})", PRIMARY), Piece(f"0x{2**to.bits - 1:x}u", PRIMARY))
        return Piece(f"{self.value_type(to)}({inner.text})", PRIMARY)

    def converted(self, e: ir.Convert) -> Piece:
        kind = e.operand.type
        if kind is not None and kind.kind == "float" and e.to.kind == "uint" and e.to.bits < 32:
            inner = self.expression(e.operand)  # GLSL does not say which uint a float below 0 is
            return self.cast(e.to, Piece(f"int({inner.text})", PRIMARY))
        return super().converted(e)

    def power(self, e: ir.Binary, kind: Scalar) -> Piece:
        if kind == F64 and not (isinstance(e.right, ir.Literal) and e.right.value == 2):
            self.math("pow", kind, e.line)
        return super().power(e, kind)

    def shift_amount(self, e: ir.Expr) -> Piece:
        if isinstance(e, ir.Literal):
            return self.literal(e.value, I32)
        found = self.expression(e)
        return self.cast(I32, found) if e.type is not None and e.type.bits == 64 else found

    def extreme(self, e: ir.Binary, kind: Scalar) -> Piece:
        if kind == BOOL:
            return self.infix("&&" if e.op == "min" else "||", self.expression(e.left), self.expression(e.right))
        return super().extreme(e, kind)

    def math(self, name: str, kind: Scalar, line: int) -> str:
        if name in _HELPED:
            return self.need(f"{name}_{'f64' if kind == F64 else 'f32'}")
        if name == "log10" and kind != F64:
            return self.need(name)
        if name not in _BOTH and (name not in _SINGLE or kind == F64):
            of = " of f64" if name in _SINGLE or name == "log10" else ""
            self.refuse(line, f"GLSL has no {name}{of}", "f32" if of else "an approximation of your own")
        return _MATH.get(name, name)

    def call(self, e: ir.Call) -> Piece:
        name, worked = e.op.removeprefix("math."), e.arguments[0].type
        if name in ("isnan", "isinf"):
            return self.function(
                self.need(f"{name}_{'f64' if worked == F64 else 'f32'}"), self.expression(e.arguments[0])
            )
        return super().call(e)

    # Arrays.

    def size(self, e: ir.Size) -> Piece:
        found = super().size(e)
        return found if e.array in self.program.declared else Piece(f"params.{found.text}", PRIMARY)

    def element(self, array: str, indices: Sequence[ir.Expr]) -> str:
        where = self.place(array, indices)
        place = self.expression(where, address=True)
        # GLSL's places are of 32 bits.
        wide = where.type is not None and where.type.bits == 64
        return f"{self.name(array)}[{self.cast(I32, place).text if wide else place.text}]"

    def thread_index(self, e: ir.Index) -> Piece:
        return self.cast(I32, Piece(f"{_INDICES[e.what]}.{'xyz'[e.axis]}", PRIMARY))

    def load(self, e: ir.Load) -> Piece:
        kind = self.program.arrays[e.array].element
        found = Piece(self.element(e.array, e.indices), PRIMARY)
        if e.array in self.facts.atomic and kind.kind == "float":
            return self.function(TO_BITS[kind.name][1], found)
        if e.array in self.program.declared or kind.bits >= 32:
            return found
        if kind == BOOL:
            return self.infix("!=", Piece(f"uint({found.text})", PRIMARY), Piece("0u", PRIMARY))
        wide = self.function("int" if kind.kind == "int" else "uint", found)
        return self.function(self.need(f"load_{kind}"), wide) if kind.kind == "float" else wide

    def helper_text(self, helper: str, name: str) -> str:
        if not helper.startswith("atomic_"):
            return helper_text(helper, name, self.need)
        _, op, kind_name, array = helper.split("_", 3)
        kind = {"f32": F32, "f64": F64, "i32": I32, "i64": I64, "u64": U64}.get(kind_name, U32)
        old, new = Piece("wt_old", PRIMARY), Piece("wt_new", PRIMARY)
        return exchange_loop(name, op, kind_name, array, "" if op == "cas" else self.changed(op, kind, old, new, 0))

    # Warps.

    def warp(self, e: ir.Warp) -> Piece:
        self.used.add("GL_KHR_shader_subgroup_basic")
        if e.op in ("lane", "warp_size"):
            name = "gl_SubgroupInvocationID" if e.op == "lane" else "gl_SubgroupSize"
            return self.cast(I32, Piece(name, PRIMARY))
        value = self.expression(e.arguments[1])
        if e.op == "vote.ballot":
            self.used.add("GL_KHR_shader_subgroup_ballot")
            return Piece(f"subgroupBallot({value.text}).x", PRIMARY)
        if e.op.startswith("vote"):
            self.used.add("GL_KHR_shader_subgroup_vote")
            return self.function("subgroupAny" if e.op == "vote.any" else "subgroupAll", value)
        self.used.add("GL_KHR_shader_subgroup_shuffle")
        if e.type in (I64, U64):
            self.used.add("GL_EXT_shader_subgroup_extended_types_int64")
        lane = self.expression(e.arguments[2])
        op = e.op.removeprefix("shuffle.")
        if op == "index":
            source = self.infix("&", self.cast(U32, lane), Piece("(gl_SubgroupSize - 1u)", PRIMARY))
        else:
            own = self.cast(I32, Piece("gl_SubgroupInvocationID", PRIMARY))
            source = self.function(
                self.need("source_lane"), self.infix({"up": "-", "down": "+", "xor": "^"}[op], own, lane)
            )
        return self.function("subgroupShuffle", value, source)

    # Atomics.

    def atomically(self, e: ir.Atomic) -> Piece:
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        op = e.op.rstrip("_")
        values = [self.expression(v) for v in e.values]
        if kind.bits == 64:
            self.used.add("GL_EXT_shader_atomic_int64")
        if kind.kind != "float" and op not in ("inc", "dec"):
            at = Piece(self.element(e.array, e.indices), PRIMARY)
            if op == "sub":
                values = [self.minus(values[0])]
            name = {"sub": "Add", "exch": "Exchange", "cas": "CompSwap"}.get(op, op.title())
            return self.function(f"atomic{name}", at, *values)
        where = self.place(e.array, e.indices)
        place = self.expression(where, address=True)
        if where.type != I32:
            place = self.cast(I32, place)
        # A buffer's array cannot be passed to a function, which is therefore of the array.
        return self.function(self.need(f"atomic_{op}_{kind}_{self.spelled[e.array]}"), place, *values)
