"""``numba.cuda.kernels.reduction``."""

from windtunnel.emulate.numba_cuda.reduction import Reduce  # noqa: F401
