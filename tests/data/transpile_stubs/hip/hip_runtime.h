// HIP's own names over the compiler's AMDGPU builtins, as far as our kernels need them. For checking sources where no
// ROCm is installed: signatures are those of HIP's headers, bodies are not there.
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
struct wt_index { unsigned int x, y, z; };
extern __device__ const wt_index threadIdx, blockIdx, blockDim, gridDim;
extern __device__ const int warpSize;
__device__ void __syncthreads();
__device__ void __threadfence();
__device__ long long int clock64();
__device__ void __threadfence_block();
#define UNARY(NAME) __device__ float NAME##f(float); __device__ double NAME(double);
UNARY(sqrt) UNARY(exp) UNARY(exp2) UNARY(log) UNARY(log2) UNARY(log10) UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin)
UNARY(acos) UNARY(atan) UNARY(sinh) UNARY(cosh) UNARY(tanh) UNARY(floor) UNARY(ceil) UNARY(trunc) UNARY(fabs) UNARY(rint) UNARY(round)
UNARY(erf) UNARY(erfc) UNARY(expm1) UNARY(log1p) UNARY(cbrt) UNARY(rsqrt)
#define BINARY(NAME) __device__ float NAME##f(float, float); __device__ double NAME(double, double);
BINARY(atan2) BINARY(pow) BINARY(fmod) BINARY(copysign) BINARY(hypot) BINARY(fmin) BINARY(fmax)
BINARY(nextafter)
__device__ float ldexpf(float, int); __device__ double ldexp(double, int);
extern "C" __device__ int printf(const char *, ...);
__device__ float fmaf(float, float, float);
__device__ double fma(double, double, double);
__device__ bool isnan(float); __device__ bool isnan(double); __device__ bool isinf(float); __device__ bool isinf(double);
#define INTEGERS(X) X(int) X(unsigned int) X(long long) X(unsigned long long)
#define EXTREMES(T) __device__ T min(T, T); __device__ T max(T, T);
INTEGERS(EXTREMES)
__device__ int __popc(unsigned int); __device__ int __popcll(unsigned long long);
__device__ int __clz(int); __device__ int __clzll(long long);
__device__ int __ffs(int); __device__ int __ffsll(long long);
__device__ unsigned int __brev(unsigned int); __device__ unsigned long long __brevll(unsigned long long);
__device__ unsigned int __float_as_uint(float); __device__ float __uint_as_float(unsigned int);
__device__ long long __double_as_longlong(double); __device__ double __longlong_as_double(long long);
#define SHUFFLES(T)                                                                                              \
    __device__ T __shfl(T, int, int = 64); __device__ T __shfl_up(T, unsigned int, int = 64);                    \
    __device__ T __shfl_down(T, unsigned int, int = 64); __device__ T __shfl_xor(T, int, int = 64);
INTEGERS(SHUFFLES) SHUFFLES(float) SHUFFLES(double)
__device__ int __any(int); __device__ int __all(int); __device__ unsigned long long __ballot(int);
#define ADDED(T) __device__ T atomicAdd(T *, T);
ADDED(int) ADDED(unsigned int) ADDED(unsigned long long) ADDED(float) ADDED(double)
__device__ int atomicSub(int *, int); __device__ unsigned int atomicSub(unsigned int *, unsigned int);
__device__ float atomicExch(float *, float);
#define CHANGED(T)                                                                                               \
    __device__ T atomicMin(T *, T); __device__ T atomicMax(T *, T); __device__ T atomicAnd(T *, T);              \
    __device__ T atomicOr(T *, T); __device__ T atomicXor(T *, T); __device__ T atomicExch(T *, T);              \
    __device__ T atomicCAS(T *, T, T);
CHANGED(int) CHANGED(unsigned int) CHANGED(unsigned long long)
__device__ long long atomicMin(long long *, long long); __device__ long long atomicMax(long long *, long long);
__device__ unsigned int atomicInc(unsigned int *, unsigned int); __device__ unsigned int atomicDec(unsigned int *, unsigned int);
