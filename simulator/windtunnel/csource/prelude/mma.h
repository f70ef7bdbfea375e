/* Stands for <mma.h>: matrices that the lanes of a warp hold together (nvcuda::wmma).
   Which lane holds which element is not specified by CUDA, and is another one than on a GPU. Products are added in the
   order of K, each rounded to the type of the accumulator (float for half). */
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
template <typename T> struct __wt_element { typedef T stored; typedef T sum; };
template <> struct __wt_element<__half> { typedef __half stored; typedef float sum; };
template <> struct __wt_element<__nv_bfloat16> { typedef __nv_bfloat16 stored; typedef float sum; };
template <> struct __wt_element<precision::tf32> { typedef float stored; typedef float sum; };
template <> struct __wt_element<signed char> { typedef signed char stored; typedef int sum; };
template <> struct __wt_element<char> { typedef char stored; typedef int sum; };
template <> struct __wt_element<unsigned char> { typedef unsigned char stored; typedef int sum; };
/* A lane holds a part of a row of A, of a column of B, or of a column of an accumulator. */
template <typename Use, int M, int N, int K> struct __wt_shape { static const int lines = M, count = M * K / 32; };
template <int M, int N, int K> struct __wt_shape<matrix_b, M, N, K> { static const int lines = N, count = N * K / 32; };
template <int M, int N, int K> struct __wt_shape<accumulator, M, N, K> { static const int lines = N, count = M * N / 32; };
template <typename Use, int M, int N, int K, typename T, typename Layout = void> struct fragment {
  static const int num_elements = __wt_shape<Use, M, N, K>::count;
  static const int num_storage_elements = num_elements;
  typedef typename __wt_element<T>::stored element_type;
  typedef element_type storage_element_type;
  element_type x[__wt_shape<Use, M, N, K>::count];
};
template <typename Use, int M, int N, int K, typename T, typename L, typename V>
static inline __device__ void fill_fragment(fragment<Use, M, N, K, T, L> &f, const V &value) {
  for (int e = 0; e < f.num_elements; ++e) f.x[e] = (typename __wt_element<T>::stored)value;
}
#define __WT_EACH(USE, COUNT, LINES) \
  int line = __wt_lane() % LINES, first = __wt_lane() / LINES * (COUNT); \
  for (int e = 0; e < COUNT; ++e)
template <int M, int N, int K, typename T, typename P>
static inline __device__ void load_matrix_sync(fragment<matrix_a, M, N, K, T, row_major> &f, const P *p, unsigned ldm) {
  __syncwarp(); __WT_EACH(matrix_a, M * K / 32, M) f.x[e] = p[line * ldm + first + e];
}
template <int M, int N, int K, typename T, typename P>
static inline __device__ void load_matrix_sync(fragment<matrix_a, M, N, K, T, col_major> &f, const P *p, unsigned ldm) {
  __syncwarp(); __WT_EACH(matrix_a, M * K / 32, M) f.x[e] = p[(first + e) * ldm + line];
}
template <int M, int N, int K, typename T, typename P>
static inline __device__ void load_matrix_sync(fragment<matrix_b, M, N, K, T, row_major> &f, const P *p, unsigned ldm) {
  __syncwarp(); __WT_EACH(matrix_b, N * K / 32, N) f.x[e] = p[(first + e) * ldm + line];
}
template <int M, int N, int K, typename T, typename P>
static inline __device__ void load_matrix_sync(fragment<matrix_b, M, N, K, T, col_major> &f, const P *p, unsigned ldm) {
  __syncwarp(); __WT_EACH(matrix_b, N * K / 32, N) f.x[e] = p[line * ldm + first + e];
}
template <int M, int N, int K, typename T, typename P>
static inline __device__ void load_matrix_sync(fragment<accumulator, M, N, K, T> &f, const P *p, unsigned ldm, layout_t layout) {
  __syncwarp(); __WT_EACH(accumulator, M * N / 32, N)
    f.x[e] = p[layout == mem_row_major ? (first + e) * ldm + line : line * ldm + first + e];
}
template <int M, int N, int K, typename T, typename P>
static inline __device__ void store_matrix_sync(P *p, const fragment<accumulator, M, N, K, T> &f, unsigned ldm, layout_t layout) {
  __syncwarp(); __WT_EACH(accumulator, M * N / 32, N)
    p[layout == mem_row_major ? (first + e) * ldm + line : line * ldm + first + e] = f.x[e];
}
template <int M, int N, int K, typename T, typename LA, typename LB, typename D, typename C>
static inline __device__ void mma_sync(
    fragment<accumulator, M, N, K, D> &d, const fragment<matrix_a, M, N, K, T, LA> &a,
    const fragment<matrix_b, M, N, K, T, LB> &b, const fragment<accumulator, M, N, K, C> &c, bool = false) {
  typedef typename __wt_element<T>::sum S;
  int column = __wt_lane() % N, row = __wt_lane() / N * (M * N / 32);
  S sum[M * N / 32];
  for (int e = 0; e < M * N / 32; ++e) sum[e] = (S)c.x[e];
  for (int part = 0; part < 32 / N; ++part)
    for (int n = 0; n < N * K / 32; ++n) {
      S right = __shfl_sync(0xffffffffu, (S)b.x[n], column + part * N);
      int k = part * (N * K / 32) + n, lane = k / (M * K / 32) * M, place = k % (M * K / 32);
      for (int e = 0; e < M * N / 32; ++e) sum[e] += __shfl_sync(0xffffffffu, (S)a.x[place], lane + row + e) * right;
    }
  for (int e = 0; e < M * N / 32; ++e) d.x[e] = (typename __wt_element<D>::stored)sum[e];
}
static inline __device__ float __float_to_tf32(float value) {
  unsigned bits = __float_as_uint(value);
  return (bits & 0x7f800000u) == 0x7f800000u ? value : __uint_as_float((bits + 0x1000u) & 0xffffe000u);
}
}  // namespace wmma
}  // namespace nvcuda
