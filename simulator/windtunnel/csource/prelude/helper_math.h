/* Operators and functions of CUDA's vector types, by the names that samples give them. */
#pragma once
#include "cuda.h"
#define __WT_O(V, T, OP) \
  __WT_D__ V operator OP(V a, V b) { return __WT_E(V, a, OP, b); } __WT_D__ V operator OP(V a, T b) { return a OP make_##V(b); } \
  __WT_D__ V operator OP(T a, V b) { return make_##V(a) OP b; } \
  __WT_D__ void operator OP##=(V &a, V b) { a = a OP b; } __WT_D__ void operator OP##=(V &a, T b) { a = a OP make_##V(b); }
#define __WT_E(V, a, OP, b) __WT_E_##V(a, OP, b)
#define __WT_E2(V, a, OP, b) make_##V(a.x OP b.x, a.y OP b.y)
#define __WT_E3(V, a, OP, b) make_##V(a.x OP b.x, a.y OP b.y, a.z OP b.z)
#define __WT_E4(V, a, OP, b) make_##V(a.x OP b.x, a.y OP b.y, a.z OP b.z, a.w OP b.w)
#define __WT_E_float2(a, OP, b) __WT_E2(float2, a, OP, b)
#define __WT_E_int2(a, OP, b) __WT_E2(int2, a, OP, b)
#define __WT_E_uint2(a, OP, b) __WT_E2(uint2, a, OP, b)
#define __WT_E_float3(a, OP, b) __WT_E3(float3, a, OP, b)
#define __WT_E_int3(a, OP, b) __WT_E3(int3, a, OP, b)
#define __WT_E_uint3(a, OP, b) __WT_E3(uint3, a, OP, b)
#define __WT_E_float4(a, OP, b) __WT_E4(float4, a, OP, b)
#define __WT_E_int4(a, OP, b) __WT_E4(int4, a, OP, b)
#define __WT_E_uint4(a, OP, b) __WT_E4(uint4, a, OP, b)
#define __WT_F1(V, F, N) __WT_D__ V F(V a) { return __WT_C##N(V, F##f, a); }
#define __WT_C2(V, F, a) make_##V(F(a.x), F(a.y))
#define __WT_C3(V, F, a) make_##V(F(a.x), F(a.y), F(a.z))
#define __WT_C4(V, F, a) make_##V(F(a.x), F(a.y), F(a.z), F(a.w))
#define __WT_B2(V, F, a, b) make_##V(F(a.x, b.x), F(a.y, b.y))
#define __WT_B3(V, F, a, b) make_##V(F(a.x, b.x), F(a.y, b.y), F(a.z, b.z))
#define __WT_B4(V, F, a, b) make_##V(F(a.x, b.x), F(a.y, b.y), F(a.z, b.z), F(a.w, b.w))
#define __WT_MAKE(T, N) \
  __WT_D__ N##2 make_##N##2(T s) { return make_##N##2(s, s); } __WT_D__ N##3 make_##N##3(T s) { return make_##N##3(s, s, s); } \
  __WT_D__ N##4 make_##N##4(T s) { return make_##N##4(s, s, s, s); } \
  __WT_D__ N##2 make_##N##2(N##3 a) { return make_##N##2(a.x, a.y); } \
  __WT_D__ N##3 make_##N##3(N##2 a, T s = 0) { return make_##N##3(a.x, a.y, s); } \
  __WT_D__ N##3 make_##N##3(N##4 a) { return make_##N##3(a.x, a.y, a.z); } \
  __WT_D__ N##4 make_##N##4(N##3 a, T w = 0) { return make_##N##4(a.x, a.y, a.z, w); }
__WT_MAKE(float, float) __WT_MAKE(int, int) __WT_MAKE(unsigned, uint)
#define __WT_CAST(N, T, M) \
  __WT_D__ N##2 make_##N##2(M##2 a) { return make_##N##2((T)a.x, (T)a.y); } \
  __WT_D__ N##3 make_##N##3(M##3 a) { return make_##N##3((T)a.x, (T)a.y, (T)a.z); } \
  __WT_D__ N##4 make_##N##4(M##4 a) { return make_##N##4((T)a.x, (T)a.y, (T)a.z, (T)a.w); }
__WT_CAST(float, float, int) __WT_CAST(float, float, uint) __WT_CAST(int, int, float) __WT_CAST(int, int, uint) __WT_CAST(uint, unsigned, int)
#define __WT_ALLOPS(V, T, N) \
  __WT_O(V, T, +) __WT_O(V, T, -) __WT_O(V, T, *) \
  __WT_D__ V min(V a, V b) { return __WT_B##N(V, min, a, b); } __WT_D__ V max(V a, V b) { return __WT_B##N(V, max, a, b); } \
  __WT_D__ V clamp(V v, T a, T b) { return max(make_##V(a), min(v, make_##V(b))); } \
  __WT_D__ V clamp(V v, V a, V b) { return max(a, min(v, b)); }
__WT_D__ float clamp(float v, float a, float b) { return fmaxf(a, fminf(v, b)); }
__WT_D__ int clamp(int v, int a, int b) { return max(a, min(v, b)); }
__WT_D__ unsigned clamp(unsigned v, unsigned a, unsigned b) { return max(a, min(v, b)); }
__WT_ALLOPS(float2, float, 2) __WT_ALLOPS(float3, float, 3) __WT_ALLOPS(float4, float, 4)
__WT_ALLOPS(int2, int, 2) __WT_ALLOPS(int3, int, 3) __WT_ALLOPS(int4, int, 4)
__WT_ALLOPS(uint2, unsigned, 2) __WT_ALLOPS(uint3, unsigned, 3) __WT_ALLOPS(uint4, unsigned, 4)
__WT_D__ float dot(float2 a, float2 b) { return a.x * b.x + a.y * b.y; }
__WT_D__ float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__WT_D__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
__WT_D__ int dot(int3 a, int3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__WT_D__ float lerp(float a, float b, float t) { return a + t * (b - a); }
__WT_D__ float fracf(float v) { return v - floorf(v); }
__WT_D__ float smoothstep(float a, float b, float x) { float y = clamp((x - a) / (b - a), 0.0f, 1.0f); return y * y * (3.0f - 2.0f * y); }
__WT_D__ float3 cross(float3 a, float3 b) { return make_float3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x); }
#define __WT_FLOATS(V, N) \
  __WT_O(V, float, /) __WT_D__ V operator-(V a) { return make_##V(0.0f) - a; } \
  __WT_D__ float length(V v) { return sqrtf(dot(v, v)); } __WT_D__ V normalize(V v) { return v * rsqrtf(dot(v, v)); } \
  __WT_D__ V lerp(V a, V b, float t) { return a + t * (b - a); } __WT_F1(V, floor, N) __WT_F1(V, fabs, N) __WT_F1(V, frac, N) \
  __WT_D__ V fminf(V a, V b) { return __WT_B##N(V, fminf, a, b); } __WT_D__ V fmaxf(V a, V b) { return __WT_B##N(V, fmaxf, a, b); } \
  __WT_D__ V fmodf(V a, V b) { return __WT_B##N(V, fmodf, a, b); } __WT_D__ V reflect(V i, V n) { return i - 2.0f * n * dot(n, i); } \
  __WT_D__ V floorf(V a) { return floor(a); }
__WT_FLOATS(float2, 2) __WT_FLOATS(float3, 3) __WT_FLOATS(float4, 4)
