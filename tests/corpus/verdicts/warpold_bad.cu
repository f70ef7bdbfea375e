// check: --grid 1 --block 64 --arg in=random:64 --arg out=zeros:1
// verdict: DataRace
__device__ void warpReduce(volatile int *s, int t) {
  s[t] += s[t + 32]; s[t] += s[t + 16]; s[t] += s[t + 8]; s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];
}
__global__ void r(const int *in, int *out) {
  __shared__ int s[64];
  int t = threadIdx.x; s[t] = in[t]; __syncthreads();
  if (t < 32) warpReduce(s, t);
  if (t == 0) *out = s[0];
}
