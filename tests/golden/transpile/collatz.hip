// Count the steps to 1; -1 if 200 steps are not enough, -2 for numbers below 1.
//
// Written by Windtunnel from the kernel 'collatz': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

static __device__ __forceinline__ int wt_floor_mod_i32(int a, int b) {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) return 0;
    int r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static __device__ __forceinline__ int wt_floor_div_i32(int a, int b) {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) return 0;
    if (b == -1) return (int)(0u - (unsigned int)a);
    int q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

extern "C" __global__ void collatz(const int *x, int *steps, int x_shape0) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
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
        count = (unsigned int)count + 1u;
        if (wt_floor_mod_i32(n, 2) == 0) {
            n = wt_floor_div_i32(n, 2);
            continue;
        }
        n = 3u * (unsigned int)n + 1u;
    }
    steps[i] = count;
}
