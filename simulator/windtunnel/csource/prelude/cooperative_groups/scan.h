/* Scans of a group (cooperative_groups::inclusive_scan and exclusive_scan). */
#pragma once
#include "../cooperative_groups.h"
namespace cooperative_groups {
template <typename G, typename T, typename F> static inline __device__ T inclusive_scan(const G &group, T value, F op) {
  T result = group.shfl(value, 0);
  for (unsigned k = 1; k < group.size(); ++k) { T other = group.shfl(value, k); if (k <= group.thread_rank()) result = op(result, other); }
  return result;
}
template <typename G, typename T> static inline __device__ T inclusive_scan(const G &group, T value) { return inclusive_scan(group, value, plus<T>()); }
template <typename G, typename T, typename F> static inline __device__ T exclusive_scan(const G &group, T value, F op) {
  T result = T();
  for (unsigned k = 0; k + 1 < group.size(); ++k) { T other = group.shfl(value, k); if (k < group.thread_rank()) result = k ? op(result, other) : other; }
  return result;
}
template <typename G, typename T> static inline __device__ T exclusive_scan(const G &group, T value) { return exclusive_scan(group, value, plus<T>()); }
}  // namespace cooperative_groups
