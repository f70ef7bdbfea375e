"""C++ for high-level synthesis (Vitis HLS): one kernel whose loops are the grid's blocks and their threads.

A block's size is a constant, so that loops have fixed bounds; the grid's is three arguments. Threads take turns: each
stretch of the kernel between two barriers is a loop over the block's threads, and variables that live beyond it have an
element for each. Atomic operations are plain ones, since one thread runs at a time. There are no warps.

16-bit floats are held as their bits and worked with in f32, rounded after every operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from windtunnel.codegen.analysis import blocks_of, home_of, mentions
from windtunnel.codegen.c import CEmitter
from windtunnel.codegen.signature import Argument, Buffer, Value
from windtunnel.codegen.text import PRIMARY, Piece
from windtunnel.language import flow, ir
from windtunnel.language.types import BF16, BOOL, F16, Scalar

_INDICES = {"thread": "threadIdx", "block": "blockIdx"}


class FpgaEmitter(CEmitter):
    """C++ for high-level synthesis."""

    target = "fpga"
    title = "C++ for high-level synthesis"
    emulated = frozenset((F16, BF16))
    word = ("wt_bits_of", "wt_from_bits")
    options = ("-ffp-contract=off",)
    option_note = "for simulation in C; synthesis keeps floating point strict unless it is told otherwise."
    types: ClassVar[Mapping[str, str]] = {
        "bool": "bool", "i8": "int8_t", "i16": "int16_t", "i32": "int", "i64": "int64_t", "u8": "uint8_t",
        "u16": "uint16_t", "u32": "unsigned int", "u64": "uint64_t", "f16": "uint16_t", "bf16": "uint16_t",
        "f32": "float", "f64": "double",
    }  # fmt: skip

    def lower(self) -> list[ir.Stmt]:
        body = self.program.body = super().lower()
        shared = any(one.space == "shared" for one in self.program.declared.values())
        self.phased = shared or any(isinstance(one, ir.Barrier) and one.scope == "block" for one in ir.walk(body))
        # Threads that take turns cannot jump over a barrier.
        return flow.lowered(self.program) if self.phased else body

    def emit(self) -> str:
        self.each: set[str] = set()
        """Variables and arrays with an element for each thread."""
        self.t = self.fresh("t")
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.masks = 0
        return super().emit()

    def statements(self, body: Sequence[ir.Stmt]) -> None:
        if self.phased and body is self.body:
            self._block(body)
        else:
            super().statements(body)

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        tops = [] if self.phased else self.lines_of(self.tops)
        name = self.spelled[self.program.name]
        helpers = list(self.helper_lines(body))
        yield from (f"#include <{header}>" for header in ("math.h", "stdint.h", "string.h"))
        yield ""
        if any("wt_bits_of" in line or "wt_from_bits" in line for line in helpers):
            yield from _BITS.strip("\n").splitlines()
            yield ""
        yield from helpers
        given = ", ".join(self.argument(one) for one in self.sorted_arguments())
        what = self.fresh(f"{self.program.name}_{'block' if self.phased else 'thread'}")
        indices = [f"{v}_{x}" for k, v in _INDICES.items() if k == "block" or not self.phased for x in "xyz"]
        indices += [f"gridDim_{x}" for x in "xyz"]
        indices = [i for i in indices if i in self.used]
        yield f"static void {what}({', '.join(x for x in (given, *(f'int {i}' for i in indices)) if x)}) {{"
        yield from tops
        yield from body
        yield "}"
        yield ""
        every = ", ".join(self.argument(one) for one in self.signature.arguments)
        yield f'extern "C" void {name}({every}) {{'
        for number, one in enumerate(self.signature.buffers):
            yield f"#pragma HLS INTERFACE m_axi port={self.spelled[one.name]} offset=slave bundle=gmem{number}"
        yield "#pragma HLS INTERFACE s_axilite port=return"
        depth = 1
        for axis in "zyx":
            index = f"blockIdx_{axis}"
            yield f"{'    ' * depth}for (int {index} = 0; {index} < grid_size_{axis}; ++{index}) {{"
            depth += 1
        if not self.phased:
            for axis, size in zip("zyx", reversed(self.block), strict=True):
                index = f"threadIdx_{axis}"
                yield f"{'    ' * depth}for (int {index} = 0; {index} < {size}; ++{index}) {{"
                depth += 1
            yield "#pragma HLS PIPELINE"
        passed = [self.spelled[one.name] for one in self.sorted_arguments()]
        passed += [i if not i.startswith("gridDim") else f"grid_size_{i[-1]}" for i in indices]
        yield f"{'    ' * depth}{what}({', '.join(passed)});"
        while depth:
            depth -= 1
            yield "    " * depth + "}"

    def argument(self, one: Argument) -> str:
        """A parameter of the kernel."""
        if isinstance(one, Buffer):
            return f"{'' if one.written else 'const '}{self.types[one.element.name]} *{self.spelled[one.name]}"
        if isinstance(one, Value):
            return f"bool {self.spelled[one.name]}" if one.type == BOOL else self.parameter(one)
        return f"int {self.spelled[one.name]}"

    # Phases.

    def _block(self, body: Sequence[ir.Stmt]) -> None:
        """The kernel's statements as phases of all threads."""
        phases = list(_phases(body))
        for name in self.facts.assigned:
            there = [one for one in phases if any(mentions(s, name) for s in one)]
            if name in self.program.scalars or len(there) != 1 or home_of(there[0], name) is None:
                self.each.add(name)
        for declared in self.program.declared.values():
            if declared.space == "local":
                self.each.add(declared.name)
            sides = f"[{self.threads}]" if declared.space == "local" else ""
            kind = self.value_type(declared.element)
            self.put(f"{kind} {self.spelled[declared.name]}{sides}[{self.sides_product(declared.shape)}];")
        given = []
        for name in sorted(self.each - set(self.program.declared)):
            kind = self.value_type(self.kinds[name])
            if name in self.program.scalars:
                given.append(name)
            self.put(f"{kind} {self._row(name)}[{self.threads}];")
        if given:
            with self._turns(None, []):
                for name in given:
                    self.put(f"{self.name(name)} = {self.spelled[name]};")
        self._region(body, None)

    def _row(self, name: str) -> str:
        return f"wt_{self.spelled[name]}" if name in self.program.scalars else self.spelled[name]

    def _region(self, body: Sequence[ir.Stmt], mask: str | None) -> None:
        """Statements, for the threads of a mask."""
        run: list[ir.Stmt] = []
        for one in body:
            if not _stops(one):
                run.append(one)
                continue
            self._phase(run, mask)
            run = []
            if isinstance(one, ir.If):
                self._split(one.condition, one.body, mask)
                if one.orelse:
                    opposite = ir.Unary(one.line, "not", one.condition, type=BOOL)
                    self._split(opposite, one.orelse, mask)
            elif isinstance(one, ir.While):
                self._while(one, mask)
        self._phase(run, mask)

    def _phase(self, run: Sequence[ir.Stmt], mask: str | None) -> None:
        run = [one for one in run if not isinstance(one, ir.Declare)]
        for one in run:
            if isinstance(one, ir.Barrier):
                self.barrier(one)
        run = [one for one in run if not isinstance(one, ir.Barrier)]
        if not run:
            return
        self.before, self.direct = {}, set()
        for name in self.facts.assigned:
            if name not in self.each and any(mentions(one, name) for one in run):
                home = home_of(run, name)
                assert home is not None  # noqa: S101  it would be in each
                if isinstance(home, ir.Assign):
                    self.direct.add(id(home))
                else:
                    self.before.setdefault(id(home), []).append(name)
        with self._turns(mask, run):
            super().statements(run)

    def _turns(self, mask: str | None, run: Sequence[ir.Stmt]) -> _Turns:
        return _Turns(self, mask, run)

    def _new_mask(self, condition: ir.Expr, mask: str | None) -> tuple[str, str]:
        self.masks += 1
        name, some = self.fresh(f"on{self.masks}"), self.fresh(f"some{self.masks}")
        self.put(f"bool {name}[{self.threads}];")
        self.put(f"bool {some} = false;")
        self._fill_mask(name, some, condition, mask)
        return name, some

    def _fill_mask(self, name: str, some: str, condition: ir.Expr, mask: str | None) -> None:
        with self._turns(None, [ir.ExpressionStatement(condition.line, condition)]):
            own = "" if mask is None else f"{mask}[{self.t}] && "
            value = self.expression(condition)
            self.put(f"{name}[{self.t}] = {own}{self.at(value, PRIMARY) if own else value.text};")
            self.put(f"{some} |= {name}[{self.t}];")

    def _split(self, condition: ir.Expr, body: Sequence[ir.Stmt], mask: str | None) -> None:
        name, some = self._new_mask(condition, mask)
        with self.inner(f"if ({some}) {{"):
            self._region(body, name)

    def _while(self, one: ir.While, mask: str | None) -> None:
        name, some = self._new_mask(one.condition, mask)
        with self.inner(f"while ({some}) {{"):
            self._region(one.body, name)
            self.put(f"{some} = false;")
            self._fill_mask(name, some, one.condition, name)

    # Statements and expressions.

    def name(self, variable: str) -> str:
        found = self.spelled[variable]
        return f"{self._row(variable)}[{self.t}]" if variable in self.each else found

    def declare_array(self, one: ir.Declare) -> None:
        if not self.phased:
            self.put(f"{self.value_type(one.element)} {self.name(one.name)}[{self.sides_product(one.shape)}];")

    def barrier(self, one: ir.Barrier) -> None:
        if one.scope == "warp":
            self.refuse(one.line, f"{self.title} has no warps", "syncthreads()")
        # A fence orders what one thread at a time has done in order already.

    def thread_index(self, e: ir.Index) -> Piece:
        if e.what == "block_size":
            return Piece(str(self.block[e.axis]), PRIMARY)
        name = {**_INDICES, "grid_size": "gridDim"}[e.what]
        self.used.add(f"{name}_{'xyz'[e.axis]}")
        return Piece(f"{name}_{'xyz'[e.axis]}", PRIMARY)

    def load(self, e: ir.Load) -> Piece:
        text = Piece(self.element(e.array, e.indices), PRIMARY)
        kind = self.program.arrays[e.array].element
        if kind in self.emulated and e.array not in self.program.declared:
            return self.function(self.need(f"load_{kind}"), text)
        return text

    def store(self, one: ir.Store) -> None:
        kind = self.program.arrays[one.array].element
        if kind not in self.emulated or one.array in self.program.declared:
            super().store(one)
            return
        made = self.function(self.need(f"store_{kind}"), self.expression(one.value))
        self.put(f"{self.element(one.array, one.indices)} = {made.text};")

    def integer_extreme(self, op: str, kind: Scalar, given: Sequence[Piece]) -> Piece:
        return self.function(self.need(f"{op}_{kind}"), *given)

    def math_call(self, name: str, given: Sequence[Piece], kind: Scalar, line: int) -> Piece:
        if name == "rsqrt":
            return self.infix("/", self.literal(1.0, kind), self.function(self.math("sqrt", kind, line), *given))
        return super().math_call(name, given, kind, line)

    def warp(self, e: ir.Warp) -> Piece:
        self.refuse(e.line, f"{self.title} has no warps", "shared memory and syncthreads()")

    def atomically(self, e: ir.Atomic) -> Piece:
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        at = Piece(f"&{self.element(e.array, e.indices)}", PRIMARY)
        return self.function(
            self.need(f"atomic_{e.op.rstrip('_')}_{kind}"), at, *(self.expression(v) for v in e.values)
        )

    def narrow_helper(self, root: str, kind: str, name: str) -> str:
        match root, kind:
            case "round", "f16":
                return f"float {name}(float x) {{\n    return {self.need('load_f16')}({self.need('store_f16')}(x));\n}}"
            case "load", "f16":
                return _LOAD_F16.replace("$name$", name).strip("\n")
            case "store", "f16":
                return _STORE_F16.replace("$name$", name).strip("\n")
        return super().narrow_helper(root, kind, name)

    def helper_text(self, helper: str, name: str) -> str:
        root, _, kind = helper.rpartition("_")
        t = self.types.get(kind, "")
        wide = kind.endswith("64")
        long = "ll" if wide else ""
        made = {
            "min": f"{t} {name}({t} a, {t} b) {{\n    return b < a ? b : a;\n}}",
            "max": f"{t} {name}({t} a, {t} b) {{\n    return a < b ? b : a;\n}}",
            "popc": f"int {name}({t} x) {{\n    return __builtin_popcount{long}(x);\n}}",
            "clz": f"int {name}({t} x) {{\n    return x ? __builtin_clz{long}(x) : {64 if wide else 32};\n}}",
            "ffs": f"int {name}({t} x) {{\n    return __builtin_ffs{long}(x);\n}}",
            "brev": f"{t} {name}({t} x) {{\n    {t} y = 0;\n"
            f"    for (int n = 0; n < {64 if wide else 32}; ++n) y |= (x >> n & 1u) << ({63 if wide else 31} - n);\n"
            f"    return y;\n}}",
        }.get(root)
        if made is not None:
            return f"{self.helper} {made}"
        if helper.startswith("atomic_"):
            return self._plain_atomic(root.removeprefix("atomic_"), kind, name)
        return super().helper_text(helper, name)

    def _plain_atomic(self, op: str, kind_name: str, name: str) -> str:
        kind = Scalar(
            kind_name, "float" if kind_name[0] == "f" else "int" if kind_name[0] == "i" else "uint", int(kind_name[1:])
        )
        t = self.types[kind_name]
        if op == "cas":
            change, given = "old == expected ? value : old", f"{t} expected, {t} value"
        else:
            given = f"{t} value"
            old, value = Piece("old", PRIMARY), Piece("value", PRIMARY)
            if op in ("and", "or", "xor"):
                change = f"old {({'and': '&', 'or': '|', 'xor': '^'})[op]} value"
            elif op in ("add", "sub") and kind.kind == "int":
                u = self.types[f"u{kind.bits}"]
                change = f"({t})(({u})old {'+' if op == 'add' else '-'} ({u})value)"
            else:
                change = self.changed(op, kind, old, value, 0)
        body = f"    const {t} old = *at;\n    *at = {change};\n    return old;\n"
        return f"{self.helper} {t} {name}({t} *at, {given}) {{\n{body}}}"


class _Turns:
    """A loop over the threads of a block, or over those of a mask."""

    def __init__(self, emitter: FpgaEmitter, mask: str | None, run: Sequence[ir.Stmt]) -> None:
        self.emitter, self.mask = emitter, mask
        self.axes = sorted(
            {
                e.axis
                for one in ir.walk(run)
                for e in ir.expressions(one)
                if isinstance(e, ir.Index) and e.what == "thread"
            }
        )

    def __enter__(self) -> None:
        emitter = self.emitter
        t, block = emitter.t, emitter.block
        emitter.put(f"for (int {t} = 0; {t} < {emitter.threads}; ++{t}) {{")
        emitter.depth += 1
        if self.mask is not None:
            emitter.put(f"if (!{self.mask}[{t}]) continue;")
        flat = sum(size > 1 for size in block) <= 1
        for axis in self.axes:
            below = 1
            for size in block[:axis]:
                below *= size
            value = t if flat and block[axis] > 1 else f"{f'{t} / {below}' if below > 1 else t} % {block[axis]}"
            emitter.put(f"const int threadIdx_{'xyz'[axis]} = {value};")

    def __exit__(self, *_: object) -> None:
        self.emitter.depth -= 1
        self.emitter.put("}")


def _stops(one: ir.Stmt) -> bool:
    """Whether there is a barrier of the block in a statement."""
    if isinstance(one, ir.Barrier):
        return one.scope == "block"
    return any(_stops(inner) for block in blocks_of(one) for inner in block)


def _phases(body: Sequence[ir.Stmt]) -> Iterator[list[ir.Stmt]]:
    """What threads do between barriers; conditions around barriers are such stretches too."""
    run: list[ir.Stmt] = []
    for one in body:
        if not _stops(one):
            run.append(one)
            continue
        yield run
        run = []
        if isinstance(one, (ir.If, ir.While)):
            yield [ir.ExpressionStatement(one.line, one.condition)]
            for block in blocks_of(one):
                yield from _phases(block)
    yield run


_BITS = """
static inline unsigned int wt_bits_of(float x) {
    unsigned int b;
    memcpy(&b, &x, 4);
    return b;
}

static inline float wt_from_bits(unsigned int b) {
    float x;
    memcpy(&x, &b, 4);
    return x;
}
"""
_LOAD_F16 = """
float $name$(uint16_t h) {
    const unsigned int sign = (h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu, mantissa = h & 0x3ffu;
    if (exponent == 0) return wt_from_bits(sign | wt_bits_of(mantissa * 5.9604644775390625e-8f));
    if (exponent == 31) return wt_from_bits(sign | 0x7f800000u | mantissa << 13);
    return wt_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}
"""
_STORE_F16 = """
uint16_t $name$(float x) {
    const unsigned int bits = wt_bits_of(x), sign = bits >> 16 & 0x8000u, b = bits & 0x7fffffffu;
    if (b > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (b >> 13 & 0x3ffu));
    if (b >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    // Below the smallest normal number, adding 0.5 rounds to its last place, half to even.
    if (b < 0x38800000u) return (uint16_t)(sign | (wt_bits_of(wt_from_bits(b) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | ((b - 0x38000000u + 0xfffu + (b >> 13 & 1u)) >> 13));
}
"""
