"""The kernel that stays: its text compiles for devices, and runs here against the host's side, over the queues' steps."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.backends.fake_compilers import nvrtc
from tests.backends.fake_cupy import FakeCupy

from windtunnel.backends.cuda import context as cupy_context
from windtunnel.backends.cuda.persistent import (
    MESSAGE,
    OPTIONS,
    SOURCE,
    HostEnd,
    PersistentKernel,
    SharedQueues,
    measure,
    size_for,
)
from windtunnel.core.errors import DeviceHang, InputError, UnsupportedOperationError
from windtunnel.runtime.ring_queue import EXCHANGE, HEAD, LOAD, READ, STORE, TAIL, WRITE, Outcome, pop_steps, push_steps


def message(number: int) -> bytes:
    return number.to_bytes(8, "little") * (MESSAGE // 8)


def shared(capacity: int) -> SharedQueues:
    held = np.zeros(size_for(capacity) + 64, np.uint8)
    begin = -held.ctypes.data % 64
    return SharedQueues(held[begin : begin + size_for(capacity)], capacity)


@pytest.fixture
def context() -> Iterator[cupy_context.CupyContext]:
    cupy = FakeCupy()
    cupy.stay.add("windtunnel_echo")
    yield cupy_context.open_context(cupy, "cuda", 0)
    assert not cupy.unloaded_while_running, "a device would have waited for the kernel's end in its launch"


def compiled(arch: str) -> bytes:
    code, said = nvrtc(SOURCE, (*OPTIONS, f"-arch={arch}"))
    if "invalid value for --gpu-architecture" in said and arch.partition("_")[2] in ("61", "70"):
        pytest.skip(f"this NVRTC is of CUDA 13, which does not compile for {arch}")
    assert said == ""
    return code


@pytest.mark.parametrize("arch", ["sm_90", "sm_80", "sm_70", "sm_61"])
def test_the_kernel_compiles_for_devices(arch: str) -> None:
    assert b"windtunnel_echo" in compiled(arch)


def test_sequence_numbers_are_accessed_at_system_scope() -> None:
    text = compiled("compute_90")
    assert b"ld.acquire.sys.global.u64" in text and b"st.release.sys.global.u64" in text
    older = compiled("compute_61")
    assert b"ld.volatile.global.u64" in older and b"membar.sys" in older


def test_each_command_is_answered_with_itself_and_in_order(context: cupy_context.CupyContext) -> None:
    measured = measure(context, 300, warm_up=10)
    assert measured.wrong == 0
    assert measured.injection_s.shape == measured.round_trip_s.shape == (300,)
    assert (measured.injection_s > 0).all() and (measured.round_trip_s >= measured.injection_s).all()


def test_commands_are_sent_ahead_until_the_queue_is_full_and_none_is_lost(context: cupy_context.CupyContext) -> None:
    sent, received = 0, []
    with PersistentKernel(context, capacity=8, timeout_s=600.0) as ring:
        while len(received) < 2000:
            while sent < 2000 and ring.host.send(message(sent)):
                sent += 1
            while (reply := ring.host.receive()) is not None:
                received.append(reply)
    assert received == [message(number) for number in range(2000)]
    assert (ring.host.done, ring.host.ended) == (2000, "stopped")


def test_what_was_sent_before_it_is_told_to_end_is_done(context: cupy_context.CupyContext) -> None:
    with PersistentKernel(context, capacity=8, timeout_s=600.0) as ring:
        for number in range(5):
            assert ring.host.send(message(number))
    assert [ring.host.receive() for _ in range(6)] == [*map(message, range(5)), None]


def test_it_ends_by_itself_when_it_hears_nothing(context: cupy_context.CupyContext) -> None:
    with PersistentKernel(context, timeout_s=0.05) as ring:
        ring._stream.synchronize()
        assert ring.host.ended == "timed out"
        with pytest.raises(DeviceHang, match="no reply in 0.05 s; the kernel timed out"):
            ring.call(message(1))


def test_it_is_left_when_a_program_fails(context: cupy_context.CupyContext) -> None:
    with pytest.raises(ZeroDivisionError), PersistentKernel(context, timeout_s=600.0) as ring:
        raise ZeroDivisionError
    assert ring.host.ended == "stopped"


@pytest.mark.parametrize("capacity", [0, 1, 3, 100])
def test_a_capacity_that_is_no_power_of_two_is_refused(context: cupy_context.CupyContext, capacity: int) -> None:
    with pytest.raises(InputError, match="a ring queue of"):
        PersistentKernel(context, capacity=capacity)


def test_a_host_that_reorders_stores_and_an_api_without_the_kernel_are_refused(
    context: cupy_context.CupyContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    hip = cupy_context.open_context(FakeCupy(hip=True), "hip", 0)
    with pytest.raises(UnsupportedOperationError, match="requires HIP"):
        PersistentKernel(hip)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UnsupportedOperationError, match="may reorder stores"):
        PersistentKernel(context)


class Device:
    """The device's side by the steps that `runtime.ring_queue` proves, one at a time, on the same memory."""

    def __init__(self, block: SharedQueues) -> None:
        at, count = block.offsets, 2 + block.layout.capacity
        self.block = block
        self.queues = [
            (block.words(at[0], count), block.messages(at[1])),
            (block.words(at[2], count), block.messages(at[3])),
        ]

    def apply(self, queue: int, step: Any) -> Any:
        words, messages = self.queues[queue]
        what, which, index, *rest = step
        slot = slice(MESSAGE * index, MESSAGE * (index + 1))
        cell = {HEAD: 0, TAIL: 1}.get(which, 2 + index)
        if what == LOAD:
            return words[cell]
        if what == READ:
            return bytes(messages[slot])
        if what == WRITE:
            messages[slot] = rest[0]
        elif what == STORE:
            words[cell] = rest[0]
        elif what == EXCHANGE:
            seen = words[cell]
            if seen == rest[0]:
                words[cell] = rest[1]
            return seen == rest[0], seen
        return None

    def steps(self) -> Any:
        """Takes commands and gives them back, for ever; a step of memory at each ``next``."""
        while True:
            found = yield from self.attempt(0, pop_steps(self.block.layout))
            if found[0] is Outcome.DONE:
                while (yield from self.attempt(1, push_steps(self.block.layout, found[1]))) is not Outcome.DONE:
                    pass

    def attempt(self, queue: int, steps: Any) -> Any:
        answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = self.apply(queue, step)
            yield


@pytest.mark.parametrize("seed", range(20))
def test_the_host_s_side_and_the_proved_steps_understand_each_other_in_any_order(seed: int) -> None:
    block = shared(4)
    host, drawn = HostEnd(block), random.Random(seed)
    device = Device(block).steps()
    sent, received, refused = 0, [], 0
    for _ in range(6000):
        turn = drawn.choice("sr" + "d" * drawn.choice([1, 8]))
        if turn == "d":
            next(device)
        elif turn == "s":
            done = host.send(message(sent))
            sent += done
            refused += not done
        elif (reply := host.receive()) is not None:
            received.append(reply)
    while len(received) < sent:
        next(device)
        if (reply := host.receive()) is not None:
            received.append(reply)
    assert received == [message(number) for number in range(sent)]
    assert sent > 100 and refused > 0


def test_a_full_queue_holds_its_capacity() -> None:
    host = HostEnd(shared(4))
    assert [host.send(message(number)) for number in range(6)] == [True] * 4 + [False] * 2
    assert host.receive() is None


def test_two_threads_pass_messages_by_the_host_s_two_ends() -> None:
    """The memory's order, as the host's side relies on it: a thread that echoes by the same stores and loads."""
    block = shared(8)
    host, mirror = HostEnd(block), HostEnd(block)
    mirror._in, mirror._out = mirror._out, mirror._in
    mirror._commands, mirror._replies = mirror._replies, mirror._commands
    count = 200

    def echo() -> None:
        for _ in range(count):
            while (command := mirror.receive()) is None:
                pass
            while not mirror.send(command):
                pass

    thread = threading.Thread(target=echo)
    thread.start()
    sent, received = 0, []
    while len(received) < count:
        if sent < count and host.send(message(sent)):
            sent += 1
        if (reply := host.receive()) is not None:
            received.append(reply)
    thread.join()
    assert received == [message(number) for number in range(count)]
