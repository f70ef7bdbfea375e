// See hip_runtime.h.
#pragma once
struct __half { unsigned short bits; };
__device__ float __half2float(__half);
__device__ __half __float2half_rn(float);
__device__ unsigned short __half_as_ushort(__half);
__device__ __half __ushort_as_half(unsigned short);
