// check: --grid 2 --block 16 --arg in=random:32 --arg o=zeros:2
// verdict: UninitializedRead
__global__ void k(const float *in, float *o) { float v = in[blockIdx.x * 16 + threadIdx.x]; for (int d = 16; d; d >>= 1) v = fmaxf(v, __shfl_down_sync(0xffffffff, v, d)); if (threadIdx.x == 0) o[blockIdx.x] = v; }
