"""``numba.cuda.launchconfig``: the configuration of the launch for which a kernel is compiled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Current(threading.local):
    """The configurations of the launches that a thread compiles, the innermost last."""

    def __init__(self) -> None:
        self.configs: list[Any] = []


_current = _Current()


def current_launch_config() -> Any:
    """Return the configuration of the launch that is being compiled; None outside of one."""
    return _current.configs[-1] if _current.configs else None


def ensure_current_launch_config() -> Any:
    """Return the configuration of the launch that is being compiled. Raises RuntimeError outside of one."""
    config = current_launch_config()
    if config is None:
        raise RuntimeError("No launch config set for this thread")
    return config


@contextmanager
def launching(config: Any) -> Iterator[None]:
    """Make a configuration the current one."""
    _current.configs.append(config)
    try:
        yield
    finally:
        _current.configs.pop()


@contextmanager
def capture_compile_config(dispatcher: Any) -> Iterator[dict[str, Any]]:
    """Return a dictionary whose ``config`` becomes the configuration for which the kernel is compiled."""
    if dispatcher is None:
        raise TypeError("dispatcher is required")
    record: dict[str, Any] = {"config": None}
    dispatcher.compile_watchers.append(record)
    try:
        yield record
    finally:
        dispatcher.compile_watchers.remove(record)
