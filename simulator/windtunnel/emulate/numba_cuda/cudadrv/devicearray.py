"""``numba.cuda.cudadrv.devicearray``: device arrays, and what is told apart as one."""

from windtunnel.emulate.numba_cuda import hostmemory as _host
from windtunnel.emulate.numba_cuda import interop as _interop
from windtunnel.emulate.numba_cuda import mapped as _mapped
from windtunnel.emulate.numba_cuda import ndarray as _arrays

for _module in (_arrays, _host, _interop, _mapped):
    globals().update({name: value for name, value in vars(_module).items() if not name.startswith("_")})
