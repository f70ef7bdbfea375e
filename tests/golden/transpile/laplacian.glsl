// Compute a two-dimensional stencil in tiles.
//
// Written by Windtunnel from the kernel 'laplacian': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450
#extension GL_KHR_memory_scope_semantics : require

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int a_shape0;
    int a_shape1;
    int out_shape0;
    int out_shape1;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { float a[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { float out_[]; };
shared float a_tile[10 * 10];

void main() {
    for (int j = int(gl_LocalInvocationID.y); j < 10; j += int(gl_WorkGroupSize.y)) {
        for (int i = int(gl_LocalInvocationID.x); i < 10; i += int(gl_WorkGroupSize.x)) {
            int row = int(gl_WorkGroupID.y) * int(gl_WorkGroupSize.y) + j;
            int column = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + i;
            if (column < params.a_shape1 && row < params.a_shape0) {
                a_tile[j * 10 + i] = a[row * params.a_shape1 + column];
            }
        }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    int x = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x) + 1;
    int y = int(gl_WorkGroupID.y) * int(gl_WorkGroupSize.y) + int(gl_LocalInvocationID.y) + 1;
    int tx = int(gl_LocalInvocationID.x) + 1;
    int ty = int(gl_LocalInvocationID.y) + 1;
    if (x < params.a_shape1 - 1 && y < params.a_shape0 - 1) {
        out_[y * params.out_shape1 + x] = a_tile[(ty - 1) * 10 + tx] + a_tile[(ty + 1) * 10 + tx] + a_tile[ty * 10 + (tx + 1)] + a_tile[ty * 10 + (tx - 1)] - 4.0f * a_tile[ty * 10 + tx];
    }
}
