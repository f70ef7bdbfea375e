// Compute with 16-bit floats; every operation is rounded.
//
// Written by Windtunnel from the kernel 'halves': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#pragma clang fp contract(off)

static __device__ __forceinline__ float wt_round_f16(float x) {
    return __half2float(__float2half_rn(x));
}

static __device__ __forceinline__ float wt_floor_div_f32(float a, float b) {
    // Rounds down, as Python and NumPy do, from the exact remainder.
    if (b == 0.0f) return a / b;
    float r = fmodf(a, b);
    float q = (a - r) / b;
    if (r != 0.0f && (b < 0.0f) != (r < 0.0f)) q -= 1.0f;
    if (q == 0.0f) return copysignf(0.0f, a / b);
    float down = floorf(q);
    return q - down > 0.5f ? down + 1.0f : down;
}

extern "C" __global__ void halves(const __half *x, __half *y, int x_shape0, float a, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < x_shape0) {
        float z = wt_round_f16(wt_round_f16(a * __half2float(x[i])) + __half2float(y[i]));
        z = wt_round_f16(wt_round_f16(z / wt_round_f16(fabsf(__half2float(x[i])) + 1.0f)) - wt_round_f16(scale * 0.1f));
        z = wt_round_f16(z * a + wt_round_f16(wt_round_f16(sqrtf(fabsf(__half2float(y[i])))) + wt_round_f16(wt_floor_div_f32(z, 3.0f))));
        y[i] = __float2half_rn(fmaxf(fminf(z, 1000.0f), -__half2float(x[i])));
    }
}
