"""``numba.cuda.cudadrv.devicearray``."""

from windtunnel.emulate.numba_cuda.devicearray import *  # noqa: F403
from windtunnel.emulate.numba_cuda.devicearray import errmsg_contiguous_buffer, is_cuda_ndarray  # noqa: F401
