"""Kernels executed for many threads at once, as functions of NumPy arrays."""
