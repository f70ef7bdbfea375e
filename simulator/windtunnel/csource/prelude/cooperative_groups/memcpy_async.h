/* Copies by a group (cooperative_groups::memcpy_async). */
#pragma once
#include "../cooperative_groups.h"
__device__ void __wt_copy_async(void *to, const void *from, size_t size);
__device__ void __wt_async_commit(void);
__device__ void __wt_async_wait(int groups_left);
namespace cooperative_groups {
template <typename __wt_G, typename __wt_T> static inline __device__ void memcpy_async(const __wt_G &group, __wt_T *to, const __wt_T *from, size_t size) {
  unsigned count = (unsigned)(size / sizeof(__wt_T));
  for (unsigned k = group.thread_rank(); k < count; k += group.size()) __wt_copy_async(to + k, from + k, sizeof(__wt_T));
  __wt_async_commit();
}
template <typename __wt_G> static inline __device__ void wait(const __wt_G &group) { __wt_async_wait(0); group.sync(); }
template <unsigned __wt_N, typename __wt_G> static inline __device__ void wait_prior(const __wt_G &group) { __wt_async_wait(__wt_N); group.sync(); }
}  // namespace cooperative_groups
