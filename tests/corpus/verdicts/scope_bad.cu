// check: --grid 2 --block 32 --arg c=zeros:2
// verdict: DataRace
__global__ void k(int *c) { atomicAdd_block(&c[threadIdx.x & 1], 1); }
