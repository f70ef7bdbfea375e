/* Reductions of a group (cooperative_groups::reduce). */
#pragma once
#include "../cooperative_groups.h"
namespace cooperative_groups {
template <typename __wt_G, typename __wt_T, typename __wt_F> static inline __device__ __wt_T reduce(const __wt_G &group, __wt_T value, __wt_F op) {
  __wt_T result = group.shfl(value, 0);
  for (unsigned k = 1; k < group.size(); ++k) { __wt_T other = group.shfl(value, k); result = op(result, other); }
  return result;
}
}  // namespace cooperative_groups
