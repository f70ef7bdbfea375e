// Compute with 16-bit floats; every operation is rounded.
//
// Written by Windtunnel from the kernel 'halves': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

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

kernel void halves(
    device const half *x [[buffer(0)]],
    device half *y [[buffer(1)]],
    constant int &x_shape0 [[buffer(2)]],
    constant float &wt_a [[buffer(3)]],
    constant float &scale [[buffer(4)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    half a = (half)wt_a;
    int i = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
    if (i < x_shape0) {
        half z = a * x[i] + y[i];
        z = (half)((float)z / (float)(fabs(x[i]) + 1.0h)) - (half)(scale * 0.1f);
        z = (half)((float)z * (float)a + (float)((half)sqrt((float)fabs(y[i])) + (half)wt_floor_div_f32((float)z, (float)3.0h)));
        y[i] = fmax(fmin(z, 1000.0h), -x[i]);
    }
}
