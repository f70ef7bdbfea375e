// check: --grid 1 --block 16 --arg o=zeros:16
// verdict: OutOfBounds
struct V { float v[3]; __device__ float &operator[](int i) { return v[i]; } };
__global__ void k(int *o) { V a[4]; for (int i = 0; i < 4; i++) for (int j = 0; j < 3; j++) a[i][j] = i + j; float s = 0; for (int j = 0; j <= 3; j++) s += a[threadIdx.x & 1][j]; o[threadIdx.x] = s; }
