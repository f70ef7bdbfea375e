#include "grid.cuh"

__constant__ float speed[1];

/* One step of the wave equation on a grid whose edge is fixed. */
extern "C" __global__
void step(const float* before, const float* now, float* after, int rows, int columns, float dt) {
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (!inside(y, x, rows, columns)) return;
  int at = y * columns + x;
  float around = now[at - 1] + now[at + 1] + now[at - columns] + now[at + columns] - 4.0f * now[at];
  after[at] = 2.0f * now[at] - before[at] + speed[0] * speed[0] * dt * dt * around;
}

/* The sum of each row, by one block for each. */
template <typename T, int THREADS>
__global__ void row_sums(const T* values, T* sums, int columns) {
  __shared__ T held[THREADS];
  T own = 0;
  for (int x = threadIdx.x; x < columns; x += THREADS) own += values[blockIdx.x * columns + x];
  held[threadIdx.x] = own;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) held[threadIdx.x] += held[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = held[0];
}
