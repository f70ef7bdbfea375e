"""``cupyx.profiler``: times of functions, on the clock of the emulated device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from windtunnel.emulate.common.current import current_accelerator
from windtunnel.emulate.cupy.cuda.stream import Event, get_current_stream, get_elapsed_time


class _PerfCaseResult:
    """The times of a function: ``cpu_times`` shape (n,) and ``gpu_times`` shape (devices, n), in seconds."""

    def __init__(self, name: str, cpu_times: np.ndarray, gpu_times: np.ndarray, devices: Sequence[int]) -> None:
        self.name, self.cpu_times, self.gpu_times, self._devices = name, cpu_times, gpu_times, devices

    def to_str(self, show_gpu: bool = False) -> str:
        """Return the times as a text."""
        rows = [("CPU", self.cpu_times)]
        if show_gpu:
            rows += [(f"GPU-{d}", t) for d, t in zip(self._devices, self.gpu_times, strict=True)]
        return f"{self.name:<20s}:" + "".join(_row(*row) for row in rows)

    def __str__(self) -> str:
        return self.to_str(show_gpu=True)

    __repr__ = __str__


def _row(name: str, times: np.ndarray) -> str:
    us = times * 1e6
    more = "" if us.size < 2 else f" +/- {us.std():6.3f} (min: {us.min():9.3f} / max: {us.max():9.3f})"
    return f"    {name}: {us.mean():9.3f} us{more}"


def benchmark(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    n_repeat: int = 10000,
    *,
    name: str | None = None,
    n_warmup: int = 10,
    max_duration: float = float("inf"),
    devices: Sequence[int] | None = None,
) -> _PerfCaseResult:
    """Return the times of a function on the host's and the device's virtual clock.

    Repetitions of one function take the same virtual time, so fewer are enough; as many as asked are made.
    """
    if not callable(func):
        raise ValueError("`func` should be a callable object.")
    if n_repeat < 0 or n_warmup < 0:
        raise ValueError("`n_repeat` and `n_warmup` should be non-negative integers.")
    accelerator, named = current_accelerator(), dict(kwargs or {})
    for _ in range(n_warmup):
        func(*args, **named)
    accelerator.synchronize()
    host, device = [], []
    begin = accelerator.clock_s
    for _ in range(n_repeat):
        start, end = Event(), Event()
        start.record(get_current_stream())
        before = accelerator.clock_s
        func(*args, **named)
        host.append(accelerator.clock_s - before)
        end.record(get_current_stream())
        end.synchronize()
        device.append(get_elapsed_time(start, end) * 1e-3)
        if accelerator.clock_s - begin > max_duration:
            break
    label = getattr(func, "__name__", "") if name is None else name
    return _PerfCaseResult(label, np.array(host), np.array([device]), [0] if devices is None else list(devices))


@contextmanager
def time_range(message: str, color_id: Any = None, argb_color: Any = None, sync: bool = False) -> Iterator[None]:
    """Do nothing but wait for the device if ``sync``."""
    del message, color_id, argb_color
    if sync:
        current_accelerator().synchronize()
    yield
    if sync:
        current_accelerator().synchronize()


@contextmanager
def profile() -> Iterator[None]:
    """Do nothing: the timeline of an emulated device is always there."""
    yield


def __getattr__(name: str) -> Any:
    from windtunnel.emulate.cupy.refusals import missing

    missing("cupyx.profiler", name)
