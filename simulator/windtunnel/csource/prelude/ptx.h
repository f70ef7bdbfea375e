/* Instructions of PTX that assembly in C uses, by their names and types. Their modifiers for accuracy are left out. */
#pragma once
#define __WT_P(NAME, T, ARGUMENTS, E) static inline __device__ T __wt_ptx_##NAME ARGUMENTS { return E; }
#define __WT_PN(T, N) \
  __WT_P(add_##N, T, (T a, T b), a + b) __WT_P(sub_##N, T, (T a, T b), a - b) __WT_P(mov_##N, T, (T a), a) \
  __WT_P(min_##N, T, (T a, T b), min(a, b)) __WT_P(max_##N, T, (T a, T b), max(a, b))
#define __WT_PI(T, N) __WT_PN(T, N) \
  __WT_P(mul_lo_##N, T, (T a, T b), a * b) __WT_P(mad_lo_##N, T, (T a, T b, T c), a * b + c) \
  __WT_P(shr_##N, T, (T a, unsigned b), b < 8 * sizeof(T) ? a >> b : a < 0 ? (T)-1 : (T)0)
__WT_PI(int, s32) __WT_PI(unsigned, u32) __WT_PI(long long, s64) __WT_PI(unsigned long long, u64)
#define __WT_PF(T, N) __WT_PN(T, N) __WT_P(mul_##N, T, (T a, T b), a * b) __WT_P(div_##N, T, (T a, T b), a / b) \
  __WT_P(fma_##N, T, (T a, T b, T c), fma(a, b, c)) __WT_P(abs_##N, T, (T a), fabs(a)) __WT_P(neg_##N, T, (T a), -a) \
  __WT_P(sqrt_##N, T, (T a), sqrt(a)) __WT_P(rsqrt_##N, T, (T a), rsqrt(a)) __WT_P(rcp_##N, T, (T a), (T)1 / a)
__WT_PF(float, f32) __WT_PF(double, f64)
__WT_P(ex2_f32, float, (float a), exp2f(a)) __WT_P(lg2_f32, float, (float a), log2f(a)) __WT_P(sin_f32, float, (float a), sinf(a))
__WT_P(cos_f32, float, (float a), cosf(a)) __WT_P(tanh_f32, float, (float a), tanhf(a))
#define __WT_PB(T, N) \
  __WT_P(and_##N, T, (T a, T b), a & b) __WT_P(or_##N, T, (T a, T b), a | b) __WT_P(xor_##N, T, (T a, T b), a ^ b) \
  __WT_P(not_##N, T, (T a), ~a) __WT_P(shl_##N, T, (T a, unsigned b), b < 8 * sizeof(T) ? a << b : (T)0) \
  __WT_P(shr_##N, T, (T a, unsigned b), b < 8 * sizeof(T) ? a >> b : (T)0) __WT_P(mov_##N, T, (T a), a)
__WT_PB(unsigned, b32) __WT_PB(unsigned long long, b64)
__WT_P(neg_s32, int, (int a), -a) __WT_P(abs_s32, int, (int a), abs(a))
__WT_P(mul_hi_s32, int, (int a, int b), __mulhi(a, b)) __WT_P(mul_hi_u32, unsigned, (unsigned a, unsigned b), __umulhi(a, b))
__WT_P(mul_hi_u64, unsigned long long, (unsigned long long a, unsigned long long b), __umul64hi(a, b))
__WT_P(mad_hi_u32, unsigned, (unsigned a, unsigned b, unsigned c), __umulhi(a, b) + c)
__WT_P(mul_wide_u32, unsigned long long, (unsigned a, unsigned b), (unsigned long long)a * b)
__WT_P(mul_wide_s32, long long, (int a, int b), (long long)a * b)
__WT_P(mad_hi_s32, int, (int a, int b, int c), __mulhi(a, b) + c) __WT_P(mul_hi_s64, long long, (long long a, long long b), __mul64hi(a, b))
__WT_P(mad_hi_u64, unsigned long long, (unsigned long long a, unsigned long long b, unsigned long long c), __umul64hi(a, b) + c)
__WT_P(mad_wide_s32, long long, (int a, int b, long long c), (long long)a * b + c) __WT_P(mul24_lo_u32, unsigned, (unsigned a, unsigned b), __umul24(a, b))
__WT_P(mul24_lo_s32, int, (int a, int b), __mul24(a, b)) __WT_P(mad24_lo_u32, unsigned, (unsigned a, unsigned b, unsigned c), __umul24(a, b) + c)
__WT_P(sad_u32, unsigned, (unsigned a, unsigned b, unsigned c), __usad(a, b, c)) __WT_P(rem_u32, unsigned, (unsigned a, unsigned b), a % b)
__WT_P(div_u32, unsigned, (unsigned a, unsigned b), a / b) __WT_P(div_s32, int, (int a, int b), a / b) __WT_P(rem_s32, int, (int a, int b), a % b)
__WT_P(popc_b64, unsigned, (unsigned long long a), (unsigned)__popcll(a)) __WT_P(clz_b64, unsigned, (unsigned long long a), (unsigned)__clzll((long long)a))
__WT_P(brev_b64, unsigned long long, (unsigned long long a), __brevll(a)) __WT_P(cnot_b32, unsigned, (unsigned a), a == 0u)
__WT_P(mad_wide_u32, unsigned long long, (unsigned a, unsigned b, unsigned long long c), (unsigned long long)a * b + c)
__WT_P(popc_b32, unsigned, (unsigned a), (unsigned)__popc(a)) __WT_P(clz_b32, unsigned, (unsigned a), (unsigned)__clz((int)a))
__WT_P(brev_b32, unsigned, (unsigned a), __brev(a)) __WT_P(prmt_b32, unsigned, (unsigned a, unsigned b, unsigned c), __byte_perm(a, b, c))
__WT_P(bfind_u32, unsigned, (unsigned a), a ? 31u - (unsigned)__clz((int)a) : 0xffffffffu)
__WT_P(bfind_s32, unsigned, (int a), __wt_ptx_bfind_u32(a < 0 ? ~(unsigned)a : (unsigned)a))
__WT_P(bfind_u64, unsigned, (unsigned long long a), a ? 63u - (unsigned)__clzll((long long)a) : 0xffffffffu)
#define __WT_MASK(N) ((N) >= 32u ? 0xffffffffu : (1u << (N)) - 1u)
__WT_P(bfe_u32, unsigned, (unsigned a, unsigned b, unsigned c), (b & 255u) > 31u ? 0u : a >> (b & 255u) & __WT_MASK(c & 255u))
static inline __device__ int __wt_ptx_bfe_s32(int a, unsigned b, unsigned c) {
  b &= 255u; c &= 255u;
  if (c == 0u) return 0;
  unsigned last = b + c - 1u > 31u ? 31u : b + c - 1u, sign = (unsigned)a >> last & 1u;
  unsigned bits = b > 31u ? 0u : (unsigned)a >> b & __WT_MASK(c);
  unsigned kept = last < b ? 0u : last - b + 1u;
  return (int)(sign ? bits | ~__WT_MASK(kept) : bits & __WT_MASK(kept));
}
static inline __device__ unsigned __wt_ptx_bfi_b32(unsigned a, unsigned b, unsigned c, unsigned d) {
  c &= 255u; d &= 255u;
  if (c > 31u) return b;
  unsigned mask = __WT_MASK(d) << c;
  return (b & ~mask) | (a << c & mask);
}
static inline __device__ unsigned __wt_ptx_lop3_b32(unsigned a, unsigned b, unsigned c, unsigned table) {
  unsigned result = 0u;
  for (int k = 0; k < 8; ++k)
    if (table >> k & 1u) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  return result;
}
__WT_P(shf_l_wrap_b32, unsigned, (unsigned a, unsigned b, unsigned c), __funnelshift_l(a, b, c))
__WT_P(shf_r_wrap_b32, unsigned, (unsigned a, unsigned b, unsigned c), __funnelshift_r(a, b, c))
__WT_P(shf_l_clamp_b32, unsigned, (unsigned a, unsigned b, unsigned c), __funnelshift_lc(a, b, c))
__WT_P(shf_r_clamp_b32, unsigned, (unsigned a, unsigned b, unsigned c), __funnelshift_rc(a, b, c))
static inline __device__ int __wt_ptx_dp4a_s32_s32(int a, int b, int c) { return __dp4a(a, b, c); }
static inline __device__ unsigned __wt_ptx_dp4a_u32_u32(unsigned a, unsigned b, unsigned c) { return __dp4a(a, b, c); }
static inline __device__ unsigned __wt_ptx_vabsdiff4_u32_u32_u32(unsigned a, unsigned b, unsigned c) { return __vabsdiffu4(a, b); }
static inline __device__ unsigned __wt_ptx_vabsdiff4_u32_u32_u32_add(unsigned a, unsigned b, unsigned c) { return __vsadu4(a, b) + c; }
