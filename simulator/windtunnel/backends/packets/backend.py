"""A DPU's functional twin on the host: packets through the kernel, over a veth pair in namespaces of its own.

All of it lives in a child process (`_veth`), which makes two network namespaces, by right where it is root, in a user
namespace of its own where the kernel lets users make one; puts one end of a pair of virtual ports into each; and dies
with its input. The host's own network is never changed, and nothing is left when the child is gone.

**Packets.** ``count`` frames of ``bytes`` (with the check sequence, which a veth pair does not carry: 4 bytes less are
moved) are sent through a raw socket in one namespace and received by one in the other, by turns in batches that fit
the receiver's buffer, by one thread: sendmmsg, recvmmsg. The seconds are those of all ``count``, as the models'
``duration_s``: one core that forwards, as the model of a processor reads it, at the rate of `kinds.cpu`'s
``packet_rate``. ``cache: cold`` rotates frames and room for them through twice the last-level cache.

**Right** means that every packet came, with its number and every byte as it was sent. Nothing is sent again: batches
are so small that a loss is an error, and one packet that is lost or wrong makes `Trial.check` 2.

**Launch** is not done: a DPU's is an empty task for its Arm cores, which a packet is not. The time there and back of a
packet is `VethDevice.round_trip_s`.
"""

from __future__ import annotations

import itertools
import json
import os
import selectors
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from windtunnel.backends.common.backend import Found, RealBackend
from windtunnel.backends.common.channel import Questions
from windtunnel.backends.common.host_work import (
    Columns,
    HostDevice,
    HostTrial,
    Job,
    Refused,
    cold_operands,
    device_error,
    host_found,
    host_info,
    only_one,
    processor_name,
    wrong,
)
from windtunnel.backends.packets import veth as _veth
from windtunnel.core.errors import (
    CopyError,
    DeviceHang,
    DeviceLost,
    DeviceNotPresentError,
    InvalidArgument,
    UnsupportedOperationError,
)

LEAST_BYTES, MOST_BYTES = 64, _veth.MTU + _veth.HEADER_BYTES + _veth.CHECK_BYTES
"""Of a frame: IEEE 802.3's least, and a jumbo frame's 9,000 bytes of payload."""
MOST_PACKETS = 100_000_000
START_S = 10.0
ANSWER_S = 10.0
"""What a request may take beside its packets."""
_SLOWEST_PACKET_S = 100e-6
"""A packet here takes a few microseconds; a child that takes so many times more hangs."""


class Child:
    """The process that holds the namespaces. Starting it raises DeviceNotPresentError where it may not have them."""

    def __init__(self) -> None:
        self._questions = Questions()
        self._process = subprocess.Popen(  # noqa: S603  this interpreter and a file of this package; no shell
            [sys.executable, "-P", str(Path(_veth.__file__))],
            stdin=self._questions.child.fileno(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )
        self._questions.started()
        self._end = weakref.finalize(self, _end, self._process, self._questions)
        self._rest = b""
        told = self._line(START_S)
        if told is None or "ready" not in told:
            self.close()
            why = "its child process ended or did not answer" if told is None else told["error"]
            raise DeviceNotPresentError(f"packets:0 is not here: {why}")
        self.versions: Mapping[str, str] = told["ready"]

    def ask(self, device: str, do: str, ring: int, limit_s: float, **arguments: Any) -> dict[str, Any]:
        """A request's answer. DeviceHang where it takes longer than the limit; the child is then ended."""
        if not self._end.alive:
            raise device_error(InvalidArgument, "the device is closed", operation=do, device=device)
        request = json.dumps({"do": do, "ring": ring, "limit_s": limit_s, **arguments})
        begin = time.monotonic()
        try:
            self._questions.send(request.encode() + b"\n")
            told = self._line(limit_s)
        except OSError:
            told = None
        if told is None:
            self.close()
            hangs = time.monotonic() - begin >= limit_s
            kind, why = (DeviceHang, f"no answer in {limit_s:g} s") if hangs else (DeviceLost, "its process is gone")
            raise device_error(kind, why, operation=do, device=device)
        if "failed" in told:
            raise device_error(CopyError, told["failed"], operation=do, device=device)
        return dict(told["answer"])

    def _line(self, limit_s: float) -> dict[str, Any] | None:
        """The next line it says; None where it ends or says nothing in time."""
        assert self._process.stdout is not None  # noqa: S101  a pipe was asked for
        until = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, until - time.monotonic())):
                    return None
                more = os.read(self._process.stdout.fileno(), 65536)
                if not more:
                    return None
                self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def close(self) -> None:
        """End it, and with it all that it made. Again does nothing."""
        self._end()


def _end(process: subprocess.Popen[bytes], questions: Questions) -> None:
    process.kill()
    process.wait()
    questions.close()
    if process.stdout is not None:
        process.stdout.close()


_rings = itertools.count(1)


class _Frames:
    """Frames of one size in the child, to be sent and received into."""

    def __init__(self, child: Child, device: HostDevice, frame_bytes: int, cache: str) -> None:
        each = 2 * (frame_bytes + _veth.MESSAGE_BYTES + _veth.VECTOR_BYTES)
        rows = cold_operands(each, _veth.MOST_IN_A_BATCH, cache)
        device.require_memory(rows * each, f"{rows:,} frames of {frame_bytes:,} bytes")
        self._child, self._device, self._ring = child, device.info.name, next(_rings)
        child.ask(self._device, "prepare", self._ring, 60.0, frame_bytes=frame_bytes, rows=rows)

    def ask(self, do: str, packets: int, **arguments: int) -> tuple[float, int]:
        """Seconds, and how many packets were lost or wrong."""
        limit_s = ANSWER_S + packets * _SLOWEST_PACKET_S
        told = self._child.ask(self._device, do, self._ring, limit_s, **arguments)
        return float(told["seconds"]), int(told["lost"]) + int(told["wrong"])

    def release(self) -> None:
        """Give it back; a child that is gone has."""
        try:
            self._child.ask(self._device, "release", self._ring, ANSWER_S)
        except (InvalidArgument, DeviceLost, DeviceHang):
            return


class _PacketsTrial(HostTrial):
    def __init__(self, child: Child, device: HostDevice, columns: Columns) -> None:
        note = "sendmmsg and recvmmsg by turns over a veth pair in two namespaces, one thread, nothing sent again"
        super().__init__(device, note)
        self._count, self._bad = int(columns["count"]), 0
        self._frames = _Frames(child, device, int(columns["bytes"]) - _veth.CHECK_BYTES, str(columns["cache"]))

    def _run(self, count: int) -> float:
        seconds, self._bad = self._frames.ask("forward", count * self._count, count=self._count, runs=count)
        return seconds / count

    def _check(self) -> float:
        return wrong(self._bad)

    def _close(self) -> None:
        self._frames.release()


def _no_frames(columns: Columns) -> Refused:
    size, count = float(columns["bytes"]), float(columns["count"])
    if not LEAST_BYTES <= size <= MOST_BYTES:
        return UnsupportedOperationError(
            f"no Ethernet frame is of {size:g} bytes", expected=f"bytes from {LEAST_BYTES} to {MOST_BYTES}"
        )
    if count > MOST_PACKETS:
        return UnsupportedOperationError(
            f"{count:g} packets would take minutes", expected=f"count of at most {MOST_PACKETS:,}"
        )
    return None


class VethDevice(HostDevice):
    """The host's packet path, its namespaces held by a child process until it is closed."""

    def __init__(self, child: Child) -> None:
        jobs = {"packets": Job(partial(_PacketsTrial, child), _no_frames)}
        super().__init__(host_info(_found(child)), child.versions, jobs)
        self._child = child

    def round_trip_s(self, count: int = 1000, *, size: int = LEAST_BYTES) -> float:
        """One frame of ``size`` bytes there and back, one after another (s, mean of ``count``); one thread does all.

        InvalidArgument for a size that is no frame's; CopyError where one is lost or comes back wrong.
        """
        if not LEAST_BYTES <= size <= MOST_BYTES or not 1 <= count <= 1_000_000:
            problem = f"{count} frames of {size} bytes; expected at most 1,000,000, of {LEAST_BYTES} to {MOST_BYTES}"
            raise self.error(InvalidArgument, problem, "round trip")
        # What is sent, what is expected, and what comes.
        self.require_memory(3.0 * count * size, f"{count:,} frames of {size:,} bytes")
        frames = _Frames(self._child, self, size - _veth.CHECK_BYTES, "warm")
        seconds, bad = frames.ask("round_trip", count, count=count)
        frames.release()
        if bad:
            raise self.error(CopyError, f"{bad} of {count} frames were lost or wrong", "round trip")
        return seconds / count

    def close(self) -> None:
        """Close every trial, and end the child."""
        super().close()
        self._child.close()


def _found(child: Child) -> Found:
    v = child.versions
    driver = f"Linux {v['Linux']} AF_PACKET over veth, {v['how']}, pyroute2 {v['pyroute2']}"
    return host_found("packets", f"veth pair on {processor_name()}", driver)


def _present() -> bool:
    return sys.platform == "linux" and Path("/proc/self/ns/net").exists()


def _start() -> Child:
    if not _present():
        raise DeviceNotPresentError("packets:0 is not here: it needs Linux, with network namespaces")
    if find_spec("pyroute2") is None:
        raise ModuleNotFoundError("No module named 'pyroute2'", name="pyroute2")
    return Child()


def find() -> list[Found]:
    """The host's packet path. DeviceNotPresentError with the reason where it may not make namespaces."""
    child = _start()
    try:
        return [_found(child)]
    finally:
        child.close()


def operations(index: int) -> VethDevice:
    """The host's packet path, ready: namespaces made, ports up."""
    only_one("packets", index)
    return VethDevice(_start())


BACKEND = RealBackend(
    name="packets",
    reaches="the host's packet path (Linux), as a DPU's",
    install="pip install 'windtunnel[packets]'; and root, or a kernel that lets users make user namespaces",
    find=find,
    packages=("pyroute2",),
    operations=operations,
    present=_present,
)
