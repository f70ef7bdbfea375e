// check: --grid 1 --block 32 --arg c=zeros:1 --arg o=zeros:32
// verdict: clean
__global__ void k(int *c, int *o) { int i = threadIdx.x, got = 0; while (atomicAdd(c, 0) < i) {} unsigned m = __activemask(); got = __popc(m); o[i] = got; atomicAdd(c, 1); }
