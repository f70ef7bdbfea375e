// Compute one tile of c per block, from tiles of a and b in shared memory.
//
// Written by Windtunnel from the kernel 'matmul': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450
#extension GL_KHR_memory_scope_semantics : require

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int a_shape0;
    int a_shape1;
    int b_shape0;
    int b_shape1;
    int c_shape0;
    int c_shape1;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { float a[]; };
layout(set = 0, binding = 1, std430) readonly buffer wt_buffer1 { float b[]; };
layout(set = 0, binding = 2, std430) buffer wt_buffer2 { float c[]; };
shared float left[8 * 8];
shared float right[8 * 8];

void main() {
    int x = int(gl_LocalInvocationID.x);
    int y = int(gl_LocalInvocationID.y);
    int column = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    int row = int(gl_WorkGroupID.y) * int(gl_WorkGroupSize.y) + int(gl_LocalInvocationID.y);
    float total = 0.0f;
    for (int first = 0; first < params.a_shape1; first += 8) {
        left[y * 8 + x] = row < params.a_shape0 && first + x < params.a_shape1 ? a[row * params.a_shape1 + (first + x)] : 0.0f;
        right[y * 8 + x] = first + y < params.b_shape0 && column < params.b_shape1 ? b[(first + y) * params.b_shape1 + column] : 0.0f;
        controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
        for (int k = 0; k < 8; ++k) {
            total += left[y * 8 + k] * right[k * 8 + x];
        }
        controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    }
    if (row < params.c_shape0 && column < params.c_shape1) {
        c[row * params.c_shape1 + column] = total;
    }
}
