"""Kernels in CUDA C and OpenCL C, read by libclang and translated to the typed tree of the kernel language."""
