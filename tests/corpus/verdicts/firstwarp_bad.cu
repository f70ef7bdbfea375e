// check: --grid 1 --block 128 --arg in=random:128 --arg o=zeros:1
// verdict: BarrierDivergence or UninitializedRead
__global__ void k(const float *in, float *o) { __shared__ float s[32]; int t = threadIdx.x, l = t & 31, w = t >> 5; float v = in[t]; for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d); if (l == 0) s[w] = v; __syncthreads(); if (t < blockDim.x / 32) { v = s[l]; for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d); if (t == 0) *o = v; } }
