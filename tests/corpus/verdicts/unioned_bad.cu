// check: --grid 1 --block 32 --arg out=zeros:32
// verdict: UninitializedRead
__global__ void k(int *out) { int acc[4]; for (int i = 1; i < 4; i++) acc[i] = i; int s = 0; for (int i = 0; i < 4; i++) s += acc[(i + threadIdx.x) & 3]; out[threadIdx.x] = s; }
