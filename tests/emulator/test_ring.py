"""Ring kernels: FIFO order, no lost messages, backpressure, pause, termination, and the virtual time of polling."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.emulator.rings import KNOWN, PERSISTENT, RELAUNCHED, opened, overhead, ring_of

import windtunnel
from windtunnel.core.errors import (
    Deadlock,
    DeviceHang,
    DeviceLost,
    InputError,
    InvalidArgument,
    LaunchError,
    QueueFull,
)
from windtunnel.planning.launch_or_persist import Choice, primitives

# Time.


@pytest.mark.parametrize("name", PERSISTENT)
@pytest.mark.parametrize("count", [1, 2, 64])
def test_empty_messages_and_one_wait_take_what_predict_says_of_a_persistent_launch(name: str, count: int) -> None:
    device = opened(name)
    with ring_of(device, capacity=64) as ring:
        device.sleep(1e-3)  # until the kernel runs
        before = device.clock_s
        for i in range(count):
            ring.send(i)
        ring.drain()
        took = device.clock_s - before
    assert took == pytest.approx(windtunnel.predict("launch", name, {"mode": "persistent", "count": count}).duration_s)


def test_a_command_takes_what_the_guide_to_launching_and_persisting_says() -> None:
    device = opened("rtx-6000-ada")
    cells = {"op": "stencil", "nx": 64, "ny": 64}

    @windtunnel.kernel(work=lambda message: {**cells, "nz": 64})
    def update(message: Any) -> int:
        return 1

    parts = primitives(KNOWN.device("rtx-6000-ada"))
    step = windtunnel.predict("stencil", "rtx-6000-ada", {"nx": 64, "ny": 64, "nz": 64}).duration_s
    with device.ring(update, 142, 256, message="u4", reply="u4") as ring:
        device.sleep(1e-3)
        before = device.clock_s
        ring.call(1)
    assert parts.write_s is not None and parts.poll_s is not None
    assert device.clock_s >= before + parts.write_s + parts.poll_s + step
    kept = Choice(parts, 0.0, 1).persistent
    assert kept is not None
    assert kept.latency_s == pytest.approx(parts.write_s + parts.poll_s + parts.step_s + parts.barriers_s)


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-7, 1e-3))
def test_looking_again_and_again_ends_within_one_look_of_waiting(seconds: float) -> None:
    clocks = []
    for waits in (True, False):
        device = opened()

        @windtunnel.kernel(
            work=lambda message: {"op": "kernel", "threads": 1, "bytes": round(seconds * 2e11), "flops": 0.0}
        )
        def long(message: Any) -> int:
            return 1

        ring = ring_of(device, long)
        ring.send(1)
        if waits:
            ring.receive()
        else:
            while ring.poll() is None:
                pass
        clocks.append(device.clock_s)
    assert 0 <= clocks[1] - clocks[0] <= overhead(device, "persistent_poll_s") * (1 + 1e-9)


def test_a_sleeping_host_pays_for_its_sleep_and_no_more() -> None:
    device = opened()
    with ring_of(device) as ring:
        ring.send(3)
        device.sleep(100e-6)
        before = device.clock_s
        assert ring.receive() == 9
        assert device.clock_s - before == pytest.approx(overhead(device, "persistent_poll_s"))


def test_messages_that_come_while_a_relaunched_kernel_runs_share_the_next_launch() -> None:
    device = opened("apple-m2-ultra")
    seen = device.start_trace()
    with ring_of(device) as ring:
        assert ring.pattern == "relaunch"
        for i in range(8):
            ring.send(i)
        assert [int(ring.receive()) for _ in range(8)] == [i * i for i in range(8)]
    assert [span.name for span in seen if span.name == "square"] == ["square", "square"]


def test_a_relaunched_kernel_without_shared_memory_pays_for_copies_too() -> None:
    device = opened("rtx-4090@wgpu")
    seen = device.start_trace()
    with ring_of(device) as ring:
        ring.call(4)
    assert [(span.engine.split("_")[0], span.name) for span in seen] == [
        ("copy", "square: copy h2d"),
        ("compute", "square"),
        ("copy", "square: copy d2h"),
    ] or [span.name for span in seen] == ["square: copy h2d", "square", "square: copy d2h"]


# Order, and nothing lost.

ACTIONS = st.lists(
    st.sampled_from(["send", "send", "send", "poll", "receive", "pause", "activate", "sleep", "wait", "status"]),
    max_size=40,
)


@pytest.mark.parametrize("name", ["l4", "apple-m2-ultra", "rtx-4090@wgpu"])
@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.sampled_from([2, 4, 8]), st.booleans())
def test_replies_come_in_the_order_of_messages_and_nothing_is_lost(
    name: str, actions: list[str], capacity: int, drain: bool
) -> None:
    device = opened(name)

    @windtunnel.kernel(work=lambda message: {"op": "kernel", "threads": 32, "bytes": 1e6 * int(message), "flops": 0.0})
    def work(message: Any) -> int:
        return int(message) ** 2

    ring = ring_of(device, work, capacity)
    sent: deque[int] = deque()
    number, received, clock = 0, [], device.clock_s
    for action in actions:
        if action in ("send", "wait"):
            number += 1
            try:
                ring.send(number, wait=action == "wait")
                sent.append(number)
            except QueueFull:
                assert action == "send"
                assert number - 1 >= capacity
            except Deadlock:
                assert action == "wait"
        elif action == "receive":
            try:
                received.append(int(ring.receive()))
            except Deadlock as error:
                assert not sent or len(received) == len(sent) or "paused" in str(error)
        elif action == "poll":
            found = ring.poll()
            received += [] if found is None else [int(found)]
        elif action == "status":
            status = ring.status()
            assert status.processed <= len(sent)
            assert not status.stalled_slots
        elif action == "sleep":
            device.sleep(20e-6)
        else:
            ring.activate() if action == "activate" else ring.pause()
        assert device.clock_s >= clock
        clock = device.clock_s
    left = ring.terminate(drain=drain)
    replies = received + [int(reply) for reply in left.replies]
    assert replies == [i * i for i in list(sent)[: len(replies)]]
    assert [int(m) for m in left.unprocessed] == list(sent)[len(replies) :]


def test_a_graceful_end_answers_all_that_was_sent_beyond_what_the_queues_hold() -> None:
    with ring_of(opened(), capacity=2) as ring:
        sent = 0
        while sent < 4:
            sent += ring.try_send(sent)
    assert ring.left is not None
    assert [int(reply) for reply in ring.left.replies] == [0, 1, 4, 9]
    assert not ring.left.unprocessed


def test_an_end_without_draining_returns_what_was_not_processed() -> None:
    ring = ring_of(opened())
    ring.pause()
    for i in range(3):
        ring.send(i)
    left = ring.terminate(drain=False)
    assert [int(m) for m in left.unprocessed] == [0, 1, 2]
    with pytest.raises(InvalidArgument, match="terminated"):
        ring.send(1)


# Backpressure, and waiting for what cannot come.


def test_a_full_queue_refuses_and_says_how_many_slots_it_has() -> None:
    device = opened()
    ring = ring_of(device, capacity=4)
    ring.pause()
    for i in range(4):
        ring.send(i)
    assert not ring.try_send(4)
    with pytest.raises(QueueFull, match="all 4 slots are taken") as caught:
        ring.send(4)
    assert caught.value.operation == "send to ring kernel 'square'" and caught.value.api == "cuda"
    ring.activate()
    ring.send(4, wait=True)
    assert [int(ring.receive()) for _ in range(5)] == [0, 1, 4, 9, 16]


def test_a_kernel_waits_for_room_for_its_replies() -> None:
    ring = ring_of(opened(), capacity=2)
    for i in range(5):
        ring.send(i, wait=True)  # two replies, one that waits for room, two messages
    with pytest.raises(Deadlock, match="all 2 slots for replies are full, and only this host empties them"):
        ring.send(5, wait=True)
    assert [int(ring.receive()) for _ in range(5)] == [0, 1, 4, 9, 16]


def test_a_host_that_waits_for_what_cannot_come_is_told_why() -> None:
    device = opened()
    ring = ring_of(device, lambda message: None)
    with pytest.raises(Deadlock, match="no message is pending"):
        ring.receive()
    ring.send(1)
    with pytest.raises(Deadlock, match="gave no reply to 1 messages"):
        ring.receive()
    ring.pause()
    ring.send(1)
    with pytest.raises(Deadlock, match="it is paused, with 1 messages waiting"):
        ring.receive()
    with pytest.raises(Deadlock, match="synchronize on l4 waits for ring kernel"):
        device.synchronize()
    ring.terminate()
    device.synchronize()


def test_a_ring_without_replies_is_waited_for_by_draining_it() -> None:
    device = opened()
    total = device.to_device(np.zeros(1, np.uint64))

    def add(message: Any, into: Any) -> None:
        into[0] += message

    with device.ring(add, 1, 32, total, message=np.uint32) as ring:
        for i in range(10):
            ring.send(i)
        with pytest.raises(InvalidArgument, match=r"drain\(\)"):
            ring.receive()
        ring.drain()
        assert device.to_host(total)[0] == 45


def test_state_that_is_read_while_the_kernel_runs_is_what_it_was_by_then() -> None:
    device = opened()
    seen = device.to_device(np.zeros(1, np.uint32))

    def mark(message: Any, into: Any) -> None:
        into[0] = message

    ring = device.ring(mark, 1, 32, seen, message=np.uint32)
    ring.send(7)
    device.sleep(1e-3)
    assert device.to_host(seen)[0] == 7


# What goes wrong.


def test_widths_of_counters_follow_the_api() -> None:
    wide, narrow = ring_of(opened("l4")), ring_of(opened("rtx-4090@wgpu"))
    assert wide.device.input.layout.bits == 64 and narrow.device.input.layout.bits == 32
    control = narrow.device.control  # type: ignore[attr-defined]
    assert control["messages_processed"].dtype == np.uint32
    control["messages_processed"] = 2**32 - 1
    narrow.call(2)
    assert narrow.status().processed == 0, "WGSL's counter wraps"


@pytest.mark.parametrize("message", ["x", 1.5, -1, 2**32, (1, 2), [1, 2], None])
def test_what_is_no_message_is_refused(message: Any) -> None:
    ring = ring_of(opened())
    with pytest.raises(InvalidArgument, match="send to ring kernel 'square' on l4"):
        ring.send(message)
    assert ring.status().waiting == 0


def test_structured_messages_are_given_as_tuples() -> None:
    device = opened()
    point = np.dtype([("x", np.float32), ("y", np.float32)])
    with device.ring(lambda m: m["x"] + m["y"], 1, 32, message=point, reply=np.float32) as ring:
        assert ring.call((1.5, 2.0)) == 3.5
        with pytest.raises(InvalidArgument):
            ring.send((1.0,))


def test_a_capacity_that_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(InputError, match="6 messages; expected a power of two from 2, such as 4"):
        ring_of(opened(), capacity=6)


def test_a_handler_that_fails_ends_its_kernel_and_is_named() -> None:
    def broken(message: Any) -> int:
        raise ZeroDivisionError("no")

    ring = ring_of(opened(), broken)
    ring.send(1)
    with pytest.raises(LaunchError, match="its handler failed: ZeroDivisionError") as caught:
        ring.receive()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_faults_strike_rings() -> None:
    device = opened()
    ring = ring_of(device)
    with device.faults({"kind": "queue_full", "on": "send", "call": 2}):
        ring.send(1)
        with pytest.raises(QueueFull):
            ring.send(2)
    with device.faults({"kind": "device_lost", "on": "receive"}), pytest.raises(DeviceLost):
        ring.receive()
    with pytest.raises(DeviceLost):
        ring.send(1)
    device.reset()
    with pytest.raises(InvalidArgument, match="ended with its device"):
        ring.send(1)
    with device.faults({"kind": "hang", "kernel": "square", "watchdog_timeout_s": 1.0}):
        again = ring_of(device)
        before = device.clock_s
        with pytest.raises(DeviceHang):
            again.receive()
    assert device.clock_s - before == pytest.approx(1.0, rel=1e-3)


def test_a_ring_cannot_be_captured() -> None:
    device = opened()
    with device.capture(), pytest.raises(InvalidArgument, match="captured"):
        ring_of(device)


# What an attack found.


def test_a_handler_that_fails_is_told_at_the_end_and_its_message_is_the_first_left() -> None:
    for name in ("l4", "apple-m2-ultra"):
        device = opened(name)

        def bad(message: Any) -> int:
            if message == 2:
                raise ZeroDivisionError
            return int(message)

        ring = ring_of(device, bad)
        ring.pause()
        for i in range(5):
            ring.send(i)
        ring.activate()
        with pytest.raises(LaunchError, match="ZeroDivisionError"):
            ring.terminate()
        assert ring.left is not None
        assert [int(reply) for reply in ring.left.replies] == [0, 1]
        assert [int(message) for message in ring.left.unprocessed] == [2, 3, 4]
        assert not device.running
    with pytest.raises(LaunchError), ring_of(opened(), bad) as again:
        again.send(2)


def test_a_work_that_cannot_be_priced_is_the_handlers_failure_and_no_other_calls() -> None:
    device = opened()

    @windtunnel.kernel(work=lambda m: {"op": "kernel", "threads": 1, "bytes": int(m), "flops": 0.0})
    def work(message: Any) -> int:
        return 1

    a = device.to_device(np.ones(4, np.float32))
    ring = ring_of(device, work)
    ring.send(0)
    device.launch(lambda x: None, 1, 32, a)
    with pytest.raises(LaunchError, match="bytes is 0"):
        ring.receive()


def test_state_that_was_freed_is_not_used() -> None:
    device = opened()
    state = device.to_device(np.zeros(1))
    ring = device.ring(lambda m, s: None, 1, 32, state, message=np.float64)
    state.free()
    ring.send(2.5)
    with pytest.raises(LaunchError, match="the buffer was freed"):
        ring.drain()


@pytest.mark.parametrize(
    ("dtype", "message"),
    [("f4", None), ("U3", "hello"), ("f4", 1e300), ("f2", 1e6), ([("a", "i4"), ("b", "i4")], (1.5, 2))],
)
def test_a_message_is_never_changed_on_its_way(dtype: Any, message: Any) -> None:
    ring = opened().ring(lambda m: None, 1, 32, message=dtype)
    with pytest.raises(InvalidArgument):
        ring.send(message)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "U5", "c16"])
def test_python_values_are_messages_of_every_type_that_holds_them(dtype: str) -> None:
    with opened().ring(lambda m: m, 1, 32, message=dtype, reply=dtype) as ring:
        assert ring.call("hello" if dtype == "U5" else 2) == ("hello" if dtype == "U5" else 2)


def test_launches_of_a_relaunched_ring_are_counted() -> None:
    device = opened("apple-m2-ultra")
    ring = ring_of(device)
    for i in range(3):
        ring.call(i)
    ring.terminate()
    assert device.counters.launches >= 3


@pytest.mark.parametrize("name", [*PERSISTENT, *RELAUNCHED, "a100-sxm-40gb@opencl", "mi250x@opencl"])
def test_a_host_that_looks_again_and_again_gets_on_through_every_api(name: str) -> None:
    device = opened(name)
    ring = ring_of(device)
    ring.send(3)
    for _ in range(100_000):
        found = ring.poll()
        if found is not None:
            break
    assert found == 9
