"""Parameters of test classes, and marks."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from windtunnel.emulate import session


def gpu(function: Any) -> Any:
    """Return a test as it is: there is a device."""
    return function


def multi_gpu(count: int) -> Any:
    """Skip a test if there are fewer devices."""
    return pytest.mark.skipif(session.current.count < count, reason=f"{count} GPUs required")


def with_requires(*requirements: str) -> Any:
    """Skip a test if packages are not installed in these versions."""
    from importlib.metadata import PackageNotFoundError, version

    from packaging.requirements import Requirement

    for text in requirements:
        wanted = Requirement(text)
        try:
            fits = version(wanted.name) in wanted.specifier
        except PackageNotFoundError:
            fits = False
        if not fits:
            return pytest.mark.skip(reason=f"requires: {text}")
    return gpu


def product(parameter: Any) -> list[Any]:
    """Return all combinations of values: of a mapping of lists, or of a list of lists."""
    if isinstance(parameter, Mapping):
        keys = sorted(parameter)
        return [
            dict(zip(keys, values, strict=True))
            for values in itertools.product(*(list(parameter[key]) for key in keys))
        ]
    return [list(one) for one in itertools.product(*parameter)]


def product_dict(*parameters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return all combinations of mappings."""
    return [{key: value for one in chosen for key, value in one.items()} for chosen in itertools.product(*parameters)]


def parameterize(*parameters: Mapping[str, Any]) -> Callable[[type], type]:
    """Run the tests of a class once with each of some sets of attributes."""

    def decorated(cls: type) -> type:
        import sys

        module = sys.modules[cls.__module__]
        for number, chosen in enumerate(parameters):
            name = f"{cls.__name__}_param_{number}"
            # A function is an attribute of an instance there, and no method.
            values = {key: staticmethod(one) if inspect.isfunction(one) else one for key, one in chosen.items()}
            made = type(name, (cls,), {**values, "__module__": cls.__module__})
            setattr(module, name, made)
        # The class without parameters has no tests of its own.
        hidden = type(cls.__name__, (cls,), {"__test__": False, "__module__": cls.__module__})
        for number in range(len(parameters)):
            vars(module)[f"{cls.__name__}_param_{number}"].__test__ = True
        return hidden

    return decorated


def fix_random() -> Callable[[Any], Any]:
    """Return a decorator that gives a test seeds of its own."""

    def decorated(test: Any) -> Any:
        if isinstance(test, type):
            before = getattr(test, "setUp", None)

            def set_up(self: Any) -> None:
                _seed()
                if before is not None:
                    before(self)

            test.setUp = set_up  # type: ignore[attr-defined]
            return test

        @functools.wraps(test)
        def function(*args: Any, **kwargs: Any) -> Any:
            _seed()
            return test(*args, **kwargs)

        return function

    return decorated


def _seed() -> None:
    import random

    from windtunnel.emulate.cupy import random as device_random

    random.seed(100)
    np.random.seed(101)
    device_random.seed(102)
