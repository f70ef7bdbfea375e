// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: UninitializedRead
__device__ void put(int *p, int v) { *p = v; }
__global__ void k(int *o) { int sum = 0; for (int i = 0; i < 4; i++) { int x; if (i == 0) put(&x, 5); sum += x; } o[threadIdx.x] = sum; }
