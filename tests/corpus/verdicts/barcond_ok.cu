// check: --grid 2 --block 64 --arg d=random:128 --arg n=1
// verdict: clean
__global__ void c(int *d, int n) {
  __shared__ int s[64]; s[threadIdx.x] = d[blockIdx.x*64+threadIdx.x];
  if (blockIdx.x < n) { __syncthreads(); d[blockIdx.x*64+threadIdx.x] = s[63 - threadIdx.x]; }
}
