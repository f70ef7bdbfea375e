"""The child process of `packets`: two network namespaces, a veth pair between them, and raw sockets.

It runs as a separate script and is not imported as a part of the package: only a single-threaded process can create a
user namespace, so nothing that starts threads may be imported before that (NumPy's BLAS does). It reads one JSON
request per line from its standard input, answers each with one line, and ends when its input ends. Namespaces, ports
and packets disappear with it. The host's own network is never changed.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import numpy as np

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
ETHERTYPE = 0x88B5
"""Local experimental EtherType, IEEE 802 (2014) 9.2.3: no other traffic on the pair uses it."""
HEADER_BYTES = 14
SEQUENCE_BYTES = 8
CHECK_BYTES = 4
"""The frame check sequence. A wire carries it and a veth pair does not, so frames here are shorter by as much."""
MTU = 9000
MESSAGE_BYTES, VECTOR_BYTES = 64, 16
"""Sizes of struct mmsghdr and struct iovec on 64-bit Linux."""
MAX_BATCH = 64
WAIT_S = 1.0
"""A packet that has not arrived by then is lost: here it arrives before the call that sends it returns."""


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc(), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _namespace() -> tuple[int, int]:
    at = Path("/proc/thread-self/ns/net").stat()
    return at.st_dev, at.st_ino


def leave_the_host() -> str:
    """Enter a new network namespace, inside a new user namespace if necessary; return in words which of the two.

    Raises RuntimeError if this process may create neither.
    """
    host = _namespace()
    how = "namespaces as root"
    try:
        _call("unshare", CLONE_NEWNET)
    except OSError as plain:
        try:
            _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
        except OSError as user:
            raise RuntimeError(
                f"this process may not create a network namespace ({os.strerror(plain.errno or 0)}) or a user "
                f"namespace ({os.strerror(user.errno or 0)}); run as root, or on a kernel that permits user namespaces "
                "(user.max_user_namespaces above 0, and no security module that forbids them)"
            ) from None
        how = "namespaces in a user namespace"
    if _namespace() == host:
        raise RuntimeError("the process is still in the host's network namespace, which it must not change")
    return how


class Port:
    """One end of the pair: its raw socket and the Ethernet header of the frames that it sends."""

    def __init__(self, name: str, address: bytes, peer: bytes) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        # Bound to the EtherType alone, so that packets of the kernel (IPv6, when a port comes up) are not delivered.
        self.socket.bind((name, ETHERTYPE))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(WAIT_S))
        self.header = peer + address + ETHERTYPE.to_bytes(2)


def _timeval(seconds: float) -> bytes:
    whole = int(seconds)
    return whole.to_bytes(8, sys.byteorder) + int((seconds - whole) * 1e6).to_bytes(8, sys.byteorder)


def pair() -> tuple[Port, Port]:
    """Return two ports, each in its own namespace. This process stays in the first port's namespace."""
    from pyroute2 import IPRoute

    addresses = [bytes.fromhex("020000000001"), bytes.fromhex("020000000002")]
    first = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _call("unshare", CLONE_NEWNET)
    second = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _call("setns", first, CLONE_NEWNET)
    with IPRoute() as route:
        route.link(
            "add",
            ifname="wt0",
            kind="veth",
            address=_colons(addresses[0]),
            peer={"ifname": "wt1", "address": _colons(addresses[1]), "net_ns_fd": second},
        )
    for namespace, name in ((first, "wt0"), (second, "wt1")):
        _call("setns", namespace, CLONE_NEWNET)
        with IPRoute() as route:
            (index,) = route.link_lookup(ifname=name)
            route.link("set", index=index, mtu=MTU, state="up")
    there = Port("wt1", addresses[1], addresses[0])
    _call("setns", first, CLONE_NEWNET)
    here = Port("wt0", addresses[0], addresses[1])
    os.close(first)
    os.close(second)
    return here, there


def _colons(address: bytes) -> str:
    return ":".join(f"{byte:02x}" for byte in address)


class Ring:
    """``rows`` frames to send and as many buffers to receive them, used in turn, with the kernel's descriptors.

    Every frame is a sequence number followed by noise. No two frames of a ring have the same number, in any lap.
    """

    def __init__(self, here: Port, there: Port, frame_bytes: int, rows: int) -> None:
        import numpy as np

        self._here, self._there = here, there
        self._rows, self._lap, self._at = rows, 0, 0
        rng = np.random.default_rng(frame_bytes)
        noise = np.frombuffer(rng.bytes(min(rows * frame_bytes, 4 * 2**20)), np.uint8)
        self._sent: np.ndarray = np.resize(noise, (rows, frame_bytes))
        self._sent[:, :HEADER_BYTES] = np.frombuffer(here.header, np.uint8)
        self._received: np.ndarray = np.zeros((rows, frame_bytes), np.uint8)
        self._to_send, self._vectors = _messages(self._sent)
        self._to_receive, self._room = _messages(self._received)
        # Batches fit the receiver's buffer; the kernel counts at most twice a packet's size and 1 KiB for it.
        fit = here.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2 // (2 * frame_bytes + 1024)
        self._batch = max(1, min(MAX_BATCH, fit))
        self._begin_lap()

    def _begin_lap(self) -> None:
        import numpy as np

        numbers = (np.arange(self._rows, dtype=np.uint64) + self._lap * self._rows).astype(">u8")
        self._sent[:, HEADER_BYTES : HEADER_BYTES + SEQUENCE_BYTES] = numbers.view(np.uint8).reshape(-1, SEQUENCE_BYTES)
        self._received[:] = 0
        self._lap, self._at = self._lap + 1, 0

    def forward(self, count: int, runs: int) -> Transfer:
        """Send and receive ``runs`` times ``count`` packets in batches; return the time and the lost and wrong ones."""
        seconds, lost, wrong = 0.0, 0, 0
        left = runs * count
        in_this = count
        while left:
            if self._at == self._rows:
                self._begin_lap()
            plan: list[tuple[int, int]] = []
            begin = self._at
            while left and self._at < self._rows and len(plan) < 2**16:
                size = min(self._batch, in_this, self._rows - self._at)
                plan.append((self._at, size))
                self._at += size
                left -= size
                in_this = in_this - size or count
            took, missing = self._move(plan)
            seconds += took
            lost += missing
            wrong += self._wrong(begin, self._at) - missing
        return {"seconds": seconds, "lost": lost, "wrong": max(wrong, 0)}

    def _move(self, plan: list[tuple[int, int]]) -> tuple[float, int]:
        """Send and receive the batches of ``plan``; return seconds for all, and the number of missing packets."""
        send, receive = _mmsg("sendmmsg", 4), _mmsg("recvmmsg", 5)
        out, back = self._here.socket.fileno(), self._there.socket.fileno()
        to_send, to_receive = self._to_send.ctypes.data, self._to_receive.ctypes.data
        missing = 0
        begin = time.perf_counter()
        for first, size in plan:
            offset = first * MESSAGE_BYTES
            done = 0
            while done < size:
                moved = send(out, to_send + offset + done * MESSAGE_BYTES, size - done, 0)
                if moved <= 0:
                    raise OSError(ctypes.get_errno(), f"sendmmsg: {os.strerror(ctypes.get_errno())}")
                done += moved
            done = 0
            while done < size:
                moved = receive(back, to_receive + offset + done * MESSAGE_BYTES, size - done, 0, None)
                if moved <= 0:
                    missing += size - done
                    break
                done += moved
        return time.perf_counter() - begin, missing

    def _wrong(self, begin: int, end: int) -> int:
        """Count the buffers in this range whose contents or length differ from the frame that was sent."""
        sent, received = self._sent[begin:end], self._received[begin:end]
        lengths = self._to_receive["len"][begin:end]
        return int(((sent != received).any(axis=1) | (lengths != sent.shape[1])).sum())

    def round_trip(self, count: int) -> Transfer:
        """Send ``count`` packets there and back, one after another; return the time and the lost and wrong ones."""
        import numpy as np

        here, there = self._here.socket, self._there.socket
        frame_bytes = self._sent.shape[1]
        frames = [bytes(self._sent[i % self._rows]) for i in range(count)]
        middle, answers = bytearray(frame_bytes), np.zeros((count, frame_bytes), np.uint8)
        rows = [row.data for row in answers]
        header = self._there.header
        lost = 0
        begin = time.perf_counter()
        for frame, row in zip(frames, rows, strict=True):
            here.send(frame)
            try:
                there.recv_into(middle)
                middle[:HEADER_BYTES] = header
                there.send(middle)
                here.recv_into(row)
            except BlockingIOError:
                lost += 1
        seconds = time.perf_counter() - begin
        expected = [header + frame[HEADER_BYTES:] for frame in frames]
        wrong = sum(bytes(row) != frame for row, frame in zip(rows, expected, strict=True))
        return {"seconds": seconds, "lost": lost, "wrong": wrong - lost}


def _mmsg(name: str, arguments: int) -> Callable[..., int]:
    function = getattr(_libc(), name)
    types = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p]
    function.argtypes, function.restype = types[:arguments], ctypes.c_int
    return function  # type: ignore[no-any-return]


def _messages(frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sendmmsg and recvmmsg descriptors of the rows of ``frames``, and the vectors that they point to."""
    import numpy as np

    rows, size = frames.shape
    vectors = np.zeros(rows, np.dtype([("base", np.uint64), ("len", np.uint64)]))
    vectors["base"] = frames.ctypes.data + np.arange(rows, dtype=np.uint64) * np.uint64(size)
    vectors["len"] = size
    fields = {"vector": (np.uint64, 16), "vectors": (np.uint64, 24), "len": (np.uint32, 56)}
    messages = np.zeros(
        rows,
        np.dtype(
            {
                "names": list(fields),
                "formats": [kind for kind, _ in fields.values()],
                "offsets": [offset for _, offset in fields.values()],
                "itemsize": MESSAGE_BYTES,
            }
        ),
    )
    messages["vector"] = vectors.ctypes.data + np.arange(rows, dtype=np.uint64) * np.uint64(VECTOR_BYTES)
    messages["vectors"] = 1
    return messages, vectors


class Request(TypedDict, total=False):
    """A request: ``prepare`` (``frame_bytes``, ``rows``), ``release``, ``round_trip`` (``count``) or ``forward``."""

    do: str
    ring: int
    limit_s: float
    frame_bytes: int
    rows: int
    count: int
    runs: int


class Transfer(TypedDict, total=False):
    """The time that packets took, and how many of them were lost, or arrived with other bytes."""

    seconds: float
    lost: int
    wrong: int


class Message(TypedDict, total=False):
    """A line of the child: first ``ready`` (versions) or ``error``, then ``answer`` or ``failed`` to each request."""

    ready: Mapping[str, str]
    error: str
    answer: Transfer
    failed: str


class Server:
    """Answers requests."""

    def __init__(self, here: Port, there: Port) -> None:
        self._here, self._there = here, there
        self._rings: dict[int, Ring] = {}

    def answer(self, request: Request) -> Transfer:
        """Execute a request and return its answer, which is empty unless packets are moved."""
        do, key = request["do"], request["ring"]
        if do == "prepare":
            self._rings[key] = Ring(self._here, self._there, request["frame_bytes"], request["rows"])
            return {}
        if do == "release":
            self._rings.pop(key, None)
            return {}
        if do == "round_trip":
            return self._rings[key].round_trip(request["count"])
        return self._rings[key].forward(request["count"], request["runs"])


def main() -> None:
    """Serve requests until the input ends."""
    # Text that libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def reply(message: Message) -> None:
        answers.write(json.dumps(message) + "\n")

    try:
        if ctypes.sizeof(ctypes.c_void_p) != 8:
            raise RuntimeError("only the kernel structures of 64-bit systems are supported")
        how = leave_the_host()
        try:
            server = Server(*pair())
        except Exception as error:
            raise RuntimeError(f"cannot create a veth pair in {how}: {type(error).__name__}: {error}") from error
        import pyroute2

        reply({"ready": {"Linux": platform.release(), "pyroute2": pyroute2.__version__, "how": how}})
    except Exception as error:
        # Whatever prevents the set-up is the reason to report.
        reply({"error": str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"})
        return
    for line in sys.stdin:
        request = json.loads(line)
        # If the parent has ended, no request runs longer than its limit.
        signal.alarm(int(request["limit_s"]) + 1)
        try:
            reply({"answer": server.answer(request)})
        except (OSError, MemoryError) as error:
            reply({"failed": f"{type(error).__name__}: {error}"})
        signal.alarm(0)


if __name__ == "__main__":
    main()
