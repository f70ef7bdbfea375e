"""The front end for kernels of Numba CUDA: Numba's types and arithmetic, as a typed tree of the kernel language."""
