"""Cases of the corpus: a kernel, a launch, its arguments, and the expected contents of the arrays.

The kernels are written as people who know CUDA write them, and the references apart from them, in NumPy, so that a
mistake in one is not repeated in the other. Cases are race-free and deterministic, read nothing that nobody wrote,
and reach their barriers with all threads of the block.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

MODULES = (
    "elementary", "reductions", "scans", "linear", "stencils", "sorting", "graphs", "learning", "attention",
    "ciphers", "bytes_and_text", "numerics", "integers", "spellings", "synchronised",
)  # fmt: skip


@dataclass(frozen=True)
class Empty:
    """An array that the kernel writes in full: allocated, not copied, so that reading it first is a mistake."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


Arguments = dict[str, Any]
"""Parameter name to a NumPy array, an ``Empty`` or a number, in the order of the kernel's parameters."""
Expected = Mapping[str, np.ndarray]
"""Name of each array that is written to what it then holds; arrays that are not named must not change."""


@dataclass(frozen=True)
class Comparison:
    """How closely a result must match. Without ``exact``: ``|found - expected| <= atol + rtol * |expected|``."""

    exact: bool = True
    rtol: float = 0.0
    atol: float = 0.0
    reason: str = ""
    """Why not every bit can be asked for; obligatory where ``exact`` is not."""

    def wrong(self, found: np.ndarray, expected: np.ndarray) -> str | None:
        """What is wrong with it, in words; None if nothing."""
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return f"found {found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}"
        if self.exact:
            off = ~((found == expected) | (np.not_equal(found, found) & np.not_equal(expected, expected)))
        else:
            wide = np.float64 if found.dtype.kind in "fV" else found.dtype
            off = ~np.isclose(found.astype(wide), expected.astype(wide), rtol=self.rtol, atol=self.atol, equal_nan=True)
        if not off.any():
            return None
        at = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(off)))
        return (
            f"{int(off.sum())} of {off.size} elements differ, first at {list(at)}: "
            f"found {np.atleast_1d(found)[at]}, expected {np.atleast_1d(expected)[at]}"
        )


def _rng(name: str, seed: int) -> np.random.Generator:
    # A name's own generator: a case keeps its numbers when others are added.
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _copies(arguments: Arguments) -> Arguments:
    """What a reference may scribble in, and what an uninitialised output is to it: zeros."""
    return {
        name: np.zeros(a.shape, a.dtype) if isinstance(a, Empty) else a.copy() if isinstance(a, np.ndarray) else a
        for name, a in arguments.items()
    }


@dataclass(frozen=True)
class Case:
    """One launch."""

    name: str
    kernel: Any
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    make: Callable[[np.random.Generator], Arguments]
    expected: Callable[..., Expected]
    """From the arguments before, by name, to the arrays after."""
    exact: bool = True
    rtol: float = 0.0
    atol: float = 0.0
    reason: str = ""
    notes: str = ""
    shared_bytes: int = 0

    def arguments(self, seed: int = 0) -> Arguments:
        """Fresh arguments; the same for the same seed."""
        return self.make(_rng(self.name, seed))

    def reference(self, arguments: Arguments) -> Expected:
        """What the written arrays hold after the launch. ``arguments`` stay as they are."""
        return self.expected(**_copies(arguments))

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.exact, self.rtol, self.atol, self.reason)


@dataclass(frozen=True)
class Step:
    """A launch within a program. ``arguments``: buffers and numbers."""

    kernel: Any
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """Several launches one after another on one stream.

    ``steps`` takes what ``make`` gives, arrays as buffers on the device, and yields the launches. It never looks into a
    buffer: how many steps there are depends on the numbers alone.
    """

    name: str
    make: Callable[[np.random.Generator], Arguments]
    steps: Callable[..., Iterable[Step]]
    expected: Callable[..., Expected]
    scratch: tuple[str, ...] = ()
    """Arrays whose contents afterwards nobody asks for."""
    exact: bool = True
    rtol: float = 0.0
    atol: float = 0.0
    reason: str = ""
    notes: str = ""

    def arguments(self, seed: int = 0) -> Arguments:
        """Fresh arguments; the same for the same seed."""
        return self.make(_rng(self.name, seed))

    def reference(self, arguments: Arguments) -> Expected:
        """What the written arrays hold at the end. ``arguments`` stay as they are."""
        return self.expected(**_copies(arguments))

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.exact, self.rtol, self.atol, self.reason)


def cases(*modules: str) -> tuple[Case, ...]:
    """The single launches of some modules, or of all."""
    return tuple(case for module in modules or MODULES for case in import_module(f"tests.corpus.{module}").CASES)


def programs() -> tuple[Program, ...]:
    """All programs of several launches."""
    modules = (import_module(f"tests.corpus.{module}") for module in MODULES)
    return tuple(program for module in modules for program in getattr(module, "PROGRAMS", ()))


def blocks(n: int, block: int) -> int:
    """Blocks of a grid that covers ``n``."""
    return -(-n // block)
