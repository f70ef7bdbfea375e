"""`windtunnel transpile`: a kernel as source for another language."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windtunnel.codegen import Emitted


def transpile(given: str, target: str, block: str | None) -> Emitted:
    """Execute ``FILE.py`` and return its kernel, named as ``FILE.py:KERNEL``, as source for ``target``.

    ``block`` is the block size, ``X``, ``X,Y`` or ``X,Y,Z``. Default: the tile of a stencil, else 256,1,1.
    """
    from windtunnel.codegen import transpile as emitted
    from windtunnel.codegen import with_sizes
    from windtunnel.codegen.load import load

    sizes = None if block is None else with_sizes(block)
    return emitted(load(given), target, sizes)


def targets() -> tuple[str, ...]:
    """Return the names of all target languages."""
    from windtunnel.codegen import TARGETS

    return TARGETS
