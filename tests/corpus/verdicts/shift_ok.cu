// check: --grid 1 --block 40 --arg o=zeros:40
// verdict: clean
__global__ void k(unsigned *o) { o[threadIdx.x] = threadIdx.x < 32 ? 1u << threadIdx.x : (unsigned)(1ull << threadIdx.x >> 8); }
