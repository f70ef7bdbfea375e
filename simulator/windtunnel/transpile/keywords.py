"""Names that mean something in a target: a kernel's own are spelled with an underscore after them."""

from __future__ import annotations

_C = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class compl
concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default delete
do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires restrict return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
xor_eq main NULL INFINITY NAN stdin stdout stderr errno int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t
uint64_t std size_t ptrdiff_t
"""
"""C and C++."""
_CUDA = """
threadIdx blockIdx blockDim gridDim warpSize dim3 half half2
"""
"""CUDA, HIP."""
_OPENCL_METAL = """
kernel global local constant private read_only write_only read_write uchar ushort uint ulong image1d_t image2d_t
event_t sampler_t pipe vector_size device thread threadgroup vertex fragment bfloat texture sampler array
atomic_int atomic_uint atomic_float metal packed ulong long2 simd quad metal_stdlib nil access
"""
"""OpenCL C and Metal."""
_WGSL = """
alias array atomic bitcast const_assert continuing diagnostic discard enable f16 f32 fn i32 let loop mat2x2 mat3x3
mat4x4 override ptr u32 var vec2 vec3 vec4 workgroup storage uniform function handle read write self Self super
abstract active as async attribute await become cast coherent common compile const crate debugger demote do extends
external fallthrough filter final finally from get groupshared highp impl implements import instanceof interface
layout lowp macro match mediump meta mod module move mut nil noinline nointerpolation noncoherent noncontiguous
null of package partition pass patch precise precision premerge primitive protected pub readonly ref regardless
require resource set shared sizeof smooth snorm subroutine target trait type unless unorm unsized use varying wgsl
where with writeonly yield Params params select
"""
"""WGSL."""
_CALLED = """
abs acos asin atan atan2 ceil clz copysign cos cosh countLeadingZeros countOneBits erf exp exp2 fabs floor fma fmax
fmin fmod firstTrailingBit inverseSqrt isinf isnan log log10 log2 max min popcount pow reverse_bits reverseBits
rsqrt sin sinh sqrt tan tanh trunc barrier mem_fence sqrtf expf exp2f logf log2f log10f sinf cosf tanf asinf acosf
atanf sinhf coshf tanhf floorf ceilf truncf fabsf atan2f powf fmodf erff copysignf fmaf rsqrtf fminf fmaxf ctz
as_type
"""
"""Functions that the emitters call: a variable of the name would hide one."""
_FUNCTIONS = """
index signbit y0 y1 yn j0 j1 jn gamma dot cross length distance normalize any all round sign step clamp mix frexp
ldexp modf remainder rint cbrt hypot degrees radians smoothstep copy fill swap vload vstore
"""

RESERVED = frozenset(" ".join((_C, _CUDA, _OPENCL_METAL, _WGSL, _CALLED)).split())
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""Functions of some target: a variable may hide them, a kernel may not be called so."""
