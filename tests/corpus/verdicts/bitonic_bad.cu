// check: --grid 2 --block 32 --arg d=random:64
// verdict: DataRace
__global__ void bs(int *d) {
  int i = blockIdx.x * 32 + threadIdx.x;
  for (int k = 2; k <= 64; k <<= 1) for (int j = k >> 1; j > 0; j >>= 1) {
    int x = i ^ j;
    if (x > i) { if (((i & k) == 0) == (d[i] > d[x])) { int t = d[i]; d[i] = d[x]; d[x] = t; } }
    __syncthreads();
  }
}
