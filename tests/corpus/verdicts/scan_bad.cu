// check: --grid 1 --block 64 --arg d=random:64
// verdict: DataRace
__global__ void scan(int *d) {
  __shared__ int s[64];
  int t = threadIdx.x; s[t] = d[t]; __syncthreads();
  for (int o = 1; o < 64; o *= 2) {
    int v = t >= o ? s[t - o] : 0;
    s[t] += v; __syncthreads();
  }
  d[t] = s[t];
}
