"""Kernels executed thread by thread: what waits for others, in any order that a seed picks, with what orders it."""
