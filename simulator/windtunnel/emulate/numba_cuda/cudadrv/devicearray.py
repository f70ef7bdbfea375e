"""``numba.cuda.cudadrv.devicearray``."""

from windtunnel.emulate.numba_cuda.devicearray import *  # noqa: F403
from windtunnel.emulate.numba_cuda.hostmemory import *  # noqa: F403
from windtunnel.emulate.numba_cuda.interop import *  # noqa: F403
