// check: --grid 2 --block 64 --arg d=random:128 --arg n=100
// verdict: BarrierDivergence
__global__ void c(int *d, int n) {
  __shared__ int s[64]; int i = blockIdx.x*64+threadIdx.x; s[threadIdx.x] = d[i];
  if (i < n) { __syncthreads(); d[i] = s[threadIdx.x ^ 1]; }
}
