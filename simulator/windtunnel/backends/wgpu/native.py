"""The wgpu-py library, its log, and calls of the C library that wgpu-py does not offer."""

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
def library() -> tuple[Any, LogBuffer]:
    """Return the library and its log, which is kept off the standard streams. The first call needs a lock."""
    if "XDG_RUNTIME_DIR" not in os.environ:  # Mesa warns about it
        folder = tempfile.mkdtemp(prefix="windtunnel-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
    import wgpu

    log = LogBuffer(logging.ERROR)
    logging.getLogger("wgpu").addHandler(log)
    return wgpu, log


class LogBuffer(logging.Handler):
    """Errors that the library can only log, such as a lost device, kept for each thread until it takes them."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._of_thread = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record. It is called in the thread whose call caused it, because no other thread polls (`Native`)."""
        self._of_thread.messages = [*getattr(self._of_thread, "messages", ()), record.getMessage()]

    def take(self) -> list[str]:
        """Return and remove the messages of this thread."""
        messages: list[str] = getattr(self._of_thread, "messages", [])
        self._of_thread.messages = []
        return messages


class SubmitError(Exception):
    """An error that the library logs or signals otherwise, without raising it."""


class Waker:
    """Replaces the thread in which wgpu-py polls each device.

    While that thread waits, no work can be submitted (gfx-rs/wgpu issue 9470), errors in it are lost, and a device that
    is garbage-collected in it would join itself. With this class, the thread that waits polls.
    """

    def get_token(self) -> Waker:
        """Return the token of a promise: no thread has to be woken."""
        return self

    def set_done(self) -> None:
        """Do nothing when the promise is fulfilled."""

    def stop(self) -> None:
        """Do nothing: there is no thread."""


class Native:
    """Calls of the C library for submissions, waits and time, which wgpu-py does not offer.

    wgpu-py's ``queue.on_submitted_work_done_sync`` raises TypeError (pygfx/wgpu-py issue 834). Its other waits copy to
    a buffer and map it, which takes 177 us on lavapipe without any work, against 2 us of a poll. None of them waits for
    a given submission.
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
        """Unit of timestamps (s)."""
        return float(self._library.wgpuQueueGetTimestampPeriod(self._queue._internal)) * 1e-9

    def submit(self, commands: Sequence[Any]) -> int:
        """Submit commands, together with earlier writes to buffers. Return the submission's number, which increases."""
        buffers = self._ffi.new("WGPUCommandBuffer[]", [command._internal for command in commands])
        return int(self._library.wgpuQueueSubmitForIndex(self._queue._internal, len(commands), buffers))

    def wait(self, submission: int) -> None:
        """Wait until a submission and all earlier ones have completed; then their buffers are mapped, too."""
        which = self._ffi.new("WGPUSubmissionIndex *", submission)
        self._library.wgpuDevicePoll(self._device._internal, True, which)

    def idle(self) -> bool:
        """Return whether all work has completed, and map buffers that can be mapped."""
        # Rust returns one byte where the header declares four.
        return bool(self._library.wgpuDevicePoll(self._device._internal, False, self._ffi.NULL) & 1)


@dataclass(eq=False)
class Reading:
    """A copy to the host, in a buffer that is mapped after ``submission`` has completed."""

    device: Native
    buffer: Any
    submission: int
    promise: Any = field(init=False)

    def __post_init__(self) -> None:
        # Not READ, before which wgpu-py submits an empty command buffer: the copy is already submitted.
        self.promise = self.buffer.map_async("READ_NOSYNC")

    @property
    def here(self) -> bool:
        """Whether the buffer was mapped at the last poll."""
        return bool(self.promise._state != "pending")

    def into(self, data: np.ndarray) -> None:
        """Wait for the submission, copy the buffer to ``data`` and destroy it. Raises SubmitError on failure."""
        import numpy as np  # finding devices must not import NumPy

        if not self.here:
            self.device.wait(self.submission)
        if not self.here:
            raise SubmitError("the submission has completed, but its buffer is not mapped")
        try:
            self.promise.sync_wait()
        except RuntimeError as error:
            raise SubmitError(str(error)) from error
        data[...] = np.frombuffer(self.buffer.read_mapped(copy=False), np.uint8)[: data.size]
        self.buffer.destroy()
