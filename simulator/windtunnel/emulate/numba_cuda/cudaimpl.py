"""``numba.cuda.cudaimpl``: where code for LLVM is registered. Kernels that would need it are refused by name."""

from numba.core.imputils import Registry as _Registry

registry = _Registry("cudaimpl")
lower, lower_attr, lower_constant = registry.lower, registry.lower_getattr, registry.lower_constant
