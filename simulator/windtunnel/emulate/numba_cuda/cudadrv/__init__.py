"""``numba.cuda.cudadrv``."""
