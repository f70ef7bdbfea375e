"""GLSL 4.50 for Vulkan: a compute shader. A workgroup's sizes are its specialisation constants 0, 1 and 2.

Arrays are storage buffers at bindings 0, 1 ... of set 0. Sizes and scalars are members of one push-constant block, each
at the next multiple of its own size. Buffers store 8- and 16-bit numbers; the kernel computes in 32 bits, and wraps or
rounds after every operation, because every device stores the narrow types but not every device computes in them.
Arrays of floats with atomic operations hold the floats' bits.

Vulkan lets a driver contract ``a * b + c`` unless each operation's result is marked NoContraction in the SPIR-V. It
allows an error of 2.5 units in the last place for a quotient, and of nearly as much for a square root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from windtunnel.codegen import c_numbers
from windtunnel.codegen.c import CEmitter
from windtunnel.codegen.glsl_helpers import TO_BITS, exchange_loop, helper_text
from windtunnel.codegen.keywords import GLSL as GLSL_RESERVED
from windtunnel.codegen.keywords import RESERVED
from windtunnel.codegen.signature import Conventions, Value
from windtunnel.codegen.text import PRIMARY, Piece, bits_of, closes_last
from windtunnel.codegen.tokens import CTokens, Subgroup
from windtunnel.language import ir
from windtunnel.language.types import BF16, BOOL, F16, F32, F64, I32, I64, U32, U64, Scalar

_MATH = {"fabs": "abs", "rsqrt": "inversesqrt", "atan2": "atan", "rint": "roundEven"}
_BOTH = frozenset(("sqrt", "floor", "ceil", "trunc", "fabs", "rsqrt", "fma", "rint", "ldexp"))
"""Functions of f32 and f64."""
_SINGLE = frozenset((
    "exp", "exp2", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "atan2", "pow",
    "asinh", "acosh", "atanh",
))  # fmt: skip
"""Functions of f32 alone."""
_HELPED = frozenset(("fmin", "fmax", "fmod", "copysign", "round", "pow"))
_INT64, _INT64_BITS = "GL_EXT_shader_explicit_arithmetic_types_int64", "GL_ARB_gpu_shader_int64"
_SCOPES = "GL_KHR_memory_scope_semantics"
_MEMORY = "gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease"


_TYPES = {
    "bool": "bool", "i8": "int", "i16": "int", "i32": "int", "i64": "int64_t", "u8": "uint", "u16": "uint",
    "u32": "uint", "u64": "uint64_t", "f16": "float", "bf16": "float", "f32": "float", "f64": "double",
}  # fmt: skip
_STORED = {
    **_TYPES, "bool": "uint8_t", "i8": "int8_t", "u8": "uint8_t", "i16": "int16_t", "u16": "uint16_t",
    "f16": "uint16_t", "bf16": "uint16_t",
}  # fmt: skip
"""The types of buffers' elements."""
GLSL = CTokens(
    title="GLSL for Vulkan",
    conventions=Conventions(
        passed={"bool": U32, "i8": I32, "i16": I32, "u8": U32, "u16": U32, "f16": F32, "bf16": F32}
    ),
    reserved=RESERVED | GLSL_RESERVED,
    wraps=True,
    emulated=frozenset((F16, BF16)),
    short_title="GLSL",
    truncates=False,
    more_functions=frozenset(("rint", "round", "asinh", "acosh", "atanh", "ldexp")),
    short_suffix="",
    wide_suffix="l",
    float_suffixes={"f64": "lf"},
    infinity="uintBitsToFloat(0x7f800000u)",
    not_a_number="uintBitsToFloat(0x7fc00000u)",
    options=("-V", "--target-env", "vulkan1.1"),
    option_note=(
        "glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation."
    ),
    types=_TYPES,
    indices={
        "thread": "gl_LocalInvocationID.{x}", "block": "gl_WorkGroupID.{x}", "block_size": "gl_WorkGroupSize.{x}",
        "grid_size": "gl_NumWorkGroups.{x}",
    },
    barriers={
        "warp": ("subgroupBarrier();",),
        "block": (f"controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, {_MEMORY});",),
        "fence.block": (f"memoryBarrier(gl_ScopeWorkgroup, {_MEMORY});",),
        "fence.device": (f"memoryBarrier(gl_ScopeDevice, {_MEMORY});",),
    },
    barrier_features={
        "warp": "GL_KHR_shader_subgroup_basic", **dict.fromkeys(("block", "fence.block", "fence.device"), _SCOPES),
    },
    subgroup=Subgroup(
        lane="gl_SubgroupInvocationID",
        size="gl_SubgroupSize",
        one="1u",
        ballot="subgroupBallot({}).x",
        any="subgroupAny",
        all="subgroupAll",
        shuffle="subgroupShuffle",
        features={
            "any": "GL_KHR_shader_subgroup_basic", "ballot": "GL_KHR_shader_subgroup_ballot",
            "vote": "GL_KHR_shader_subgroup_vote", "shuffle": "GL_KHR_shader_subgroup_shuffle",
        },
    ),
)  # fmt: skip


class GlslEmitter(CEmitter):
    """Writes one kernel as GLSL for Vulkan."""

    # The whole.

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        """Yield extensions, the block of numbers, buffers, shared arrays, helper functions and ``main``."""
        tops = self.lines_of(self.tops)
        helpers = list(self.helper_lines(body))
        numbers = [argument for argument in self.sorted_arguments() if argument not in self.signature.buffers]
        self._add_extensions()
        yield "#version 450"
        yield from (f"#extension {name} : require" for name in sorted(self.extensions))
        yield ""
        yield "layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;"
        yield ""
        if numbers:
            yield "layout(push_constant) uniform Params {"
            for argument in numbers:
                kind = _TYPES[argument.passed.name] if isinstance(argument, Value) else "int"
                yield f"    {kind} {self.spelled[argument.name]};"
            yield "} params;"
            yield ""
        fenced = any(isinstance(node, ir.Barrier) and node.scope.startswith("fence") for node in ir.walk(self.body))
        for buffer in self.signature.buffers:
            name = self.spelled[buffer.name]
            how = "" if buffer.written else "readonly "
            how += "coherent volatile " if buffer.name in self.facts.atomic else "coherent " if fenced else ""
            element = self._stored(buffer.name, _STORED[buffer.element.name])
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
        for argument in numbers:
            if isinstance(argument, Value) and self.is_copied(argument):
                yield from self._taken(argument)
        yield from tops
        yield from body
        yield "}"

    def _add_extensions(self) -> None:
        """Add the extensions that the text's types need."""
        stored = {_STORED[buffer.element.name] for buffer in self.signature.buffers}
        for bits in (8, 16):
            if stored & {f"int{bits}_t", f"uint{bits}_t"}:
                self.extensions.add(f"GL_EXT_shader_{bits}bit_storage")
        if self.every_type() & {I64, U64, F64}:
            self.extensions |= {_INT64, _INT64_BITS}

    def is_copied(self, value: Value) -> bool:
        """Return whether a scalar is copied from the push-constant block to a variable."""
        return value.name in self.facts.assigned or value.type != value.passed

    def _taken(self, scalar: Value) -> Iterator[str]:
        """Yield the declaration of a scalar's variable."""
        value = f"params.{self.spelled[scalar.name]}"
        if scalar.type == BOOL:
            value += " != 0u"
        yield f"    {self.value_type(scalar.type)} {self.spelled[scalar.name]} = {value};"

    def variable(self, name: str) -> Piece:
        """Return the value of a variable, or of a member of the push-constant block."""
        scalar = next((v for v in self.signature.arguments if isinstance(v, Value) and v.name == name), None)
        own = self.name(name)
        return Piece(own if scalar is None or self.is_copied(scalar) else f"params.{own}", PRIMARY)

    def _stored(self, array: str, kind: str) -> str:
        """Return the type of an array's elements; floats with atomic operations are held as their bits."""
        if array not in self.facts.atomic:
            return kind
        return {"float": "uint", "double": "uint64_t"}.get(kind, kind)

    # Statements.

    def declare_array(self, array: ir.Declare) -> None:
        """Declare a local array; shared ones are global declarations."""
        if array.space == "local":
            self.put(f"{self.value_type(array.element)} {self.name(array.name)}[{self.sides_product(array.shape)}];")

    def store(self, store: ir.Store) -> None:
        """Write an assignment to an element."""
        kind = self.program.arrays[store.array].element
        declared = store.array in self.program.declared
        value = self.expression(store.value)
        if store.array in self.facts.atomic and kind.kind == "float":
            value = self.function(TO_BITS[kind.name][0], value)
        elif not declared and kind in GLSL.emulated:
            rounding = f"wt_round_{kind}("
            text = value.text
            if text.startswith(rounding) and closes_last(text, len(rounding) - 1):
                value = Piece(text[len(rounding) : -1], 0)  # the store rounds
            value = Piece(f"uint16_t({self.function(self.need(f'store_{kind}'), value).text})", PRIMARY)
        elif not declared and kind.bits < 32:
            value = Piece(f"{_STORED[kind.name]}({value.text})", PRIMARY)
        else:
            super().store(store)
            return
        self.put(f"{self.element(store.array, store.indices)} = {value.text};")

    # Numbers.

    def literal(self, value: float, kind: Scalar) -> Piece:
        """Return a number."""
        value = bits_of(value, kind)
        if kind.kind == "uint" and kind.bits < 32:
            return Piece(f"{value}u", PRIMARY)
        return super().literal(value, kind)

    def cast(self, to: Scalar, inner: Piece) -> Piece:
        """Return a conversion; one to a narrow integer wraps."""
        if to.kind == "int" and to.bits < 32:
            return Piece(f"bitfieldExtract(int({inner.text}), 0, {to.bits})", PRIMARY)
        if to.kind == "uint" and to.bits < 32:
            return self.infix("&", Piece(f"uint({inner.text})", PRIMARY), Piece(f"0x{2**to.bits - 1:x}u", PRIMARY))
        return Piece(f"{self.value_type(to)}({inner.text})", PRIMARY)

    def converted(self, e: ir.Convert) -> Piece:
        """Return a conversion of the kernel language."""
        kind = e.operand.type
        if kind is not None and kind.kind == "float" and e.to.kind == "uint" and e.to.bits < 32:
            inner = self.expression(e.operand)  # GLSL does not define the uint of a negative float
            return self.cast(e.to, Piece(f"int({inner.text})", PRIMARY))
        return super().converted(e)

    def power(self, e: ir.Binary, kind: Scalar) -> Piece:
        """Return a power; GLSL has none of f64 but squares."""
        if kind == F64 and not (isinstance(e.right, ir.Literal) and e.right.value == 2):
            self.math("pow", kind, e.line)
        return super().power(e, kind)

    def shift_amount(self, e: ir.Expr) -> Piece:
        """Return the number of bits of a shift, at most 32 bits wide."""
        if isinstance(e, ir.Literal):
            return self.literal(e.value, I32)
        amount = self.expression(e)
        return self.cast(I32, amount) if e.type is not None and e.type.bits == 64 else amount

    def extreme(self, e: ir.Binary, kind: Scalar) -> Piece:
        """Return a minimum or maximum."""
        if kind == BOOL:
            return self.infix("&&" if e.op == "min" else "||", self.expression(e.left), self.expression(e.right))
        return super().extreme(e, kind)

    def math(self, name: str, kind: Scalar, line: int) -> str:
        """Return the name of a function of floats, or of its helper."""
        if name in _HELPED and (name != "pow" or kind != F64):
            return self.need(f"{name}_{'f64' if kind == F64 else 'f32'}")
        if name == "log10" and kind != F64:
            return self.need(name)
        if name not in _BOTH and (name not in _SINGLE or kind == F64):
            of = " of f64" if name in _SINGLE or name == "log10" else ""
            self.refuse(line, f"GLSL has no {name}{of}", "f32" if of else "an approximation of your own")
        return _MATH.get(name, name)

    def call(self, e: ir.Call) -> Piece:
        """Return a call of a mathematical function."""
        name, worked = e.op.removeprefix("math."), e.arguments[0].type
        if name in ("isnan", "isinf"):
            return self.function(
                self.need(f"{name}_{'f64' if worked == F64 else 'f32'}"), self.expression(e.arguments[0])
            )
        return super().call(e)

    # Arrays.

    def size(self, e: ir.Size) -> Piece:
        """Return the length of a dimension."""
        size = super().size(e)
        return size if e.array in self.program.declared else Piece(f"params.{size.text}", PRIMARY)

    def element(self, array: str, indices: Sequence[ir.Expr]) -> str:
        """Return an element; GLSL's indices have 32 bits."""
        where = self.place(array, indices)
        place = self.expression(where, address=True)
        wide = where.type is not None and where.type.bits == 64
        return f"{self.name(array)}[{self.cast(I32, place).text if wide else place.text}]"

    def load(self, e: ir.Load) -> Piece:
        """Return the value of an element."""
        kind = self.program.arrays[e.array].element
        element = Piece(self.element(e.array, e.indices), PRIMARY)
        if e.array in self.facts.atomic and kind.kind == "float":
            return self.function(TO_BITS[kind.name][1], element)
        if e.array in self.program.declared or kind.bits >= 32:
            return element
        if kind == BOOL:
            return self.infix("!=", Piece(f"uint({element.text})", PRIMARY), Piece("0u", PRIMARY))
        wide = self.function("int" if kind.kind == "int" else "uint", element)
        return self.function(self.need(f"load_{kind}"), wide) if kind.kind == "float" else wide

    def helper_text(self, helper: str, name: str) -> str:
        """Return the source of a helper function."""
        if not helper.startswith("atomic_"):
            return c_numbers.helper_text(self, helper, name, "") or helper_text(helper, name, self.need)
        _, op, kind_name, array = helper.split("_", 3)
        kind = {"f32": F32, "f64": F64, "i32": I32, "i64": I64, "u64": U64}.get(kind_name, U32)
        old, new = Piece("wt_old", PRIMARY), Piece("wt_new", PRIMARY)
        return exchange_loop(name, op, kind_name, array, "" if op == "cas" else self.changed(op, kind, old, new, 0))

    def bits_and_back(self, kind: Scalar) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """Return the conversions of a number to the unsigned number with the same bits, and back."""
        if kind.kind != "float":
            return super().bits_and_back(kind)
        to, back = TO_BITS[kind.name]
        return (lambda text: f"{to}({text})"), (lambda text: f"{back}({text})")

    def reinterpreted(self, value: Piece, have: Scalar, to: Scalar) -> Piece:
        """Return the bits of a number as a number of another type of the same size."""
        if to.bits == 16 and to.kind == "float":
            return self.function(self.need(f"load_{to}"), self.cast(U32, value))
        if have.bits == 16 and have.kind == "float":
            return self.cast(to, self.function(self.need(f"store_{have}"), value))
        return super().reinterpreted(value, have, to)

    # Warps.

    def warp(self, e: ir.Warp) -> Piece:
        """Return an exchange between the threads of a warp."""
        piece = super().warp(e)
        if e.op.startswith("shuffle") and e.type in (I64, U64):
            self.extensions.add("GL_EXT_shader_subgroup_extended_types_int64")
        return piece

    def lane_number(self, e: ir.Expr) -> Piece:
        """Return the index of a lane as an unsigned number."""
        return self.cast(U32, self.expression(e))

    # Atomics.

    def atomically(self, e: ir.Atomic) -> Piece:
        """Return an atomic operation."""
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        op = e.op.rstrip("_")
        values = [self.expression(v) for v in e.values]
        if kind.bits == 64:
            self.extensions.add("GL_EXT_shader_atomic_int64")
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
        # A buffer's array cannot be passed to a function, so each array has its own.
        return self.function(self.need(f"atomic_{op}_{kind}_{self.spelled[e.array]}"), place, *values)
