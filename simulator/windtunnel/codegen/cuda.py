"""The token tables of CUDA C++ and HIP C++. The block's size is set at launch.

16-bit floats are computed in f32 and rounded after every operation: the assembler may contract the operators of
``__half`` whatever the compiler options are, and would then give other numbers.
"""

from __future__ import annotations

from dataclasses import replace

from windtunnel.codegen.tokens import ATOMICS, AtomicRule, CTokens
from windtunnel.language.types import BF16, F16

_BY_BITS = "atomic{op}(({word} *){at}, {bits})"
_NAMES = {"add": "Add", "sub": "Sub", "min": "Min", "max": "Max", "and": "And", "or": "Or", "xor": "Xor",
          "exch": "Exch", "cas": "CAS", "inc": "Inc", "dec": "Dec"}  # fmt: skip
_PLAIN = "atomic{op}({at}, {values})"

CUDA = CTokens(
    title="CUDA C++",
    options=("--fmad=false",),
    option_note="a product and a sum must not become one operation.",
    grid_barrier=True,
    emulated=frozenset((F16, BF16)),
    types={
        "bool": "bool", "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long", "u8": "unsigned char",
        "u16": "unsigned short", "u32": "unsigned int", "u64": "unsigned long long", "f16": "__half",
        "bf16": "__nv_bfloat16", "f32": "float", "f64": "double",
    },
    # NVRTC has no C header that defines INFINITY and NAN.
    infinity="__uint_as_float(0x7f800000u)",
    not_a_number="__uint_as_float(0x7fc00000u)",
    word=("__float_as_uint", "__uint_as_float"),
    long_word=("(unsigned long long)__double_as_longlong", "__longlong_as_double"),
    # As cvt.rna.tf32.f32, which devices before compute capability 8.0 lack.
    tf32_half=("0x1000u", "away from zero, as cvt.rna.tf32.f32"),
    helper="static __device__ __forceinline__",
    helpers={
        "popc": "$fn$ int $name$($t$ x) {\n    return __popc$ll$(x);\n}",
        "clz": "$fn$ int $name$($t$ x) {\n    return __clz$ll$(($s$)x);\n}",
        "ffs": "$fn$ int $name$($t$ x) {\n    return __ffs$ll$(($s$)x);\n}",
        "brev": "$fn$ $t$ $name$($t$ x) {\n    return __brev$ll$(x);\n}",
        "round_f16": "$fn$ float $name$(float x) {\n    return __half2float(__float2half_rn(x));\n}",
        "round_bf16": "$fn$ float $name$(float x) {\n    return __bfloat162float(__float2bfloat16_rn(x));\n}",
        "bits_f16": "$fn$ unsigned short $name$(float x) {\n    return __half_as_ushort(__float2half_rn(x));\n}",
        "from_bits_f16": "$fn$ float $name$(unsigned short x) {\n    return __half2float(__ushort_as_half(x));\n}",
        "bits_bf16": "$fn$ unsigned short $name$(float x) {\n"
        "    return __bfloat16_as_ushort(__float2bfloat16_rn(x));\n}",
        "from_bits_bf16": "$fn$ float $name$(unsigned short x) {\n"
        "    return __bfloat162float(__ushort_as_bfloat16(x));\n}",
        "lane_i32": "$fn$ int $name$() {\n"
        "    return ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) % warpSize;\n}",
    },
    more_functions=frozenset((
        "rint", "round", "asinh", "acosh", "atanh", "exp10", "lgamma", "tgamma", "erfinv", "erfcinv", "normcdf",
        "sinpi", "cospi", "j0", "j1", "y0", "y1", "logb", "rcbrt", "nextafter", "remainder", "fdim", "ldexp",
    )),
    directed={mode: f"__double2float_{mode}" for mode in ("rz", "ru", "rd")},
    prints="printf({form}{values});",
    trap="__trap();",
    active="__activemask()",
    feature_headers={"grid": "cooperative_groups.h", "f16": "cuda_fp16.h", "bf16": "cuda_bf16.h"},
    entry='extern "C" __global__ void {name}({arguments}) {{',
    indices={
        "thread": "threadIdx.{x}", "block": "blockIdx.{x}", "block_size": "blockDim.{x}", "grid_size": "gridDim.{x}",
    },
    folds_indices=True,
    shared="__shared__ ",
    dynamic_shared="extern __shared__ {type} {name}[];",
    narrow_declared=True,
    loads={"f16": "__half2float({element})", "bf16": "__bfloat162float({element})"},
    stores={"f16": "{element} = __float2half_rn({value});", "bf16": "{element} = __float2bfloat16_rn({value});"},
    stores_round=True,
    compound_stores=False,
    barriers={
        "block": ("__syncthreads();",), "warp": ("__syncwarp({mask});",),
        "grid": ("cooperative_groups::this_grid().sync();",), "fence.device": ("__threadfence();",),
        "fence.block": ("__threadfence_block();",),
    },
    shuffle="__shfl{how}_sync({mask}, {value}, {lane})",
    vote="__{how}_sync({mask}, {value})",
    atomics=(
        AtomicRule(("i32", "u32"), _PLAIN, names=_NAMES),
        AtomicRule(("u64",), _PLAIN, ATOMICS - {"sub"}, _NAMES),
        AtomicRule(("i64",), _PLAIN, {"min", "max"}, _NAMES),
        AtomicRule(("f16", "bf16", "f32", "f64"), _PLAIN, {"add"}, _NAMES),
        AtomicRule(("f16", "bf16", "f32", "f64"), "atomicAdd({at}, {negative})", {"sub"}),
        AtomicRule(("f32",), _PLAIN, {"exch"}, _NAMES),
        AtomicRule(("f32", "f64"), "", {"min", "max"}),
        AtomicRule(("i64", "u64", "f32", "f64"), _BY_BITS, names={**_NAMES, "sub": "Add"}),
    ),
    atomic_loop="""
$fn$ $t$ $name$($t$ *at, $t$ value) {
    $word$ seen = *(volatile $word$ *)at, before;
    do {
        before = seen;
        seen = atomicCAS(($word$ *)at, before, $new$);
    } while (seen != before);
    return $seen$;
}
""",
)  # fmt: skip

HIP = replace(
    CUDA,
    title="HIP C++",
    options=("-ffp-contract=off",),
    types={**CUDA.types, "bf16": "hip_bfloat16"},
    tf32_half=("0xfffu + ((b >> 13) & 1u)", "to even"),
    helpers={
        **CUDA.helpers,
        "round_bf16": "$fn$ float $name$(float x) {\n    return float(hip_bfloat16(x));\n}",
        "bits_bf16": "$fn$ unsigned short $name$(float x) {\n    return hip_bfloat16(x).data;\n}",
        "from_bits_bf16": "$fn$ float $name$(unsigned short x) {\n"
        "    return __uint_as_float((unsigned int)x << 16);\n}",
    },
    headers=("hip/hip_runtime.h",),
    feature_headers={"grid": "hip/hip_cooperative_groups.h", "f16": "hip/hip_fp16.h", "bf16": "hip/hip_bfloat16.h"},
    prologue=("#pragma clang fp contract(off)",),
    directed={},  # HIP's functions of these names round to nearest
    trap="__builtin_trap();",
    active=None,
    loads={**CUDA.loads, "bf16": "float({element})"},
    stores={**CUDA.stores, "bf16": "{element} = hip_bfloat16({value});"},
    # A wavefront runs in lockstep. The barrier only keeps the compiler from moving memory accesses across it.
    barriers={
        **CUDA.barriers,
        "warp": ('__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");', "__builtin_amdgcn_wave_barrier();"),
    },
    shuffle="__shfl{how}({value}, {lane})",
    vote="__{how}({value})",
    ballot_is_wide=True,
)
"""HIP: CUDA's language for AMD's devices. Its warps may have 64 threads, and its exchanges take no mask."""
