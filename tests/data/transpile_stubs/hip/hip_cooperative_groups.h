// What HIP's header of this name declares, as far as the emitted sources use it.
#pragma once
namespace cooperative_groups {
struct grid_group {
    __device__ void sync() const;
};
__device__ grid_group this_grid();
}  // namespace cooperative_groups
