// check: --grid 1 --block 64 --arg in=random:64 --arg n=zeros:1 --arg o=empty:64
// verdict: clean
__global__ void k(const int *in, int *n, int *o) { int v = in[threadIdx.x]; if (v & 1) { unsigned m = __activemask(); int lead = __ffs(m) - 1, l = threadIdx.x & 31, base; if (l == lead) base = atomicAdd(n, __popc(m)); base = __shfl_sync(m, base, lead); o[base + __popc(m & ((1u << l) - 1))] = v; } }
