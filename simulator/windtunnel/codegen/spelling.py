"""What each target spells in its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from windtunnel.codegen.keywords import RESERVED
from windtunnel.codegen.text import Piece
from windtunnel.language import ir
from windtunnel.language.types import Scalar


class Spelling:
    """What an emitter has to say of its target."""

    target: ClassVar[str]
    title: ClassVar[str]
    reserved: ClassVar[frozenset[str]] = RESERVED
    """Names that no variable may have."""
    grid_barrier: ClassVar[bool] = False
    """Whether all blocks of a grid can meet."""
    missing: ClassVar[Mapping[str, str]] = {}
    """Types that the target lacks, and why or what instead."""
    emulated: ClassVar[frozenset[Scalar]] = frozenset()
    """16-bit floats that are worked with as f32, rounded after every operation."""
    wraps: ClassVar[bool] = False
    """Whether signed integers wrap around in the target's language."""
    options: ClassVar[Sequence[str]] = ()
    """What its compiler has to be told."""
    option_note: ClassVar[str] = ""

    def value_type(self, kind: Scalar) -> str:
        """The type of a local variable."""
        raise NotImplementedError

    def literal(self, value: float, kind: Scalar) -> Piece:
        """A number."""
        raise NotImplementedError

    def cast(self, to: Scalar, inner: Piece) -> Piece:
        """A conversion between the target's own types."""
        raise NotImplementedError

    def thread_index(self, e: ir.Index) -> Piece:
        """An index of a thread, as i32."""
        raise NotImplementedError

    def extreme(self, e: ir.Binary, kind: Scalar) -> Piece:
        """min, max."""
        raise NotImplementedError

    def call(self, e: ir.Call) -> Piece:
        """A function of numbers."""
        raise NotImplementedError

    def math(self, name: str, kind: Scalar, line: int) -> str:
        """The target's name of a function of floats."""
        raise NotImplementedError

    def warp(self, e: ir.Warp) -> Piece:
        """What a warp's threads exchange."""
        raise NotImplementedError

    def atomically(self, e: ir.Atomic) -> Piece:
        """An atomic operation."""
        raise NotImplementedError

    def need(self, helper: str) -> str:
        """A function of ours, which is then written before the kernel. Its name."""
        raise NotImplementedError

    def declare_array(self, one: ir.Declare) -> None:
        """An array of the block or of the thread."""
        raise NotImplementedError

    def barrier(self, one: ir.Barrier) -> None:
        """A barrier or a fence."""
        raise NotImplementedError
