// 16-bit floats: every operation is rounded.
//
// Written by Windtunnel from the kernel 'halves': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#pragma clang fp contract(off)

static __device__ __forceinline__ float wt_round_f16(float x) {
    return __half2float(__float2half_rn(x));
}

extern "C" __global__ void halves(const __half *x, __half *y, int x_shape0, float a, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < x_shape0) {
        float z = wt_round_f16(wt_round_f16(a * __half2float(x[i])) + __half2float(y[i]));
        z = wt_round_f16(wt_round_f16(z / wt_round_f16(fabsf(__half2float(x[i])) + 1.0f)) - wt_round_f16(scale * 0.1f));
        y[i] = __float2half_rn(fmaxf(fminf(z, 1000.0f), -__half2float(x[i])));
    }
}
