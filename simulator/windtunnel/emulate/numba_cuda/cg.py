"""``numba.cuda.cg``: cooperative groups."""

from windtunnel.language.numba.names import cg as _cg

this_grid = _cg.this_grid
