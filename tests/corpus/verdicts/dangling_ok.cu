// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: clean
__device__ int *make(int *x, int v) { *x = v; return x; }
__global__ void k(int *o) { int x; int *p = make(&x, threadIdx.x); o[threadIdx.x] = *p; }
