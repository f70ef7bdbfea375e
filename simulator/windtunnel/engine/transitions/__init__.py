"""The transitions of a fleet: plain functions over a few tables, which both engines execute.

The compiled engine compiles them with Numba (`engine/compiled/jit.py`). The process engine calls them as they are, and
keeps time with SimPy (`engine/process`).
"""
