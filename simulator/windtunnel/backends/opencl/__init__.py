"""The back end `opencl`."""
