// check: --grid 3 --block 32 --arg d=random:96 --arg done=zeros:1 --arg out=zeros:1
// verdict: clean
__global__ void g(const int *d, int *part, unsigned *done, int *out) {
  __shared__ int s[32]; __shared__ bool last;
  s[threadIdx.x] = d[blockIdx.x*32+threadIdx.x]; __syncthreads();
  if (threadIdx.x == 0) { int a = 0; for (int i = 0; i < 32; i++) a += s[i]; part[blockIdx.x] = a; __threadfence();
    last = atomicInc(done, gridDim.x) == gridDim.x - 1; }
  __syncthreads();
  if (last && threadIdx.x == 0) { __threadfence(); int a = 0; for (int i = 0; i < gridDim.x; i++) a += part[i]; *out = a; }
}
