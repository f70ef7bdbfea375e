/* Reductions of a group (cooperative_groups::reduce). */
#pragma once
#include "../cooperative_groups.h"
namespace cooperative_groups {
template <typename G, typename T, typename F> static inline __device__ T reduce(const G &group, T value, F op) {
  T result = group.shfl(value, 0);
  for (unsigned k = 1; k < group.size(); ++k) { T other = group.shfl(value, k); result = op(result, other); }
  return result;
}
}  // namespace cooperative_groups
