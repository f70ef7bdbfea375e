// Compute with 16-bit floats; every operation is rounded.
//
// Written by Windtunnel from the kernel 'halves': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

static inline float wt_round_f16(float x) {
    ushort bits;
    vstore_half_rte(x, 0, (half *)&bits);
    return vload_half(0, (const half *)&bits);
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

__kernel void halves(__global const half *x, __global half *y, int x_shape0, float a, float scale) {
    int i = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    if (i < x_shape0) {
        float z = wt_round_f16(wt_round_f16(a * vload_half(i, x)) + vload_half(i, y));
        z = wt_round_f16(wt_round_f16(z / wt_round_f16(fabs(vload_half(i, x)) + 1.0f)) - wt_round_f16(scale * 0.1f));
        z = wt_round_f16(z * a + wt_round_f16(wt_round_f16(sqrt(fabs(vload_half(i, y)))) + wt_round_f16(wt_floor_div_f32(z, 3.0f))));
        vstore_half_rte(fmax(fmin(z, 1000.0f), -vload_half(i, x)), i, y);
    }
}
