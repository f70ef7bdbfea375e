"""A pipe to a child process that does not raise SIGPIPE after the child has died.

Commands end quietly on SIGPIPE when their reader has ended (`| head`). The death of a device's process must not end the
process that uses the device, so requests go through a socket, which reports an error instead of a signal.
"""

from __future__ import annotations

import contextlib
import socket

_QUIET = getattr(socket, "MSG_NOSIGNAL", 0)


class ChildRequests:
    """A socket pair: ``child`` becomes the child's standard input, the other end is written to."""

    def __init__(self) -> None:
        self._ours, self.child = socket.socketpair()
        if hasattr(socket, "SO_NOSIGPIPE"):  # macOS
            self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)

    def child_started(self) -> None:
        """Close this process's copy of the child's end. Call it as soon as the child has been started."""
        self.child.close()

    def send(self, data: bytes) -> None:
        """Send all of ``data``. Raises OSError if the child has ended."""
        self._ours.sendall(data, _QUIET)

    def close(self) -> None:
        """Close both ends: the child reads end of file. Closing again does nothing."""
        with contextlib.suppress(OSError):
            self.child.close()
            self._ours.close()
