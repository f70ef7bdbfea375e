/* Complex numbers of CUDA's cuComplex.h. */
#pragma once
#include "cuda.h"
typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;
#define __WT_CC(C, R, S, MAKE, FMA, HYPOT) \
  __WT_D__ C make_cu##MAKE##Complex(R x, R y) { C z; z.x = x; z.y = y; return z; } \
  __WT_D__ R cuCreal##S(C z) { return z.x; } \
  __WT_D__ R cuCimag##S(C z) { return z.y; } \
  __WT_D__ C cuConj##S(C z) { return make_cu##MAKE##Complex(z.x, -z.y); } \
  __WT_D__ C cuCadd##S(C a, C b) { return make_cu##MAKE##Complex(a.x + b.x, a.y + b.y); } \
  __WT_D__ C cuCsub##S(C a, C b) { return make_cu##MAKE##Complex(a.x - b.x, a.y - b.y); } \
  __WT_D__ C cuCmul##S(C a, C b) { return make_cu##MAKE##Complex(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); } \
  __WT_D__ C cuCdiv##S(C a, C b) { \
    R s = 1 / (HYPOT(b.x, 0) + HYPOT(b.y, 0)), ar = a.x * s, ai = a.y * s, br = b.x * s, bi = b.y * s; \
    R d = 1 / (br * br + bi * bi); \
    return make_cu##MAKE##Complex((ar * br + ai * bi) * d, (ai * br - ar * bi) * d); \
  } \
  __WT_D__ R cuCabs##S(C z) { return HYPOT(z.x, z.y); } \
  __WT_D__ C cuCfma##S(C a, C b, C c) { return cuCadd##S(cuCmul##S(a, b), c); }
__WT_CC(cuFloatComplex, float, f, Float, fmaf, hypotf)
__WT_CC(cuDoubleComplex, double, , Double, fma, hypot)
#undef __WT_CC
__WT_D__ cuComplex make_cuComplex(float x, float y) { return make_cuFloatComplex(x, y); }
__WT_D__ cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex z) { return make_cuDoubleComplex(z.x, z.y); }
__WT_D__ cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex z) {
  return make_cuFloatComplex((float)z.x, (float)z.y);
}
#ifdef __WT_TRANSLATED /* CuPy's translate_cucomplex=True, which makes the functions operators of a template */
__WT_D__ cuComplex cuCadd(cuComplex a, cuComplex b) { return cuCaddf(a, b); }
__WT_D__ cuComplex cuCsub(cuComplex a, cuComplex b) { return cuCsubf(a, b); }
__WT_D__ cuComplex cuCmul(cuComplex a, cuComplex b) { return cuCmulf(a, b); }
__WT_D__ cuComplex cuCdiv(cuComplex a, cuComplex b) { return cuCdivf(a, b); }
#endif
