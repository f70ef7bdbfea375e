"""``numba.cuda.bf16``: the type bfloat16 and its functions."""

from __future__ import annotations

from windtunnel.emulate.numba_cuda.ext_types import bfloat16
from windtunnel.language.numba.names import bf16 as _bf16

globals().update(_bf16.members)
__all__ = ["bfloat16", *_bf16.members]  # noqa: PLE0604  the names are text
