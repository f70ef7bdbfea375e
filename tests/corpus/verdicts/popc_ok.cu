// check: --grid 1 --block 64 --arg in=random:64 --arg o=empty:64 --arg n=zeros:1
// verdict: clean
__global__ void k(const int *in, int *o, int *n) { int l = threadIdx.x & 31; unsigned m = __ballot_sync(~0u, in[threadIdx.x] & 1); int base = 0; 
  if (l == 0) base = atomicAdd(n, __popc(m)); base = __shfl_sync(~0u, base, 0); if (in[threadIdx.x] & 1) o[base + __popc(m & ((1u << l) - 1))] = in[threadIdx.x]; }
