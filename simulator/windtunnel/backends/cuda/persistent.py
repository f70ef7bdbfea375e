"""A kernel that stays on the device and answers commands of 64 bytes: what ``launch mode=persistent`` measures.

Host and device share one block of pinned memory with two queues, commands and replies, laid out and driven as
``runtime.ring_queue`` has it: ``head``, ``tail``, then the slots' sequence numbers, of 64 bits each, then the messages.
Each queue has one producer and one consumer here. So nobody contends for a counter, and a store takes the place of the
compare-and-exchange, which a device cannot do on the host's memory over PCIe; the order of the steps is the same. A
sequence number is read with acquire and written with release semantics at system scope (PTX ISA, from compute
capability 7.0 on; before, by volatile accesses and ``__threadfence_system``). The host's side relies on the order in
which x86-64 stores and loads.

The kernel ends when it is told to, once no command is left, and by itself when it has heard nothing for a while: a
program that dies leaves nothing running. Until then nothing may wait for the whole device, and ``cudaFree`` does.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from typing import Self

import numpy as np

from windtunnel.backends.cuda.driver import CupyContext, Piece
from windtunnel.core.errors import DeviceHang, UnsupportedOperationError
from windtunnel.runtime.ring_queue import Layout

MESSAGE = 64
"""Bytes of a command, and of a reply."""
KERNEL = "windtunnel_echo"
SOURCE = r"""
typedef unsigned long long word;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
static __device__ __forceinline__ word acquire(const word *at) {
    word seen;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(at) : "memory");
    return seen;
}
static __device__ __forceinline__ void release(word *at, word value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
}
#elif defined(__CUDA_ARCH__)
static __device__ __forceinline__ word acquire(const word *at) {
    word seen = *(const volatile word *)at;
    __threadfence_system();
    return seen;
}
static __device__ __forceinline__ void release(word *at, word value) {
    __threadfence_system();
    *(volatile word *)at = value;
}
#else
// The same text on a processor, where it is tested.
static inline word acquire(const word *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline void release(word *at, word value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
#endif

#if defined(__CUDA_ARCH__)
static __device__ __forceinline__ word now_ns() {
    word ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}
#else
static inline word now_ns() { return wt_now_ns(); }
#endif

// For who looks at the queue from outside: nothing is ordered by it, which a fence would take a microsecond for.
#if defined(__CUDA_ARCH__)
static __device__ __forceinline__ void tell(word *at, word value) { *(volatile word *)at = value; }
#else
static inline void tell(word *at, word value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
#endif

struct alignas(16) part { word low, high; };
struct message { part parts[4]; };

// Counters: head, tail, sequence numbers. Control: [0] told to stop, [1] commands done, [2] why it ended: 1 it was
// told, 2 it heard nothing for `patience` ns.
extern "C" __global__ void windtunnel_echo(
    word *in, const message *commands, word *out, message *replies, word capacity, word *control, word patience) {
    word taken = 0, given = 0, heard = now_ns(), why = 0;
    for (unsigned looks = 0; why == 0; ++looks) {
        word slot = taken & (capacity - 1);
        if (acquire(&in[2 + slot]) != taken + 1) {
            if (looks % 64) continue;
            // Told to stop, it looks once more: what was sent before is there by then.
            if (acquire(&control[0]) && acquire(&in[2 + slot]) != taken + 1) why = 1;
            else if (now_ns() - heard > patience) why = 2;
            continue;
        }
        tell(&in[0], taken + 1);
        message command = commands[slot];
        release(&in[2 + slot], taken + capacity);
        ++taken;
        word place = given & (capacity - 1);
        while (acquire(&out[2 + place]) != given)
            if (now_ns() - heard > patience) {
                why = 2;
                break;
            }
        if (why) break;
        tell(&out[1], given + 1);
        replies[place] = command;
        release(&out[2 + place], given + 1);
        ++given;
        tell(&control[1], given);
        heard = now_ns();
    }
    release(&control[2], why);
}
"""
OPTIONS = ("-std=c++17",)


class Shared:
    """The block that both sides map. ``memory``: its bytes, `size_for` many; they are set to two empty queues.

    ``offsets``: of the commands' counters and messages, the replies' counters and messages, and the control words.
    """

    def __init__(self, memory: np.ndarray, capacity: int) -> None:
        self.layout = Layout(capacity)
        self.memory = memory
        self.offsets, size = _places(capacity)
        assert memory.size >= size  # noqa: S101  whoever makes it asks `size_for`
        memory[:size] = 0
        _, sequences = self.layout.fresh()
        for at in (self.offsets[0], self.offsets[2]):
            memory[at + 16 : at + 16 + 8 * capacity].view(np.uint64)[:] = sequences

    def words(self, at: int, count: int) -> memoryview:
        """Counters, one by one: each access is one of 64 bits."""
        return self.memory[at : at + 8 * count].view(np.uint64).data

    def messages(self, at: int) -> memoryview:
        """The messages of a queue, one after another."""
        return self.memory[at : at + MESSAGE * self.layout.capacity].data


def _places(capacity: int) -> tuple[tuple[int, int, int, int, int], int]:
    counters = -(-8 * (2 + capacity) // 64) * 64
    one = counters + MESSAGE * capacity
    return (0, counters, one, one + counters, 2 * one), 2 * one + 64


def size_for(capacity: int) -> int:
    """Bytes of the block for queues of ``capacity`` messages; InputError for what is no capacity."""
    return _places(Layout(capacity).capacity)[1]


class HostEnd:
    """The host's side: it appends commands and takes replies. It never waits."""

    def __init__(self, shared: Shared) -> None:
        layout, offsets = shared.layout, shared.offsets
        self.layout = layout
        self._in, self._out = (shared.words(at, 2 + layout.capacity) for at in (offsets[0], offsets[2]))
        self._commands, self._replies = shared.messages(offsets[1]), shared.messages(offsets[3])
        self._control = shared.words(offsets[4], 3)
        self._sent = self._received = 0

    def send(self, command: bytes) -> bool:
        """Append a command of 64 bytes; False where the queue is full."""
        position = self._sent
        slot = position & self.layout.mask
        if self._in[2 + slot] != position:
            return False
        self._in[1] = self._sent = position + 1
        self._commands[MESSAGE * slot : MESSAGE * (slot + 1)] = command
        self._in[2 + slot] = position + 1
        return True

    def receive(self) -> bytes | None:
        """The oldest reply; None where none is there."""
        position = self._received
        slot = position & self.layout.mask
        if self._out[2 + slot] != position + 1:
            return None
        self._out[0] = self._received = position + 1
        reply = bytes(self._replies[MESSAGE * slot : MESSAGE * (slot + 1)])
        self._out[2 + slot] = position + self.layout.capacity
        return reply

    def stop(self) -> None:
        """Tell the kernel to end, once it has done all commands."""
        self._control[0] = 1

    @property
    def done(self) -> int:
        """Commands that were answered, as the kernel counts them."""
        return self._control[1]

    @property
    def ended(self) -> str:
        """Why the kernel ended: ``told``, ``heard nothing``; "" while it runs."""
        return ("", "told", "heard nothing")[self._control[2]]


class Persistent:
    """The kernel on a device, from ``with`` to its end."""

    def __init__(self, context: CupyContext, capacity: int = 64, patience_s: float = 2.0) -> None:
        """``patience_s``: how long the kernel waits for a command before it ends by itself."""
        refused = self.refusal(context)
        if refused is not None:
            raise UnsupportedOperationError(refused)
        self.context, self.patience_s = context, patience_s
        self._size, self._capacity = size_for(capacity), capacity
        self._running = False

    @staticmethod
    def refusal(context: CupyContext) -> str | None:
        """In words, why there is no such kernel on a device; None where there is."""
        if context.driver.target != "cuda":
            return f"the kernel that stays is CUDA's; {context.info.name} takes HIP"
        if platform.machine() not in ("x86_64", "AMD64"):
            return (
                f"this processor ({platform.machine()}) may reorder stores, which the host's side of the queue "
                "does not guard against"
            )
        return None if "pinned" in context.info.features else f"{context.info.name} does not map the host's memory"

    def __enter__(self) -> Self:
        context, driver = self.context, self.context.driver
        with context.driving("launch the kernel that stays"):
            driver.make_current()
            self._piece = Piece(driver, self._size, "pinned")
            self.shared = Shared(self._piece.view(), self._capacity)
            self.host = HostEnd(self.shared)
            kernel = driver.load(SOURCE, KERNEL, OPTIONS)
            self._stream = driver.queue(non_blocking=True)
            places = [np.uint64(self._piece.address + at) for at in self.shared.offsets]
            numbers = np.uint64(self._capacity), np.uint64(round(self.patience_s * 1e9))
            arguments = (*places[:4], numbers[0], places[4], numbers[1])
            driver.start(kernel, (1, 1, 1), (1, 1, 1), arguments, self._stream, 0)
        self._running = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._running:
            self._running = False
            self.host.stop()
            with self.context.driving("end the kernel that stays"):
                self._stream.synchronize()

    def call(self, command: bytes) -> tuple[bytes, float, float]:
        """Send, and wait for the reply: (reply, seconds to send, seconds to the reply). DeviceHang where none comes."""
        host, clock = self.host, time.perf_counter
        begin = clock()
        sent = host.send(command)
        injected = clock()
        assert sent  # noqa: S101  the reply to each command before was taken
        while True:
            reply = host.receive()
            end = clock()
            if reply is not None:
                return reply, injected - begin, end - begin
            if end - begin > self.patience_s:
                problem = f"no reply in {self.patience_s:g} s" + (f"; it {host.ended}" if host.ended else "")
                raise self.context.error(DeviceHang, "call the kernel that stays", problem)


@dataclass(frozen=True)
class Measured:
    """Commands to a kernel that stays, one at a time. Seconds of the host's clock, Python's own part included."""

    injection_s: np.ndarray
    """To write a command where the kernel finds it."""
    round_trip_s: np.ndarray
    """From the begin of that until the reply was read."""
    wrong: int
    """Replies that were not their command."""


def measure(context: CupyContext, count: int, *, warm_up: int = 100) -> Measured:
    """``count`` round trips, after ``warm_up`` that are not told."""
    times, wrong = np.empty((count, 2)), 0
    with Persistent(context) as ring:
        for number in range(-warm_up, count):
            command = (number % 2**64).to_bytes(8, "little") * (MESSAGE // 8)
            reply, *both = ring.call(command)
            wrong += reply != command
            if number >= 0:
                times[number] = both
    return Measured(times[:, 0], times[:, 1], wrong)
