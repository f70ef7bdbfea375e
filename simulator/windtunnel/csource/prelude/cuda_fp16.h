/* Numbers of 16 bits with 5 bits of exponent. Each operation is rounded once. */
#pragma once
#include "cuda.h"
__device__ float __wt_h2f(unsigned short bits);
__device__ unsigned short __wt_f2h(float x);
struct __half {
  unsigned short bits;
  __half() = default;
  __host__ __device__ __half(float x) : bits(__wt_f2h(x)) {}
  __host__ __device__ __half(double x) : bits(__wt_f2h((float)x)) {}
#define __WT_OF(T) __host__ __device__ __half(T x) : bits(__wt_f2h((float)x)) {}
  __WT_OF(int) __WT_OF(unsigned) __WT_OF(short) __WT_OF(unsigned short) __WT_OF(long) __WT_OF(unsigned long)
  __WT_OF(long long) __WT_OF(unsigned long long)
#undef __WT_OF
  __host__ __device__ operator float() const { return __wt_h2f(bits); }
};
typedef __half half;
struct __align__(4) __half2 {
  __half x, y;
  __half2() = default;
  __host__ __device__ __half2(__half a, __half b) : x(a), y(b) {}
};
typedef __half2 half2;
__WT_D__ __half __wt_h(float x) { __half h; h.bits = __wt_f2h(x); return h; }
__WT_D__ float __wt_f(__half h) { return __wt_h2f(h.bits); }
#define __WT_16(H, H2, TO, FROM, OF, PRE) \
  __WT_D__ H PRE##hadd(H a, H b) { return TO(FROM(a) + FROM(b)); } \
  __WT_D__ H PRE##hsub(H a, H b) { return TO(FROM(a) - FROM(b)); } \
  __WT_D__ H PRE##hmul(H a, H b) { return TO(FROM(a) * FROM(b)); } \
  __WT_D__ H PRE##hdiv(H a, H b) { return TO(FROM(a) / FROM(b)); } \
  __WT_D__ H PRE##hneg(H a) { return TO(-FROM(a)); } \
  __WT_D__ H PRE##habs(H a) { return TO(fabsf(FROM(a))); } \
  __WT_D__ H PRE##hfma(H a, H b, H c) { return TO(fmaf(FROM(a), FROM(b), FROM(c))); } \
  __WT_D__ H PRE##hmax(H a, H b) { return TO(fmaxf(FROM(a), FROM(b))); } \
  __WT_D__ H PRE##hmin(H a, H b) { return TO(fminf(FROM(a), FROM(b))); } \
  __WT_D__ bool PRE##heq(H a, H b) { return FROM(a) == FROM(b); } \
  __WT_D__ bool PRE##hne(H a, H b) { return FROM(a) != FROM(b); } \
  __WT_D__ bool PRE##hlt(H a, H b) { return FROM(a) < FROM(b); } \
  __WT_D__ bool PRE##hle(H a, H b) { return FROM(a) <= FROM(b); } \
  __WT_D__ bool PRE##hgt(H a, H b) { return FROM(a) > FROM(b); } \
  __WT_D__ bool PRE##hge(H a, H b) { return FROM(a) >= FROM(b); } \
  __WT_D__ bool PRE##hisnan(H a) { return isnan(FROM(a)); } \
  __WT_D__ int PRE##hisinf(H a) { return isinf(FROM(a)) ? (FROM(a) > 0 ? 1 : -1) : 0; } \
  __WT_D__ H operator+(H a, H b) { return TO(FROM(a) + FROM(b)); } \
  __WT_D__ H operator-(H a, H b) { return TO(FROM(a) - FROM(b)); } \
  __WT_D__ H operator*(H a, H b) { return TO(FROM(a) * FROM(b)); } \
  __WT_D__ H operator/(H a, H b) { return TO(FROM(a) / FROM(b)); } \
  __WT_D__ H operator-(H a) { return TO(-FROM(a)); } \
  __WT_D__ H &operator+=(H &a, H b) { a = a + b; return a; } \
  __WT_D__ H &operator-=(H &a, H b) { a = a - b; return a; } \
  __WT_D__ H &operator*=(H &a, H b) { a = a * b; return a; } \
  __WT_D__ H &operator/=(H &a, H b) { a = a / b; return a; } \
  __WT_D__ H operator+(H a) { return a; } \
  __WT_D__ H &operator++(H &a) { a = TO(FROM(a) + 1.0f); return a; } \
  __WT_D__ H &operator--(H &a) { a = TO(FROM(a) - 1.0f); return a; } \
  __WT_D__ H operator++(H &a, int) { H old = a; a = TO(FROM(a) + 1.0f); return old; } \
  __WT_D__ H operator--(H &a, int) { H old = a; a = TO(FROM(a) - 1.0f); return old; } \
  __WT_D__ bool operator==(H a, H b) { return FROM(a) == FROM(b); } \
  __WT_D__ bool operator!=(H a, H b) { return FROM(a) != FROM(b); } \
  __WT_D__ bool operator<(H a, H b) { return FROM(a) < FROM(b); } \
  __WT_D__ bool operator<=(H a, H b) { return FROM(a) <= FROM(b); } \
  __WT_D__ bool operator>(H a, H b) { return FROM(a) > FROM(b); } \
  __WT_D__ bool operator>=(H a, H b) { return FROM(a) >= FROM(b); } \
  __WT_D__ H hsqrt(H a) { return TO(sqrtf(FROM(a))); } \
  __WT_D__ H hrsqrt(H a) { return TO(rsqrtf(FROM(a))); } \
  __WT_D__ H hexp(H a) { return TO(expf(FROM(a))); } \
  __WT_D__ H hexp2(H a) { return TO(exp2f(FROM(a))); } \
  __WT_D__ H hlog(H a) { return TO(logf(FROM(a))); } \
  __WT_D__ H hlog2(H a) { return TO(log2f(FROM(a))); } \
  __WT_D__ H hsin(H a) { return TO(sinf(FROM(a))); } \
  __WT_D__ H hcos(H a) { return TO(cosf(FROM(a))); } \
  __WT_D__ H hrcp(H a) { return TO(1.0f / FROM(a)); } \
  __WT_D__ H2 OF(H a, H b) { H2 p; p.x = a; p.y = b; return p; } \
  __WT_D__ H2 PRE##hadd2(H2 a, H2 b) { return OF(PRE##hadd(a.x, b.x), PRE##hadd(a.y, b.y)); } \
  __WT_D__ H2 PRE##hsub2(H2 a, H2 b) { return OF(PRE##hsub(a.x, b.x), PRE##hsub(a.y, b.y)); } \
  __WT_D__ H2 PRE##hmul2(H2 a, H2 b) { return OF(PRE##hmul(a.x, b.x), PRE##hmul(a.y, b.y)); } \
  __WT_D__ H2 PRE##h2div(H2 a, H2 b) { return OF(PRE##hdiv(a.x, b.x), PRE##hdiv(a.y, b.y)); } \
  __WT_D__ H2 PRE##hfma2(H2 a, H2 b, H2 c) { return OF(PRE##hfma(a.x, b.x, c.x), PRE##hfma(a.y, b.y, c.y)); } \
  __WT_D__ H2 operator+(H2 a, H2 b) { return PRE##hadd2(a, b); } \
  __WT_D__ H2 operator*(H2 a, H2 b) { return PRE##hmul2(a, b); } \
  __WT_D__ H2 operator-(H2 a, H2 b) { return PRE##hsub2(a, b); } \
  __WT_16B(H, H2, TO, FROM, OF, PRE)
/* The rest: functions of one and of two numbers, and comparisons. */
#define __WT_16F(H, H2, TO, FROM, OF, NAME, F) \
  __WT_D__ H h##NAME(H a) { return TO(F(FROM(a))); } \
  __WT_D__ H2 h2##NAME(H2 a) { return OF(TO(F(FROM(a.x))), TO(F(FROM(a.y)))); }
#define __WT_16G(H2, OF, NAME) __WT_D__ H2 h2##NAME(H2 a) { return OF(h##NAME(a.x), h##NAME(a.y)); }
#define __WT_16H(H2, OF, PRE, NAME) \
  __WT_D__ H2 PRE##NAME##2(H2 a, H2 b) { return OF(PRE##NAME(a.x, b.x), PRE##NAME(a.y, b.y)); }
#define __WT_16C(H, H2, TO, FROM, OF, PRE, NAME, OP) \
  __WT_D__ bool PRE##h##NAME##u(H a, H b) { return FROM(a) OP FROM(b) || isnan(FROM(a)) || isnan(FROM(b)); } \
  __WT_D__ bool PRE##hb##NAME##2(H2 a, H2 b) { return PRE##h##NAME(a.x, b.x) && PRE##h##NAME(a.y, b.y); } \
  __WT_D__ bool PRE##hb##NAME##u2(H2 a, H2 b) { return PRE##h##NAME##u(a.x, b.x) && PRE##h##NAME##u(a.y, b.y); } \
  __WT_D__ H2 PRE##h##NAME##2(H2 a, H2 b) { \
    return OF(TO(PRE##h##NAME(a.x, b.x) ? 1.0f : 0.0f), TO(PRE##h##NAME(a.y, b.y) ? 1.0f : 0.0f)); \
  } \
  __WT_D__ unsigned PRE##h##NAME##2_mask(H2 a, H2 b) { \
    return (PRE##h##NAME(a.x, b.x) ? 0xffffu : 0u) | (PRE##h##NAME(a.y, b.y) ? 0xffff0000u : 0u); \
  }
#define __WT_16S(H, H2, OF) \
  __WT_D__ unsigned __wt_bits(H2 v) { return v.x.bits | (unsigned)v.y.bits << 16; } \
  __WT_D__ H2 __wt_unbits(unsigned bits, H2) { \
    H2 v; v.x.bits = (unsigned short)bits; v.y.bits = (unsigned short)(bits >> 16); return v; \
  } \
  __WT_D__ unsigned __wt_bits(H v) { return v.bits; } \
  __WT_D__ H __wt_unbits(unsigned bits, H) { H v; v.bits = (unsigned short)bits; return v; } \
  __WT_16X(H, __shfl_sync, int) __WT_16X(H, __shfl_up_sync, unsigned) __WT_16X(H, __shfl_down_sync, unsigned) \
  __WT_16X(H, __shfl_xor_sync, int) __WT_16X(H2, __shfl_sync, int) __WT_16X(H2, __shfl_up_sync, unsigned) \
  __WT_16X(H2, __shfl_down_sync, unsigned) __WT_16X(H2, __shfl_xor_sync, int) \
  static inline __device__ H atomicAdd(H *at, H value) { \
    unsigned short *bits = &at->bits, old = *bits, seen; \
    do { seen = old; old = atomicCAS(bits, seen, (__wt_unbits(seen, value) + value).bits); } while (old != seen); \
    return __wt_unbits(old, value); \
  } \
  static inline __device__ H2 atomicAdd(H2 *at, H2 value) { \
    H x = atomicAdd(&at->x, value.x), y = atomicAdd(&at->y, value.y); \
    return OF(x, y); \
  }
#define __WT_16X(T, NAME, L) \
  static inline __device__ T NAME(unsigned mask, T v, L lane, int width = 32) { \
    return __wt_unbits(NAME(mask, __wt_bits(v), lane, width), v); \
  }
#define __WT_16B(H, H2, TO, FROM, OF, PRE) \
  __WT_16F(H, H2, TO, FROM, OF, floor, floorf) __WT_16F(H, H2, TO, FROM, OF, ceil, ceilf) \
  __WT_16F(H, H2, TO, FROM, OF, trunc, truncf) __WT_16F(H, H2, TO, FROM, OF, rint, rintf) \
  __WT_16F(H, H2, TO, FROM, OF, tanh, tanhf) __WT_16F(H, H2, TO, FROM, OF, exp10, exp10f) \
  __WT_16F(H, H2, TO, FROM, OF, log10, log10f) \
  __WT_16G(H2, OF, sqrt) __WT_16G(H2, OF, rsqrt) __WT_16G(H2, OF, exp) __WT_16G(H2, OF, exp2) __WT_16G(H2, OF, log) \
  __WT_16G(H2, OF, log2) __WT_16G(H2, OF, sin) __WT_16G(H2, OF, cos) __WT_16G(H2, OF, rcp) \
  __WT_D__ H PRE##hadd_rn(H a, H b) { return a + b; } \
  __WT_D__ H PRE##hsub_rn(H a, H b) { return a - b; } \
  __WT_D__ H PRE##hmul_rn(H a, H b) { return a * b; } \
  __WT_D__ H PRE##hadd_sat(H a, H b) { return TO(__saturatef(FROM(a + b))); } \
  __WT_D__ H PRE##hsub_sat(H a, H b) { return TO(__saturatef(FROM(a - b))); } \
  __WT_D__ H PRE##hmul_sat(H a, H b) { return TO(__saturatef(FROM(a * b))); } \
  __WT_D__ H PRE##hfma_sat(H a, H b, H c) { return TO(__saturatef(FROM(PRE##hfma(a, b, c)))); } \
  __WT_D__ H PRE##hfma_relu(H a, H b, H c) { H r = PRE##hfma(a, b, c); return FROM(r) < 0.0f ? TO(0.0f) : r; } \
  __WT_D__ H PRE##hmax_nan(H a, H b) { return isnan(FROM(a)) ? a : isnan(FROM(b)) ? b : PRE##hmax(a, b); } \
  __WT_D__ H PRE##hmin_nan(H a, H b) { return isnan(FROM(a)) ? a : isnan(FROM(b)) ? b : PRE##hmin(a, b); } \
  __WT_16H(H2, OF, PRE, hmax) __WT_16H(H2, OF, PRE, hmin) \
  __WT_D__ H2 PRE##hadd2_rn(H2 a, H2 b) { return PRE##hadd2(a, b); } \
  __WT_D__ H2 PRE##hsub2_rn(H2 a, H2 b) { return PRE##hsub2(a, b); } \
  __WT_D__ H2 PRE##hmul2_rn(H2 a, H2 b) { return PRE##hmul2(a, b); } \
  __WT_D__ H2 PRE##hadd2_sat(H2 a, H2 b) { return OF(PRE##hadd_sat(a.x, b.x), PRE##hadd_sat(a.y, b.y)); } \
  __WT_D__ H2 PRE##hsub2_sat(H2 a, H2 b) { return OF(PRE##hsub_sat(a.x, b.x), PRE##hsub_sat(a.y, b.y)); } \
  __WT_D__ H2 PRE##hmul2_sat(H2 a, H2 b) { return OF(PRE##hmul_sat(a.x, b.x), PRE##hmul_sat(a.y, b.y)); } \
  __WT_D__ H2 PRE##hfma2_sat(H2 a, H2 b, H2 c) { return OF(PRE##hfma_sat(a.x, b.x, c.x), PRE##hfma_sat(a.y, b.y, c.y)); } \
  __WT_D__ H2 PRE##hfma2_relu(H2 a, H2 b, H2 c) { return OF(PRE##hfma_relu(a.x, b.x, c.x), PRE##hfma_relu(a.y, b.y, c.y)); } \
  __WT_D__ H2 PRE##hneg2(H2 a) { return OF(-a.x, -a.y); } \
  __WT_D__ H2 PRE##habs2(H2 a) { return OF(PRE##habs(a.x), PRE##habs(a.y)); } \
  __WT_D__ H2 PRE##hisnan2(H2 a) { return OF(TO(isnan(FROM(a.x)) ? 1.0f : 0.0f), TO(isnan(FROM(a.y)) ? 1.0f : 0.0f)); } \
  __WT_D__ H2 operator/(H2 a, H2 b) { return PRE##h2div(a, b); } \
  __WT_D__ H2 operator-(H2 a) { return PRE##hneg2(a); } \
  __WT_D__ H2 operator+(H2 a) { return a; } \
  __WT_D__ H2 &operator+=(H2 &a, H2 b) { a = a + b; return a; } \
  __WT_D__ H2 &operator-=(H2 &a, H2 b) { a = a - b; return a; } \
  __WT_D__ H2 &operator*=(H2 &a, H2 b) { a = a * b; return a; } \
  __WT_D__ H2 &operator/=(H2 &a, H2 b) { a = a / b; return a; } \
  __WT_16C(H, H2, TO, FROM, OF, PRE, eq, ==) __WT_16C(H, H2, TO, FROM, OF, PRE, ne, !=) \
  __WT_16C(H, H2, TO, FROM, OF, PRE, lt, <) __WT_16C(H, H2, TO, FROM, OF, PRE, le, <=) \
  __WT_16C(H, H2, TO, FROM, OF, PRE, gt, >) __WT_16C(H, H2, TO, FROM, OF, PRE, ge, >=) \
  __WT_D__ bool operator==(H2 a, H2 b) { return PRE##hbeq2(a, b); } \
  __WT_D__ bool operator!=(H2 a, H2 b) { return PRE##hbneu2(a, b); } \
  __WT_16S(H, H2, OF)
#define __WT_16T(H, FROM, NAME, T) \
  __WT_D__ T NAME##_rn(H h) { return (T)rintf(FROM(h)); } __WT_D__ T NAME##_rz(H h) { return (T)FROM(h); } \
  __WT_D__ T NAME##_rd(H h) { return (T)floorf(FROM(h)); } __WT_D__ T NAME##_ru(H h) { return (T)ceilf(FROM(h)); }
__WT_16(__half, __half2, __wt_h, __wt_f, __halves2half2, __)
__WT_D__ __half2 make_half2(__half a, __half b) { return __halves2half2(a, b); }
__WT_D__ __half __float2half(float x) { return __wt_h(x); }
__WT_D__ __half __float2half_rn(float x) { return __wt_h(x); }
__WT_D__ __half __float2half_rz(float x) { __half h = __wt_h(x); if (fabsf(__wt_f(h)) > fabsf(x)) h.bits -= 1; return h; }
__WT_D__ __half __double2half(double x) { return __wt_h((float)x); }
__WT_D__ float __half2float(__half h) { return __wt_f(h); }
__WT_D__ __half __int2half_rn(int x) { return __wt_h((float)x); }
__WT_D__ __half __uint2half_rn(unsigned x) { return __wt_h((float)x); }
__WT_D__ __half __short2half_rn(short x) { return __wt_h((float)x); }
__WT_D__ __half __ushort2half_rn(unsigned short x) { return __wt_h((float)x); }
__WT_D__ __half __ll2half_rn(long long x) { return __wt_h((float)x); }
__WT_D__ __half __ull2half_rn(unsigned long long x) { return __wt_h((float)x); }
__WT_16T(__half, __wt_f, __half2int, int) __WT_16T(__half, __wt_f, __half2uint, unsigned)
__WT_16T(__half, __wt_f, __half2short, short) __WT_16T(__half, __wt_f, __half2ushort, unsigned short)
__WT_16T(__half, __wt_f, __half2ll, long long) __WT_16T(__half, __wt_f, __half2ull, unsigned long long)
__WT_D__ __half __low2half(__half2 p) { return p.x; }
__WT_D__ __half __high2half(__half2 p) { return p.y; }
__WT_D__ float __low2float(__half2 p) { return __wt_f(p.x); }
__WT_D__ float __high2float(__half2 p) { return __wt_f(p.y); }
__WT_D__ __half2 __half2half2(__half h) { return __halves2half2(h, h); }
__WT_D__ __half2 __float2half2_rn(float x) { return __halves2half2(__wt_h(x), __wt_h(x)); }
__WT_D__ __half2 __floats2half2_rn(float a, float b) { return __halves2half2(__wt_h(a), __wt_h(b)); }
__WT_D__ __half2 __float22half2_rn(float2 v) { return __halves2half2(__wt_h(v.x), __wt_h(v.y)); }
__WT_D__ float2 __half22float2(__half2 p) { return make_float2(__wt_f(p.x), __wt_f(p.y)); }
__WT_D__ unsigned short __half_as_ushort(__half h) { return h.bits; }
__WT_D__ __half __ushort_as_half(unsigned short bits) { __half h; h.bits = bits; return h; }
__WT_D__ short __half_as_short(__half h) { return (short)h.bits; }
__WT_D__ __half __short_as_half(short bits) { __half h; h.bits = (unsigned short)bits; return h; }
__WT_D__ __half2 __low2half2(__half2 p) { return __halves2half2(p.x, p.x); }
__WT_D__ __half2 __high2half2(__half2 p) { return __halves2half2(p.y, p.y); }
__WT_D__ __half2 __lows2half2(__half2 a, __half2 b) { return __halves2half2(a.x, b.x); }
__WT_D__ __half2 __highs2half2(__half2 a, __half2 b) { return __halves2half2(a.y, b.y); }
__WT_D__ __half2 __lowhigh2highlow(__half2 p) { return __halves2half2(p.y, p.x); }
#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00u)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fffu)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7bffu)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00u)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000u)
