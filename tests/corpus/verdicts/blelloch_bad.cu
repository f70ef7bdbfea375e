// check: --grid 1 --block 32 --arg d=random:64
// verdict: OutOfBounds
__global__ void b(int *d) {
  __shared__ int s[64]; int t = threadIdx.x, off = 1;
  s[2*t] = d[2*t]; s[2*t+1] = d[2*t+1];
  for (int k = 32; k > 0; k >>= 1) { __syncthreads();
    if (t <= k) { int a = off*(2*t+1)-1, c = off*(2*t+2)-1; if (c > 63) c = 64; s[c] += s[a]; } off *= 2; }
  __syncthreads(); d[2*t] = s[2*t]; d[2*t+1] = s[2*t+1];
}
