"""``numba.cuda.memory_management``: kernels allocate no memory that is counted."""

from windtunnel.emulate.numba_cuda.memory_management.nrt import rtsys

__all__ = ["rtsys"]
