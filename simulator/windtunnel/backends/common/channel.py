"""What a child process is asked through, without a signal where it has died.

A pipe that nobody reads any more sends SIGPIPE, by which commands end quietly when their reader is gone (`| head`). A
device that dies must not end who asked it; sockets can be told to give an error alone.
"""

from __future__ import annotations

import contextlib
import socket

_QUIET = getattr(socket, "MSG_NOSIGNAL", 0)


class Questions:
    """One end for the child's standard input, one to write to."""

    def __init__(self) -> None:
        self._ours, self.child = socket.socketpair()
        if hasattr(socket, "SO_NOSIGPIPE"):  # macOS
            self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)

    def started(self) -> None:
        """The child has its end: nobody else holds it."""
        self.child.close()

    def send(self, data: bytes) -> None:
        """All of it; OSError where the child has gone."""
        self._ours.sendall(data, _QUIET)

    def close(self) -> None:
        """The child reads no more. Closing again does nothing."""
        with contextlib.suppress(OSError):
            self.child.close()
            self._ours.close()
