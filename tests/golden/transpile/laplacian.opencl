// Compute a two-dimensional stencil in tiles.
//
// Written by Windtunnel from the kernel 'laplacian': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

__kernel void laplacian(__global const float *a, __global float *out, int a_shape0, int a_shape1, int out_shape0, int out_shape1) {
    __local float a_tile[10 * 10];
    for (int j = (int)get_local_id(1); j < 10; j += (int)get_local_size(1)) {
        for (int i = (int)get_local_id(0); i < 10; i += (int)get_local_size(0)) {
            int row = (int)get_group_id(1) * (int)get_local_size(1) + j;
            int column = (int)get_group_id(0) * (int)get_local_size(0) + i;
            if (column < a_shape1 && row < a_shape0) {
                a_tile[j * 10 + i] = a[row * a_shape1 + column];
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    int x = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0) + 1;
    int y = (int)get_group_id(1) * (int)get_local_size(1) + (int)get_local_id(1) + 1;
    int tx = (int)get_local_id(0) + 1;
    int ty = (int)get_local_id(1) + 1;
    if (x < a_shape1 - 1 && y < a_shape0 - 1) {
        out[y * out_shape1 + x] = a_tile[(ty - 1) * 10 + tx] + a_tile[(ty + 1) * 10 + tx] + a_tile[ty * 10 + (tx + 1)] + a_tile[ty * 10 + (tx - 1)] - 4.0f * a_tile[ty * 10 + tx];
    }
}
