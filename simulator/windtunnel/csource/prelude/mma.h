/* Stands for <mma.h>: matrices that the lanes of a warp hold together (nvcuda::wmma).
   Which lane holds which element is not specified by CUDA, and is another one than on a GPU. Products are added in the
   order of __wt_K, each rounded to the type of the accumulator (float for half). */
#pragma once
#include "cuda.h"
#include "cuda_fp16.h"
#include "cuda_bf16.h"
namespace nvcuda {
namespace wmma {
struct matrix_a {}; struct matrix_b {}; struct accumulator {};
struct row_major {}; struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision { struct tf32 {}; struct u4; struct s4; struct b1; }
template <typename __wt_T> struct __wt_element { typedef __wt_T stored; typedef __wt_T sum; };
template <> struct __wt_element<__half> { typedef __half stored; typedef float sum; };
template <> struct __wt_element<__nv_bfloat16> { typedef __nv_bfloat16 stored; typedef float sum; };
template <> struct __wt_element<precision::tf32> { typedef float stored; typedef float sum; };
template <> struct __wt_element<signed char> { typedef signed char stored; typedef int sum; };
template <> struct __wt_element<char> { typedef char stored; typedef int sum; };
template <> struct __wt_element<unsigned char> { typedef unsigned char stored; typedef int sum; };
/* A lane holds a part of a row of A, of a column of B, or of a column of an accumulator. */
template <typename __wt_Use, int __wt_M, int __wt_N, int __wt_K> struct __wt_shape { static const int lines = __wt_M, count = __wt_M * __wt_K / 32; };
template <int __wt_M, int __wt_N, int __wt_K> struct __wt_shape<matrix_b, __wt_M, __wt_N, __wt_K> { static const int lines = __wt_N, count = __wt_N * __wt_K / 32; };
template <int __wt_M, int __wt_N, int __wt_K> struct __wt_shape<accumulator, __wt_M, __wt_N, __wt_K> { static const int lines = __wt_N, count = __wt_M * __wt_N / 32; };
template <typename __wt_Use, int __wt_M, int __wt_N, int __wt_K, typename __wt_T, typename __wt_Layout = void> struct fragment {
  static const int num_elements = __wt_shape<__wt_Use, __wt_M, __wt_N, __wt_K>::count;
  static const int num_storage_elements = num_elements;
  typedef typename __wt_element<__wt_T>::stored element_type;
  typedef element_type storage_element_type;
  element_type x[__wt_shape<__wt_Use, __wt_M, __wt_N, __wt_K>::count];
};
template <typename __wt_Use, int __wt_M, int __wt_N, int __wt_K, typename __wt_T, typename __wt_L, typename __wt_V>
static inline __device__ void fill_fragment(fragment<__wt_Use, __wt_M, __wt_N, __wt_K, __wt_T, __wt_L> &f, const __wt_V &value) {
  for (int e = 0; e < f.num_elements; ++e) f.x[e] = (typename __wt_element<__wt_T>::stored)value;
}
#define __WT_EACH(USE, COUNT, LINES) \
  int line = __wt_lane() % LINES, first = __wt_lane() / LINES * (COUNT); \
  for (int e = 0; e < COUNT; ++e)
template <int __wt_M, int __wt_N, int __wt_K, typename __wt_T, typename __wt_P>
static inline __device__ void load_matrix_sync(fragment<matrix_a, __wt_M, __wt_N, __wt_K, __wt_T, row_major> &f, const __wt_P *p, unsigned ldm) {
  __syncwarp(); __WT_EACH(matrix_a, __wt_M * __wt_K / 32, __wt_M) f.x[e] = p[line * ldm + first + e];
}
template <int __wt_M, int __wt_N, int __wt_K, typename __wt_T, typename __wt_P>
static inline __device__ void load_matrix_sync(fragment<matrix_a, __wt_M, __wt_N, __wt_K, __wt_T, col_major> &f, const __wt_P *p, unsigned ldm) {
  __syncwarp(); __WT_EACH(matrix_a, __wt_M * __wt_K / 32, __wt_M) f.x[e] = p[(first + e) * ldm + line];
}
template <int __wt_M, int __wt_N, int __wt_K, typename __wt_T, typename __wt_P>
static inline __device__ void load_matrix_sync(fragment<matrix_b, __wt_M, __wt_N, __wt_K, __wt_T, row_major> &f, const __wt_P *p, unsigned ldm) {
  __syncwarp(); __WT_EACH(matrix_b, __wt_N * __wt_K / 32, __wt_N) f.x[e] = p[(first + e) * ldm + line];
}
template <int __wt_M, int __wt_N, int __wt_K, typename __wt_T, typename __wt_P>
static inline __device__ void load_matrix_sync(fragment<matrix_b, __wt_M, __wt_N, __wt_K, __wt_T, col_major> &f, const __wt_P *p, unsigned ldm) {
  __syncwarp(); __WT_EACH(matrix_b, __wt_N * __wt_K / 32, __wt_N) f.x[e] = p[line * ldm + first + e];
}
template <int __wt_M, int __wt_N, int __wt_K, typename __wt_T, typename __wt_P>
static inline __device__ void load_matrix_sync(fragment<accumulator, __wt_M, __wt_N, __wt_K, __wt_T> &f, const __wt_P *p, unsigned ldm, layout_t layout) {
  __syncwarp(); __WT_EACH(accumulator, __wt_M * __wt_N / 32, __wt_N)
    f.x[e] = p[layout == mem_row_major ? (first + e) * ldm + line : line * ldm + first + e];
}
template <int __wt_M, int __wt_N, int __wt_K, typename __wt_T, typename __wt_P>
static inline __device__ void store_matrix_sync(__wt_P *p, const fragment<accumulator, __wt_M, __wt_N, __wt_K, __wt_T> &f, unsigned ldm, layout_t layout) {
  __syncwarp(); __WT_EACH(accumulator, __wt_M * __wt_N / 32, __wt_N)
    p[layout == mem_row_major ? (first + e) * ldm + line : line * ldm + first + e] = f.x[e];
}
template <int __wt_M, int __wt_N, int __wt_K, typename __wt_T, typename __wt_LA, typename __wt_LB, typename __wt_D, typename __wt_C>
static inline __device__ void mma_sync(
    fragment<accumulator, __wt_M, __wt_N, __wt_K, __wt_D> &d, const fragment<matrix_a, __wt_M, __wt_N, __wt_K, __wt_T, __wt_LA> &a,
    const fragment<matrix_b, __wt_M, __wt_N, __wt_K, __wt_T, __wt_LB> &b, const fragment<accumulator, __wt_M, __wt_N, __wt_K, __wt_C> &c, bool = false) {
  typedef typename __wt_element<__wt_T>::sum __wt_S;
  int column = __wt_lane() % __wt_N, row = __wt_lane() / __wt_N * (__wt_M * __wt_N / 32);
  __wt_S sum[__wt_M * __wt_N / 32];
  for (int e = 0; e < __wt_M * __wt_N / 32; ++e) sum[e] = (__wt_S)c.x[e];
  for (int part = 0; part < 32 / __wt_N; ++part)
    for (int n = 0; n < __wt_N * __wt_K / 32; ++n) {
      __wt_S right = __shfl_sync(0xffffffffu, (__wt_S)b.x[n], column + part * __wt_N);
      int k = part * (__wt_N * __wt_K / 32) + n, lane = k / (__wt_M * __wt_K / 32) * __wt_M, place = k % (__wt_M * __wt_K / 32);
      for (int e = 0; e < __wt_M * __wt_N / 32; ++e) sum[e] += __shfl_sync(0xffffffffu, (__wt_S)a.x[place], lane + row + e) * right;
    }
  for (int e = 0; e < __wt_M * __wt_N / 32; ++e) d.x[e] = (typename __wt_element<__wt_D>::stored)sum[e];
}
static inline __device__ float __float_to_tf32(float value) {
  unsigned bits = __float_as_uint(value);
  return (bits & 0x7f800000u) == 0x7f800000u ? value : __uint_as_float((bits + 0x1000u) & 0xffffe000u);
}
}  // namespace wmma
}  // namespace nvcuda
