/* Types of CuPy that elementwise kernels name. */
#pragma once
#include <cuda_fp16.h>
typedef __half float16;
