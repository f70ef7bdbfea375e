// Compute a one-dimensional stencil without a tile.
//
// Written by Windtunnel from the kernel 'smoothed': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

__kernel void smoothed(__global const float *x, __global float *out, int x_shape0) {
    int x_1 = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0) + 2;
    if (x_1 < x_shape0 - 2) {
        float near = x[x_1 - 1] + x[x_1 + 1];
        out[x_1] = 0.5f * x[x_1] + 0.25f * near - 0.0625f * (x[x_1 - 2] + x[x_1 + 2]);
    }
}
