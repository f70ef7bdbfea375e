// See hip_runtime.h.
#pragma once
struct __half { unsigned short bits; };
__device__ float __half2float(__half);
__device__ __half __float2half_rn(float);
