#pragma once

__device__ inline bool inside(int y, int x, int rows, int columns) {
  return y > 0 && x > 0 && y < rows - 1 && x < columns - 1;
}
