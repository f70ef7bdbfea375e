/* Asynchronous copies from global to shared memory (cp.async). */
#pragma once
#include "cuda.h"
__device__ void __wt_copy_async(void *to, const void *from, size_t size);
__device__ void __wt_copy_async_zeros(void *to, const void *from, size_t size, size_t zeros);
__device__ void __wt_async_commit(void);
__device__ void __wt_async_wait(int groups_left);
__WT_D__ void __pipeline_memcpy_async(void *to, const void *from, size_t size, size_t zeros = 0) { __wt_copy_async_zeros(to, from, size, zeros); }
__WT_D__ void __pipeline_commit() { __wt_async_commit(); }
__WT_D__ void __pipeline_wait_prior(size_t n) { __wt_async_wait((int)n); }
