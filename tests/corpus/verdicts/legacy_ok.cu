// check: --grid 1 --block 32 --arg in=random:32 --arg o=zeros:32
// verdict: clean
__global__ void k(const int *in, int *o) { int i = threadIdx.x; if (i < 16) { int v = in[i]; v += __shfl_xor(v, 4); o[i] = v + __popc(__ballot(v > 3)) + __any(v == 0); } }
