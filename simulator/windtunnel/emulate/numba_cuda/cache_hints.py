"""``numba.cuda.cache_hints``: loads and stores with a hint for the caches."""

from windtunnel.language.numba.names import HINTED as _HINTED

globals().update(_HINTED)
