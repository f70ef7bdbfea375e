// See hip_runtime.h.
#pragma once
struct hip_bfloat16 {
    unsigned short bits;
    hip_bfloat16() = default;
    explicit __device__ hip_bfloat16(float);
    __device__ operator float() const;
};
