"""``python -m windtunnel.engine.compiled``: compile the engine now, so that no run has to wait for it."""

from windtunnel.engine.compiled.build import kernel
from windtunnel.engine.compiled.serving import serving_kernel

kernel()
serving_kernel()
