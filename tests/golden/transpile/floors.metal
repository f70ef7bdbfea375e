// Round // and % down, with signs, for zero, the smallest number and floats; indices use plain operators.
//
// Written by Windtunnel from the kernel 'floors': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

static inline int wt_floor_div_i32(int a, int b) {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) return 0;
    if (b == -1) return (int)(0u - (uint)a);
    int q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static inline int wt_floor_mod_i32(int a, int b) {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) return 0;
    int r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static inline float wt_floor_div_f32(float a, float b) {
    // Rounds down, as Python and NumPy do, from the exact remainder.
    if (b == 0.0f) return a / b;
    float r = fmod(a, b);
    float q = (a - r) / b;
    if (r != 0.0f && (b < 0.0f) != (r < 0.0f)) q -= 1.0f;
    if (q == 0.0f) return copysign(0.0f, a / b);
    float down = floor(q);
    return q - down > 0.5f ? down + 1.0f : down;
}

static inline float wt_floor_mod_f32(float a, float b) {
    // Has the sign of b, as Python's.
    float r = fmod(a, b);
    if (b == 0.0f) return r;
    if (r == 0.0f) return copysign(0.0f, b);
    return (b < 0.0f) != (r < 0.0f) ? r + b : r;
}

kernel void floors(
    device const int *a [[buffer(0)]],
    device const int *b [[buffer(1)]],
    device int *quotient [[buffer(2)]],
    device int *rest [[buffer(3)]],
    device const float *x [[buffer(4)]],
    device const float *y [[buffer(5)]],
    device float *fq [[buffer(6)]],
    device float *fr [[buffer(7)]],
    constant int &a_shape0 [[buffer(8)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    int i = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
    if (i < a_shape0) {
        quotient[i] = (uint)wt_floor_div_i32(a[i], b[i]) + (uint)((int)threadIdx.x / 4);
        rest[i] = (uint)wt_floor_mod_i32(a[i], b[i]) + (uint)(i % 3);
        fq[i] = wt_floor_div_f32(x[i], y[i]);
        fr[i] = wt_floor_mod_f32(x[i], y[i]);
    }
}
