"""Lockstep execution: one statement at a time for many threads, as functions of NumPy arrays."""
