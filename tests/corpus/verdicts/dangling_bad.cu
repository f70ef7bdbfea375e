// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: UninitializedRead
__device__ int *make(int v) { int x = v; int *p = &x; return p; }
__global__ void k(int *o) { int *p = make(threadIdx.x); o[threadIdx.x] = *p; }
