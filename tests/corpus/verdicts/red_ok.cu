// check: --grid 2 --block 128 --arg in=random:256 --arg out=zeros:2
// verdict: clean
__global__ void red(const int *in, int *out) {
  extern __shared__ int sm[];
  __shared__ int s[128];
  int t = threadIdx.x; s[t] = in[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (unsigned k = blockDim.x / 2; k > 0; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
  if (t == 0) out[blockIdx.x] = s[0];
}
