"""C++ for high-level synthesis (Vitis HLS): one kernel whose loops are the grid's blocks and their threads.

The block's size is a constant, so that loops have fixed bounds. The grid's sizes are three arguments. Each phase of the
kernel between two barriers is a loop over the block's threads, and variables that live longer have an element for each
thread. Atomic operations are plain ones, because one thread runs at a time. There are no warps.

16-bit floats are stored as their bits and computed in f32, with a rounding after every operation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from windtunnel.codegen.analysis import blocks_of, uses_of
from windtunnel.codegen.c import CEmitter
from windtunnel.codegen.expressions import Block
from windtunnel.codegen.signature import Conventions
from windtunnel.codegen.text import PRIMARY, Piece
from windtunnel.codegen.tokens import CTokens
from windtunnel.language import flow, ir
from windtunnel.language.types import BF16, BOOL, F16

HLS = CTokens(
    title="C++ for high-level synthesis",
    conventions=Conventions(fixed_block=True, grid_size=True),
    options=("-ffp-contract=off",),
    option_note="for simulation in C; synthesis keeps floating point strict by default.",
    emulated=frozenset((F16, BF16)),
    types={
        "bool": "bool", "i8": "int8_t", "i16": "int16_t", "i32": "int", "i64": "int64_t", "u8": "uint8_t",
        "u16": "uint16_t", "u32": "unsigned int", "u64": "uint64_t", "f16": "uint16_t", "bf16": "uint16_t",
        "f32": "float", "f64": "double",
    },
    integer_extremes=False,
    has_rsqrt=False,
    word=("wt_bits_of", "wt_from_bits"),
    helpers={
        "min": "$fn$ $t$ $name$($t$ a, $t$ b) {\n    return b < a ? b : a;\n}",
        "max": "$fn$ $t$ $name$($t$ a, $t$ b) {\n    return a < b ? b : a;\n}",
        "popc": "$fn$ int $name$($t$ x) {\n    return __builtin_popcount$ll$(x);\n}",
        "clz": "$fn$ int $name$($t$ x) {\n    return x ? __builtin_clz$ll$(x) : $bits$;\n}",
        "ffs": "$fn$ int $name$($t$ x) {\n    return __builtin_ffs$ll$(x);\n}",
        "brev": "$fn$ $t$ $name$($t$ x) {\n    $t$ y = 0;\n"
        "    for (int n = 0; n < $bits$; ++n) y |= (x >> n & 1u) << ($last$ - n);\n    return y;\n}",
        "bits_f16": "$fn$ uint16_t $name$(float x) {\n    return $store_f16$(x);\n}",
        "from_bits_f16": "$fn$ float $name$(uint16_t b) {\n    return $load_f16$(b);\n}",
        "round_f16": "$fn$ float $name$(float x) {\n    return $load_f16$($store_f16$(x));\n}",
        "load_f16": """
$fn$ float $name$(uint16_t h) {
    const unsigned int sign = (h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu, mantissa = h & 0x3ffu;
    if (exponent == 0) return wt_from_bits(sign | wt_bits_of(mantissa * 5.9604644775390625e-8f));
    if (exponent == 31) return wt_from_bits(sign | 0x7f800000u | mantissa << 13);
    return wt_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}
""",
        "store_f16": """
$fn$ uint16_t $name$(float x) {
    const unsigned int bits = wt_bits_of(x), sign = bits >> 16 & 0x8000u, b = bits & 0x7fffffffu;
    if (b > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (b >> 13 & 0x3ffu));
    if (b >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    // Below the smallest normal number, adding 0.5 rounds to its last place, half to even.
    if (b < 0x38800000u) return (uint16_t)(sign | (wt_bits_of(wt_from_bits(b) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | ((b - 0x38000000u + 0xfffu + (b >> 13 & 1u)) >> 13));
}
""",
    },
    long_word=("wt_bits_of_wide", "wt_from_wide_bits"),
    more_functions=frozenset((
        "rint", "round", "asinh", "acosh", "atanh", "exp10", "lgamma", "tgamma", "j0", "j1", "y0", "y1", "logb",
        "nextafter", "remainder", "fdim", "ldexp",
    )),
    prints="printf({form}{values});",
    loads={"f16": "$load_f16$({element})", "bf16": "$load_bf16$({element})"},
    stores={"f16": "{element} = $store_f16$({value});", "bf16": "{element} = $store_bf16$({value});"},
    # Fences order accesses of several threads, but one thread runs at a time.
    barriers={"block": (), "fence.device": (), "fence.block": ()},
    atomic_cas="""
$fn$ $t$ $name$($t$ *at, $t$ expected, $t$ value) {
    const $t$ old = *at;
    *at = old == expected ? value : old;
    return old;
}
""",
    atomic_loop="""
$fn$ $t$ $name$($t$ *at, $t$ value) {
    const $t$ old = *at;
    *at = $change$;
    return old;
}
""",
    atomic_old="old",
    helper_first=True,
)  # fmt: skip
_INDICES = {"thread": "threadIdx", "block": "blockIdx", "grid_size": "gridDim"}


class HlsEmitter(CEmitter):
    """Writes one kernel as C++ for high-level synthesis."""

    def __init__(self, program: ir.Program, block: Block, tokens: CTokens) -> None:
        super().__init__(program, block, tokens)
        self.per_thread: set[str] = set()
        """Variables and arrays with an element for each thread."""
        self.t = self.fresh("t")
        self.threads = block[0] * block[1] * block[2]
        self.masks = 0

    def lower(self) -> list[ir.Stmt]:
        """Return the statements to write. Where there are phases, jumps over a barrier become conditions."""
        body = self.program.body = super().lower()
        shared = any(array.space == "shared" for array in self.program.declared.values())
        self.phased = shared or any(isinstance(s, ir.Barrier) and s.scope == "block" for s in ir.walk(body))
        return flow.lowered(self.program) if self.phased else body

    def statements(self, body: Sequence[ir.Stmt]) -> None:
        """Write the statements of a block; those of the kernel itself as phases."""
        if self.phased and body is self.body:
            self._kernel_phases(body)
        else:
            super().statements(body)

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        """Yield headers, helper functions, the function of one block or thread, and the kernel that loops over them."""
        tops = [] if self.phased else self.lines_of(self.tops)
        helpers = list(self.helper_lines(body))
        headers = ("math.h", "stdint.h", *(("stdio.h",) if self.prints else ()), "string.h")
        yield from (f"#include <{header}>" for header in headers)
        yield ""
        for functions, text in _BITS.items():
            if any(f"{name}(" in line for line in (*helpers, *body) for name in functions):
                yield from text.strip("\n").splitlines()
                yield ""
        yield from helpers
        function = self.fresh(f"{self.program.name}_{'block' if self.phased else 'thread'}")
        names = [name for what, name in _INDICES.items() if what != "thread" or not self.phased]
        indices = [index for name in names for index in (f"{name}_{x}" for x in "xyz") if index in self.used]
        parameters = [*map(self.argument, self.sorted_arguments()), *(f"int {index}" for index in indices)]
        yield f"static void {function}({', '.join(parameters)}) {{"
        yield from tops
        yield from body
        yield "}"
        yield ""
        yield from self._loops(function, indices)

    def _loops(self, function: str, indices: Sequence[str]) -> Iterator[str]:
        """Yield the kernel: loops over blocks, and without phases over threads, that call ``function``."""
        parameters = ", ".join(self.argument(argument) for argument in self.signature.arguments)
        yield f'extern "C" void {self.spelled[self.program.name]}({parameters}) {{'
        for number, buffer in enumerate(self.signature.buffers):
            yield f"#pragma HLS INTERFACE m_axi port={self.spelled[buffer.name]} offset=slave bundle=gmem{number}"
        yield "#pragma HLS INTERFACE s_axilite port=return"
        loops = [(f"blockIdx_{axis}", f"grid_size_{axis}") for axis in "zyx"]
        if not self.phased:
            loops += [(f"threadIdx_{axis}", str(size)) for axis, size in zip("zyx", self.block[::-1], strict=True)]
        for depth, (index, size) in enumerate(loops, start=1):
            yield f"{'    ' * depth}for (int {index} = 0; {index} < {size}; ++{index}) {{"
        if not self.phased:
            yield "#pragma HLS PIPELINE"
        arguments = [self.spelled[argument.name] for argument in self.sorted_arguments()]
        arguments += [index.replace("gridDim", "grid_size") for index in indices]
        yield f"{'    ' * (len(loops) + 1)}{function}({', '.join(arguments)});"
        yield from ("    " * depth + "}" for depth in range(len(loops), -1, -1))

    # Phases.

    def _kernel_phases(self, body: Sequence[ir.Stmt]) -> None:
        """Write the kernel's statements as phases, each of which all threads execute before the next begins."""
        uses = [uses_of(phase) for phase in _phases(body)]
        for name in self.facts.assigned:
            users = [phase for phase in uses if name in phase.names]
            if name in self.program.scalars or len(users) != 1 or users[0].homes[name] is None:
                self.per_thread.add(name)
        for declared in self.program.declared.values():
            if declared.space == "local":
                self.per_thread.add(declared.name)
            sides = f"[{self.threads}]" if declared.space == "local" else ""
            kind = self.value_type(declared.element)
            self.put(f"{kind} {self.spelled[declared.name]}{sides}[{self.sides_product(declared.shape)}];")
        names = sorted(self.per_thread - set(self.program.declared))
        for name in names:
            self.put(f"{self.value_type(self.kinds[name])} {self._row(name)}[{self.threads}];")
        scalars = [name for name in names if name in self.program.scalars]
        if scalars:
            with self._each_thread(None, []):
                for name in scalars:
                    self.put(f"{self.name(name)} = {self.spelled[name]};")
        self._region(body, None)

    def _row(self, name: str) -> str:
        """Return the array with the elements of all threads."""
        return f"wt_{self.spelled[name]}" if name in self.program.scalars else self.spelled[name]

    def _region(self, body: Sequence[ir.Stmt], mask: str | None) -> None:
        """Write statements for the threads of a mask."""
        phase: list[ir.Stmt] = []
        for statement in body:
            if not _has_barrier(statement):
                phase.append(statement)
                continue
            self._phase(phase, mask)
            phase = []
            if isinstance(statement, ir.If):
                self._split(statement.condition, statement.body, mask)
                if statement.orelse:
                    opposite = ir.Unary(statement.line, "not", statement.condition, type=BOOL)
                    self._split(opposite, statement.orelse, mask)
            elif isinstance(statement, ir.While):
                self._while(statement, mask)
        self._phase(phase, mask)

    def _phase(self, phase: Sequence[ir.Stmt], mask: str | None) -> None:
        """Write one phase as a loop over the threads of a mask."""
        for statement in phase:
            if isinstance(statement, ir.Barrier):
                self.barrier(statement)
        phase = [statement for statement in phase if not isinstance(statement, (ir.Barrier, ir.Declare))]
        if not phase:
            return
        self.before, self.direct = {}, set()
        uses = uses_of(phase)
        for name in self.facts.assigned:
            if name not in self.per_thread and name in uses.names:
                home = uses.homes[name]
                assert home is not None  # noqa: S101  otherwise the name would be in `each`
                if isinstance(home, ir.Assign):
                    self.direct.add(id(home))
                else:
                    self.before.setdefault(id(home), []).append(name)
        with self._each_thread(mask, phase):
            super().statements(phase)

    @contextmanager
    def _each_thread(self, mask: str | None, phase: Sequence[ir.Stmt]) -> Iterator[None]:
        """Write a loop over the threads of a block, or over those of a mask."""
        indices = (e for statement in ir.walk(phase) for e in ir.expressions(statement) if isinstance(e, ir.Index))
        axes = sorted({e.axis for e in indices if e.what == "thread"})
        with self.inner(f"for (int {self.t} = 0; {self.t} < {self.threads}; ++{self.t}) {{"):
            if mask is not None:
                self.put(f"if (!{mask}[{self.t}]) continue;")
            flat = sum(size > 1 for size in self.block) <= 1
            for axis in axes:
                size, stride = self.block[axis], math.prod(self.block[:axis])
                index = f"{self.t} / {stride}" if stride > 1 else self.t
                value = self.t if flat and size > 1 else f"{index} % {size}"
                self.put(f"const int threadIdx_{'xyz'[axis]} = {value};")
            yield

    def _new_mask(self, condition: ir.Expr, mask: str | None) -> tuple[str, str]:
        """Declare and fill a mask; return its name and that of the variable that tells whether it has a thread."""
        self.masks += 1
        name, any_active = self.fresh(f"on{self.masks}"), self.fresh(f"some{self.masks}")
        self.put(f"bool {name}[{self.threads}];")
        self.put(f"bool {any_active} = false;")
        self._fill_mask(name, any_active, condition, mask)
        return name, any_active

    def _fill_mask(self, name: str, any_active: str, condition: ir.Expr, mask: str | None) -> None:
        with self._each_thread(None, [ir.ExpressionStatement(condition.line, condition)]):
            own = "" if mask is None else f"{mask}[{self.t}] && "
            value = self.expression(condition)
            self.put(f"{name}[{self.t}] = {own}{self.at(value, PRIMARY) if own else value.text};")
            self.put(f"{any_active} |= {name}[{self.t}];")

    def _split(self, condition: ir.Expr, body: Sequence[ir.Stmt], mask: str | None) -> None:
        name, any_active = self._new_mask(condition, mask)
        with self.inner(f"if ({any_active}) {{"):
            self._region(body, name)

    def _while(self, loop: ir.While, mask: str | None) -> None:
        name, any_active = self._new_mask(loop.condition, mask)
        with self.inner(f"while ({any_active}) {{"):
            self._region(loop.body, name)
            self.put(f"{any_active} = false;")
            self._fill_mask(name, any_active, loop.condition, name)

    # Expressions.

    def name(self, variable: str) -> str:
        """Return a variable, or this thread's element of it."""
        return f"{self._row(variable)}[{self.t}]" if variable in self.per_thread else self.spelled[variable]

    def declare_array(self, array: ir.Declare) -> None:
        """Declare an array; a kernel with phases declares all of them at its top."""
        if not self.phased:
            super().declare_array(array)

    def thread_index(self, e: ir.Index) -> Piece:
        """Return an index of the thread: a constant, a loop's counter or an argument."""
        if e.what == "block_size":
            return Piece(str(self.block[e.axis]), PRIMARY)
        name = f"{_INDICES[e.what]}_{'xyz'[e.axis]}"
        self.used.add(name)
        return Piece(name, PRIMARY)


def _has_barrier(statement: ir.Stmt) -> bool:
    """Return whether a statement contains a barrier of the block."""
    if isinstance(statement, ir.Barrier):
        return statement.scope == "block"
    return any(_has_barrier(inner) for block in blocks_of(statement) for inner in block)


def _phases(body: Sequence[ir.Stmt]) -> Iterator[list[ir.Stmt]]:
    """Yield the statements between barriers; a condition around a barrier is a phase of its own."""
    phase: list[ir.Stmt] = []
    for statement in body:
        if not _has_barrier(statement):
            phase.append(statement)
            continue
        yield phase
        phase = []
        if isinstance(statement, (ir.If, ir.While)):
            yield [ir.ExpressionStatement(statement.line, statement.condition)]
            for block in blocks_of(statement):
                yield from _phases(block)
    yield phase


_WORD = """
static inline {word} {to}({number} x) {{
    {word} b;
    memcpy(&b, &x, {size});
    return b;
}}

static inline {number} {back}({word} b) {{
    {number} x;
    memcpy(&x, &b, {size});
    return x;
}}
"""
_BITS = {
    HLS.word: _WORD.format(word="unsigned int", number="float", size=4, to=HLS.word[0], back=HLS.word[1]),
    HLS.long_word: _WORD.format(word="uint64_t", number="double", size=8, to=HLS.long_word[0], back=HLS.long_word[1]),
}
"""The functions between floats and their bits, by their names."""
