// check: --grid 2,2 --block 16,4
// verdict: clean
__device__ void put(cudaSurfaceObject_t s, int x, int y, float v) { surf2Dwrite(v, s, x * 4, y, cudaBoundaryModeClamp); }
__global__ void k(cudaSurfaceObject_t a, cudaSurfaceObject_t b) { int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y; float v; surf2Dread(&v, a, x * 4, y); put(a, x, y, v + 1); put(b, x, 7 - y, surf2Dread<float>(b, x * 4, 7 - y)); }
