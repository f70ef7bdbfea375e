// Count the steps to 1; -1 if 200 steps are not enough, -2 for numbers below 1.
//
// Written by Windtunnel from the kernel 'collatz': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

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

kernel void collatz(
    device const int *x [[buffer(0)]],
    device int *steps [[buffer(1)]],
    constant int &x_shape0 [[buffer(2)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    int i = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
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
