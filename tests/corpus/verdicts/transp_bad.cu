// check: --grid 2,2 --block 16,16 --arg in=random:1024 --arg out=zeros:1024
// verdict: DataRace
__global__ void tr(const float *in, float *out) { __shared__ float t[16][17]; int x = blockIdx.x*16+threadIdx.x, y = blockIdx.y*16+threadIdx.y;
  t[threadIdx.y][threadIdx.x] = in[y*32+x]; __syncthreads(); x = blockIdx.x*16+threadIdx.x; y = blockIdx.x*16+threadIdx.y; out[y*32+x] = t[threadIdx.x][threadIdx.y] * (blockIdx.y + 1); }
