// Round // and % down, with signs, for zero, the smallest number and floats; indices use plain operators.
//
// Written by Windtunnel from the kernel 'floors': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

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

__kernel void floors(__global const int *a, __global const int *b, __global int *quotient, __global int *rest, __global const float *x, __global const float *y, __global float *fq, __global float *fr, int a_shape0) {
    int i = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    if (i < a_shape0) {
        quotient[i] = (uint)wt_floor_div_i32(a[i], b[i]) + (uint)((int)get_local_id(0) / 4);
        rest[i] = (uint)wt_floor_mod_i32(a[i], b[i]) + (uint)(i % 3);
        fq[i] = wt_floor_div_f32(x[i], y[i]);
        fr[i] = wt_floor_mod_f32(x[i], y[i]);
    }
}
