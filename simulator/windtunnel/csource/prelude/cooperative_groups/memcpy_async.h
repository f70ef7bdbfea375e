/* Copies by a group (cooperative_groups::memcpy_async). */
#pragma once
#include "../cooperative_groups.h"
__device__ void __wt_copy_async(void *to, const void *from, size_t size);
__device__ void __wt_async_commit(void);
__device__ void __wt_async_wait(int groups_left);
namespace cooperative_groups {
template <typename G, typename T> static inline __device__ void memcpy_async(const G &group, T *to, const T *from, size_t size) {
  unsigned count = (unsigned)(size / sizeof(T));
  for (unsigned k = group.thread_rank(); k < count; k += group.size()) __wt_copy_async(to + k, from + k, sizeof(T));
  __wt_async_commit();
}
template <typename G> static inline __device__ void wait(const G &group) { __wt_async_wait(0); group.sync(); }
template <unsigned N, typename G> static inline __device__ void wait_prior(const G &group) { __wt_async_wait(N); group.sync(); }
}  // namespace cooperative_groups
