// check: --grid 2 --block 32 --arg in=random:64 --arg out=zeros:64 --arg n=64
// verdict: clean
__global__ void st(const float *in, float *out, int n) {
  __shared__ float s[34]; int i = blockIdx.x*32+threadIdx.x, t = threadIdx.x + 1;
  s[t] = i < n ? in[i] : 0.f;
  if (t == 1) s[0] = i > 0 ? in[i-1] : 0.f;
  if (t == 32) s[33] = i + 1 < n ? in[i+1] : 0.f;
  __syncthreads();
  if (i < n) out[i] = s[t-1] + s[t] + s[t+1];
}
