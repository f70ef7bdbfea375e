// check: --grid 1 --block 64 --arg in=random:256 --arg out=zeros:256
// verdict: DataRace
__global__ void pc(const int *in, int *out) {
  __shared__ int buf[2][32]; bool prod = threadIdx.x < 32; int l = threadIdx.x & 31;
  for (int k = 0; k <= 8; k++) { if (prod) { if (k < 8) buf[k & 1][l] = in[k * 32 + l]; } else { if (k > 0) out[(k - 1) * 32 + l] = buf[k & 1][31 - l]; } __syncthreads(); }
}
