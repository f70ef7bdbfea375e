// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:64
// verdict: clean
__global__ void k(const int *in, int *o) { int v = in[threadIdx.x], n = 0; bool done = false; while (__any_sync(~0u, !done)) { if (!done) { n++; done = v <= 1; v = v & 1 ? 3 * v + 1 : v / 2; } } o[threadIdx.x] = n; }
