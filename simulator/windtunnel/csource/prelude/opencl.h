/* OpenCL C as the translator of Windtunnel knows it; Clang itself declares its built-in functions. */
#pragma once
#if __OPENCL_C_VERSION__ >= 200
#define __opencl_c_generic_address_space 1
#define __opencl_c_atomic_order_acq_rel 1
#define __opencl_c_atomic_order_seq_cst 1
#define __opencl_c_atomic_scope_device 1
#define __opencl_c_atomic_scope_all_devices 1
#define __opencl_c_work_group_collective_functions 1
#define __opencl_c_subgroups 1
#define __opencl_c_program_scope_global_variables 1
#else
#define __opencl_c_named_address_space_builtins 1
#endif
/* The version of the device. */
#define __OPENCL_VERSION__ 200
#define __opencl_c_fp64 1
#define __opencl_c_int64 1
#define __opencl_c_images 1
#define __opencl_c_read_write_images 1
#define register
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t; typedef __PTRDIFF_TYPE__ ptrdiff_t;
/* By their names, Clang refuses these types as those of a kernel's parameters. Drivers take them. */
typedef __SIZE_TYPE__ __wt_size; typedef __PTRDIFF_TYPE__ __wt_ptrdiff;
#define size_t __wt_size
#define ptrdiff_t __wt_ptrdiff
typedef __INTPTR_TYPE__ intptr_t; typedef __UINTPTR_TYPE__ uintptr_t;
#define __WT_V(T) \
  typedef T T##2 __attribute__((ext_vector_type(2))); typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4))); typedef T T##8 __attribute__((ext_vector_type(8))); \
  typedef T T##16 __attribute__((ext_vector_type(16)));
__WT_V(char) __WT_V(uchar) __WT_V(short) __WT_V(ushort) __WT_V(int) __WT_V(uint) __WT_V(long) __WT_V(ulong)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
/* What some drivers take. */
#pragma OPENCL EXTENSION __cl_clang_bitfields : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
__WT_V(half) __WT_V(float) __WT_V(double)
/* Annotations of verifiers: assertions are checked, and what they assume or prove is not. */
#ifndef __requires
#include "verifier_annotations.h"
#endif
#define __global_assert(e) assert(e)
void __wt_assert_fail(__constant const char *text);
#define assert(e) ((e) ? (void)0 : __wt_assert_fail(#e))
#define __assert(e) assert(e)
typedef uint cl_mem_fence_flags;
#define cl_khr_subgroups 1
uint get_sub_group_size(void); uint get_max_sub_group_size(void); uint get_num_sub_groups(void);
uint get_enqueued_num_sub_groups(void); uint get_sub_group_id(void); uint get_sub_group_local_id(void);
int sub_group_all(int); int sub_group_any(int);
void __attribute__((overloadable)) sub_group_barrier(cl_mem_fence_flags);
void __attribute__((overloadable)) sub_group_barrier(cl_mem_fence_flags, int);
#define __WT_G1(NAME, T) T __attribute__((overloadable)) NAME(T);
#define __WT_G(T) __WT_G1(sub_group_reduce_add, T) __WT_G1(sub_group_reduce_min, T) __WT_G1(sub_group_reduce_max, T) \
  __WT_G1(sub_group_scan_inclusive_add, T) __WT_G1(sub_group_scan_inclusive_min, T) __WT_G1(sub_group_scan_inclusive_max, T) \
  __WT_G1(sub_group_scan_exclusive_add, T) __WT_G1(sub_group_scan_exclusive_min, T) __WT_G1(sub_group_scan_exclusive_max, T) \
  T __attribute__((overloadable)) sub_group_broadcast(T, uint);
__WT_G(int) __WT_G(uint) __WT_G(long) __WT_G(ulong) __WT_G(float) __WT_G(double)
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#define CLK_IMAGE_MEM_FENCE 4
typedef enum memory_scope {
  memory_scope_work_item = 0, memory_scope_work_group = 1, memory_scope_device = 2, memory_scope_all_svm_devices = 3,
  memory_scope_sub_group = 4
} memory_scope;
typedef enum memory_order {
  memory_order_relaxed = 0, memory_order_acquire = 2, memory_order_release = 3, memory_order_acq_rel = 4,
  memory_order_seq_cst = 5
} memory_order;
typedef struct __wt_ndrange { int dim; } ndrange_t;
typedef int clk_profiling_info; typedef int kernel_enqueue_flags_t;
#define ATOMIC_VAR_INIT(x) (x)
#define ATOMIC_FLAG_INIT 0
int printf(__constant const char *form, ...);
#define CLK_NORMALIZED_COORDS_FALSE 0
#define CLK_NORMALIZED_COORDS_TRUE 1
#define CLK_ADDRESS_NONE 0
#define CLK_ADDRESS_CLAMP_TO_EDGE 2
#define CLK_ADDRESS_CLAMP 4
#define CLK_ADDRESS_REPEAT 6
#define CLK_ADDRESS_MIRRORED_REPEAT 8
#define CLK_FILTER_NEAREST 0x10
#define CLK_FILTER_LINEAR 0x20
#define NULL ((void *)0)
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF (__builtin_huge_valf())
#define HUGE_VAL (__builtin_huge_val())
#define MAXFLOAT 0x1.fffffep127f
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1.0p-126f
#define FLT_EPSILON 0x1.0p-23f
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_RADIX 2
#define FLT_MAX_EXP 128
#define FLT_MIN_EXP (-125)
#define FLT_MAX_10_EXP 38
#define FLT_MIN_10_EXP (-37)
#define FP_ILOGB0 (-2147483647 - 1)
#define FP_ILOGBNAN 2147483647
#define FP_FAST_FMA 1
#define FP_FAST_FMAF 1
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#define DBL_MAX_EXP 1024
#define DBL_MIN_EXP (-1021)
#define DBL_MAX_10_EXP 308
#define DBL_MIN_10_EXP (-307)
#define HALF_DIG 3
#define HALF_MANT_DIG 11
#define HALF_MAX 0x1.ffcp15h
#define HALF_MIN 0x1.0p-14h
#define HALF_EPSILON 0x1.0p-10h
#define DBL_MAX 0x1.fffffffffffffp1023
#define DBL_MIN 0x1.0p-1022
#define DBL_EPSILON 0x1.0p-52
#define CHAR_BIT 8
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 0xffffffffu
#define LONG_MAX 0x7fffffffffffffffl
#define LONG_MIN (-0x7fffffffffffffffl - 1)
#define ULONG_MAX 0xffffffffffffffffUL
#define M_E_F 2.71828182845904523536028747135266250f
#define M_LOG2E_F 1.44269504088896340735992468100189214f
#define M_LOG10E_F 0.434294481903251827651128918916605082f
#define M_LN2_F 0.693147180559945309417232121458176568f
#define M_LN10_F 2.30258509299404568401799145468436421f
#define M_PI_F 3.14159265358979323846264338327950288f
#define M_PI_2_F 1.57079632679489661923132169163975144f
#define M_PI_4_F 0.785398163397448309615660845819875721f
#define M_1_PI_F 0.318309886183790671537767526745028724f
#define M_2_PI_F 0.636619772367581343075535053490057448f
#define M_2_SQRTPI_F 1.12837916709551257389615890312154517f
#define M_SQRT2_F 1.41421356237309504880168872420969808f
#define M_SQRT1_2_F 0.707106781186547524400844362104849039f
#define M_E 2.71828182845904523536028747135266250
#define M_PI 3.14159265358979323846264338327950288
#define M_PI_2 1.57079632679489661923132169163975144
#define M_PI_4 0.785398163397448309615660845819875721
#define M_LOG2E 1.44269504088896340735992468100189214
#define M_LOG10E 0.434294481903251827651128918916605082
#define M_LN2 0.693147180559945309417232121458176568
#define M_LN10 2.30258509299404568401799145468436421
#define M_1_PI 0.318309886183790671537767526745028724
#define M_2_PI 0.636619772367581343075535053490057448
#define M_2_SQRTPI 1.12837916709551257389615890312154517
#define M_SQRT1_2 0.707106781186547524400844362104849039
#define M_SQRT2 1.41421356237309504880168872420969808
#define cl_khr_fp64 1
#define cl_khr_fp16 1
#define cl_khr_byte_addressable_store 1
#define cl_khr_global_int32_base_atomics 1
#define cl_khr_local_int32_base_atomics 1
#define cl_khr_int64_base_atomics 1
#define __ENDIAN_LITTLE__ 1
/* Reinterpretations: from every type of the same size. */
#define __WT_AS(T, A) T __attribute__((overloadable)) as_##T(A);
#define __WT_ALL0(T) __WT_AS(T, char) __WT_AS(T, uchar)
__WT_ALL0(char) __WT_ALL0(uchar)
#define __WT_ALL1(T) __WT_AS(T, short) __WT_AS(T, ushort) __WT_AS(T, half) __WT_AS(T, char2) __WT_AS(T, uchar2)
__WT_ALL1(short) __WT_ALL1(ushort) __WT_ALL1(half) __WT_ALL1(char2) __WT_ALL1(uchar2)
#define __WT_ALL2(T) __WT_AS(T, int) __WT_AS(T, uint) __WT_AS(T, float) __WT_AS(T, char4) __WT_AS(T, uchar4) __WT_AS(T, short2) __WT_AS(T, ushort2) __WT_AS(T, half2) __WT_AS(T, char3) __WT_AS(T, uchar3)
__WT_ALL2(int) __WT_ALL2(uint) __WT_ALL2(float) __WT_ALL2(char4) __WT_ALL2(uchar4) __WT_ALL2(short2) __WT_ALL2(ushort2) __WT_ALL2(half2) __WT_ALL2(char3) __WT_ALL2(uchar3)
#define __WT_ALL3(T) __WT_AS(T, half3) __WT_AS(T, long) __WT_AS(T, ulong) __WT_AS(T, double) __WT_AS(T, int2) __WT_AS(T, uint2) __WT_AS(T, float2) __WT_AS(T, short4) __WT_AS(T, ushort4) __WT_AS(T, half4) __WT_AS(T, char8) __WT_AS(T, uchar8) __WT_AS(T, short3) __WT_AS(T, ushort3)
__WT_ALL3(long) __WT_ALL3(ulong) __WT_ALL3(double) __WT_ALL3(int2) __WT_ALL3(uint2) __WT_ALL3(float2) __WT_ALL3(short4) __WT_ALL3(ushort4) __WT_ALL3(half4) __WT_ALL3(char8) __WT_ALL3(uchar8) __WT_ALL3(short3) __WT_ALL3(ushort3) __WT_ALL3(half3)
#define __WT_ALL4(T) __WT_AS(T, half8) __WT_AS(T, long2) __WT_AS(T, ulong2) __WT_AS(T, double2) __WT_AS(T, int4) __WT_AS(T, uint4) __WT_AS(T, float4) __WT_AS(T, int3) __WT_AS(T, uint3) __WT_AS(T, float3) __WT_AS(T, short8) __WT_AS(T, ushort8) __WT_AS(T, char16) __WT_AS(T, uchar16)
__WT_ALL4(long2) __WT_ALL4(ulong2) __WT_ALL4(double2) __WT_ALL4(int4) __WT_ALL4(uint4) __WT_ALL4(float4) __WT_ALL4(int3) __WT_ALL4(uint3) __WT_ALL4(float3) __WT_ALL4(short8) __WT_ALL4(ushort8) __WT_ALL4(char16) __WT_ALL4(uchar16) __WT_ALL4(half8)
#define __WT_ALL5(T) __WT_AS(T, half16) __WT_AS(T, long4) __WT_AS(T, ulong4) __WT_AS(T, double4) __WT_AS(T, long3) __WT_AS(T, ulong3) __WT_AS(T, double3) __WT_AS(T, int8) __WT_AS(T, uint8) __WT_AS(T, float8) __WT_AS(T, short16) __WT_AS(T, ushort16)
__WT_ALL5(long4) __WT_ALL5(ulong4) __WT_ALL5(double4) __WT_ALL5(long3) __WT_ALL5(ulong3) __WT_ALL5(double3) __WT_ALL5(int8) __WT_ALL5(uint8) __WT_ALL5(float8) __WT_ALL5(short16) __WT_ALL5(ushort16) __WT_ALL5(half16)
#define __WT_ALL6(T) __WT_AS(T, long8) __WT_AS(T, ulong8) __WT_AS(T, double8) __WT_AS(T, int16) __WT_AS(T, uint16) __WT_AS(T, float16)
__WT_ALL6(long8) __WT_ALL6(ulong8) __WT_ALL6(double8) __WT_ALL6(int16) __WT_ALL6(uint16) __WT_ALL6(float16)
#define __WT_ALL7(T) __WT_AS(T, long16) __WT_AS(T, ulong16) __WT_AS(T, double16)
__WT_ALL7(long16) __WT_ALL7(ulong16) __WT_ALL7(double16)
/* Counters of AMD's extension, which atomic_inc and atomic_dec take. */
#define counter32_t __global uint *
/* Products of four bytes in a word (cl_khr_integer_dot_product). */
#define cl_khr_integer_dot_product 1
#define __opencl_c_integer_dot_product_input_4x8bit_packed 1
#define __WT_DOT(NAME, R, A, B) \
  inline R dot_4x8packed_##NAME(uint a, uint b) { \
    A##4 x = as_##A##4(a); B##4 y = as_##B##4(b); \
    return (R)x.x * (R)y.x + (R)x.y * (R)y.y + (R)x.z * (R)y.z + (R)x.w * (R)y.w; \
  } \
  inline R dot_acc_sat_4x8packed_##NAME(uint a, uint b, R c) { return add_sat(dot_4x8packed_##NAME(a, b), c); }
__WT_DOT(ss_int, int, char, char) __WT_DOT(su_int, int, char, uchar) __WT_DOT(us_int, int, uchar, char)
__WT_DOT(uu_uint, uint, uchar, uchar)
