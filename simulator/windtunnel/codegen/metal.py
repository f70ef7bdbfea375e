"""The token table of the Metal shading language (3.1 for bf16). The size of a threadgroup is set at launch.

The language has no f64. Its atomics are separate types, to which elements are cast. It has no 64-bit atomics, and not
every version has those of floats, so these are compare-exchange loops.
"""

from __future__ import annotations

from windtunnel.codegen.text import UNARY
from windtunnel.codegen.tokens import AtomicRule, CTokens, Subgroup
from windtunnel.language.types import I32

_FENCE = "mem_flags::mem_threadgroup | mem_flags::mem_device"
_FENCES = "atomic_thread_fence({}, memory_order_seq_cst, thread_scope_{});  // Metal 3.2"
_ORDER = "memory_order_relaxed"
_ATOMIC = f"atomic_fetch_{{op}}_explicit(({{space}} atomic_{{type}} *){{at}}, {{values}}, {_ORDER})"
_SWAP = f"atomic_compare_exchange_weak_explicit(word, &seen, $new$, {_ORDER}, {_ORDER})"

METAL = CTokens(
    title="the Metal shading language",
    short_title="Metal",
    options=("-fno-fast-math", "-ffp-contract=off"),
    option_note="in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.",
    missing={"f64": "f32"},
    # Functions of C that the specification does not list (3.1, section 6.5, math functions).
    no_functions=frozenset(("erf", "erfc", "expm1", "log1p", "cbrt", "hypot")),
    types={
        "bool": "bool", "i8": "char", "i16": "short", "i32": "int", "i64": "long", "u8": "uchar", "u16": "ushort",
        "u32": "uint", "u64": "ulong", "f16": "half", "bf16": "bfloat", "f32": "float",
    },
    wide_suffix="l",
    float_suffixes={"f16": "h"},
    cast_literals=frozenset(("bf16",)),
    short_suffix="",
    word=("as_type<uint>", "as_type<float>"),
    helpers={
        "popc": "$fn$ int $name$($t$ x) {\n    return (int)popcount(x);\n}",
        "clz": "$fn$ int $name$($t$ x) {\n    return (int)clz(x);\n}",
        "ffs": "$fn$ int $name$($t$ x) {\n    return x ? (int)ctz(x) + 1 : 0;\n}",
        "brev": "$fn$ $t$ $name$($t$ x) {\n    return reverse_bits(x);\n}",
        "bits_f16": "$fn$ ushort $name$(half x) {\n    return as_type<ushort>(x);\n}",
        "from_bits_f16": "$fn$ half $name$(ushort b) {\n    return as_type<half>(b);\n}",
        "bits_bf16": "$fn$ ushort $name$(bfloat x) {\n    return as_type<ushort>(x);\n}",
        "from_bits_bf16": "$fn$ bfloat $name$(ushort b) {\n    return as_type<bfloat>(b);\n}",
        "source_lane": "$fn$ ushort $name$(int wanted, uint own, uint lanes) {\n"
        "    // The thread's own lane, if the wanted one does not exist.\n"
        "    return (ushort)((uint)wanted < lanes ? (uint)wanted : own);\n}",
    },
    more_functions=frozenset((
        "rint", "round", "asinh", "acosh", "atanh", "exp10", "sinpi", "cospi", "tanpi", "fdim", "ldexp",
    )),
    headers=("metal_stdlib",),
    prologue=("using namespace metal;", "#pragma clang fp contract(off)"),
    entry="kernel void {name}({arguments}) {{",
    entry_lines=True,
    pointer="device {const}{type} *{name} [[buffer({position})]]",
    scalar="constant {type} &{name} [[buffer({position})]]",
    copies_scalars=True,
    builtin_arguments={
        "thread": "uint3 threadIdx [[thread_position_in_threadgroup]]",
        "block": "uint3 blockIdx [[threadgroup_position_in_grid]]",
        "block_size": "uint3 blockDim [[threads_per_threadgroup]]",
        "grid_size": "uint3 gridDim [[threadgroups_per_grid]]",
        "lane": "uint wt_lane [[thread_index_in_simdgroup]]",
        "warp_size": "uint wt_lanes [[threads_per_simdgroup]]",
    },
    indices={
        "thread": "threadIdx.{x}", "block": "blockIdx.{x}", "block_size": "blockDim.{x}", "grid_size": "gridDim.{x}",
    },
    shared="threadgroup ",
    barriers={
        "block": (f"threadgroup_barrier({_FENCE});",), "warp": (f"simdgroup_barrier({_FENCE});",),
        "fence.block": (_FENCES.format(_FENCE, "threadgroup"),), "fence.device": (_FENCES.format(_FENCE, "device"),),
    },
    exchange_bits=32,
    subgroup=Subgroup(
        lane="wt_lane",
        size="wt_lanes",
        ballot="(uint)(simd_vote::vote_t)simd_ballot({})",
        ballot_level=UNARY,
        any="simd_any",
        all="simd_all",
        shuffle="simd_shuffle",
        index_cast="(ushort)({})",
        source_arguments=("wt_lane", "wt_lanes"),
        bool_as=I32,
    ),
    atomics=(
        AtomicRule(("i32", "u32"), _ATOMIC, {"add", "sub", "min", "max", "and", "or", "xor"}),
        AtomicRule(("i32", "u32"), _ATOMIC.replace("fetch_{op}", "exchange"), {"exch"}),
    ),
    atomic_bits=32,
    atomic_helper="atomic_{op}_{space}_{kind}",
    spaces=("device", "threadgroup"),
    atomic_cas=f"""
$fn$ $t$ $name$($space$ $t$ *at, $t$ expected, $t$ value) {{
    $space$ atomic_uint *word = ($space$ atomic_uint *)at;
    uint seen;
    do {{
        seen = $expected$;
        if ({_SWAP}) break;
    }} while (seen == $expected$);  // it may fail for no reason
    return $seen$;
}}
""",
    atomic_loop=f"""
$fn$ $t$ $name$($space$ $t$ *at, $t$ value) {{
    $space$ atomic_uint *word = ($space$ atomic_uint *)at;
    uint seen = atomic_load_explicit(word, {_ORDER});
    while (!{_SWAP}) {{
    }}
    return $seen$;
}}
""",
)  # fmt: skip
