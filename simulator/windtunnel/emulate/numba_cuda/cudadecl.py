"""``numba.cuda.cudadecl``: where types of functions are registered, for code that `cudaimpl` would have."""

from numba.core.typing.templates import Registry as _Registry

registry = _Registry()
register, register_attr, register_global = registry.register, registry.register_attr, registry.register_global
