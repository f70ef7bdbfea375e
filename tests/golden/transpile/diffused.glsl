// Compute a three-dimensional stencil in tiles; arrays read only at the own cell are not copied to the tile.
//
// Written by Windtunnel from the kernel 'diffused': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_memory_scope_semantics : require

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int heat_shape0;
    int heat_shape1;
    int heat_shape2;
    int rate_shape0;
    int rate_shape1;
    int rate_shape2;
    int out_shape0;
    int out_shape1;
    int out_shape2;
    float dt;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { float heat[]; };
layout(set = 0, binding = 1, std430) readonly buffer wt_buffer1 { uint16_t rate[]; };
layout(set = 0, binding = 2, std430) buffer wt_buffer2 { float out_[]; };
shared float heat_tile[6 * 8 * 12];

float wt_load_f16(uint b) {
    // GLSL leaves the rounding of its own halves to the driver, and whether small ones become 0.
    uint sign = (b & 0x8000u) << 16, size = b & 0x7fffu;
    if (size >= 0x7c00u) return uintBitsToFloat(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    if (size < 0x400u) return uintBitsToFloat(sign | floatBitsToUint(float(size) * 5.9604644775390625e-8f));
    return uintBitsToFloat(sign | (size << 13) + 0x38000000u);
}

void main() {
    for (int k = int(gl_LocalInvocationID.z); k < 6; k += int(gl_WorkGroupSize.z)) {
        for (int j = int(gl_LocalInvocationID.y); j < 8; j += int(gl_WorkGroupSize.y)) {
            for (int i = int(gl_LocalInvocationID.x); i < 12; i += int(gl_WorkGroupSize.x)) {
                int plane = int(gl_WorkGroupID.z) * int(gl_WorkGroupSize.z) + k;
                int row = int(gl_WorkGroupID.y) * int(gl_WorkGroupSize.y) + j;
                int column = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + i;
                if (column < params.heat_shape2 && row < params.heat_shape1 && plane < params.heat_shape0) {
                    heat_tile[(k * 8 + j) * 12 + i] = heat[(plane * params.heat_shape1 + row) * params.heat_shape2 + column];
                }
            }
        }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    int x = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x) + 2;
    int y = int(gl_WorkGroupID.y) * int(gl_WorkGroupSize.y) + int(gl_LocalInvocationID.y) + 2;
    int z = int(gl_WorkGroupID.z) * int(gl_WorkGroupSize.z) + int(gl_LocalInvocationID.z) + 2;
    int tx = int(gl_LocalInvocationID.x) + 2;
    int ty = int(gl_LocalInvocationID.y) + 2;
    int tz = int(gl_LocalInvocationID.z) + 2;
    if (x < params.heat_shape2 - 2 && y < params.heat_shape1 - 2 && z < params.heat_shape0 - 2) {
        float here = heat_tile[(tz * 8 + ty) * 12 + tx];
        float around = heat_tile[((tz - 1) * 8 + ty) * 12 + tx] + heat_tile[((tz + 1) * 8 + ty) * 12 + tx] + heat_tile[(tz * 8 + (ty - 1)) * 12 + tx] + heat_tile[(tz * 8 + (ty + 1)) * 12 + tx] + heat_tile[(tz * 8 + ty) * 12 + (tx - 1)] + heat_tile[(tz * 8 + ty) * 12 + (tx + 1)];
        float flow = wt_load_f16(uint(rate[(z * params.rate_shape1 + y) * params.rate_shape2 + x])) * (around - 6.0f * here);
        if (z % 2 == 0) {
            flow += 0.5f * (heat_tile[((tz + 2) * 8 + (ty - 1)) * 12 + tx] - heat_tile[((tz + 2) * 8 + ty) * 12 + tx]);
        }
        out_[(z * params.out_shape1 + y) * params.out_shape2 + x] += here + params.dt * flow;
    }
}
