"""``numba.cuda.decorators``."""

from windtunnel.emulate.numba_cuda.dispatcher import declare_device, jit  # noqa: F401
