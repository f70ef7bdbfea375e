// What OpenCL C's compiler takes from its own base header, as far as our kernels need it: names of types and constants.
// The functions themselves are the compiler's (-fdeclare-opencl-builtins), with their own signatures.
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
#define VECTORS(T)                                                                                               \
    typedef T T##2 __attribute__((ext_vector_type(2)));                                                          \
    typedef T T##3 __attribute__((ext_vector_type(3)));                                                          \
    typedef T T##4 __attribute__((ext_vector_type(4)));                                                          \
    typedef T T##8 __attribute__((ext_vector_type(8)));                                                          \
    typedef T T##16 __attribute__((ext_vector_type(16)));
VECTORS(char) VECTORS(uchar) VECTORS(short) VECTORS(ushort) VECTORS(int) VECTORS(uint) VECTORS(long) VECTORS(ulong)
VECTORS(float) VECTORS(double) VECTORS(half)
typedef uint cl_mem_fence_flags;
#define CLK_LOCAL_MEM_FENCE 0x01
#define CLK_GLOBAL_MEM_FENCE 0x02
typedef enum memory_scope { memory_scope_work_item, memory_scope_work_group, memory_scope_device, memory_scope_all_svm_devices, memory_scope_sub_group } memory_scope;
typedef enum memory_order { memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst } memory_order;
#define __opencl_subgroup_builtins 1
#define cl_khr_subgroup_ballot 1
#define cl_khr_subgroup_shuffle 1
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define as_uint(x) __builtin_astype((x), uint)
#define as_float(x) __builtin_astype((x), float)
#define as_ulong(x) __builtin_astype((x), ulong)
#define as_double(x) __builtin_astype((x), double)
int printf(__constant const char *, ...);
