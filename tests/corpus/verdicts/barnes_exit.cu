// check: --grid 1 --block 64 --arg n=100 --arg o=zeros:100
// verdict: BarrierDivergence
__global__ void k(int *o, int n) { int i = threadIdx.x; while (i < n) { o[i] = i; i += 64; __syncthreads(); } }
