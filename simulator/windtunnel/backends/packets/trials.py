"""The operation ``packets`` on a veth pair: frames are sent in one network namespace and received in the other.

**Packets.** ``count`` frames of ``bytes`` bytes are sent through a raw socket in one namespace and received from one
in the other, alternately, in batches that fit the receiver's buffer, by one thread (sendmmsg, recvmmsg). ``bytes``
includes the frame check sequence, which a veth pair does not carry, so that 4 bytes fewer are moved. The time is that
of all ``count`` frames, like the models' ``duration_s``: one core that forwards at the rate `kinds.cpu` calls
``packet_rate``. With ``cache: cold`` the frames and the receive buffers together are twice the last-level cache.

**Check.** Every packet must arrive with its number and with every byte as it was sent. Nothing is retransmitted:
batches are so small that a loss is an error. One lost or wrong packet makes `Trial.check` return 2.

**Launch** is not supported: on a DPU it is an empty task for an Arm core, and a packet is not. The round-trip time of
a packet is `VethDevice.round_trip_s`.
"""

from __future__ import annotations

import itertools
from functools import partial

from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.common.host_work import (
    HostDevice,
    HostTrial,
    Refusal,
    TrialFactory,
    cold_operands,
    exact_error,
    host_info,
)
from windtunnel.backends.packets import veth
from windtunnel.backends.packets.driver import Child
from windtunnel.core.columns import Columns
from windtunnel.core.errors import CopyError, DeviceHang, DeviceLost, InvalidArgument, UnsupportedOperationError

MIN_BYTES, MAX_BYTES = 64, veth.MTU + veth.HEADER_BYTES + veth.CHECK_BYTES
"""Frame sizes: the minimum of IEEE 802.3, and a jumbo frame with 9,000 bytes of payload."""
MAX_PACKETS = 100_000_000
ANSWER_S = 10.0
"""Time limit of a request, in addition to the time for its packets."""
_SLOWEST_PACKET_S = 100e-6
"""Time limit per packet, which is many times the few microseconds that one takes."""

_rings = itertools.count(1)


class _Frames:
    """Frames of one size in the child process, and the buffers to receive them."""

    def __init__(self, child: Child, device: HostDevice, frame_bytes: int, cache: str) -> None:
        row_bytes = 2 * (frame_bytes + veth.MESSAGE_BYTES + veth.VECTOR_BYTES)
        rows = cold_operands(row_bytes, veth.MAX_BATCH, cache)
        device.require_memory(rows * row_bytes, f"{rows:,} frames of {frame_bytes:,} bytes")
        self._child, self._device, self._ring = child, device.info.name, next(_rings)
        child.ask(self._device, "prepare", self._ring, 60.0, frame_bytes=frame_bytes, rows=rows)

    def ask(self, do: str, packets: int, **arguments: int) -> tuple[float, int]:
        """Return the seconds that the request took, and the number of packets that were lost or wrong."""
        limit_s = ANSWER_S + packets * _SLOWEST_PACKET_S
        reply = self._child.ask(self._device, do, self._ring, limit_s, **arguments)
        return float(reply["seconds"]), int(reply["lost"]) + int(reply["wrong"])

    def release(self) -> None:
        """Free the frames in the child. A child that has ended needs no release."""
        try:
            self._child.ask(self._device, "release", self._ring, ANSWER_S)
        except (InvalidArgument, DeviceLost, DeviceHang):
            return


class _PacketsTrial(HostTrial):
    def __init__(self, child: Child, device: HostDevice, columns: Columns) -> None:
        note = "sendmmsg and recvmmsg alternate over a veth pair in two namespaces, one thread, no retransmission"
        super().__init__(device, note)
        self._count, self._bad = int(columns["count"]), 0
        self._frames = _Frames(child, device, int(columns["bytes"]) - veth.CHECK_BYTES, str(columns["cache"]))

    def _run(self, count: int) -> float:
        seconds, self._bad = self._frames.ask("forward", count * self._count, count=self._count, runs=count)
        return seconds / count

    def _check(self) -> float:
        return exact_error(self._bad)

    def _close(self) -> None:
        self._frames.release()


def _refusal(columns: Columns) -> Refusal:
    size, count = float(columns["bytes"]), float(columns["count"])
    if not MIN_BYTES <= size <= MAX_BYTES:
        return UnsupportedOperationError(
            f"{size:g} bytes is not a size of an Ethernet frame", expected=f"bytes from {MIN_BYTES} to {MAX_BYTES}"
        )
    if count > MAX_PACKETS:
        return UnsupportedOperationError(
            f"{count:g} packets would take minutes", expected=f"count of at most {MAX_PACKETS:,}"
        )
    return None


class VethDevice(HostDevice):
    """The host's packet path. A child process holds its namespaces until the device is closed."""

    def __init__(self, child: Child, detected: DetectedDevice) -> None:
        trials = {"packets": TrialFactory(partial(_PacketsTrial, child), _refusal)}
        super().__init__(host_info(detected), child.versions, trials)
        self._child = child

    def round_trip_s(self, count: int = 1000, *, size: int = MIN_BYTES) -> float:
        """Return the mean round-trip time (s) of ``count`` frames of ``size`` bytes, sent one after another.

        One thread does all the work. Raises InvalidArgument for a size or a count out of range, and CopyError if a
        frame is lost or comes back changed.
        """
        if not MIN_BYTES <= size <= MAX_BYTES or not 1 <= count <= 1_000_000:
            problem = f"{count} frames of {size} bytes; expected at most 1,000,000, of {MIN_BYTES} to {MAX_BYTES}"
            raise self.error(InvalidArgument, problem, "round trip")
        # Frames sent, frames expected and frames received.
        self.require_memory(3.0 * count * size, f"{count:,} frames of {size:,} bytes")
        frames = _Frames(self._child, self, size - veth.CHECK_BYTES, "warm")
        seconds, bad = frames.ask("round_trip", count, count=count)
        frames.release()
        if bad:
            raise self.error(CopyError, f"{bad} of {count} frames were lost or wrong", "round trip")
        return seconds / count

    def close(self) -> None:
        """Close every trial, and end the child process."""
        super().close()
        self._child.close()
