// check: --grid 1 --block 32 --arg in=random:32 --arg o=zeros:1
// verdict: clean
__global__ void k(const int *in, int *o) { __shared__ volatile int s[32]; int t = threadIdx.x; s[t] = in[t]; __syncwarp(); for (int d = 16; d; d >>= 1) { int v = s[t]; if (t < d) v += s[t + d]; __syncwarp(); s[t] = v; __syncwarp(); } if (t == 0) *o = s[0]; }
