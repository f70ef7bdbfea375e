"""``numba.cuda.compiler``: Windtunnel compiles kernels to neither PTX nor LTO-IR."""

from windtunnel.emulate.numba_cuda import compile as _refused

compile = compile_ptx = compile_for_current_device = compile_ptx_for_current_device = compile_all = _refused  # noqa: A001
