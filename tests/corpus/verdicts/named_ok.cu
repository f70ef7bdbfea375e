// check: --grid 1 --block 128 --arg in=random:128 --arg out=zeros:128
// verdict: clean
__global__ void n(const int *in, int *out) { __shared__ int s[128]; int t = threadIdx.x; 
  if (t < 64) { s[t] = in[t]; asm volatile("bar.sync 1, 64;"); out[t] = s[63 - t]; } else { s[t] = in[t]; asm volatile("bar.sync 2, 64;"); out[t] = s[191 - t]; } }
