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
  __host__ __device__ __half(int x) : bits(__wt_f2h((float)x)) {}
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
  __WT_D__ H2 operator-(H2 a, H2 b) { return PRE##hsub2(a, b); }
__WT_16(__half, __half2, __wt_h, __wt_f, __halves2half2, __)
__WT_D__ __half2 make_half2(__half a, __half b) { return __halves2half2(a, b); }
__WT_D__ __half __float2half(float x) { return __wt_h(x); }
__WT_D__ __half __float2half_rn(float x) { return __wt_h(x); }
__WT_D__ __half __double2half(double x) { return __wt_h((float)x); }
__WT_D__ float __half2float(__half h) { return __wt_f(h); }
__WT_D__ __half __int2half_rn(int x) { return __wt_h((float)x); }
__WT_D__ int __half2int_rz(__half h) { return (int)__wt_f(h); }
__WT_D__ int __half2int_rn(__half h) { return (int)rintf(__wt_f(h)); }
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
