"""The compiled engine: the transitions of a fleet, compiled by Numba."""
