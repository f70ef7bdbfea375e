"""``numba.cuda.np``: modules of Numba, and functions of arrays with the device as their target."""
