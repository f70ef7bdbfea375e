// check: --grid 1 --block 64 --arg o=zeros:64
// verdict: BarrierDivergence
__device__ int swap(int *s, int t, int v) { s[t] = v; __syncthreads(); return s[63 - t]; }
__global__ void k(int *o) { __shared__ int s[64]; int t = threadIdx.x; int v = t % 3 ? swap(s, t, t) : 0; o[t] = v; }
