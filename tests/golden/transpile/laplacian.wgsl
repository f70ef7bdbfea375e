// Compute a two-dimensional stencil in tiles.
//
// Written by Windtunnel from the kernel 'laplacian': WGSL.
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
var<workgroup> a_tile: array<f32, 100>;
const blockDim = vec3<i32>(8, 8, 1);

@compute @workgroup_size(8, 8, 1)
fn laplacian(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    for (var j: i32 = threadIdx.y; j < 10; j += blockDim.y) {
        for (var i: i32 = threadIdx.x; i < 10; i += blockDim.x) {
            var row: i32 = blockIdx.y * blockDim.y + j;
            var column: i32 = blockIdx.x * blockDim.x + i;
            if (column < params.a_shape1 && row < params.a_shape0) {
                a_tile[j * 10 + i] = a[row * params.a_shape1 + column];
            }
        }
    }
    workgroupBarrier();
    storageBarrier();
    var x: i32 = blockIdx.x * blockDim.x + threadIdx.x + 1;
    var y: i32 = blockIdx.y * blockDim.y + threadIdx.y + 1;
    var tx: i32 = threadIdx.x + 1;
    var ty: i32 = threadIdx.y + 1;
    if (x < params.a_shape1 - 1 && y < params.a_shape0 - 1) {
        out[y * params.out_shape1 + x] = a_tile[(ty - 1) * 10 + tx] + a_tile[(ty + 1) * 10 + tx] + a_tile[ty * 10 + (tx + 1)] + a_tile[ty * 10 + (tx - 1)] - 4.0f * a_tile[ty * 10 + tx];
    }
}
