/* Numbers of 16 bits with 8 bits of exponent (bfloat16). Each operation is rounded once. */
#pragma once
#include "cuda_fp16.h"
struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __host__ __device__ __nv_bfloat16(float x);
  __host__ __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};
typedef __nv_bfloat16 nv_bfloat16;
struct __align__(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __nv_bfloat162 nv_bfloat162;
__WT_D__ unsigned short __wt_f2b(float x) {
  unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline __host__ __device__ __nv_bfloat16::__nv_bfloat16(float x) : bits(__wt_f2b(x)) {}
__WT_D__ __nv_bfloat16 __wt_b(float x) { __nv_bfloat16 b; b.bits = __wt_f2b(x); return b; }
__WT_D__ float __wt_bf(__nv_bfloat16 b) { return __uint_as_float((unsigned)b.bits << 16); }
__WT_16(__nv_bfloat16, __nv_bfloat162, __wt_b, __wt_bf, __halves2bfloat162, __)
__WT_D__ __nv_bfloat16 __float2bfloat16(float x) { return __wt_b(x); }
__WT_D__ __nv_bfloat16 __float2bfloat16_rn(float x) { return __wt_b(x); }
__WT_D__ __nv_bfloat16 __double2bfloat16(double x) { return __wt_b((float)x); }
__WT_D__ float __bfloat162float(__nv_bfloat16 b) { return __wt_bf(b); }
__WT_D__ __nv_bfloat16 __low2bfloat16(__nv_bfloat162 p) { return p.x; }
__WT_D__ __nv_bfloat16 __high2bfloat16(__nv_bfloat162 p) { return p.y; }
__WT_D__ __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return __halves2bfloat162(__wt_b(a), __wt_b(b)); }
__WT_D__ __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 b) { return __halves2bfloat162(b, b); }
__WT_D__ unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }
__WT_D__ __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { __nv_bfloat16 b; b.bits = bits; return b; }
