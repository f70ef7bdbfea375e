// check: --grid 2 --block 64 --arg in=random:128 --arg h=zeros:16
// verdict: DataRace
__global__ void h(const unsigned *in, unsigned *h) {
  __shared__ unsigned s[16]; if (threadIdx.x < 16) s[threadIdx.x] = 0; __syncthreads();
  atomicAdd(&s[in[blockIdx.x*64+threadIdx.x] & 15], 1u); __syncthreads();
  if (threadIdx.x < 16) h[threadIdx.x] += s[threadIdx.x];
}
