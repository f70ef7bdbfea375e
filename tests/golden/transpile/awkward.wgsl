// Use reserved names, choices that must not be evaluated, and an evaluation in a condition.
//
// Written by Windtunnel from the kernel 'awkward': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    out_shape0_: i32,
    sampler_shape0: i32,
    kernel_: i32,
    half_: f32,
    out_shape0: i32,
}

@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> sampler_: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
const blockDim = vec3<i32>(256, 1, 1);

@compute @workgroup_size(256, 1, 1)
fn awkward(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    let kernel_ = params.kernel_;
    var half_ = params.half_;
    let out_shape0 = params.out_shape0;
    var i: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    var float4: f32 = half_;
    if (i < params.out_shape0_) {
        var chosen: f32;
        if (i < params.sampler_shape0) {
            chosen = sampler_[i];
        } else {
            chosen = 0.0f;
        }
        var switch_: f32 = chosen;
        loop {
            var holds: bool = i < params.sampler_shape0;
            if (holds) {
                var chosen1: f32;
                if (switch_ > 0.25f) {
                    chosen1 = sampler_[i];
                } else {
                    chosen1 = 0.0f;
                }
                holds = chosen1 > 0.5f;
            }
            if (!holds) { break; }
            switch_ *= half_;
            if (switch_ < 0.1f) {
                break;
            }
            var holds1: bool = switch_ < 0.2f;
            if (!holds1) {
                var chosen2: f32;
                if (i > 0) {
                    chosen2 = sampler_[i - 1];
                } else {
                    chosen2 = 1.0f;
                }
                holds1 = chosen2 > 0.5f;
            }
            if (holds1) {
                continue;
            }
            switch_ -= 0.01f;
        }
        var var_: f32 = select(float4, switch_, switch_ > 0.0f);
        let half_stop: f32 = f32(out_shape0);
        let half_step: f32 = select(2.0f, 3.0f, kernel_ > 1);
        for (var half_at: f32 = f32(kernel_); half_at < half_stop; half_at += half_step) {
            half_ = half_at;
            var_ += half_;
            half_ += 1.0f;
        }
        out[i] = select(var_ * 2.0f, var_, half_ > 3.0f);
    }
}
