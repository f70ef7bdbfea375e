"""``numba.cuda.kernels``."""
