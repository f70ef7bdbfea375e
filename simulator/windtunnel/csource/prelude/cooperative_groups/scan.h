/* Scans of a group (cooperative_groups::inclusive_scan and exclusive_scan). */
#pragma once
#include "../cooperative_groups.h"
namespace cooperative_groups {
template <typename __wt_G, typename __wt_T, typename __wt_F> static inline __device__ __wt_T inclusive_scan(const __wt_G &group, __wt_T value, __wt_F op) {
  __wt_T result = group.shfl(value, 0);
  for (unsigned k = 1; k < group.size(); ++k) { __wt_T other = group.shfl(value, k); if (k <= group.thread_rank()) result = op(result, other); }
  return result;
}
template <typename __wt_G, typename __wt_T> static inline __device__ __wt_T inclusive_scan(const __wt_G &group, __wt_T value) { return inclusive_scan(group, value, plus<__wt_T>()); }
template <typename __wt_G, typename __wt_T, typename __wt_F> static inline __device__ __wt_T exclusive_scan(const __wt_G &group, __wt_T value, __wt_F op) {
  __wt_T result = __wt_T();
  for (unsigned k = 0; k + 1 < group.size(); ++k) { __wt_T other = group.shfl(value, k); if (k < group.thread_rank()) result = k ? op(result, other) : other; }
  return result;
}
template <typename __wt_G, typename __wt_T> static inline __device__ __wt_T exclusive_scan(const __wt_G &group, __wt_T value) { return exclusive_scan(group, value, plus<__wt_T>()); }
}  // namespace cooperative_groups
