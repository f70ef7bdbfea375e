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
struct __align__(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __host__ __device__ __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
};
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
__WT_D__ __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __halves2bfloat162(a, b); }
__WT_D__ __nv_bfloat162 __float2bfloat162_rn(float x) { return __halves2bfloat162(__wt_b(x), __wt_b(x)); }
__WT_D__ __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
__WT_D__ float2 __bfloat1622float2(__nv_bfloat162 p) { return make_float2(__wt_bf(p.x), __wt_bf(p.y)); }
__WT_D__ float __low2float(__nv_bfloat162 p) { return __wt_bf(p.x); }
__WT_D__ float __high2float(__nv_bfloat162 p) { return __wt_bf(p.y); }
__WT_D__ __nv_bfloat16 __int2bfloat16_rn(int x) { return __wt_b((float)x); }
__WT_D__ __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return __wt_b((float)x); }
__WT_D__ __nv_bfloat16 __ll2bfloat16_rn(long long x) { return __wt_b((float)x); }
__WT_16T(__nv_bfloat16, __wt_bf, __bfloat162int, int) __WT_16T(__nv_bfloat16, __wt_bf, __bfloat162uint, unsigned)
__WT_16T(__nv_bfloat16, __wt_bf, __bfloat162short, short) __WT_16T(__nv_bfloat16, __wt_bf, __bfloat162ushort, unsigned short)
__WT_D__ short __bfloat16_as_short(__nv_bfloat16 b) { return (short)b.bits; }
__WT_D__ __nv_bfloat16 __short_as_bfloat16(short bits) { __nv_bfloat16 b; b.bits = (unsigned short)bits; return b; }
__WT_D__ __nv_bfloat162 __low2bfloat162(__nv_bfloat162 p) { return __halves2bfloat162(p.x, p.x); }
__WT_D__ __nv_bfloat162 __high2bfloat162(__nv_bfloat162 p) { return __halves2bfloat162(p.y, p.y); }
__WT_D__ __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 p) { return __halves2bfloat162(p.y, p.x); }
