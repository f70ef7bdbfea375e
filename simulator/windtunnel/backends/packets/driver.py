"""The child process that holds the network namespaces of the back end `packets`, as seen by its parent.

The child runs `packets.veth`. It creates two network namespaces, as root or inside a user namespace of its own where
the kernel permits those, and puts one port of a veth pair into each. It ends when its standard input closes. The
host's own network is never changed, and nothing remains after the child has ended.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

from windtunnel.backends.common.child_requests import ChildRequests
from windtunnel.backends.common.host_work import device_error
from windtunnel.backends.packets import veth
from windtunnel.core.errors import CopyError, DeviceHang, DeviceLost, DeviceNotPresentError, InvalidArgument
from windtunnel.core.time_limits import time_limit

START_S = 10.0
"""Time limit for the child to create its namespaces."""


class Child:
    """The process that holds the namespaces. Raises DeviceNotPresentError if it may not create them."""

    def __init__(self) -> None:
        self._requests = ChildRequests()
        self._process = subprocess.Popen(  # noqa: S603  this interpreter and a file of this package; no shell
            [sys.executable, "-P", str(Path(veth.__file__))],
            stdin=self._requests.child.fileno(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )
        self._requests.child_started()
        self._end = weakref.finalize(self, _end, self._process, self._requests)
        self._rest = b""
        reply = self._line(time_limit(START_S))
        if reply is None or "ready" not in reply:
            self.close()
            why = "its child process ended or did not answer" if reply is None else reply["error"]
            raise DeviceNotPresentError(f"packets:0 not found: {why}")
        self.versions: Mapping[str, str] = reply["ready"]

    def ask(self, device: str, do: str, ring: int, limit_s: float, **arguments: int) -> veth.Transfer:
        """Send a request and return its answer.

        Raises DeviceHang if the answer takes longer than ``limit_s`` seconds, after ending the child; DeviceLost if
        the child has ended; CopyError if the request failed; InvalidArgument if the child was closed.
        """
        if not self._end.alive:
            raise device_error(InvalidArgument, "the device is closed", operation=do, device=device)
        limit_s = time_limit(limit_s)
        request = json.dumps({"do": do, "ring": ring, "limit_s": limit_s, **arguments})
        begin = time.monotonic()
        try:
            self._requests.send(request.encode() + b"\n")
            reply = self._line(limit_s)
        except OSError:
            reply = None
        if reply is None:
            self.close()
            hung = time.monotonic() - begin >= limit_s
            kind, why = (DeviceHang, f"no answer in {limit_s:g} s") if hung else (DeviceLost, "its process has ended")
            raise device_error(kind, why, operation=do, device=device)
        if "failed" in reply:
            raise device_error(CopyError, reply["failed"], operation=do, device=device)
        return reply["answer"]

    def _line(self, limit_s: float) -> veth.Message | None:
        """Return the child's next message; None if it ends or sends none within ``limit_s`` seconds."""
        assert self._process.stdout is not None  # noqa: S101  a pipe was requested
        until = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, until - time.monotonic())):
                    return None
                data = os.read(self._process.stdout.fileno(), 65536)
                if not data:
                    return None
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        message: veth.Message = json.loads(line)
        return message

    def close(self) -> None:
        """End the child, and with it the namespaces. Closing again does nothing."""
        self._end()


def _end(process: subprocess.Popen[bytes], requests: ChildRequests) -> None:
    process.kill()
    process.wait()
    requests.close()
    if process.stdout is not None:
        process.stdout.close()
