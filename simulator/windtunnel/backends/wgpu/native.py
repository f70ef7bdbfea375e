"""wgpu-py's library, its log, and what of the C library below it wgpu-py does not offer: for ``wgpu`` alone."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@cache
def library() -> tuple[Any, Heard]:
    """The library, and what it logs: kept off the standard streams. Called under the lock the first time."""
    if "XDG_RUNTIME_DIR" not in os.environ:  # Mesa complains
        folder = tempfile.mkdtemp(prefix="windtunnel-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
    import wgpu

    heard = Heard(logging.ERROR)
    logging.getLogger("wgpu").addHandler(heard)
    return wgpu, heard


class Heard(logging.Handler):
    """Errors that the library can only log, such as a lost device: kept by thread until they are raised."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._here = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        """Called in the thread whose call met it, since no other polls (see `Native`)."""
        self._here.said = [*getattr(self._here, "said", ()), record.getMessage()]

    def taken(self) -> list[str]:
        """What was heard in this thread since it was last asked."""
        said: list[str] = getattr(self._here, "said", [])
        self._here.said = []
        return said


class Failed(Exception):
    """What the library says by other means than its own errors."""


class Waker:
    """In place of the thread that wgpu-py has poll each device.

    That thread's wait holds off submissions (gfx-rs/wgpu issue 9470), what goes wrong in it is lost, and a device that
    is collected in it would join itself. Here, whoever waits polls.
    """

    def get_token(self) -> Waker:
        """Of a promise: nobody has to be woken."""
        return self

    def set_done(self) -> None:
        """The promise is kept."""

    def stop(self) -> None:
        """There is no thread."""


class Native:
    """What wgpu-py does not offer: the C library's own calls for submissions, waits and time.

    Its ``queue.on_submitted_work_done_sync`` raises TypeError (pygfx/wgpu-py issue 834). Its other waits go through a
    copy to a buffer that is then mapped (177 us on lavapipe with nothing to wait for, a poll: 2 us), and none
    is for a certain submission.
    """

    def __init__(self, device: Any) -> None:
        from wgpu.backends.wgpu_native import ffi
        from wgpu.backends.wgpu_native._api import libf

        self._library, self._ffi = libf, ffi
        self._device, self._queue = device, device.queue
        device._poller.stop()
        device._poller = Waker()

    @property
    def tick_s(self) -> float:
        """A time stamp's unit."""
        return float(self._library.wgpuQueueGetTimestampPeriod(self._queue._internal)) * 1e-9

    def submit(self, commands: Sequence[Any]) -> int:
        """Give work to the queue, with what was written to buffers before; its number, which grows."""
        given = self._ffi.new("WGPUCommandBuffer[]", [one._internal for one in commands])
        return int(self._library.wgpuQueueSubmitForIndex(self._queue._internal, len(commands), given))

    def wait(self, submission: int) -> None:
        """Until the device has done it and all before; buffers that were to be mapped by then are."""
        which = self._ffi.new("WGPUSubmissionIndex *", submission)
        self._library.wgpuDevicePoll(self._device._internal, True, which)

    def idle(self) -> bool:
        """Whether all work is done; buffers that can be are mapped."""
        # Rust gives a byte where the header has four.
        return bool(self._library.wgpuDevicePoll(self._device._internal, False, self._ffi.NULL) & 1)


@dataclass(eq=False)
class Reading:
    """Bytes on their way to the host, in a buffer that it sees once ``submission`` is done."""

    device: Native
    buffer: Any
    submission: int
    promise: Any = field(init=False)

    def __post_init__(self) -> None:
        # Not plain READ, before which wgpu-py submits an empty command buffer: what fills this one is submitted.
        self.promise = self.buffer.map_async("READ_NOSYNC")

    @property
    def here(self) -> bool:
        """Whether it has come, at the last poll."""
        return bool(self.promise._state != "pending")

    def into(self, data: np.ndarray) -> None:
        """Copy it, once its submission is done, and give the buffer back."""
        import numpy as np  # not wanted by who only looks for devices

        if not self.here:
            self.device.wait(self.submission)
        if not self.here:
            raise Failed("the device was waited for, and the buffer with its answer is not mapped")
        try:
            self.promise.sync_wait()
        except RuntimeError as error:
            raise Failed(str(error)) from error
        data[...] = np.frombuffer(self.buffer.read_mapped(copy=False), np.uint8)[: data.size]
        self.buffer.destroy()
