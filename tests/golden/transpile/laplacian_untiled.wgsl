// Compute the same stencil without a tile.
//
// Written by Windtunnel from the kernel 'laplacian_untiled': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    a_shape0: i32,
    a_shape1: i32,
    out_shape0: i32,
    out_shape1: i32,
}

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
const blockDim = vec3<i32>(8, 8, 1);

@compute @workgroup_size(8, 8, 1)
fn laplacian_untiled(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    var x: i32 = blockIdx.x * blockDim.x + threadIdx.x + 1;
    var y: i32 = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (x < params.a_shape1 - 1 && y < params.a_shape0 - 1) {
        out[y * params.out_shape1 + x] = a[(y - 1) * params.a_shape1 + x] + a[(y + 1) * params.a_shape1 + x] + a[y * params.a_shape1 + (x + 1)] + a[y * params.a_shape1 + (x - 1)] - 4.0f * a[y * params.a_shape1 + x];
    }
}
