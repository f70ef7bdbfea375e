"""``python -m windtunnel.engine.compiled``: compile the engine now, so that no run has to wait for it.

Each variant is compiled in a separate process.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

from windtunnel.engine.compiled.kernels import VARIANTS, kernel


def compile_variant(name: str) -> None:
    """Compile a variant of the kernel, whose machine code is then cached."""
    kernel(name)


if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        list(pool.map(compile_variant, reversed(VARIANTS)))
