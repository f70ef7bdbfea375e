/* CUDA C++ as the translator of Windtunnel knows it. Functions without a body are its intrinsics. */
#pragma once
#define __CUDACC__ 1
#define __NVCC__ 1
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 800
#endif
#define CUDART_VERSION 12040
#define CUDA_VERSION 12040
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 4
#define __CUDACC_VER_BUILD__ 0
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((device))
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define alignas(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __restrict__
#define __restrict
#define restrict
#define _Bool bool
#define __WT_D__ static inline __attribute__((device)) __attribute__((host))
#define NULL 0
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t; typedef long int64_t; typedef unsigned long uint64_t;
typedef long intptr_t; typedef unsigned long uintptr_t;
typedef unsigned int uint; typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned long ulong;
typedef unsigned long long cudaTextureObject_t; typedef unsigned long long cudaSurfaceObject_t;
typedef cudaTextureObject_t CUtexObject; typedef cudaSurfaceObject_t CUsurfObject; typedef long clock_t; typedef long time_t;

#define __WT_V1(T, N, A) struct __align__(A) N##1 { T x; }; __WT_D__ N##1 make_##N##1(T x) { N##1 v; v.x = x; return v; }
#define __WT_V2(T, N, A) struct __align__(A) N##2 { T x, y; }; \
  __WT_D__ N##2 make_##N##2(T x, T y) { N##2 v; v.x = x; v.y = y; return v; }
#define __WT_V3(T, N) struct N##3 { T x, y, z; }; \
  __WT_D__ N##3 make_##N##3(T x, T y, T z) { N##3 v; v.x = x; v.y = y; v.z = z; return v; }
#define __WT_V4(T, N, A) struct __align__(A) N##4 { T x, y, z, w; }; \
  __WT_D__ N##4 make_##N##4(T x, T y, T z, T w) { N##4 v; v.x = x; v.y = y; v.z = z; v.w = w; return v; }
#define __WT_V(T, N, S) __WT_V1(T, N, S) __WT_V2(T, N, 2 * S) __WT_V3(T, N)
__WT_V(char, char, 1) __WT_V4(char, char, 4) __WT_V(unsigned char, uchar, 1) __WT_V4(unsigned char, uchar, 4)
__WT_V(short, short, 2) __WT_V4(short, short, 8) __WT_V(unsigned short, ushort, 2) __WT_V4(unsigned short, ushort, 8)
__WT_V(int, int, 4) __WT_V4(int, int, 16) __WT_V(unsigned int, uint, 4) __WT_V4(unsigned int, uint, 16)
__WT_V(long, long, 8) __WT_V4(long, long, 16) __WT_V(unsigned long, ulong, 8) __WT_V4(unsigned long, ulong, 16)
__WT_V(long long, longlong, 8) __WT_V4(long long, longlong, 16)
__WT_V(unsigned long long, ulonglong, 8) __WT_V4(unsigned long long, ulonglong, 16)
__WT_V(float, float, 4) __WT_V4(float, float, 16) __WT_V(double, double, 8) __WT_V4(double, double, 16)
struct dim3 {
  unsigned int x, y, z;
  __host__ __device__ dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
  __host__ __device__ dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
extern const __device__ uint3 threadIdx;
extern const __device__ uint3 blockIdx;
extern const __device__ dim3 blockDim;
extern const __device__ dim3 gridDim;
extern const __device__ int warpSize;

extern "C" {
__device__ void __syncthreads(void);
__device__ size_t __cvta_generic_to_shared(const void *at);
__device__ void *__cvta_shared_to_generic(size_t at);
__device__ int __syncthreads_count(int predicate);
__device__ int __syncthreads_and(int predicate);
__device__ int __syncthreads_or(int predicate);
__device__ void __threadfence(void);
__device__ void __threadfence_block(void);
__device__ void __threadfence_system(void);
__device__ void __wt_grid_sync(void);
__device__ unsigned __wt_active(void);
__device__ int __wt_lane(void);
__host__ __device__ void __wt_assert_fail(const char *text);
__device__ void __trap(void);
__device__ void __nanosleep(unsigned ns);
__host__ __device__ int printf(const char *form, ...);
__host__ __device__ void *memcpy(void *to, const void *from, size_t size);
__host__ __device__ void *memmove(void *to, const void *from, size_t size);
__host__ __device__ void *memset(void *to, int value, size_t size);
}
__device__ void __syncwarp(unsigned mask = 0xffffffffu);
__WT_D__ void __brkpt() {}
extern "C" __host__ __device__ long long __wt_clock(void);
__WT_D__ long long clock64() { return __wt_clock(); }
__WT_D__ clock_t clock() { return __wt_clock(); }
__WT_D__ unsigned long long globaltimer() { return __wt_clock(); }
/* Annotations of verifiers: assertions are checked, and what they assume or prove is not. */
#ifndef __requires
#include "verifier_annotations.h"
#endif
#define __global_assert(e) assert(e)
#define __assert(e) assert(e)
#define assert(e) ((e) ? (void)0 : __wt_assert_fail(#e))
#define static_assert_(...)

/* Atomic operations */
#define __WT_A2(NAME, T) __device__ T NAME(T *at, T value); __device__ T NAME##_block(T *at, T value); \
  __device__ T NAME##_system(T *at, T value); \
  static inline __device__ T NAME(volatile T *at, T value) { return NAME((T *)at, value); }
#define __WT_A2I(NAME) __WT_A2(NAME, int) __WT_A2(NAME, unsigned) __WT_A2(NAME, unsigned long long)
__WT_A2I(atomicAdd) __WT_A2(atomicAdd, float) __WT_A2(atomicAdd, double)
__WT_A2(atomicSub, int) __WT_A2(atomicSub, unsigned)
__WT_A2I(atomicMin) __WT_A2(atomicMin, long long) __WT_A2I(atomicMax) __WT_A2(atomicMax, long long)
__WT_A2I(atomicAnd) __WT_A2I(atomicOr) __WT_A2I(atomicXor) __WT_A2I(atomicExch) __WT_A2(atomicExch, float)
__WT_A2(atomicInc, unsigned) __WT_A2(atomicDec, unsigned)
#define __WT_A3(T) __device__ T atomicCAS(T *at, T expected, T value); \
  __device__ T atomicCAS_block(T *at, T expected, T value); __device__ T atomicCAS_system(T *at, T expected, T value); \
  static inline __device__ T atomicCAS(volatile T *at, T e, T value) { return atomicCAS((T *)at, e, value); }
__WT_A3(int) __WT_A3(unsigned) __WT_A3(unsigned long long)
__device__ unsigned short atomicCAS(unsigned short *at, unsigned short expected, unsigned short value);

/* Atomic operations with the numbers of C++'s memory orders and of thread scopes */
template <typename T> __device__ T __wt_c11_load(T *, int, int);
template <typename T> __device__ void __wt_c11_store(T *, T, int, int);
template <typename T> __device__ T __wt_c11_exchange(T *, T, int, int);
template <typename T> __device__ bool __wt_c11_compare_exchange(T *, T &, T, int, int, int);
template <typename T> __device__ T __wt_c11_fetch_add(T *, T, int, int);
template <typename T> __device__ T __wt_c11_fetch_sub(T *, T, int, int);
template <typename T> __device__ T __wt_c11_fetch_min(T *, T, int, int);
template <typename T> __device__ T __wt_c11_fetch_max(T *, T, int, int);
template <typename T> __device__ T __wt_c11_fetch_and(T *, T, int, int);
template <typename T> __device__ T __wt_c11_fetch_or(T *, T, int, int);
template <typename T> __device__ T __wt_c11_fetch_xor(T *, T, int, int);
__device__ void __wt_c11_fence(int, int);

/* Barriers with a number, of some warps of a block (bar.sync and bar.arrive); all are 0 when a kernel begins. */
static inline __device__ void __wt_named_barrier(int id, int count, bool waits) {
  __shared__ int named_barriers[32];
  int phase = __wt_c11_load(&named_barriers[16 + id], 0, 1);
  if (__wt_c11_fetch_add(&named_barriers[id], 1, 4, 1) == count - 1) {
    __wt_c11_store(&named_barriers[id], 0, 0, 1);
    __wt_c11_store(&named_barriers[16 + id], phase + 1, 3, 1);
  } else if (waits) {
    while (__wt_c11_load(&named_barriers[16 + id], 2, 1) == phase) {}
  }
}

/* Warps */
#define __WT_S(T) \
  __device__ T __shfl_sync(unsigned m, T v, int lane, int width = 32); \
  __device__ T __shfl_up_sync(unsigned m, T v, unsigned by, int width = 32); \
  __device__ T __shfl_down_sync(unsigned m, T v, unsigned by, int width = 32); \
  __device__ T __shfl_xor_sync(unsigned m, T v, int lanes, int width = 32); \
  __device__ T __shfl(T v, int lane, int width = 32); __device__ T __shfl_up(T v, unsigned by, int width = 32); \
  __device__ T __shfl_down(T v, unsigned by, int width = 32); __device__ T __shfl_xor(T v, int lanes, int width = 32);
__WT_S(int) __WT_S(unsigned) __WT_S(long) __WT_S(unsigned long) __WT_S(long long) __WT_S(unsigned long long)
__WT_S(float) __WT_S(double)
__device__ int __all_sync(unsigned mask, int predicate);
__device__ int __any_sync(unsigned mask, int predicate);
__device__ unsigned __ballot_sync(unsigned mask, int predicate);
__WT_D__ unsigned __activemask() { return __wt_active(); }
__WT_D__ int __all(int p) { return __all_sync(__wt_active(), p); }
__WT_D__ int __any(int p) { return __any_sync(__wt_active(), p); }
__WT_D__ unsigned __ballot(int p) { return __ballot_sync(__wt_active(), p); }
__WT_D__ unsigned __lanemask_lt() { return (1u << __wt_lane()) - 1u; }
/* A lane, or the own one if a mask does not name it. */
__WT_D__ int __wt_named(unsigned mask, int lane) { return mask >> lane & 1u ? lane : __wt_lane(); }
#define __WT_MATCH(T) \
  __WT_D__ unsigned __match_any_sync(unsigned mask, T value) { \
    unsigned found = 0; \
    for (int k = 0; k < 32; ++k) { \
      T other = __shfl_sync(mask, value, __wt_named(mask, k)); \
      if ((mask >> k & 1u) && other == value) found |= 1u << k; \
    } \
    return found; \
  } \
  __WT_D__ unsigned __match_all_sync(unsigned mask, T value, int *all) { \
    unsigned found = __match_any_sync(mask, value); \
    *all = found == mask; \
    return *all ? mask : 0u; \
  }
__WT_MATCH(int) __WT_MATCH(unsigned) __WT_MATCH(long long) __WT_MATCH(unsigned long long) __WT_MATCH(float) __WT_MATCH(double)
#define __WT_REDUCE(NAME, T, E) \
  __WT_D__ T __reduce_##NAME##_sync(unsigned mask, T value) { \
    T a = value; \
    for (int k = 0; k < 32; ++k) { \
      T b = __shfl_sync(mask, value, __wt_named(mask, k)); \
      if ((mask >> k & 1u) && k != __wt_lane()) a = E; \
    } \
    return a; \
  }
__WT_REDUCE(add, int, a + b) __WT_REDUCE(add, unsigned, a + b)
__WT_REDUCE(min, int, (a < b ? a : b)) __WT_REDUCE(min, unsigned, (a < b ? a : b))
__WT_REDUCE(max, int, (a > b ? a : b)) __WT_REDUCE(max, unsigned, (a > b ? a : b))
__WT_REDUCE(and, unsigned, a & b) __WT_REDUCE(or, unsigned, a | b) __WT_REDUCE(xor, unsigned, a ^ b)

/* Memory from the heap of the device: one object of 1 MiB, of which nothing is given back */
__device__ __align__(16) unsigned char __wt_heap[1 << 20];
__device__ unsigned long long __wt_heap_used;
__WT_D__ void *malloc(size_t size) {
  unsigned long long whole = (size + 15) / 16 * 16, at = atomicAdd(&__wt_heap_used, whole);
  return at + whole <= sizeof(__wt_heap) ? (void *)(__wt_heap + at) : (void *)0;
}
__WT_D__ void free(void *) {}

/* Bits and integers */
#define __WT_I(T, NAME, ...) __host__ __device__ T NAME(__VA_ARGS__);
extern "C" {
__WT_I(int, __popc, unsigned) __WT_I(int, __popcll, unsigned long long) __WT_I(int, __clz, int) __WT_I(int, __clzll, long long)
__WT_I(int, __ffs, int) __WT_I(int, __ffsll, long long) __WT_I(unsigned, __brev, unsigned) __WT_I(unsigned long long, __brevll, unsigned long long)
__WT_I(int, __float_as_int, float) __WT_I(unsigned, __float_as_uint, float) __WT_I(float, __int_as_float, int)
__WT_I(float, __uint_as_float, unsigned) __WT_I(long long, __double_as_longlong, double)
__WT_I(double, __longlong_as_double, long long)
}
__WT_D__ int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
__WT_D__ unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
__WT_D__ unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  unsigned long long al = (unsigned)a, ah = a >> 32, bl = (unsigned)b, bh = b >> 32;
  unsigned long long m = ah * bl + (al * bl >> 32), n = al * bh + (unsigned)m;
  return ah * bh + (m >> 32) + (n >> 32);
}
__WT_D__ long long __mul64hi(long long a, long long b) {
  return (long long)__umul64hi((unsigned long long)a, (unsigned long long)b) - (a < 0 ? b : 0) - (b < 0 ? a : 0);
}
__WT_D__ int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
__WT_D__ unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
__WT_D__ unsigned __sad(int a, int b, unsigned c) { return (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a) + c; }
__WT_D__ unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
__WT_D__ int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
__WT_D__ int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
__WT_D__ unsigned __uhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b) >> 1); }
__WT_D__ unsigned __urhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b + 1) >> 1); }
__WT_D__ double __hiloint2double(int high, int low) { return __longlong_as_double((long long)high << 32 | (unsigned)low); }
__WT_D__ int __double2hiint(double v) { return (int)(__double_as_longlong(v) >> 32); }
__WT_D__ int __double2loint(double v) { return (int)__double_as_longlong(v); }
__WT_D__ int __dp4a(int a, int b, int c) {
  for (int k = 0; k < 32; k += 8) c += (int)(signed char)(a >> k) * (int)(signed char)(b >> k);
  return c;
}
__WT_D__ unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int k = 0; k < 32; k += 8) c += (a >> k & 255u) * (b >> k & 255u);
  return c;
}
__WT_D__ int __dp2a_lo(int a, int b, int c) { return c + (short)a * (signed char)b + (a >> 16) * (signed char)(b >> 8); }
__WT_D__ int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }
__WT_D__ unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) { return c + (a & 0xffffu) * (b & 255u) + (a >> 16) * (b >> 8 & 255u); }
__WT_D__ unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return __dp2a_lo(a, b >> 16, c); }
/* Instructions on four bytes or two halves of a word. The expressions are of the parts a and b, as int. */
#define __WT_PARTS(NAME, N, T, E) \
  __WT_D__ unsigned NAME(unsigned x, unsigned y) { \
    unsigned result = 0u; \
    for (int k = 0; k < 32; k += N) { int a = (T)(x >> k), b = (T)(y >> k); result |= ((unsigned)(E) & (0xffffffffu >> (32 - N))) << k; } \
    return result; \
  }
#define __WT_PART(NAME, N, T, E) \
  __WT_D__ unsigned NAME(unsigned x) { \
    unsigned result = 0u; \
    for (int k = 0; k < 32; k += N) { int a = (T)(x >> k); result |= ((unsigned)(E) & (0xffffffffu >> (32 - N))) << k; } \
    return result; \
  }
#define __WT_CUT(V, LOW, HIGH) ((V) < (LOW) ? (LOW) : (V) > (HIGH) ? (HIGH) : (V))
#define __WT_SIMD1(C, N, S, U, LOW, HIGH, MOST) \
  __WT_PARTS(__vadd##C, N, U, a + b) __WT_PARTS(__vsub##C, N, U, a - b) \
  __WT_PARTS(__vaddss##C, N, S, __WT_CUT(a + b, LOW, HIGH)) __WT_PARTS(__vaddus##C, N, U, __WT_CUT(a + b, 0, MOST)) \
  __WT_PARTS(__vsubss##C, N, S, __WT_CUT(a - b, LOW, HIGH)) __WT_PARTS(__vsubus##C, N, U, __WT_CUT(a - b, 0, MOST)) \
  __WT_PARTS(__vavgs##C, N, S, (a + b + (a + b >= 0)) >> 1) __WT_PARTS(__vavgu##C, N, U, (a + b + 1) >> 1) \
  __WT_PARTS(__vhaddu##C, N, U, (a + b) >> 1) __WT_PARTS(__vmaxs##C, N, S, a > b ? a : b) \
  __WT_PARTS(__vmaxu##C, N, U, a > b ? a : b) __WT_PARTS(__vmins##C, N, S, a < b ? a : b) \
  __WT_PARTS(__vminu##C, N, U, a < b ? a : b) __WT_PARTS(__vabsdiffs##C, N, S, a > b ? a - b : b - a) \
  __WT_PARTS(__vabsdiffu##C, N, U, a > b ? a - b : b - a) \
  __WT_PART(__vneg##C, N, S, -a) __WT_PART(__vabs##C, N, S, a < 0 ? -a : a) \
  __WT_PART(__vnegss##C, N, S, __WT_CUT(-a, LOW, HIGH)) __WT_PART(__vabsss##C, N, S, __WT_CUT(a < 0 ? -a : a, LOW, HIGH)) \
  __WT_SIMD2(C, N, U, eq, ==) __WT_SIMD2(C, N, U, ne, !=) __WT_SIMD2(C, N, U, ltu, <) __WT_SIMD2(C, N, U, leu, <=) \
  __WT_SIMD2(C, N, U, gtu, >) __WT_SIMD2(C, N, U, geu, >=) __WT_SIMD2(C, N, S, lts, <) __WT_SIMD2(C, N, S, les, <=) \
  __WT_SIMD2(C, N, S, gts, >) __WT_SIMD2(C, N, S, ges, >=) __WT_SAD(__vsads##C, N, S) __WT_SAD(__vsadu##C, N, U)
#define __WT_SIMD2(C, N, T, NAME, OP) __WT_PARTS(__vcmp##NAME##C, N, T, a OP b ? -1 : 0) __WT_PARTS(__vset##NAME##C, N, T, a OP b ? 1 : 0)
#define __WT_SAD(NAME, N, T) \
  __WT_D__ unsigned NAME(unsigned x, unsigned y) { \
    unsigned sum = 0u; \
    for (int k = 0; k < 32; k += N) { int a = (T)(x >> k), b = (T)(y >> k); sum += (unsigned)(a > b ? a - b : b - a); } \
    return sum; \
  }
__WT_SIMD1(4, 8, signed char, unsigned char, -128, 127, 255) __WT_SIMD1(2, 16, short, unsigned short, -32768, 32767, 65535)
__WT_D__ unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  unsigned long long both = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int k = 0; k < 4; ++k) {
    unsigned selector = s >> (4 * k) & 0xfu, byte = (unsigned)(both >> (8 * (selector & 7u))) & 0xffu;
    if (selector & 8u) byte = byte & 0x80u ? 0xffu : 0u;
    result |= byte << (8 * k);
  }
  return result;
}
__WT_D__ unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned by) {
  return (unsigned)((((unsigned long long)hi << 32 | lo) << (by & 31u)) >> 32);
}
__WT_D__ unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned by) {
  return (unsigned)(((unsigned long long)hi << 32 | lo) >> (by & 31u));
}
__WT_D__ unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned by) {
  return by >= 32u ? lo : (unsigned)((((unsigned long long)hi << 32 | lo) << by) >> 32);
}
__WT_D__ unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned by) {
  return by >= 32u ? hi : (unsigned)(((unsigned long long)hi << 32 | lo) >> by);
}
__WT_D__ float saturate(float x) { return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x; }
__WT_D__ float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
#define __WT_MINMAX(T) __host__ __device__ T min(T a, T b); __host__ __device__ T max(T a, T b);
__WT_MINMAX(int) __WT_MINMAX(unsigned) __WT_MINMAX(long) __WT_MINMAX(unsigned long) __WT_MINMAX(long long)
__WT_MINMAX(unsigned long long) __WT_MINMAX(float) __WT_MINMAX(double)
#define __WT_MIXED(A, B, T) __WT_D__ T min(A a, B b) { return min((T)a, (T)b); } __WT_D__ T max(A a, B b) { return max((T)a, (T)b); }
__WT_MIXED(int, unsigned, unsigned) __WT_MIXED(unsigned, int, unsigned) __WT_MIXED(float, double, double) __WT_MIXED(double, float, double)
__WT_D__ unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
__WT_D__ unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
__WT_D__ long long llmin(long long a, long long b) { return a < b ? a : b; }
__WT_D__ long long llmax(long long a, long long b) { return a > b ? a : b; }
__WT_D__ unsigned long long ullmin(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
__WT_D__ unsigned long long ullmax(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
__WT_MIXED(long, int, long) __WT_MIXED(int, long, long) __WT_MIXED(long long, int, long long) __WT_MIXED(int, long long, long long)
__WT_MIXED(unsigned long long, long long, unsigned long long) __WT_MIXED(long long, unsigned long long, unsigned long long)
__WT_MIXED(unsigned long, int, unsigned long) __WT_MIXED(int, unsigned long, unsigned long)
__WT_MIXED(unsigned long, unsigned, unsigned long) __WT_MIXED(unsigned, unsigned long, unsigned long)
__host__ __device__ int abs(int); __host__ __device__ long abs(long); __host__ __device__ long long abs(long long);
__host__ __device__ long labs(long); __host__ __device__ long long llabs(long long);

/* Mathematics */
/* As in C++, an integer is a double to these functions, and so are two numbers of different types. */
template <bool B> struct __wt_double {}; template <> struct __wt_double<true> { typedef double type; };
#define __WT_M1(NAME) __host__ __device__ double NAME(double); __host__ __device__ float NAME##f(float); \
  __host__ __device__ float NAME(float); \
  template <typename T> __WT_D__ typename __wt_double<__is_integral(T)>::type NAME(T x) { return NAME((double)x); }
#define __WT_M2(NAME) __host__ __device__ double NAME(double, double); __host__ __device__ float NAME##f(float, float); \
  __host__ __device__ float NAME(float, float); \
  template <typename A, typename B> \
  __WT_D__ typename __wt_double<__is_arithmetic(A) && __is_arithmetic(B)>::type NAME(A a, B b) { return NAME((double)a, (double)b); }
__WT_M1(sqrt) __WT_M1(exp) __WT_M1(exp2) __WT_M1(exp10) __WT_M1(expm1) __WT_M1(log) __WT_M1(log2) __WT_M1(log10) __WT_M1(log1p)
__WT_M1(sin) __WT_M1(cos) __WT_M1(tan) __WT_M1(asin) __WT_M1(acos) __WT_M1(atan) __WT_M1(sinh) __WT_M1(cosh) __WT_M1(tanh)
__WT_M1(asinh) __WT_M1(acosh) __WT_M1(atanh) __WT_M1(floor) __WT_M1(ceil) __WT_M1(trunc) __WT_M1(rint) __WT_M1(round)
__WT_M1(nearbyint) __WT_M1(fabs) __WT_M1(erf) __WT_M1(erfc) __WT_M1(erfinv) __WT_M1(erfcinv) __WT_M1(normcdf) __WT_M1(cbrt)
__WT_M1(rcbrt) __WT_M1(rsqrt) __WT_M1(lgamma) __WT_M1(tgamma) __WT_M1(sinpi) __WT_M1(cospi) __WT_M1(logb) __WT_M1(j0) __WT_M1(j1)
__WT_M1(y0) __WT_M1(y1)
__WT_M2(pow) __WT_M2(atan2) __WT_M2(fmod) __WT_M2(copysign) __WT_M2(hypot) __WT_M2(fmin) __WT_M2(fmax) __WT_M2(fdim)
__WT_M2(nextafter) __WT_M2(remainder)
__WT_D__ float pow(float x, int n) { return pow(x, (float)n); }
__WT_D__ double pow(double x, int n) { return pow(x, (double)n); }
__WT_D__ float normcdfinvf(float x) { return -1.41421356f * erfcinvf(2.0f * x); }
__WT_D__ double normcdfinv(double x) { return -1.4142135623730951 * erfcinv(2.0 * x); }
__WT_D__ float abs(float x) { return fabsf(x); }
__WT_D__ double abs(double x) { return fabs(x); }
__host__ __device__ double fma(double, double, double); __host__ __device__ float fmaf(float, float, float);
__host__ __device__ float fma(float, float, float);
__host__ __device__ double ldexp(double, int); __host__ __device__ float ldexpf(float, int);
__host__ __device__ void sincosf(float, float *, float *); __host__ __device__ void sincos(double, double *, double *);
__host__ __device__ void __sincosf(float, float *, float *);
__host__ __device__ double frexp(double, int *); __host__ __device__ float frexpf(float, int *);
__host__ __device__ float frexp(float, int *); __host__ __device__ double remquo(double, double, int *);
__host__ __device__ float remquof(float, float, int *); __host__ __device__ float remquo(float, float, int *);
__host__ __device__ float ldexp(float, int); __host__ __device__ float modf(float, float *);
__WT_D__ float nanf(const char *) { return __builtin_nanf(""); }
__WT_D__ double nan(const char *) { return __builtin_nan(""); }
__WT_D__ double scalbn(double x, int n) { return ldexp(x, n); }
__WT_D__ float scalbnf(float x, int n) { return ldexpf(x, n); }
__WT_D__ double scalbln(double x, long n) { return ldexp(x, (int)n); }
__WT_D__ int ilogbf(float x) { return x == 0.0f ? -2147483647 - 1 : x - x == 0.0f ? (int)logbf(x) : 2147483647; }
__WT_D__ int ilogb(double x) { return x == 0.0 ? -2147483647 - 1 : x - x == 0.0 ? (int)logb(x) : 2147483647; }
__host__ __device__ float modff(float, float *); __host__ __device__ double modf(double, double *);
__host__ __device__ long lrintf(float); __host__ __device__ long lrint(double); __host__ __device__ long lroundf(float);
__host__ __device__ long lround(double); __host__ __device__ long long llrintf(float); __host__ __device__ long long llroundf(float);
__WT_D__ long long llrint(double x) { return lrint(x); }
__WT_D__ long long llround(double x) { return lround(x); }
#define __WT_T(NAME) __host__ __device__ bool NAME(float); __host__ __device__ bool NAME(double);
__WT_T(isnan) __WT_T(isinf) __WT_T(isfinite) __WT_T(signbit)
extern "C" {
__WT_I(float, __sinf, float) __WT_I(float, __cosf, float) __WT_I(float, __tanf, float) __WT_I(float, __expf, float)
__WT_I(float, __exp10f, float) __WT_I(float, __logf, float) __WT_I(float, __log2f, float) __WT_I(float, __log10f, float)
__WT_I(float, __powf, float, float)
#define __WT_R(M) \
  __WT_I(float, __fadd_##M, float, float) __WT_I(float, __fsub_##M, float, float) __WT_I(float, __fmul_##M, float, float) \
  __WT_I(float, __fdiv_##M, float, float) __WT_I(float, __fsqrt_##M, float) __WT_I(float, __frcp_##M, float) \
  __WT_I(float, __fmaf_##M, float, float, float) \
  __WT_I(int, __float2int_##M, float) __WT_I(unsigned, __float2uint_##M, float) __WT_I(long long, __float2ll_##M, float) \
  __WT_I(int, __double2int_##M, double) __WT_I(unsigned, __double2uint_##M, double) __WT_I(long long, __double2ll_##M, double) \
  __WT_I(float, __double2float_##M, double) __WT_I(float, __int2float_##M, int) __WT_I(float, __uint2float_##M, unsigned) \
  __WT_I(float, __ll2float_##M, long long) __WT_I(double, __ll2double_##M, long long)
__WT_R(rn) __WT_R(rz) __WT_R(ru) __WT_R(rd)
__WT_I(double, __dadd_rn, double, double) __WT_I(double, __dsub_rn, double, double) __WT_I(double, __dmul_rn, double, double)
__WT_I(double, __ddiv_rn, double, double) __WT_I(double, __dsqrt_rn, double) __WT_I(double, __fma_rn, double, double, double)
}
/* Doubles rounded in a direction: the nearest one, moved by the sign of its error, which is exact short of overflow. */
__WT_D__ double __wt_rz(double r, double error) { return (r > 0.0 && error < 0.0) || (r < 0.0 && error > 0.0) ? nextafter(r, 0.0) : r; }
__WT_D__ double __wt_ru(double r, double error) { return error > 0.0 ? nextafter(r, __builtin_inf()) : r; }
__WT_D__ double __wt_rd(double r, double error) { return error < 0.0 ? nextafter(r, -__builtin_inf()) : r; }
__WT_D__ double __wt_sum_error(double a, double b, double sum) {
  double c = __dsub_rn(sum, a);
  return __dadd_rn(__dsub_rn(a, __dsub_rn(sum, c)), __dsub_rn(b, c));
}
__WT_D__ double __wt_fma_error(double a, double b, double c, double r) {
  double product = __dmul_rn(a, b), low = __fma_rn(a, b, -product), x = __dadd_rn(c, low), y = __wt_sum_error(c, low, x);
  double z = __dadd_rn(product, x);
  return __dadd_rn(__dadd_rn(__dsub_rn(z, r), __wt_sum_error(product, x, z)), y);
}
#define __WT_RD(M) \
  __WT_D__ double __dadd_##M(double a, double b) { double r = __dadd_rn(a, b); return __wt_##M(r, __wt_sum_error(a, b, r)); } \
  __WT_D__ double __dsub_##M(double a, double b) { return __dadd_##M(a, -b); } \
  __WT_D__ double __dmul_##M(double a, double b) { double r = __dmul_rn(a, b); return __wt_##M(r, __fma_rn(a, b, -r)); } \
  __WT_D__ double __ddiv_##M(double a, double b) { \
    double r = __ddiv_rn(a, b), rest = __fma_rn(-r, b, a); return __wt_##M(r, b < 0.0 ? -rest : rest); \
  } \
  __WT_D__ double __dsqrt_##M(double a) { double r = __dsqrt_rn(a); return __wt_##M(r, __fma_rn(-r, r, a)); } \
  __WT_D__ double __drcp_##M(double a) { return __ddiv_##M(1.0, a); } \
  __WT_D__ double __fma_##M(double a, double b, double c) { double r = __fma_rn(a, b, c); return __wt_##M(r, __wt_fma_error(a, b, c, r)); }
__WT_RD(rz) __WT_RD(ru) __WT_RD(rd)
__WT_D__ double __drcp_rn(double a) { return __ddiv_rn(1.0, a); }
__WT_D__ double __int2double_rn(int x) { return x; }
__WT_D__ double __uint2double_rn(unsigned x) { return x; }
__WT_D__ double __ull2double_rn(unsigned long long x) { return (double)x; }
__WT_D__ float __ull2float_rn(unsigned long long x) { return (float)x; }
__WT_D__ unsigned long long __float2ull_rz(float x) { return (unsigned long long)x; }
__WT_D__ unsigned long long __float2ull_rn(float x) { return (unsigned long long)rintf(x); }
__WT_D__ unsigned long long __float2ull_rd(float x) { return (unsigned long long)floorf(x); }
__WT_D__ unsigned long long __float2ull_ru(float x) { return (unsigned long long)ceilf(x); }
__WT_D__ unsigned long long __double2ull_rz(double x) { return (unsigned long long)x; }
__WT_D__ unsigned long long __double2ull_rn(double x) { return (unsigned long long)rint(x); }
__WT_D__ unsigned long long __double2ull_rd(double x) { return (unsigned long long)floor(x); }
__WT_D__ unsigned long long __double2ull_ru(double x) { return (unsigned long long)ceil(x); }
#define __builtin_popcount __popc
#define __builtin_popcountll __popcll
#define __builtin_clz __clz
#define __builtin_clzll __clzll
#define __builtin_ffs __ffs
#define __builtin_ffsll __ffsll
#define __builtin_ctz(x) (__ffs(x) - 1)
#define __builtin_ctzll(x) (__ffsll(x) - 1)
#define __builtin_bswap32(x) __byte_perm(x, 0u, 0x0123u)
#define __builtin_memcpy memcpy
#define __builtin_memset memset
__WT_D__ int memcmp(const void *a, const void *b, size_t size) {
  const unsigned char *p = (const unsigned char *)a, *q = (const unsigned char *)b;
  for (size_t i = 0; i < size; ++i) if (p[i] != q[i]) return (int)p[i] - (int)q[i];
  return 0;
}
__WT_D__ size_t strlen(const char *text) { size_t n = 0; while (text[n]) ++n; return n; }
__WT_D__ int strcmp(const char *a, const char *b) {
  size_t i = 0;
  while (a[i] && a[i] == b[i]) ++i;
  return (int)(unsigned char)a[i] - (int)(unsigned char)b[i];
}
__WT_D__ void sincospif(float x, float *s, float *c) { *s = sinpif(x); *c = cospif(x); }
__WT_D__ void sincospi(double x, double *s, double *c) { *s = sinpi(x); *c = cospi(x); }
__WT_D__ float norm4df(float a, float b, float c, float d) { return sqrtf(a * a + b * b + c * c + d * d); }
__WT_D__ float rnorm4df(float a, float b, float c, float d) { return 1.0f / norm4df(a, b, c, d); }
__WT_D__ float scalblnf(float x, long n) { return ldexpf(x, (int)n); }
__WT_D__ float fdividef(float a, float b) { return a / b; }
__WT_D__ float __fdividef(float a, float b) { return a / b; }
__WT_D__ float __frsqrt_rn(float x) { return rsqrtf(x); }
__WT_D__ float rhypotf(float a, float b) { return 1.0f / hypotf(a, b); }
__WT_D__ double rhypot(double a, double b) { return 1.0 / hypot(a, b); }
__WT_D__ double norm3d(double a, double b, double c) { return sqrt(a * a + b * b + c * c); }
__WT_D__ float rnorm3df(float a, float b, float c) { return 1.0f / sqrtf(a * a + b * b + c * c); }
__WT_D__ float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }

#include "ptx.h"

/* Loads through caches, and state spaces */
template <typename T> static inline __device__ T __ldg(const T *at) { return *at; }
template <typename T> static inline __device__ T __ldcg(const T *at) { return *at; }
template <typename T> static inline __device__ T __ldca(const T *at) { return *at; }
template <typename T> static inline __device__ T __ldcs(const T *at) { return *at; }
template <typename T> static inline __device__ void __stcg(T *at, T value) { *at = value; }
template <typename T> static inline __device__ T __ldlu(const T *at) { return *at; }
template <typename T> static inline __device__ T __ldcv(const T *at) { return *at; }
template <typename T> static inline __device__ void __stcs(T *at, T value) { *at = value; }
template <typename T> static inline __device__ void __stwb(T *at, T value) { *at = value; }
template <typename T> static inline __device__ void __stwt(T *at, T value) { *at = value; }
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define CUDART_INF_F (__builtin_inff())
#define CUDART_NAN_F (__builtin_nanf(""))
#define CUDART_INF (__builtin_inf())
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0
#define M_PI 3.14159265358979323846
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define HUGE_VAL (__builtin_huge_val())
#define HUGE_VALF (__builtin_huge_valf())
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_RADIX 2
#define FLT_MIN_EXP (-125)
#define FLT_MAX_EXP 128
#define FLT_MAX_10_EXP 38
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#define DBL_MIN_EXP (-1021)
#define DBL_MAX_EXP 1024
#define DBL_MAX_10_EXP 308
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#define CHAR_BIT 8
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define LONG_MAX 9223372036854775807l
#define ULONG_MAX 18446744073709551615ul
#define LLONG_MAX 9223372036854775807ll
#define LLONG_MIN (-9223372036854775807ll - 1)
#define ULLONG_MAX 18446744073709551615ull
#define LONG_MIN (-9223372036854775807l - 1)
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define UINT8_MAX 255
#define UINT16_MAX 65535
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ul
#define INT8_MAX 127
#define INT8_MIN (-128)
#define INT16_MAX 32767
#define INT16_MIN (-32768)
#define INT32_MAX 2147483647
#define INT32_MIN (-2147483647 - 1)
#define INT64_MAX 9223372036854775807l
#define INT64_MIN (-9223372036854775807l - 1)
#define UINTPTR_MAX UINT64_MAX
#define SIZE_MAX UINT64_MAX
#define RAND_MAX 2147483647
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1

/* Textures and surfaces */
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum cudaTextureFilterMode { cudaFilterModePoint, cudaFilterModeLinear };
enum cudaTextureAddressMode { cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder };
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };
struct cudaExtent { size_t width, height, depth; }; struct cudaPos { size_t x, y, z; };
struct cudaPitchedPtr { void *ptr; size_t pitch, xsize, ysize; };
static inline __host__ __device__ cudaExtent make_cudaExtent(size_t w, size_t h, size_t d) { cudaExtent e = {w, h, d}; return e; }
static inline __host__ __device__ cudaPos make_cudaPos(size_t x, size_t y, size_t z) { cudaPos p = {x, y, z}; return p; }
static inline __host__ __device__ cudaPitchedPtr make_cudaPitchedPtr(void *p, size_t pitch, size_t x, size_t y) { cudaPitchedPtr q = {p, pitch, x, y}; return q; }
struct cudaChannelFormatDesc { int x, y, z, w, f; };
#define cudaTextureType1D 1
#define cudaTextureType2D 2
#define cudaTextureType3D 3
#define cudaTextureTypeCubemap 12
#define cudaTextureType1DLayered 241
#define cudaTextureType2DLayered 242
template <typename T, int D = 1, int M = cudaReadModeElementType> struct __attribute__((device_builtin_texture_type)) texture {
  int normalized, filterMode, addressMode[3]; cudaChannelFormatDesc channelDesc;
};
template <typename T, int D = 1> struct __attribute__((device_builtin_surface_type)) surface { cudaChannelFormatDesc channelDesc; };
template <typename T, int M> struct __wt_read { typedef T type; };
#define __WT_N(T) \
  template <> struct __wt_read<T, 1> { typedef float type; }; template <> struct __wt_read<T##1, 1> { typedef float1 type; }; \
  template <> struct __wt_read<T##2, 1> { typedef float2 type; }; template <> struct __wt_read<T##4, 1> { typedef float4 type; };
__WT_N(char) __WT_N(uchar) __WT_N(short) __WT_N(ushort)
#define __WT_X(NAME, D, ...) \
  template <typename T, int M> __device__ typename __wt_read<T, M>::type NAME(const texture<T, D, M> &, __VA_ARGS__); \
  template <typename T> __device__ T NAME(cudaTextureObject_t, __VA_ARGS__); \
  template <typename T> __device__ void NAME(T *, cudaTextureObject_t, __VA_ARGS__);
__WT_X(tex1Dfetch, 1, int) __WT_X(tex1D, 1, float) __WT_X(tex2D, 2, float, float) __WT_X(tex3D, 3, float, float, float)
__WT_X(tex1DLayered, 241, float, int) __WT_X(tex2DLayered, 242, float, float, int) __WT_X(texCubemap, 12, float, float, float)
__WT_X(tex1DLod, 1, float, float) __WT_X(tex2DLod, 2, float, float, float) __WT_X(tex3DLod, 3, float, float, float, float)
__WT_X(tex2DGrad, 2, float, float, float2, float2) __WT_X(texCubemapLod, 12, float, float, float, float)
#define __WT_U(NAME, D, ...) \
  template <typename T> __device__ T NAME##read(const surface<void, D> &, __VA_ARGS__, int = 0); \
  template <typename T> __device__ T NAME##read(cudaSurfaceObject_t, __VA_ARGS__, int = 0); \
  template <typename T> __device__ void NAME##read(T *, const surface<void, D> &, __VA_ARGS__, int = 0); \
  template <typename T> __device__ void NAME##read(T *, cudaSurfaceObject_t, __VA_ARGS__, int = 0); \
  template <typename T> __device__ void NAME##write(T, const surface<void, D> &, __VA_ARGS__, int = 0); \
  template <typename T> __device__ void NAME##write(T, cudaSurfaceObject_t, __VA_ARGS__, int = 0);
__WT_U(surf1D, 1, int) __WT_U(surf2D, 2, int, int) __WT_U(surf3D, 3, int, int, int) __WT_U(surf2DLayered, 242, int, int, int)
__WT_U(surfCubemap, 12, int, int, int)

/* Of the standard library, what device code uses */
namespace std {
typedef ::size_t size_t; typedef ::ptrdiff_t ptrdiff_t; typedef decltype(nullptr) nullptr_t;
template <typename T, T v> struct integral_constant { static constexpr T value = v; typedef T value_type; constexpr operator T() const { return v; } };
typedef integral_constant<bool, true> true_type; typedef integral_constant<bool, false> false_type;
template <bool B, typename T = void> struct enable_if {}; template <typename T> struct enable_if<true, T> { typedef T type; };
template <bool B, typename T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, typename T, typename F> struct conditional { typedef T type; }; template <typename T, typename F> struct conditional<false, T, F> { typedef F type; };
template <bool B, typename T, typename F> using conditional_t = typename conditional<B, T, F>::type;
template <typename A, typename B> struct is_same : false_type {}; template <typename A> struct is_same<A, A> : true_type {};
template <typename A, typename B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <typename T> struct remove_const { typedef T type; }; template <typename T> struct remove_const<const T> { typedef T type; };
template <typename T> struct remove_reference { typedef T type; }; template <typename T> struct remove_reference<T &> { typedef T type; };
template <typename T> struct remove_reference<T &&> { typedef T type; };
template <typename T> using remove_reference_t = typename remove_reference<T>::type;
template <typename T> struct is_integral : integral_constant<bool, __is_integral(T)> {};
template <typename T> struct is_floating_point : integral_constant<bool, __is_floating_point(T)> {};
template <typename T> struct is_signed : integral_constant<bool, __is_signed(T)> {};
template <typename T> __host__ __device__ constexpr T &&forward(remove_reference_t<T> &v) { return static_cast<T &&>(v); }
template <typename T> __host__ __device__ constexpr remove_reference_t<T> &&move(T &&v) { return static_cast<remove_reference_t<T> &&>(v); }
template <typename T> __host__ __device__ constexpr const T &min(const T &a, const T &b) { return b < a ? b : a; }
template <typename T> __host__ __device__ constexpr const T &max(const T &a, const T &b) { return a < b ? b : a; }
template <typename T> __host__ __device__ void swap(T &a, T &b) { T c = a; a = b; b = c; }
template <typename T> __host__ __device__ constexpr const T &clamp(const T &v, const T &low, const T &high) { return v < low ? low : high < v ? high : v; }
template <typename A, typename B> struct pair {
  A first; B second;
  pair() = default;
  __host__ __device__ pair(const A &a, const B &b) : first(a), second(b) {}
};
template <typename A, typename B> __host__ __device__ pair<A, B> make_pair(A a, B b) { return pair<A, B>(a, b); }
template <typename T, size_t N> struct array {
  T elements[N];
  __host__ __device__ T &operator[](size_t i) { return elements[i]; }
  __host__ __device__ const T &operator[](size_t i) const { return elements[i]; }
  __host__ __device__ constexpr size_t size() const { return N; }
  __host__ __device__ T *data() { return elements; }
  __host__ __device__ T *begin() { return elements; }
  __host__ __device__ T *end() { return elements + N; }
};
template <typename T> using remove_const_t = typename remove_const<T>::type;
template <typename T> struct remove_volatile { typedef T type; }; template <typename T> struct remove_volatile<volatile T> { typedef T type; };
template <typename T> struct remove_cv { typedef typename remove_volatile<typename remove_const<T>::type>::type type; };
template <typename T> using remove_cv_t = typename remove_cv<T>::type;
template <typename T> struct remove_pointer { typedef T type; }; template <typename T> struct remove_pointer<T *> { typedef T type; };
template <typename T> struct remove_pointer<T *const> { typedef T type; };
template <typename T> using remove_pointer_t = typename remove_pointer<T>::type;
template <typename T> struct decay { typedef remove_cv_t<remove_reference_t<T>> type; };
template <typename T> using decay_t = typename decay<T>::type;
template <bool B> using bool_constant = integral_constant<bool, B>;
#define __WT_TRAIT(NAME, E) template <typename T> struct NAME : integral_constant<bool, E> {}; \
  template <typename T> inline constexpr bool NAME##_v = NAME<T>::value;
__WT_TRAIT(is_arithmetic, __is_arithmetic(T)) __WT_TRAIT(is_unsigned, __is_unsigned(T)) __WT_TRAIT(is_void, __is_void(T))
__WT_TRAIT(is_enum, __is_enum(T)) __WT_TRAIT(is_class, __is_class(T)) __WT_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
__WT_TRAIT(is_pointer, __is_pointer(T)) __WT_TRAIT(is_const, __is_const(T)) __WT_TRAIT(is_reference, __is_reference(T))
template <typename T> inline constexpr bool is_integral_v = __is_integral(T);
template <typename T> inline constexpr bool is_floating_point_v = __is_floating_point(T);
template <typename T> inline constexpr bool is_signed_v = __is_signed(T);
template <typename A, typename B> struct is_convertible : integral_constant<bool, __is_convertible_to(A, B)> {};
template <typename A, typename B> inline constexpr bool is_convertible_v = is_convertible<A, B>::value;
template <typename A, typename B> struct is_base_of : integral_constant<bool, __is_base_of(A, B)> {};
template <typename T> struct make_unsigned { typedef T type; }; template <typename T> struct make_signed { typedef T type; };
#define __WT_SU(S, U) template <> struct make_unsigned<S> { typedef U type; }; template <> struct make_signed<U> { typedef S type; };
__WT_SU(signed char, unsigned char) __WT_SU(short, unsigned short) __WT_SU(int, unsigned) __WT_SU(long, unsigned long)
__WT_SU(long long, unsigned long long)
template <> struct make_unsigned<char> { typedef unsigned char type; };
template <> struct make_signed<char> { typedef signed char type; };
template <typename T> using make_unsigned_t = typename make_unsigned<T>::type;
template <typename T> using make_signed_t = typename make_signed<T>::type;
template <typename...> using void_t = void;
#define __WT_FUNCTION(NAME, R, OP) template <typename T = void> struct NAME { __host__ __device__ R operator()(const T &a, const T &b) const { return a OP b; } };
__WT_FUNCTION(plus, T, +) __WT_FUNCTION(minus, T, -) __WT_FUNCTION(multiplies, T, *) __WT_FUNCTION(divides, T, /)
__WT_FUNCTION(less, bool, <) __WT_FUNCTION(greater, bool, >) __WT_FUNCTION(equal_to, bool, ==) __WT_FUNCTION(less_equal, bool, <=)
__WT_FUNCTION(greater_equal, bool, >=) __WT_FUNCTION(bit_and, T, &) __WT_FUNCTION(bit_or, T, |) __WT_FUNCTION(bit_xor, T, ^)
using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t; using ::uint32_t; using ::int64_t;
using ::uint64_t; using ::intptr_t; using ::uintptr_t; using ::memcpy; using ::memset; using ::memmove; using ::printf;
using ::abs; using ::sqrt; using ::exp; using ::exp2; using ::expm1; using ::log; using ::log2; using ::log10; using ::log1p;
using ::sin; using ::cos; using ::tan; using ::asin; using ::acos; using ::atan; using ::sinh; using ::cosh; using ::tanh;
using ::asinh; using ::acosh; using ::atanh; using ::floor; using ::ceil; using ::trunc; using ::rint; using ::round;
using ::nearbyint; using ::fabs; using ::erf; using ::erfc; using ::cbrt; using ::lgamma; using ::tgamma; using ::logb;
using ::pow; using ::atan2; using ::fmod; using ::copysign; using ::hypot; using ::fmin; using ::fmax; using ::fdim;
using ::nextafter; using ::remainder; using ::fma; using ::ldexp; using ::frexp; using ::modf; using ::isnan; using ::isinf;
using ::isfinite; using ::signbit; using ::lrint; using ::lround; using ::llrint; using ::llround; using ::scalbn; using ::ilogb;
template <typename T> struct numeric_limits {
  static constexpr bool is_specialized = false, is_signed = false, is_integer = false, is_exact = false, has_infinity = false,
                        has_quiet_NaN = false, is_iec559 = false, is_bounded = false;
  static constexpr int digits = 0, digits10 = 0, max_digits10 = 0, radix = 0, max_exponent = 0, min_exponent = 0;
  static constexpr __host__ __device__ T lowest() { return T(); } static constexpr __host__ __device__ T min() { return T(); }
  static constexpr __host__ __device__ T max() { return T(); } static constexpr __host__ __device__ T infinity() { return T(); }
  static constexpr __host__ __device__ T epsilon() { return T(); } static constexpr __host__ __device__ T quiet_NaN() { return T(); }
};
template <typename T> struct numeric_limits<const T> : numeric_limits<T> {};
#define __WT_L(T, LOW, LEAST, MOST, D, D10, M10, MAXE, MINE) template <> struct numeric_limits<T> { \
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false, has_infinity = true, \
                        has_quiet_NaN = true, is_iec559 = true, is_bounded = true; \
  static constexpr int digits = D, digits10 = D10, max_digits10 = M10, radix = 2, max_exponent = MAXE, min_exponent = MINE; \
  static constexpr __host__ __device__ T lowest() { return LOW; } static constexpr __host__ __device__ T min() { return LEAST; } \
  static constexpr __host__ __device__ T max() { return MOST; } static constexpr __host__ __device__ T infinity() { return (T)__builtin_inf(); } \
  static constexpr __host__ __device__ T quiet_NaN() { return (T)__builtin_nan(""); } \
  static constexpr __host__ __device__ T epsilon() { return sizeof(T) == 4 ? (T)FLT_EPSILON : (T)DBL_EPSILON; } \
  static constexpr __host__ __device__ T denorm_min() { return sizeof(T) == 4 ? (T)0x1p-149f : (T)0x1p-1074; } \
  static constexpr __host__ __device__ T round_error() { return (T)0.5; } };
__WT_L(float, -FLT_MAX, FLT_MIN, FLT_MAX, 24, 6, 9, 128, -125) __WT_L(double, -DBL_MAX, DBL_MIN, DBL_MAX, 53, 15, 17, 1024, -1021)
#define __WT_LI(T, LEAST, MOST) template <> struct numeric_limits<T> { \
  static constexpr bool is_specialized = true, is_signed = (T)-1 < (T)1, is_integer = true, is_exact = true, has_infinity = false, \
                        has_quiet_NaN = false, is_iec559 = false, is_bounded = true; \
  static constexpr int digits = sizeof(T) * 8 - is_signed, digits10 = digits * 643L / 2136, max_digits10 = 0, radix = 2; \
  static constexpr __host__ __device__ T lowest() { return LEAST; } static constexpr __host__ __device__ T min() { return LEAST; } \
  static constexpr __host__ __device__ T max() { return MOST; } static constexpr __host__ __device__ T infinity() { return 0; } \
  static constexpr __host__ __device__ T epsilon() { return 0; } static constexpr __host__ __device__ T quiet_NaN() { return 0; } };
__WT_LI(int, INT_MIN, INT_MAX) __WT_LI(unsigned, 0, UINT_MAX) __WT_LI(long, LLONG_MIN, LONG_MAX) __WT_LI(long long, LLONG_MIN, LLONG_MAX)
__WT_LI(unsigned long, 0, ULONG_MAX) __WT_LI(unsigned long long, 0, ULLONG_MAX) __WT_LI(short, SHRT_MIN, SHRT_MAX)
__WT_LI(unsigned short, 0, USHRT_MAX) __WT_LI(unsigned char, 0, 255) __WT_LI(signed char, -128, 127) __WT_LI(char, -128, 127)
template <> struct numeric_limits<bool> : numeric_limits<unsigned char> {
  static constexpr int digits = 1; static constexpr __host__ __device__ bool max() { return true; }
};
template <typename T> struct add_const { typedef const T type; }; template <typename T> using add_const_t = const T;
template <typename T> struct add_volatile { typedef volatile T type; }; template <typename T> struct add_cv { typedef const volatile T type; };
template <typename T> struct add_pointer { typedef remove_reference_t<T> *type; }; template <typename T> using add_pointer_t = typename add_pointer<T>::type;
template <typename T> struct add_lvalue_reference { typedef T &type; }; template <> struct add_lvalue_reference<void> { typedef void type; };
template <> struct add_lvalue_reference<const void> { typedef const void type; };
template <typename T> using add_lvalue_reference_t = typename add_lvalue_reference<T>::type;
template <typename T> struct add_rvalue_reference { typedef T &&type; }; template <> struct add_rvalue_reference<void> { typedef void type; };
template <typename T> using add_rvalue_reference_t = typename add_rvalue_reference<T>::type;
template <typename T> __host__ __device__ add_rvalue_reference_t<T> declval() noexcept;
template <typename T> struct remove_extent { typedef T type; }; template <typename T> struct remove_extent<T[]> { typedef T type; };
template <typename T, size_t N> struct remove_extent<T[N]> { typedef T type; };
template <typename T> struct is_array : false_type {}; template <typename T> struct is_array<T[]> : true_type {};
template <typename T, size_t N> struct is_array<T[N]> : true_type {};
template <typename T> struct is_lvalue_reference : false_type {}; template <typename T> struct is_lvalue_reference<T &> : true_type {};
template <typename T> struct alignment_of : integral_constant<size_t, alignof(T)> {};
template <typename T> struct underlying_type { typedef __underlying_type(T) type; };
template <typename T> using underlying_type_t = typename underlying_type<T>::type;
template <typename T> struct type_identity { typedef T type; };
template <typename B> struct negation : bool_constant<!bool(B::value)> {};
template <typename... B> struct conjunction : bool_constant<(bool(B::value) && ...)> {};
template <typename... B> struct disjunction : bool_constant<(bool(B::value) || ...)> {};
template <typename... B> inline constexpr bool conjunction_v = conjunction<B...>::value;
template <typename... B> inline constexpr bool disjunction_v = disjunction<B...>::value;
template <typename B> inline constexpr bool negation_v = negation<B>::value;
__WT_TRAIT(is_trivial, __is_trivial(T)) __WT_TRAIT(is_standard_layout, __is_standard_layout(T)) __WT_TRAIT(is_union, __is_union(T))
__WT_TRAIT(is_empty, __is_empty(T)) __WT_TRAIT(is_pod, __is_pod(T)) __WT_TRAIT(is_volatile, __is_volatile(T))
__WT_TRAIT(is_fundamental, __is_fundamental(T)) __WT_TRAIT(is_object, __is_object(T)) __WT_TRAIT(is_scalar, __is_scalar(T))
__WT_TRAIT(is_default_constructible, __is_constructible(T)) __WT_TRAIT(is_final, __is_final(T))
template <typename T> struct is_null_pointer : is_same<remove_cv_t<T>, nullptr_t> {};
template <size_t N, size_t A = 16> struct aligned_storage { struct type { __attribute__((aligned(A))) unsigned char data[N]; }; };
template <typename T, T... I> struct integer_sequence { typedef T value_type; static constexpr __host__ __device__ size_t size() { return sizeof...(I); } };
template <size_t... I> using index_sequence = integer_sequence<size_t, I...>;
template <typename T, T N> using make_integer_sequence = __make_integer_seq<integer_sequence, T, N>;
template <size_t N> using make_index_sequence = make_integer_sequence<size_t, N>;
template <typename... T> using index_sequence_for = make_index_sequence<sizeof...(T)>;
template <typename T, size_t N> __host__ __device__ constexpr T *begin(T (&a)[N]) { return a; }
template <typename T, size_t N> __host__ __device__ constexpr T *end(T (&a)[N]) { return a + N; }
template <typename T, size_t N> __host__ __device__ constexpr size_t size(const T (&)[N]) { return N; }
template <typename T> __host__ __device__ constexpr const T &as_const(T &v) { return v; }
template <typename A, typename B = A> __host__ __device__ A exchange(A &a, B &&b) { A old = a; a = static_cast<B &&>(b); return old; }
template <typename I> struct iterator_traits;
template <typename T> struct iterator_traits<T *> { typedef remove_const_t<T> value_type; typedef T *pointer; typedef T &reference; typedef ptrdiff_t difference_type; };
template <typename I> struct reverse_iterator {
  I at;
  reverse_iterator() = default;
  __host__ __device__ reverse_iterator(I i) : at(i) {}
  __host__ __device__ decltype(auto) operator*() const { I before = at; return *--before; }
  __host__ __device__ reverse_iterator &operator++() { --at; return *this; }
  __host__ __device__ bool operator!=(const reverse_iterator &o) const { return at != o.at; }
  __host__ __device__ bool operator==(const reverse_iterator &o) const { return at == o.at; }
};
}  // namespace std
namespace cuda { namespace std { using namespace ::std; } }

/* What host functions call, so that they compile. They are never run. */
typedef int cudaError_t; typedef struct __wt_stream *cudaStream_t; typedef struct __wt_event *cudaEvent_t;
#define cudaSuccess 0
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
extern "C" cudaError_t cudaConfigureCall(dim3, dim3, size_t = 0, cudaStream_t = 0);
extern "C" unsigned __cudaPushCallConfiguration(dim3, dim3, size_t = 0, void * = 0);
#define __WT_H(NAME) template <typename... A> cudaError_t NAME(A...);
__WT_H(cudaMalloc) __WT_H(cudaMallocManaged) __WT_H(cudaMallocHost) __WT_H(cudaHostAlloc) __WT_H(cudaFree) __WT_H(cudaFreeHost)
__WT_H(cudaMemcpy) __WT_H(cudaMemcpyAsync) __WT_H(cudaMemset) __WT_H(cudaMemcpyToSymbol) __WT_H(cudaMemcpyFromSymbol)
__WT_H(cudaDeviceSynchronize) __WT_H(cudaThreadSynchronize) __WT_H(cudaGetLastError) __WT_H(cudaPeekAtLastError)
__WT_H(cudaStreamCreate) __WT_H(cudaStreamDestroy) __WT_H(cudaStreamSynchronize) __WT_H(cudaEventCreate)
__WT_H(cudaEventRecord) __WT_H(cudaEventSynchronize) __WT_H(cudaEventElapsedTime) __WT_H(cudaEventDestroy)
__WT_H(cudaSetDevice) __WT_H(cudaGetDevice) __WT_H(cudaGetDeviceCount) __WT_H(cudaDeviceReset) __WT_H(cudaLaunchCooperativeKernel)
__WT_H(cudaFuncSetAttribute) __WT_H(cudaFuncSetCacheConfig) __WT_H(cudaDeviceSetLimit)
const char *cudaGetErrorString(cudaError_t);
extern "C" { void exit(int); int rand(void); void srand(unsigned); int atoi(const char *); }
