/* Complex numbers of CUDA. */
#pragma once
#include "cuda.h"
typedef float2 cuFloatComplex; typedef double2 cuDoubleComplex; typedef cuFloatComplex cuComplex;
#define __WT_Z(N, V, T, F) \
  __WT_D__ V make_cu##N(T x, T y) { V z; z.x = x; z.y = y; return z; } \
  __WT_D__ T cuCreal##F(V a) { return a.x; } __WT_D__ T cuCimag##F(V a) { return a.y; } \
  __WT_D__ V cuConj##F(V a) { return make_cu##N(a.x, -a.y); } \
  __WT_D__ V cuCadd##F(V a, V b) { return make_cu##N(a.x + b.x, a.y + b.y); } \
  __WT_D__ V cuCsub##F(V a, V b) { return make_cu##N(a.x - b.x, a.y - b.y); } \
  __WT_D__ V cuCmul##F(V a, V b) { return make_cu##N(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); } \
  __WT_D__ V cuCdiv##F(V a, V b) { \
    T n = b.x * b.x + b.y * b.y; \
    return make_cu##N((a.x * b.x + a.y * b.y) / n, (a.y * b.x - a.x * b.y) / n); \
  } \
  __WT_D__ V cuCfma##F(V a, V b, V c) { return cuCadd##F(cuCmul##F(a, b), c); } \
  __WT_D__ T cuCabs##F(V a) { return hypot(a.x, a.y); }
__WT_Z(FloatComplex, float2, float, f) __WT_Z(DoubleComplex, double2, double, )
__WT_D__ cuComplex make_cuComplex(float x, float y) { return make_cuFloatComplex(x, y); }
