// Compute a three-dimensional stencil in tiles; arrays read only at the own cell are not copied to the tile.
//
// Written by Windtunnel from the kernel 'diffused': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

__kernel void diffused(__global const float *heat, __global const half *rate, __global float *out, int heat_shape0, int heat_shape1, int heat_shape2, int rate_shape0, int rate_shape1, int rate_shape2, int out_shape0, int out_shape1, int out_shape2, float dt) {
    __local float heat_tile[6 * 8 * 12];
    for (int k = (int)get_local_id(2); k < 6; k += (int)get_local_size(2)) {
        for (int j = (int)get_local_id(1); j < 8; j += (int)get_local_size(1)) {
            for (int i = (int)get_local_id(0); i < 12; i += (int)get_local_size(0)) {
                int plane = (int)get_group_id(2) * (int)get_local_size(2) + k;
                int row = (int)get_group_id(1) * (int)get_local_size(1) + j;
                int column = (int)get_group_id(0) * (int)get_local_size(0) + i;
                if (column < heat_shape2 && row < heat_shape1 && plane < heat_shape0) {
                    heat_tile[(k * 8 + j) * 12 + i] = heat[(plane * heat_shape1 + row) * heat_shape2 + column];
                }
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    int x = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0) + 2;
    int y = (int)get_group_id(1) * (int)get_local_size(1) + (int)get_local_id(1) + 2;
    int z = (int)get_group_id(2) * (int)get_local_size(2) + (int)get_local_id(2) + 2;
    int tx = (int)get_local_id(0) + 2;
    int ty = (int)get_local_id(1) + 2;
    int tz = (int)get_local_id(2) + 2;
    if (x < heat_shape2 - 2 && y < heat_shape1 - 2 && z < heat_shape0 - 2) {
        float here = heat_tile[(tz * 8 + ty) * 12 + tx];
        float around = heat_tile[((tz - 1) * 8 + ty) * 12 + tx] + heat_tile[((tz + 1) * 8 + ty) * 12 + tx] + heat_tile[(tz * 8 + (ty - 1)) * 12 + tx] + heat_tile[(tz * 8 + (ty + 1)) * 12 + tx] + heat_tile[(tz * 8 + ty) * 12 + (tx - 1)] + heat_tile[(tz * 8 + ty) * 12 + (tx + 1)];
        float flow = vload_half((z * rate_shape1 + y) * rate_shape2 + x, rate) * (around - 6.0f * here);
        if (z % 2 == 0) {
            flow += 0.5f * (heat_tile[((tz + 2) * 8 + (ty - 1)) * 12 + tx] - heat_tile[((tz + 2) * 8 + ty) * 12 + tx]);
        }
        out[(z * out_shape1 + y) * out_shape2 + x] += here + dt * flow;
    }
}
