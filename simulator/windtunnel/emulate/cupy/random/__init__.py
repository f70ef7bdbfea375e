"""``cupy.random``: random numbers of NumPy's generators, in memory of the device.

The distributions are CuPy's; the numbers are not those of cuRAND.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from windtunnel.emulate.cupy.creation import made_from
from windtunnel.emulate.cupy.cuda.memory import enqueue
from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.names import DISTRIBUTIONS
from windtunnel.emulate.cupy.refusals import missing


def _host(value: Any) -> Any:
    return value.get() if isinstance(value, ndarray) else value


def _made(name: str, values: Any, dtype: Any, size: Any) -> Any:
    """Return values as an array of the device; without a size it has no dimensions."""
    del size
    kind = None if dtype is None else np.dtype(dtype)
    return made_from(name, np.asarray(values, kind))


class Generator:
    """A generator of random numbers."""

    def __init__(self, bit_generator: Any = None) -> None:
        self._rng = np.random.default_rng(getattr(bit_generator, "seed", bit_generator))

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Return numbers that are uniform in [0, 1)."""
        made = _made("random", self._rng.random(size), dtype, size)
        return _into(made, out)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = np.float64) -> Any:
        """Return numbers that are uniform in [low, high)."""
        return _made("uniform", self._rng.uniform(_host(low), _host(high), size), dtype, size)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Return normal numbers of mean 0 and deviation 1."""
        return _into(_made("standard_normal", self._rng.standard_normal(size), dtype, size), out)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = np.float64) -> Any:
        """Return normal numbers."""
        return _made("normal", self._rng.normal(_host(loc), _host(scale), size), dtype, size)

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> Any:
        """Return integers in [low, high)."""
        values = self._rng.integers(_host(low), _host(high), size, dtype, endpoint)
        return _made("integers", values, dtype, size)

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> Any:
        """Return elements that are drawn from an array, or from numbers from 0."""
        return made_from("choice", np.asarray(self._rng.choice(_host(a), size, replace, _host(p))))

    def permutation(self, a: Any) -> Any:
        """Return an array, or the numbers from 0, in a random order."""
        return made_from("permutation", self._rng.permutation(_host(a)))

    def shuffle(self, a: ndarray) -> None:
        """Put the rows of an array in a random order."""
        view, order = a.device_view(), self._rng.permutation(len(a))
        access = [(a.allocation, view, None)]
        enqueue("shuffle", lambda: np.copyto(view, view[order]), access, access)

    def __getattr__(self, name: str) -> Any:
        if name in DISTRIBUTIONS:
            return _distribution(self, name)
        return missing("cupy.random.Generator", name)


def _into(made: Any, out: Any) -> Any:
    if out is None:
        return made
    out[...] = made
    return out


def _distribution(generator: Generator, name: str) -> Callable[..., Any]:
    draw = getattr(generator._rng, name)

    def function(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        given = [_host(one) for one in args]
        return _made(name, draw(*given, **{key: _host(one) for key, one in kwargs.items()}), dtype, None)

    function.__name__ = name
    return function


class RandomState(Generator):
    """A generator with the functions of NumPy's older interface."""

    def __init__(self, seed: Any = None, method: int = 100) -> None:
        del method
        super().__init__(None if seed is None else int(_host(seed)))

    def seed(self, seed: Any = None) -> None:
        """Begin again with a seed."""
        self._rng = np.random.default_rng(None if seed is None else int(_host(seed)))

    def rand(self, *size: int, dtype: Any = np.float64) -> Any:
        """Return numbers that are uniform in [0, 1)."""
        return self.random(size or None, dtype)

    def randn(self, *size: int, dtype: Any = np.float64) -> Any:
        """Return normal numbers of mean 0 and deviation 1."""
        return self.standard_normal(size or None, dtype)

    def random_sample(self, size: Any = None, dtype: Any = np.float64) -> Any:
        """Return numbers that are uniform in [0, 1)."""
        return self.random(size, dtype)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64) -> Any:
        """Return integers in [low, high)."""
        return self.integers(low, high, size, np.dtype(dtype))

    def tomaxint(self, size: Any = None) -> Any:
        """Return integers from 0 to the largest C int."""
        return self.integers(0, 2**31 - 1, size, endpoint=True)


class XORWOW:
    """A seed; the numbers are NumPy's."""

    def __init__(self, seed: Any = None) -> None:
        self.seed = seed


MRG32k3a = Philox4x3210 = XORWOW
_state: dict[str, RandomState] = {"global": RandomState()}


def default_rng(seed: Any = None) -> Generator:
    """Return a generator."""
    return seed if isinstance(seed, Generator) else Generator(seed)


def get_random_state() -> RandomState:
    """Return the generator of the functions of this module."""
    return _state["global"]


def set_random_state(rs: RandomState) -> None:
    """Set the generator of the functions of this module."""
    _state["global"] = rs


def seed(seed: Any = None) -> None:
    """Begin again with a seed."""
    _state["global"].seed(seed)


def random_integers(low: int, high: int | None = None, size: Any = None) -> Any:
    """Return integers in [low, high]."""
    return _state["global"].randint(1 if high is None else low, (low if high is None else high) + 1, size)


def bytes(length: int) -> Any:  # noqa: A001  CuPy's name
    """Return random bytes of the host."""
    return np.random.default_rng().bytes(math.ceil(length))


_OF_STATE = (
    "rand", "randn", "random_sample", "randint", "uniform", "normal", "standard_normal", "random", "choice",
    "permutation", "shuffle", *DISTRIBUTIONS,
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("ranf", "sample"):
        name = "random_sample"
    if name in _OF_STATE:
        return getattr(_state["global"], name)
    return missing("cupy.random", name)
