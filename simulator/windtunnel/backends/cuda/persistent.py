"""A persistent kernel that answers commands of 64 bytes: what ``launch mode=persistent`` measures.

Host and device share one block of pinned memory with two queues, for commands and for replies. Their layout and
protocol are those of ``runtime.ring_queue``: ``head``, ``tail``, the slots' sequence numbers (64 bits each), then the
messages. Here each queue has one producer and one consumer. A plain store therefore replaces the compare-and-exchange,
which a device cannot execute on host memory over PCIe; the order of the steps is the same. Sequence numbers are read
with acquire and written with release semantics at system scope (PTX ISA, from compute capability 7.0; before that, by
volatile accesses and ``__threadfence_system``). The host's side relies on the memory order of x86-64.

The kernel ends when a stop was requested and no command is left, or after a time without commands, so that nothing
keeps running when a program dies. While it runs, nothing may wait for the whole device, as ``cudaFree`` does.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from typing import Self

import numpy as np

from windtunnel.backends.cuda.context import CupyContext
from windtunnel.backends.cuda.driver import Allocation
from windtunnel.core.errors import DeviceHang, UnsupportedOperationError
from windtunnel.runtime.ring_queue import Layout

MESSAGE = 64
"""Bytes of a command and of a reply."""
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
// The same code on a processor, for tests.
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

// Counters for observers of the queue. They order nothing, because a fence would take about a microsecond.
#if defined(__CUDA_ARCH__)
static __device__ __forceinline__ void publish(word *at, word value) { *(volatile word *)at = value; }
#else
static inline void publish(word *at, word value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
#endif

struct alignas(16) part { word low, high; };
struct message { part parts[4]; };

// Counters: head, tail, sequence numbers. Control: [0] stop request, [1] commands done, [2] why the kernel ended:
// 1 stop request, 2 no command for `timeout` ns.
extern "C" __global__ void windtunnel_echo(
    word *in, const message *commands, word *out, message *replies, word capacity, word *control, word timeout) {
    word taken = 0, given = 0, last = now_ns(), why = 0;
    for (unsigned polls = 0; why == 0; ++polls) {
        word slot = taken & (capacity - 1);
        if (acquire(&in[2 + slot]) != taken + 1) {
            if (polls % 64) continue;
            // After a stop request the queue is polled once more: commands sent before the request are there by then.
            if (acquire(&control[0]) && acquire(&in[2 + slot]) != taken + 1) why = 1;
            else if (now_ns() - last > timeout) why = 2;
            continue;
        }
        publish(&in[0], taken + 1);
        message command = commands[slot];
        release(&in[2 + slot], taken + capacity);
        ++taken;
        word place = given & (capacity - 1);
        while (acquire(&out[2 + place]) != given)
            if (now_ns() - last > timeout) {
                why = 2;
                break;
            }
        if (why) break;
        publish(&out[1], given + 1);
        replies[place] = command;
        release(&out[2 + place], given + 1);
        ++given;
        publish(&control[1], given);
        last = now_ns();
    }
    release(&control[2], why);
}
"""
OPTIONS = ("-std=c++17",)


class SharedQueues:
    """The memory block that both sides map: ``memory`` has `size_for` bytes and is initialised to two empty queues.

    ``offsets`` are those of the commands' counters and messages, the replies' counters and messages, and the control
    words.
    """

    def __init__(self, memory: np.ndarray, capacity: int) -> None:
        self.layout = Layout(capacity)
        self.memory = memory
        self.offsets, size = _layout(capacity)
        assert memory.size >= size  # noqa: S101  the caller allocates `size_for` bytes
        memory[:size] = 0
        _, sequences = self.layout.fresh()
        for at in (self.offsets[0], self.offsets[2]):
            memory[at + 16 : at + 16 + 8 * capacity].view(np.uint64)[:] = sequences

    def words(self, at: int, count: int) -> memoryview:
        """Return counters; every access is a single 64-bit access."""
        return self.memory[at : at + 8 * count].view(np.uint64).data

    def messages(self, at: int) -> memoryview:
        """Return the messages of a queue, one after another."""
        return self.memory[at : at + MESSAGE * self.layout.capacity].data


def _layout(capacity: int) -> tuple[tuple[int, int, int, int, int], int]:
    counters = -(-8 * (2 + capacity) // 64) * 64
    queue = counters + MESSAGE * capacity
    return (0, counters, queue, queue + counters, 2 * queue), 2 * queue + 64


def size_for(capacity: int) -> int:
    """Return the size (bytes) of the block for queues of ``capacity`` messages. Raises InputError if it is invalid."""
    return _layout(Layout(capacity).capacity)[1]


class HostEnd:
    """The host's side: it sends commands and receives replies, and never waits."""

    def __init__(self, shared: SharedQueues) -> None:
        layout, offsets = shared.layout, shared.offsets
        self.layout = layout
        self._in, self._out = (shared.words(at, 2 + layout.capacity) for at in (offsets[0], offsets[2]))
        self._commands, self._replies = shared.messages(offsets[1]), shared.messages(offsets[3])
        self._control = shared.words(offsets[4], 3)
        self._sent = self._received = 0

    def send(self, command: bytes) -> bool:
        """Append a command of 64 bytes. Returns False if the queue is full."""
        position = self._sent
        slot = position & self.layout.mask
        if self._in[2 + slot] != position:
            return False
        self._in[1] = self._sent = position + 1
        self._commands[MESSAGE * slot : MESSAGE * (slot + 1)] = command
        self._in[2 + slot] = position + 1
        return True

    def receive(self) -> bytes | None:
        """Return the oldest reply; None if there is none."""
        position = self._received
        slot = position & self.layout.mask
        if self._out[2 + slot] != position + 1:
            return None
        self._out[0] = self._received = position + 1
        reply = bytes(self._replies[MESSAGE * slot : MESSAGE * (slot + 1)])
        self._out[2 + slot] = position + self.layout.capacity
        return reply

    def stop(self) -> None:
        """Tell the kernel to end after all commands."""
        self._control[0] = 1

    @property
    def done(self) -> int:
        """Number of answered commands, as the kernel counts them."""
        return self._control[1]

    @property
    def ended(self) -> str:
        """Why the kernel ended: ``stopped``, ``timed out``; empty while it runs."""
        return ("", "stopped", "timed out")[self._control[2]]


class PersistentKernel:
    """The kernel on a device. It runs inside a ``with`` statement."""

    def __init__(self, context: CupyContext, capacity: int = 64, timeout_s: float = 2.0) -> None:
        """Raises UnsupportedOperationError if the device has no such kernel.

        ``timeout_s`` is the time without a command after which the kernel ends by itself.
        """
        refused = self.refusal(context)
        if refused is not None:
            raise UnsupportedOperationError(refused)
        self.context, self.timeout_s = context, timeout_s
        self._size, self._capacity = size_for(capacity), capacity
        self._running = False

    @staticmethod
    def refusal(context: CupyContext) -> str | None:
        """Return why the device has no persistent kernel; None if it has one."""
        if context.driver.target != "cuda":
            return f"the persistent kernel is written in CUDA; {context.info.name} requires HIP"
        if platform.machine() not in ("x86_64", "AMD64"):
            return (
                f"this processor ({platform.machine()}) may reorder stores, for which the host's side of the queue "
                "has no fences"
            )
        return None if "pinned" in context.info.features else f"{context.info.name} does not map the host's memory"

    def __enter__(self) -> Self:
        context, driver = self.context, self.context.driver
        with context.driving("launch the persistent kernel"):
            driver.make_current()
            self._block = Allocation(driver, self._size, "pinned")
            self.shared = SharedQueues(self._block.view(), self._capacity)
            self.host = HostEnd(self.shared)
            # A module that nobody refers to is unloaded, and unloading it waits for its kernel to end.
            self._kernel = driver.load(SOURCE, KERNEL, OPTIONS)
            self._stream = driver.queue(non_blocking=True)
            places = [np.uint64(self._block.address + at) for at in self.shared.offsets]
            numbers = np.uint64(self._capacity), np.uint64(round(self.timeout_s * 1e9))
            arguments = (*places[:4], numbers[0], places[4], numbers[1])
            driver.start(self._kernel, (1, 1, 1), (1, 1, 1), arguments, self._stream, 0)
        self._running = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._running:
            self._running = False
            self.host.stop()
            with self.context.driving("end the persistent kernel"):
                self._stream.synchronize()

    def call(self, command: bytes) -> tuple[bytes, float, float]:
        """Send a command; return (reply, seconds to send, seconds to the reply). Raises DeviceHang without a reply."""
        host, clock = self.host, time.perf_counter
        begin = clock()
        sent = host.send(command)
        injected = clock()
        assert sent  # noqa: S101  all earlier replies were received
        while True:
            reply = host.receive()
            end = clock()
            if reply is not None:
                return reply, injected - begin, end - begin
            if end - begin > self.timeout_s:
                raise self.hang(f"no reply in {self.timeout_s:g} s")

    def hang(self, problem: str) -> DeviceHang:
        """Return the error for replies that did not arrive. It says why the kernel ended, if it has."""
        ended = f"; the kernel {self.host.ended}" if self.host.ended else ""
        error: DeviceHang = self.context.error(DeviceHang, "call the persistent kernel", problem + ended)
        return error


@dataclass(frozen=True)
class CommandTimes:
    """Times of commands to a persistent kernel, one at a time (s, host clock, Python's own time included)."""

    injection_s: np.ndarray
    """Time to write a command where the kernel finds it; shape (commands,)."""
    round_trip_s: np.ndarray
    """Time from the start of the write until the reply was read; shape (commands,)."""
    wrong: int
    """Number of replies that differ from their command."""


def measure(context: CupyContext, count: int, *, warm_up: int = 100) -> CommandTimes:
    """Measure ``count`` commands, after ``warm_up`` commands that are not timed."""
    times, wrong = np.empty((count, 2)), 0
    with PersistentKernel(context) as kernel:
        for number in range(-warm_up, count):
            command = (number % 2**64).to_bytes(8, "little") * (MESSAGE // 8)
            reply, *both = kernel.call(command)
            wrong += reply != command
            if number >= 0:
                times[number] = both
    return CommandTimes(times[:, 0], times[:, 1], wrong)
