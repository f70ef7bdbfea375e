// check: --grid 1 --block 64 --arg o=zeros:64
// verdict: BarrierDivergence
__global__ void k(int *o) { __shared__ int s; if (threadIdx.x < 32) { if (threadIdx.x == 0) s = 4; __syncthreads(); } else { __syncthreads(); o[threadIdx.x] = s; } }
