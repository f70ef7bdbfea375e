// Round // and % down, with signs, for zero, the smallest number and floats; indices use plain operators.
//
// Written by Windtunnel from the kernel 'floors': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

static __device__ __forceinline__ int wt_floor_div_i32(int a, int b) {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) return 0;
    if (b == -1) return (int)(0u - (unsigned int)a);
    int q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static __device__ __forceinline__ int wt_floor_mod_i32(int a, int b) {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) return 0;
    int r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
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

static __device__ __forceinline__ float wt_floor_mod_f32(float a, float b) {
    // Has the sign of b, as Python's.
    float r = fmodf(a, b);
    if (b == 0.0f) return r;
    if (r == 0.0f) return copysignf(0.0f, b);
    return (b < 0.0f) != (r < 0.0f) ? r + b : r;
}

extern "C" __global__ void floors(const int *a, const int *b, int *quotient, int *rest, const float *x, const float *y, float *fq, float *fr, int a_shape0) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a_shape0) {
        quotient[i] = (int)((unsigned int)wt_floor_div_i32(a[i], b[i]) + (unsigned int)((int)threadIdx.x / 4));
        rest[i] = (int)((unsigned int)wt_floor_mod_i32(a[i], b[i]) + (unsigned int)(i % 3));
        fq[i] = wt_floor_div_f32(x[i], y[i]);
        fr[i] = wt_floor_mod_f32(x[i], y[i]);
    }
}
