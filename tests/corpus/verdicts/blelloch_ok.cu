// check: --grid 1 --block 32 --arg d=random:64
// verdict: clean
__global__ void b(int *d) {
  __shared__ int s[64]; int t = threadIdx.x, off = 1;
  s[2*t] = d[2*t]; s[2*t+1] = d[2*t+1];
  for (int k = 32; k > 0; k >>= 1) { __syncthreads();
    if (t < k) { int a = off*(2*t+1)-1, c = off*(2*t+2)-1; s[c] += s[a]; } off *= 2; }
  if (t == 0) s[63] = 0;
  for (int k = 1; k < 64; k *= 2) { off >>= 1; __syncthreads();
    if (t < k) { int a = off*(2*t+1)-1, c = off*(2*t+2)-1; int x = s[a]; s[a] = s[c]; s[c] += x; } }
  __syncthreads(); d[2*t] = s[2*t]; d[2*t+1] = s[2*t+1];
}
