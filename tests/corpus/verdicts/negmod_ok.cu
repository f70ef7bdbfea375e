// check: --grid 1 --block 32 --arg in=random:32 --arg o=zeros:32
// verdict: clean
__global__ void k(const int *in, int *o) { int i = threadIdx.x; o[i] = in[(i + 31) % 32]; }
