// Count the steps to 1; -1 if 200 steps are not enough, -2 for numbers below 1.
//
// Written by Windtunnel from the kernel 'collatz': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

static inline int wt_floor_mod_i32(int a, int b) {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) return 0;
    int r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static inline int wt_floor_div_i32(int a, int b) {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) return 0;
    if (b == -1) return (int)(0u - (uint)a);
    int q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

__kernel void collatz(__global const int *x, __global int *steps, int x_shape0) {
    int i = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    if (i >= x_shape0) {
        return;
    }
    int n = x[i];
    if (n <= 0) {
        steps[i] = -2;
        return;
    }
    int count = 0;
    while (true) {
        if (n == 1) {
            break;
        }
        if (count >= 200) {
            count = -1;
            break;
        }
        count = (uint)count + 1u;
        if (wt_floor_mod_i32(n, 2) == 0) {
            n = wt_floor_div_i32(n, 2);
            continue;
        }
        n = 3u * (uint)n + 1u;
    }
    steps[i] = count;
}
