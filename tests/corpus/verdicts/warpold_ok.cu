// check: --grid 1 --block 64 --arg in=random:64 --arg out=zeros:1
// verdict: clean
__global__ void r(const int *in, int *out) {
  __shared__ int s[64];
  int t = threadIdx.x; s[t] = in[t]; __syncthreads();
  if (t < 32) {
    int v = s[t] + s[t + 32];
    for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    if (t == 0) *out = v;
  }
}
