"""Reserved names of the targets. A kernel's own name gets an underscore if it is one of them."""

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
_COMPILERS = """
alloca be16toh be32toh be64toh BIG_ENDIAN BYTE_ORDER EXIT_FAILURE EXIT_SUCCESS FD_CLR FD_ISSET FD_SET FD_SETSIZE
FD_ZERO FP_ILOGB0 FP_ILOGBNAN FP_INFINITE FP_INT_DOWNWARD FP_INT_TONEAREST FP_INT_TONEARESTFROMZERO FP_INT_TOWARDZERO
FP_INT_UPWARD FP_LLOGB0 FP_LLOGBNAN FP_NAN FP_NORMAL FP_SUBNORMAL FP_ZERO htobe16 htobe32 htobe64 htole16 htole32
htole64 HUGE_VAL HUGE_VALF HUGE_VALL i386 INT16_C INT16_MAX INT16_MIN INT16_WIDTH INT32_C INT32_MAX INT32_MIN
INT32_WIDTH INT64_C INT64_MAX INT64_MIN INT64_WIDTH INT8_C INT8_MAX INT8_MIN INT8_WIDTH INT_FAST16_MAX INT_FAST16_MIN
INT_FAST16_WIDTH INT_FAST32_MAX INT_FAST32_MIN INT_FAST32_WIDTH INT_FAST64_MAX INT_FAST64_MIN INT_FAST64_WIDTH
INT_FAST8_MAX INT_FAST8_MIN INT_FAST8_WIDTH INT_LEAST16_MAX INT_LEAST16_MIN INT_LEAST16_WIDTH INT_LEAST32_MAX
INT_LEAST32_MIN INT_LEAST32_WIDTH INT_LEAST64_MAX INT_LEAST64_MIN INT_LEAST64_WIDTH INT_LEAST8_MAX INT_LEAST8_MIN
INT_LEAST8_WIDTH INTMAX_C INTMAX_MAX INTMAX_MIN INTMAX_WIDTH INTPTR_MAX INTPTR_MIN INTPTR_WIDTH issubnormal le16toh
le32toh le64toh linux LITTLE_ENDIAN M_1_PI M_1_PIf M_1_PIl M_2_PI M_2_PIf M_2_PIl M_2_SQRTPI M_2_SQRTPIf M_2_SQRTPIl
M_E M_Ef M_El M_LN10 M_LN10f M_LN10l M_LN2 M_LN2f M_LN2l M_LOG10E M_LOG10Ef M_LOG10El M_LOG2E M_LOG2Ef M_LOG2El M_PI
M_PI_2 M_PI_2f M_PI_2l M_PI_4 M_PI_4f M_PI_4l M_PIf M_PIl M_SQRT1_2 M_SQRT1_2f M_SQRT1_2l M_SQRT2 M_SQRT2f M_SQRT2l
MATH_ERREXCEPT math_errhandling MATH_ERRNO MAXFLOAT MB_CUR_MAX NFDBITS PDP_ENDIAN PTRDIFF_MAX PTRDIFF_MIN
PTRDIFF_WIDTH RAND_MAX SIG_ATOMIC_MAX SIG_ATOMIC_MIN SIG_ATOMIC_WIDTH SIZE_MAX SIZE_WIDTH SNAN SNANF SNANL strdupa
strndupa typeof UINT16_C UINT16_MAX UINT16_WIDTH UINT32_C UINT32_MAX UINT32_WIDTH UINT64_C UINT64_MAX UINT64_WIDTH
UINT8_C UINT8_MAX UINT8_WIDTH UINT_FAST16_MAX UINT_FAST16_WIDTH UINT_FAST32_MAX UINT_FAST32_WIDTH UINT_FAST64_MAX
UINT_FAST64_WIDTH UINT_FAST8_MAX UINT_FAST8_WIDTH UINT_LEAST16_MAX UINT_LEAST16_WIDTH UINT_LEAST32_MAX
UINT_LEAST32_WIDTH UINT_LEAST64_MAX UINT_LEAST64_WIDTH UINT_LEAST8_MAX UINT_LEAST8_WIDTH UINTMAX_C UINTMAX_MAX
UINTMAX_WIDTH UINTPTR_MAX UINTPTR_WIDTH unix WCHAR_MAX WCHAR_MIN WCHAR_WIDTH WCONTINUED WEXITED WEXITSTATUS
WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WINT_MAX WINT_MIN WINT_WIDTH WNOHANG WNOWAIT WSTOPPED WSTOPSIG WTERMSIG
WUNTRACED
"""
"""Predefined names of C++ compilers, and macros of the headers that the source for synthesis includes."""
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
"""Functions that the emitters call, which a variable of the same name would hide."""
_FUNCTIONS = """
index signbit y0 y1 yn j0 j1 jn gamma dot cross length distance normalize any all round sign step clamp mix frexp
ldexp modf remainder rint cbrt hypot degrees radians smoothstep copy fill swap vload vstore
"""
_GLSL = """
attribute buffer in length inout out input output sample flat smooth patch centroid noperspective invariant resource
superp fixed hvec2 hvec3 hvec4 dvec2 dvec3 dvec4 ivec2 ivec3 ivec4 uvec2 uvec3 uvec4 bvec2 bvec3 bvec4 sampler1D
sampler2D sampler3D samplerCube image1D image2D image3D subpassInput float16_t float32_t float64_t atomicAdd atomicMin
atomicMax atomicAnd atomicOr atomicXor atomicExchange atomicCompSwap bitCount bitfieldExtract bitfieldReverse findLSB
findMSB floatBitsToUint uintBitsToFloat doubleBitsToUint64 uint64BitsToDouble inversesqrt controlBarrier memoryBarrier
subgroupBarrier subgroupBallot subgroupAny subgroupAll subgroupShuffle
"""
"""Names that are reserved only in GLSL, such as ``out``, and functions that its emitter calls."""

RESERVED = frozenset(" ".join((_C, _COMPILERS, _CUDA, _OPENCL_METAL, _WGSL, _CALLED)).split())
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""Functions of some targets: a variable may hide them, but a kernel must not have their name."""
GLSL = frozenset(_GLSL.split())
