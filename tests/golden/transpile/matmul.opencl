// Compute one tile of c per block, from tiles of a and b in shared memory.
//
// Written by Windtunnel from the kernel 'matmul': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

__kernel void matmul(__global const float *a, __global const float *b, __global float *c, int a_shape0, int a_shape1, int b_shape0, int b_shape1, int c_shape0, int c_shape1) {
    __local float left[8 * 8];
    __local float right[8 * 8];
    int x = (int)get_local_id(0);
    int y = (int)get_local_id(1);
    int column = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    int row = (int)get_group_id(1) * (int)get_local_size(1) + (int)get_local_id(1);
    float total = 0.0f;
    for (int first = 0; first < a_shape1; first += 8) {
        left[y * 8 + x] = row < a_shape0 && first + x < a_shape1 ? a[row * a_shape1 + (first + x)] : 0.0f;
        right[y * 8 + x] = first + y < b_shape0 && column < b_shape1 ? b[(first + y) * b_shape1 + column] : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        for (int k = 0; k < 8; ++k) {
            total += left[y * 8 + k] * right[k * 8 + x];
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    }
    if (row < c_shape0 && column < c_shape1) {
        c[row * c_shape1 + column] = total;
    }
}
