// Compute one tile of c per block, from tiles of a and b in shared memory.
//
// Written by Windtunnel from the kernel 'matmul': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    a_shape0: i32,
    a_shape1: i32,
    b_shape0: i32,
    b_shape1: i32,
    c_shape0: i32,
    c_shape1: i32,
}

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;
var<workgroup> left: array<f32, 64>;
var<workgroup> right: array<f32, 64>;
const blockDim = vec3<i32>(8, 8, 1);

@compute @workgroup_size(8, 8, 1)
fn matmul(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    var x: i32 = threadIdx.x;
    var y: i32 = threadIdx.y;
    var column: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    var row: i32 = blockIdx.y * blockDim.y + threadIdx.y;
    var total: f32 = 0.0f;
    for (var first: i32 = 0; first < params.a_shape1; first += 8) {
        var chosen: f32;
        if (row < params.a_shape0 && first + x < params.a_shape1) {
            chosen = a[row * params.a_shape1 + (first + x)];
        } else {
            chosen = 0.0f;
        }
        left[y * 8 + x] = chosen;
        var chosen1: f32;
        if (first + y < params.b_shape0 && column < params.b_shape1) {
            chosen1 = b[(first + y) * params.b_shape1 + column];
        } else {
            chosen1 = 0.0f;
        }
        right[y * 8 + x] = chosen1;
        workgroupBarrier();
        storageBarrier();
        for (var k: i32 = 0; k < 8; k++) {
            total += left[y * 8 + k] * right[k * 8 + x];
        }
        workgroupBarrier();
        storageBarrier();
    }
    if (row < params.c_shape0 && column < params.c_shape1) {
        c[row * params.c_shape1 + column] = total;
    }
}
