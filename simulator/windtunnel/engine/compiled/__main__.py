"""``python -m windtunnel.engine.compiled``: compile the engine now, so that no run has to wait for it."""

from windtunnel.engine.compiled.kernels import kernel

kernel("fleet")
kernel("serving")
