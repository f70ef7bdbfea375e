// Compute a three-dimensional stencil in tiles; arrays read only at the own cell are not copied to the tile.
//
// Written by Windtunnel from the kernel 'diffused': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

enable f16;

struct Params {
    heat_shape0: i32,
    heat_shape1: i32,
    heat_shape2: i32,
    rate_shape0: i32,
    rate_shape1: i32,
    rate_shape2: i32,
    out_shape0: i32,
    out_shape1: i32,
    out_shape2: i32,
    dt: f32,
}

@group(0) @binding(0) var<storage, read> heat: array<f32>;
@group(0) @binding(1) var<storage, read> rate: array<f16>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;
var<workgroup> heat_tile: array<f32, 576>;
const blockDim = vec3<i32>(8, 4, 2);

@compute @workgroup_size(8, 4, 2)
fn diffused(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    let dt = params.dt;
    for (var k: i32 = threadIdx.z; k < 6; k += blockDim.z) {
        for (var j: i32 = threadIdx.y; j < 8; j += blockDim.y) {
            for (var i: i32 = threadIdx.x; i < 12; i += blockDim.x) {
                var plane: i32 = blockIdx.z * blockDim.z + k;
                var row: i32 = blockIdx.y * blockDim.y + j;
                var column: i32 = blockIdx.x * blockDim.x + i;
                if (column < params.heat_shape2 && row < params.heat_shape1 && plane < params.heat_shape0) {
                    heat_tile[(k * 8 + j) * 12 + i] = heat[(plane * params.heat_shape1 + row) * params.heat_shape2 + column];
                }
            }
        }
    }
    workgroupBarrier();
    storageBarrier();
    var x: i32 = blockIdx.x * blockDim.x + threadIdx.x + 2;
    var y: i32 = blockIdx.y * blockDim.y + threadIdx.y + 2;
    var z: i32 = blockIdx.z * blockDim.z + threadIdx.z + 2;
    var tx: i32 = threadIdx.x + 2;
    var ty: i32 = threadIdx.y + 2;
    var tz: i32 = threadIdx.z + 2;
    if (x < params.heat_shape2 - 2 && y < params.heat_shape1 - 2 && z < params.heat_shape0 - 2) {
        var here: f32 = heat_tile[(tz * 8 + ty) * 12 + tx];
        var around: f32 = heat_tile[((tz - 1) * 8 + ty) * 12 + tx] + heat_tile[((tz + 1) * 8 + ty) * 12 + tx] + heat_tile[(tz * 8 + (ty - 1)) * 12 + tx] + heat_tile[(tz * 8 + (ty + 1)) * 12 + tx] + heat_tile[(tz * 8 + ty) * 12 + (tx - 1)] + heat_tile[(tz * 8 + ty) * 12 + (tx + 1)];
        var flow: f32 = f32(rate[(z * params.rate_shape1 + y) * params.rate_shape2 + x]) * (around - 6.0f * here);
        if (z % 2 == 0) {
            flow += 0.5f * (heat_tile[((tz + 2) * 8 + (ty - 1)) * 12 + tx] - heat_tile[((tz + 2) * 8 + ty) * 12 + tx]);
        }
        out[(z * params.out_shape1 + y) * params.out_shape2 + x] += here + dt * flow;
    }
}
