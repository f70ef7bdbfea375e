#pragma once
template <typename T>
__host__ __device__ inline T clamped(T v, T low, T high) { return v < low ? low : v > high ? high : v; }
