"""The compiled engine: the fleet's semantics over arrays, with Numba."""
