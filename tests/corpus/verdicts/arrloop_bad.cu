// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: UninitializedRead
__global__ void k(int *o) { int sum = 0; for (int i = 0; i < 4; i++) { int v[4]; v[i] = i; sum += v[0]; } o[threadIdx.x] = sum; }
