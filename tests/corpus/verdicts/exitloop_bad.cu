// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:64
// verdict: BarrierDivergence
__global__ void k(const int *in, int *o) { int v = in[threadIdx.x], n = 0; while (v > 1) { n += __popc(__ballot_sync(~0u, v & 1)); v = v & 1 ? 3 * v + 1 : v / 2; } o[threadIdx.x] = n; }
