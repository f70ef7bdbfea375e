"""The token table of OpenCL C 1.2 and later. The size of a work-group is set at launch.

``f16`` is stored as ``half``, which every device has, and computed in f32 with a rounding after every operation:
arithmetic on ``half`` is an extension. ``bf16`` is stored as ``ushort``.
"""

from __future__ import annotations

from windtunnel.codegen.tokens import ATOMICS, AtomicRule, CTokens, Subgroup
from windtunnel.language.types import BF16, F16, I32

_NAMES = {"exch": "xchg", "cas": "cmpxchg"}
_BASE = frozenset(("add", "sub", "exch", "cas"))
_FENCE = "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE"

OPENCL = CTokens(
    title="OpenCL C",
    options=("-cl-fp32-correctly-rounded-divide-sqrt",),
    option_note=(
        "if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math)."
    ),
    emulated=frozenset((F16, BF16)),
    types={
        "bool": "bool", "i8": "char", "i16": "short", "i32": "int", "i64": "long", "u8": "uchar", "u16": "ushort",
        "u32": "uint", "u64": "ulong", "f16": "half", "bf16": "ushort", "f32": "float", "f64": "double",
    },
    array_types={"bool": "uchar"},
    wide_suffix="l",
    short_suffix="",
    word=("as_uint", "as_float"),
    long_word=("as_ulong", "as_double"),
    helpers={
        "popc": "$fn$ int $name$($t$ x) {\n    return (int)popcount(x);\n}",
        "clz": "$fn$ int $name$($t$ x) {\n    return (int)clz(x);\n}",
        "ffs": "$fn$ int $name$($t$ x) {\n    return x ? $bits$ - (int)clz(x & -x) : 0;\n}",
        "brev": "$fn$ $t$ $name$($t$ x) {\n    $t$ y = 0;\n"
        "    for (int n = 0; n < $bits$; ++n) y |= (x >> n & 1) << ($last$ - n);\n    return y;\n}",
        "round_f16": "$fn$ float $name$(float x) {\n    ushort bits;\n    vstore_half_rte(x, 0, (half *)&bits);\n"
        "    return vload_half(0, (const half *)&bits);\n}",
        "bits_f16": "$fn$ ushort $name$(float x) {\n    ushort bits;\n    vstore_half_rte(x, 0, (half *)&bits);\n"
        "    return bits;\n}",
        "from_bits_f16": "$fn$ float $name$(ushort x) {\n    return vload_half(0, (const half *)&x);\n}",
        "device_fence": "$fn$ void $name$(void) {\n#if __OPENCL_C_VERSION__ >= 200\n"
        "    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_seq_cst, memory_scope_device);\n#else\n"
        f"    mem_fence({_FENCE});\n#endif\n}}",
        "source_lane": "$fn$ uint $name$(int wanted) {\n"
        "    // The thread's own lane, if the wanted one does not exist.\n"
        "    return (uint)wanted < get_sub_group_size() ? (uint)wanted : get_sub_group_local_id();\n}",
    },
    more_functions=frozenset((
        "rint", "round", "asinh", "acosh", "atanh", "exp10", "lgamma", "tgamma", "sinpi", "cospi", "tanpi", "logb",
        "asinpi", "acospi", "atanpi", "nextafter", "remainder", "fdim", "ldexp", "atan2pi",
    )),
    directed={"rz": "convert_float_rtz", "ru": "convert_float_rtp", "rd": "convert_float_rtn"},
    prints="printf({form}{values});",
    prologue=("#pragma OPENCL FP_CONTRACT OFF",),
    extension="#pragma OPENCL EXTENSION {} : enable",
    f64_extension="cl_khr_fp64",
    entry="__kernel void {name}({arguments}) {{",
    pointer="__global {volatile}{const}{type} *{name}",
    passed_bool="uchar",
    indices={
        "thread": "get_local_id({axis})", "block": "get_group_id({axis})", "block_size": "get_local_size({axis})",
        "grid_size": "get_num_groups({axis})",
    },
    shared="__local ",
    volatile="volatile ",
    loads={"f16": "vload_half({place}, {array})", "bf16": "$load_bf16$({element})", "bool": "{element} != 0"},
    stores={"f16": "vstore_half_rte({value}, {place}, {array});", "bf16": "{element} = $store_bf16$({value});"},
    barriers={
        "block": (f"barrier({_FENCE});",), "warp": (f"sub_group_barrier({_FENCE});",),
        "fence.block": (f"mem_fence({_FENCE});",), "fence.device": ("$device_fence$();",),
    },
    barrier_features={"warp": "cl_khr_subgroups"},
    subgroup=Subgroup(
        lane="get_sub_group_local_id()",
        size="get_max_sub_group_size()",
        ballot="sub_group_ballot({}).x",
        any="sub_group_any",
        all="sub_group_all",
        vote_is_number=True,
        shuffle="sub_group_shuffle",
        bool_as=I32,
        features={
            "any": "cl_khr_subgroups", "ballot": "cl_khr_subgroup_ballot", "shuffle": "cl_khr_subgroup_shuffle",
        },
    ),
    atomics=(
        AtomicRule(("i32", "u32"), "atomic_{op}({at}, {values})", ATOMICS - {"inc", "dec"}, _NAMES),
        AtomicRule(("i64", "u64"), "atom_{op}({at}, {values})", _BASE, _NAMES, "cl_khr_int64_base_atomics"),
        AtomicRule(("i64", "u64"), "atom_{op}({at}, {values})", extension="cl_khr_int64_extended_atomics"),
        AtomicRule(("f64",), extension="cl_khr_int64_base_atomics"),
    ),
    atomic_helper="atomic_{op}_{space}_{kind}",
    spaces=("global", "local"),
    atomic_cas="""
$fn$ $t$ $name$(volatile __$space$ $t$ *at, $t$ expected, $t$ value) {
    return $from_bits$($atom$_cmpxchg((volatile __$space$ $word$ *)at, $expected$, $new$));
}
""",
    atomic_loop="""
$fn$ $t$ $name$(volatile __$space$ $t$ *at, $t$ value) {
    $word$ seen = *((volatile __$space$ $word$ *)at), before;
    do {
        before = seen;
        seen = $atom$_cmpxchg((volatile __$space$ $word$ *)at, before, $new$);
    } while (seen != before);
    return $seen$;
}
""",
    atomic_old="before",
)  # fmt: skip
