// check: --grid 2 --block 32 --arg c=zeros:2
// verdict: clean
__global__ void k(int *c) { atomicAdd_block(&c[blockIdx.x], 1); }
