// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: BarrierDivergence
__global__ void k(int *o) { __shared__ int s[32]; s[threadIdx.x] = threadIdx.x; 
  if (threadIdx.x < 16) { __syncwarp(); o[threadIdx.x] = s[threadIdx.x ^ 1]; } }
