/* Cooperative groups: blocks, tiles of a warp, coalesced threads and the grid. */
#pragma once
#include "cuda.h"
namespace cooperative_groups {
__WT_D__ unsigned __wt_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
__WT_D__ unsigned __wt_threads() { return blockDim.x * blockDim.y * blockDim.z; }
/* A shuffle of any type that can be copied: of small numbers as int, of structs word by word. */
#define __WT_ANY(NAME, HOW) \
  template <typename __wt_T> static inline __device__ __wt_T NAME(unsigned mask, __wt_T v, int by, int width = 32) { \
    if constexpr (std::is_integral<__wt_T>::value && sizeof(__wt_T) < 4) return (__wt_T)HOW(mask, (int)v, by, width); \
    else if constexpr (std::is_integral<__wt_T>::value || std::is_floating_point<__wt_T>::value) return HOW(mask, v, by, width); \
    else if constexpr (sizeof(__wt_T) == 2) return HOW(mask, v, by, width); \
    else { \
      unsigned words[sizeof(__wt_T) / 4]; \
      memcpy(words, &v, sizeof(__wt_T)); \
      for (unsigned k = 0; k < sizeof(__wt_T) / 4; ++k) words[k] = HOW(mask, words[k], by, width); \
      memcpy(&v, words, sizeof(__wt_T)); \
      return v; \
    } \
  }
__WT_ANY(__wt_any_shfl, __shfl_sync) __WT_ANY(__wt_any_shfl_up, __shfl_up_sync)
__WT_ANY(__wt_any_shfl_down, __shfl_down_sync) __WT_ANY(__wt_any_shfl_xor, __shfl_xor_sync)
struct thread_block {
  __device__ void sync() const { __syncthreads(); }
  __device__ unsigned thread_rank() const { return __wt_rank(); }
  __device__ unsigned size() const { return __wt_threads(); }
  __device__ unsigned num_threads() const { return __wt_threads(); }
  __device__ dim3 group_index() const { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  __device__ dim3 thread_index() const { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  __device__ dim3 group_dim() const { return dim3(blockDim.x, blockDim.y, blockDim.z); }
  __device__ dim3 dim_threads() const { return dim3(blockDim.x, blockDim.y, blockDim.z); }
};
struct grid_group {
  __device__ void sync() const { __wt_grid_sync(); }
  __device__ bool is_valid() const { return true; }
  __device__ unsigned long long thread_rank() const {
    unsigned long long block = blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
    return block * __wt_threads() + __wt_rank();
  }
  __device__ unsigned long long size() const { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z * __wt_threads(); }
  __device__ unsigned long long num_threads() const { return size(); }
  __device__ unsigned long long num_blocks() const { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
  __device__ dim3 group_dim() const { return dim3(gridDim.x, gridDim.y, gridDim.z); }
};
__WT_D__ thread_block this_thread_block() { thread_block b; return b; }
__WT_D__ grid_group this_grid() { grid_group g; return g; }
template <unsigned __wt_N, typename __wt_Parent = void> struct thread_block_tile {
  __device__ unsigned mask() const { return __wt_N >= 32 ? 0xffffffffu : ((1u << (__wt_N & 31u)) - 1u) << (__wt_lane() / (int)__wt_N * (int)__wt_N); }
  __device__ void sync() const { __syncwarp(mask()); }
  __device__ unsigned thread_rank() const { return __wt_rank() % __wt_N; }
  __device__ unsigned size() const { return __wt_N; }
  __device__ unsigned num_threads() const { return __wt_N; }
  __device__ unsigned meta_group_rank() const { return __wt_rank() / __wt_N; }
  __device__ unsigned meta_group_size() const { return (__wt_threads() + __wt_N - 1) / __wt_N; }
  template <typename __wt_T> __device__ __wt_T shfl(__wt_T v, int lane) const { return __wt_any_shfl(mask(), v, lane, __wt_N); }
  template <typename __wt_T> __device__ __wt_T shfl_down(__wt_T v, unsigned by) const { return __wt_any_shfl_down(mask(), v, by, __wt_N); }
  template <typename __wt_T> __device__ __wt_T shfl_up(__wt_T v, unsigned by) const { return __wt_any_shfl_up(mask(), v, by, __wt_N); }
  template <typename __wt_T> __device__ __wt_T shfl_xor(__wt_T v, int lanes) const { return __wt_any_shfl_xor(mask(), v, lanes, __wt_N); }
  template <typename __wt_T> __device__ unsigned match_any(__wt_T v) const { return __match_any_sync(mask(), v) >> (__wt_lane() / (int)__wt_N * (int)__wt_N); }
  __device__ int any(int p) const { return __any_sync(mask(), p); }
  __device__ int all(int p) const { return __all_sync(mask(), p); }
  __device__ unsigned ballot(int p) const {
    return __ballot_sync(mask(), p) >> (__wt_lane() / (int)__wt_N * (int)__wt_N) & (__wt_N >= 32 ? 0xffffffffu : (1u << (__wt_N & 31u)) - 1u);
  }
};
/* A group of a kind that is known when the kernel runs: the block, or lanes of a warp. */
struct thread_group {
  unsigned lanes, count, rank;
  __device__ thread_group() {}
  __device__ thread_group(const thread_block &b) : lanes(0), count(b.size()), rank(b.thread_rank()) {}
  template <unsigned __wt_N, typename __wt_P> __device__ thread_group(const thread_block_tile<__wt_N, __wt_P> &t) : lanes(t.mask()), count(__wt_N), rank(t.thread_rank()) {}
  __device__ void sync() const { if (lanes) __syncwarp(lanes); else __syncthreads(); }
  __device__ unsigned size() const { return count; }
  __device__ unsigned num_threads() const { return count; }
  __device__ unsigned thread_rank() const { return rank; }
  __device__ bool is_valid() const { return true; }
};
__WT_D__ thread_group tiled_partition(const thread_group &parent, unsigned n) {
  thread_group g;
  g.count = n; g.rank = parent.thread_rank() % n;
  g.lanes = n >= 32 ? 0xffffffffu : ((1u << (n & 31u)) - 1u) << (__wt_lane() / (int)n * (int)n);
  return g;
}
struct coalesced_group {
  unsigned lanes;
  __device__ unsigned mask() const { return lanes; }
  __device__ void sync() const { __syncwarp(lanes); }
  __device__ unsigned size() const { return __popc(lanes); }
  __device__ unsigned num_threads() const { return __popc(lanes); }
  __device__ unsigned thread_rank() const { return __popc(lanes & ((1u << __wt_lane()) - 1u)); }
  __device__ int nth(unsigned n) const {
    int found = 0;
    for (int k = 0, seen = 0; k < 32; ++k)
      if (lanes >> k & 1u) { if (seen == (int)n) found = k; ++seen; }
    return found;
  }
  template <typename __wt_T> __device__ __wt_T shfl(__wt_T v, unsigned rank) const { return __wt_any_shfl(lanes, v, nth(rank)); }
  template <typename __wt_T> __device__ __wt_T shfl_down(__wt_T v, unsigned by) const {
    unsigned rank = thread_rank() + by;
    return __wt_any_shfl(lanes, v, nth(rank < size() ? rank : thread_rank()));
  }
  template <typename __wt_T> __device__ __wt_T shfl_up(__wt_T v, unsigned by) const {
    int rank = (int)thread_rank() - (int)by;
    return __wt_any_shfl(lanes, v, nth(rank >= 0 ? rank : thread_rank()));
  }
  template <typename __wt_T> __device__ __wt_T shfl_xor(__wt_T v, int by) const { return __wt_any_shfl(lanes, v, nth(thread_rank() ^ by)); }
  __device__ unsigned ballot(int p) const {
    unsigned all = __ballot_sync(lanes, p), found = 0;
    for (int k = 0, seen = 0; k < 32; ++k)
      if (lanes >> k & 1u) found |= (all >> k & 1u) << seen++;
    return found;
  }
  __device__ unsigned long long meta_group_size() const { return 1; }
  __device__ int any(int p) const { return __any_sync(lanes, p); }
  __device__ int all(int p) const { return __all_sync(lanes, p); }
};
__WT_D__ coalesced_group coalesced_threads() { coalesced_group g; g.lanes = __activemask(); return g; }
template <typename __wt_G> static inline __device__ coalesced_group binary_partition(const __wt_G &parent, bool p) {
  unsigned with = __ballot_sync(parent.mask(), p);
  coalesced_group g;
  g.lanes = p ? with : parent.mask() & ~with;
  return g;
}
template <typename __wt_G, typename __wt_T> static inline __device__ coalesced_group labeled_partition(const __wt_G &parent, __wt_T label) {
  coalesced_group g;
  g.lanes = __match_any_sync(parent.mask(), label);
  return g;
}
template <typename __wt_G> static inline __device__ unsigned thread_rank(const __wt_G &group) { return group.thread_rank(); }
template <typename __wt_G> static inline __device__ unsigned group_size(const __wt_G &group) { return group.size(); }
template <unsigned __wt_N> static inline __device__ thread_block_tile<__wt_N> tiled_partition(const thread_block &) { thread_block_tile<__wt_N> t; return t; }
template <unsigned __wt_N, unsigned __wt_M> static inline __device__ thread_block_tile<__wt_N> tiled_partition(const thread_block_tile<__wt_M> &) { thread_block_tile<__wt_N> t; return t; }
template <typename __wt_G> static inline __device__ void sync(const __wt_G &group) { group.sync(); }
__WT_D__ void sync(const grid_group &group) { __wt_grid_sync(); }
template <typename __wt_T> struct plus { __device__ __wt_T operator()(__wt_T a, __wt_T b) const { return a + b; } };
template <typename __wt_T> struct bit_and { __device__ __wt_T operator()(__wt_T a, __wt_T b) const { return a & b; } };
template <typename __wt_T> struct bit_or { __device__ __wt_T operator()(__wt_T a, __wt_T b) const { return a | b; } };
template <typename __wt_T> struct bit_xor { __device__ __wt_T operator()(__wt_T a, __wt_T b) const { return a ^ b; } };
template <typename __wt_T> struct less { __device__ __wt_T operator()(__wt_T a, __wt_T b) const { return a < b ? a : b; } };
template <typename __wt_T> struct greater { __device__ __wt_T operator()(__wt_T a, __wt_T b) const { return a > b ? a : b; } };
}  // namespace cooperative_groups
