// check: --grid 1 --block 64 --arg d=random:64
// verdict: clean
__global__ void scan(int *d) {
  __shared__ int s[2][64];
  int t = threadIdx.x, in = 0, out = 1; s[0][t] = d[t]; __syncthreads();
  for (int o = 1; o < 64; o *= 2) {
    s[out][t] = t >= o ? s[in][t] + s[in][t - o] : s[in][t];
    int k = in; in = out; out = k; __syncthreads();
  }
  d[t] = s[in][t];
}
