"""Stream races: unordered accesses of overlapping memory are found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.emulator.shared import lines_of

import windtunnel
from windtunnel import GridPos, atomic, errors, f32, grid, i32
from windtunnel.emulator.device.tracked_memory import TrackedBuffer
from windtunnel.emulator.races.footprint import Extent, extent_of, parameter_uses
from windtunnel.runtime.accelerator import Accelerator
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()
SKU = "h100-sxm-80gb"
N = 1024
ONES = np.ones(N, np.float32)


@windtunnel.kernel
def double(a: np.ndarray) -> None:
    a *= 2


@windtunnel.kernel
def put(a: np.ndarray, out: np.ndarray) -> None:
    out[...] = a + 1


@windtunnel.kernel
def part(a: np.ndarray, first: int, end: int) -> None:
    a[first:end] += 1


@windtunnel.kernel
def shown(a: np.ndarray, out: np.ndarray) -> None:
    out[...] = helper(a)


def helper(a: np.ndarray) -> np.ndarray:
    return a + 1


@windtunnel.kernel
def add_from(a: f32[:], first: i32, n: i32):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < n:
        a[first + i] += 1.0


@windtunnel.kernel
def count(x: f32[:], found: i32[:]):  # type: ignore[no-untyped-def]
    i = grid(1)
    if x[i] > 0.0:
        atomic.add(found, 0, 1)


@windtunnel.kernel
def clear(found: i32[:]):  # type: ignore[no-untyped-def]
    if grid(1) == 0:
        found[0] = 0


@windtunnel.stencil
def blurred(a: f32[:, :], out: f32[:, :], pos: GridPos):  # type: ignore[no-untyped-def]
    out[pos.idx()] = pos.west(a) + pos.east(a)


@pytest.fixture
def device() -> Accelerator:
    return windtunnel.device(SKU, catalogue=KNOWN)


def two(device: Accelerator) -> tuple[Any, Any]:
    return device.stream(non_blocking=True), device.stream(non_blocking=True)


# Streams: every short program beside what follows from the definition.


class Program:
    """What a program says of its order, as a relation: which piece of work comes after which."""

    def __init__(self, blocking: list[bool]) -> None:
        self.blocking = [None, *blocking]
        self.after: list[set[int]] = []
        self.stream: list[int] = []
        self.known: set[int] = set()
        self.waits: dict[int, set[int]] = {i: set() for i in range(len(self.blocking))}
        self.events: dict[int, set[int]] = {}
        self.touched: list[tuple[int, bool]] = []
        """(buffer, written) of each piece of work."""

    def before(self, stream: int) -> set[int]:
        """All that has ended when the next piece of work of a stream begins."""
        found = set(self.known) | self.waits[stream]
        for work, of in enumerate(self.stream):
            barrier = 0 in (of, stream) and all(self.blocking[i] is not False for i in (of, stream))
            if of == stream or barrier:
                found.add(work)
            # What a stream that is waited for was told to wait for is waited for, too.
        if stream == 0:
            for other, blocks in enumerate(self.blocking):
                found |= self.waits[other] if blocks else set()
        elif self.blocking[stream]:
            found |= self.waits[0]
        for work in list(found):
            found |= self.after[work]
        return found

    def give(self, stream: int, buffer: int, written: bool) -> bool:
        """Whether a piece of work meets one that it is not ordered after."""
        before = self.before(stream)
        race = any(
            work not in before and other == buffer and (written or wrote)
            for work, (other, wrote) in enumerate(self.touched)
        )
        self.after.append(before)
        self.stream.append(stream)
        self.touched.append((buffer, written))
        return race

    def record(self, event: int, stream: int) -> None:
        # Recording is a piece of work that touches nothing.
        self.give(stream, -1, False)
        self.events[event] = self.after[-1] | {len(self.after) - 1}


STREAM, BUFFER, EVENT = st.integers(0, 3), st.integers(0, 1), st.integers(0, 1)
STEP = st.one_of(
    st.tuples(st.just("read"), STREAM, BUFFER),
    st.tuples(st.just("write"), STREAM, BUFFER),
    st.tuples(st.just("write"), STREAM, BUFFER),
    st.tuples(st.just("upload"), STREAM, BUFFER),
    st.tuples(st.just("record"), STREAM, EVENT),
    st.tuples(st.just("wait"), STREAM, EVENT),
    st.tuples(st.sampled_from(["stream", "event", "device"]), STREAM, EVENT),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.booleans(), min_size=3, max_size=3), st.lists(STEP, max_size=14))
def test_what_is_found_is_what_the_definition_says(blocking: list[bool], steps: list[tuple[str, int, int]]) -> None:
    device, plain = windtunnel.device(SKU, catalogue=KNOWN), Program(blocking)
    streams = [None, *(device.stream(non_blocking=not one) for one in blocking)]
    events = [device.event() for _ in range(2)]
    buffers, out = [device.to_device(ONES) for _ in range(2)], [device.empty(N) for _ in streams]
    for what, chosen, which in steps:
        stream = streams[chosen]
        if what in ("read", "write", "upload"):
            race = plain.give(chosen, which, what != "read")
            if what == "upload":  # the host waits for it, and for all that it waits for
                plain.known |= plain.after[-1] | {len(plain.after) - 1}
            try:
                if what == "read":
                    device.launch(put, 1, 32, buffers[which], out[chosen], stream=stream)
                elif what == "write":
                    device.launch(double, 1, 32, buffers[which], stream=stream)
                else:
                    buffers[which].copy_from(ONES, stream)
            except errors.MissingSync:
                assert race, (what, chosen, which)
                return
            assert not race, (what, chosen, which)
        elif what == "record":
            plain.record(which, chosen)
            events[which].record(stream)
        elif what == "wait" and stream is not None:
            plain.waits[chosen] |= plain.events.get(which, set())
            stream.wait(events[which])
        elif what == "stream" and stream is not None:
            works = {work for work, of in enumerate(plain.stream) if of == chosen}
            plain.known |= plain.waits[chosen].union(works, *(plain.after[work] for work in works))
            stream.synchronize()
        elif what == "event" and which in plain.events:
            plain.known |= plain.events[which]
            events[which].synchronize()
        elif what == "device":
            plain.known |= set(range(len(plain.stream)))
            device.synchronize()


def test_what_one_waits_for_comes_with_an_event_to_the_next(device: Accelerator) -> None:
    first, second = two(device)
    third = device.stream(non_blocking=True)
    a, event = device.to_device(ONES), device.event()
    device.launch(double, 1, 32, a, stream=first)
    event.record(first)
    second.wait(event)
    event.record(second)
    third.wait(event)
    device.launch(double, 1, 32, a, stream=third)
    assert (device.to_host(a, third) == 4).all()


def test_devices_of_one_host_are_ordered_by_its_events_and_not_by_its_calls() -> None:
    host = windtunnel.Host()
    one, other = (windtunnel.device(sku, catalogue=KNOWN, host=host) for sku in ("l4", "t4"))
    down, up = one.stream(non_blocking=True), other.stream(non_blocking=True)
    a, b, between = one.to_device(ONES), other.empty(N), np.zeros(N, np.float32)
    a.copy_to(between, down, pinned=True)
    with pytest.raises(
        errors.MissingSync, match=r"stream 1 of t4 reads the host's array of 4,096 .* copy out on stream 1 of l4"
    ):
        b.copy_from(between, up, pinned=True)
    one.synchronize()
    other.synchronize()
    assert (between == 1).all()
    a.copy_to(between, down, pinned=True)
    done = one.event()
    done.record(down)
    up.wait(done)
    b.copy_from(between, up, pinned=True)
    assert (other.to_host(b, up) == 1).all()


def test_a_finding_names_both_lines_the_memory_s_and_what_to_do(device: Accelerator) -> None:
    first, second = two(device)
    a = device.to_device(ONES)

    def program() -> None:
        device.launch(double, 1, 32, a, stream=first)  # HERE
        device.to_host(a, second)  # HERE

    with pytest.raises(errors.MissingSync) as caught:
        program()
    one, other = lines_of(program)
    assert caught.value.lines == (one, other) and caught.value.file == __file__
    said = str(caught.value)
    assert f"{__file__}:{other}: copy out on stream 2 of {SKU} reads the 4,096 bytes of line {one - 3}" in said
    assert f"which kernel 'double' on stream 1 (line {one}) writes, and nothing orders the two" in said
    assert f"record an event on stream 1 after line {one} and let stream 2 wait for it" in said


# Elements.


@pytest.mark.parametrize(("second", "found"), [(N // 2, False), (N // 2 - 1, True)])
@pytest.mark.parametrize("kernel", ["side by side", "one by one", "whole arrays"])
def test_two_streams_may_work_on_the_two_halves_of_a_buffer(kernel: str, second: int, found: bool) -> None:
    device = windtunnel.device(SKU, catalogue=KNOWN, schedule=1 if kernel == "one by one" else None)
    a, streams = device.to_device(ONES), two(device)

    def run() -> None:
        for first, stream in zip((0, second), streams, strict=True):
            if kernel != "whole arrays":
                device.launch(add_from, N // 256, 128, a, first, N // 2, stream=stream)
            else:
                device.launch(part, 1, 32, a, first, first + N // 2, stream=stream)
        device.synchronize()

    if found:
        with pytest.raises(errors.MissingSync, match="'part'" if kernel == "whole arrays" else "'add_from'"):
            run()
    else:
        run()
        assert (device.to_host(a) == 2).all()


@pytest.mark.parametrize("schedule", [None, 1])
def test_atomic_operations_and_stencils_are_noted_however_threads_are_executed(schedule: int | None) -> None:
    device = windtunnel.device(SKU, catalogue=KNOWN, schedule=schedule)
    x, found, (one, other) = device.to_device(ONES[:64]), device.to_device(np.zeros(1, np.int32)), two(device)
    cells, out = (device.to_device(np.ones((10, 34), np.float32)) for _ in range(2))
    for stream in (one, other):
        device.launch(count, 2, 32, x, found, stream=stream)
    device.launch(blurred, (1, 1), (32, 8), cells, out, stream=one)
    for program in (
        lambda: device.launch(clear, 1, 32, found, stream=one),
        lambda: device.launch(blurred, (1, 1), (32, 8), out, cells, stream=other),
    ):
        with pytest.raises(errors.MissingSync, match="and nothing orders the two"):
            program()
    device.synchronize()
    assert device.to_host(out)[1:-1, 1:-1].max() == 2


def test_a_copy_of_the_beginning_meets_no_kernel_on_the_rest(device: Accelerator) -> None:
    a, (one, other) = device.to_device(ONES), two(device)
    device.launch(add_from, N // 256, 128, a, N // 2, N // 2, stream=one)
    a.copy_from(ONES[: N // 2], other)
    with pytest.raises(errors.MissingSync, match=r"copy in on stream 2 .* writes .* 'add_from' on stream 1 .* writes"):
        a.copy_from(ONES[: N // 2 + 1], other)


def test_atomic_operations_of_two_streams_are_let_be_and_plain_ones_beside_them_are_not(device: Accelerator) -> None:
    x, found, (one, other) = device.to_device(ONES), device.to_device(np.zeros(1, np.int32)), two(device)
    for stream in (one, other):
        device.launch(count, N // 128, 128, x, found, stream=stream)
    with pytest.raises(errors.MissingSync, match="'count' on stream 2 .* atomically changes"):
        device.launch(clear, 1, 32, found, stream=one)


def test_a_function_that_hands_its_array_on_is_not_taken_to_write_to_it(device: Accelerator) -> None:
    a, streams = device.to_device(ONES), two(device)
    outs = [device.empty(N) for _ in streams]
    for out, stream in zip(outs, streams, strict=True):
        device.launch(shown, 1, 32, a, out, stream=stream)
    device.synchronize()
    assert all((device.to_host(out) == 2).all() for out in outs)
    device.launch(double, 1, 32, a, stream=streams[0])
    with pytest.raises(errors.MissingSync, match="'shown' on stream 2 .* reads"):
        device.launch(shown, 1, 32, a, outs[1], stream=streams[1])


def plain(a, b, c):  # type: ignore[no-untyped-def]
    c[...] = a + b * b.sum()


def in_place(a, n):  # type: ignore[no-untyped-def]
    if a.size > n:
        a[1:] -= a[:-1]


def by_functions(a, b, out):  # type: ignore[no-untyped-def]
    np.add(a, b.reshape(-1), out=out)
    out[0] = np.where(a > 0, b, 1.0)[0]


def handed_on(a, b):  # type: ignore[no-untyped-def]
    c = a
    c += helper(b)


@pytest.mark.parametrize(
    ("function", "uses"),
    [
        (plain, [(1, 0), (1, 0), (0, 1)]),
        (in_place, [(2, 2), (1, 0)]),
        (by_functions, [(1, 0), (1, 0), (0, 1)]),
        (handed_on, [(2, 3), (2, 3)]),
        (double.function, [(1, 1)]),
    ],
)
def test_what_a_function_of_whole_arrays_does_with_each_is_read_off_its_source(
    function: Callable[..., Any], uses: list[tuple[int, int]]
) -> None:
    assert [(use.reads, use.writes) for use in parameter_uses(function) or ()] == uses


@given(*(st.lists(st.booleans(), min_size=12, max_size=12) for _ in range(2)), st.sampled_from([1, 2, 4]))
def test_extents_meet_where_their_elements_do(one: list[bool], other: list[bool], itemsize: int) -> None:
    pair = [extent_of(np.array(flags), itemsize) for flags in (one, other)]
    both = [a and b for a, b in zip(one, other, strict=True)]
    assert all((extent is not None) == any(flags) for extent, flags in zip(pair, (one, other), strict=True))
    if pair[0] is not None and pair[1] is not None:
        assert pair[0].overlaps(pair[1]) == pair[1].overlaps(pair[0]) == any(both)
        assert pair[0].covers(pair[1]) == (both == other)
        prefix = Extent(0, 5 * itemsize)
        assert pair[0].overlaps(prefix) == prefix.overlaps(pair[0]) == any(one[:5])


# Graphs.


def test_nodes_of_a_graph_that_nothing_orders_are_found_by_the_lines_that_made_them(device: Accelerator) -> None:
    a, b, c = (device.to_device(ONES) for _ in range(3))

    def build(*, tied: bool) -> Any:
        graph = device.graph()
        first = graph.launch(put, 1, 32, a, b)  # HERE
        graph.launch(put, 1, 32, b, c, after=[first] if tied else [])  # HERE
        return graph.compile()

    right = build(tied=True)
    for stream in (None, device.stream(), device.stream()):
        right.replay(stream)
        device.synchronize()
    with pytest.raises(errors.MissingSync, match="order the two nodes: with after=") as caught:
        build(tied=False).replay()
    assert caught.value.lines == lines_of(build)


def test_a_replay_is_work_of_its_stream(device: Accelerator) -> None:
    a, b, (one, other) = device.to_device(ONES), device.empty(N), two(device)
    graph = device.graph()
    first = graph.copy_in(a, ONES)
    graph.launch(double, 1, 32, a, after=[first])
    graph.launch(put, 1, 32, a, b, after=graph.nodes[1:])
    compiled = graph.compile()
    for _ in range(3):
        compiled.replay(one)
    assert (device.to_host(b, one) == 3).all()
    compiled.replay(one)
    done = device.event()
    done.record(one)
    other.wait(done)
    compiled.replay(other)
    with pytest.raises(errors.MissingSync, match="'put' on stream 2"):
        device.to_host(b, one)


# The host.


def test_the_host_must_not_write_to_what_a_copy_still_reads(device: Accelerator) -> None:
    a, host, stream = device.empty(N), np.zeros(N, np.float32), device.stream(non_blocking=True)

    def program() -> None:
        a.copy_from(host, stream, pinned=True)  # HERE
        host[7] = 1
        device.synchronize()  # HERE

    with pytest.raises(errors.MissingSync, match="before here, to the host's array of 4,096 bytes") as caught:
        program()
    assert caught.value.lines == lines_of(program)
    device.synchronize()


@pytest.mark.parametrize("way", ["device", "stream", "event", "elapsed", "pageable"])
def test_a_host_that_has_waited_writes_as_it_likes(device: Accelerator, way: str) -> None:
    a, host, stream = device.empty(N), np.zeros(N, np.float32), device.stream(non_blocking=True)
    begun, ended = device.event(), device.event()
    for turn in range(3):
        begun.record(stream)
        a.copy_from(host, stream, pinned=True)
        ended.record(stream)
        if way == "device":
            device.synchronize()
        elif way == "stream":
            stream.synchronize()
        elif way == "event":
            ended.synchronize()
        elif way == "elapsed":
            device.sleep(1.0)
            assert ended.elapsed_s(begun) > 0
        else:
            device.to_host(a, stream)
        host[...] = turn
    device.synchronize()


def test_a_download_into_the_array_of_an_upload_before_it_is_no_writing_of_the_host_s(device: Accelerator) -> None:
    a, host, stream = device.empty(N), np.zeros(N, np.float32), device.stream(non_blocking=True)
    for _ in range(2):
        a.copy_from(host, stream, pinned=True)
        device.launch(part, 1, 32, a, 0, N, stream=stream)
        a.copy_to(host, stream, pinned=True)
    device.synchronize()
    assert (host == 2).all()


def test_arrays_that_share_no_element_do_not_meet(device: Accelerator) -> None:
    a, host, (down, up) = device.to_device(ONES), np.zeros(2 * N, np.float32), two(device)
    b = device.empty(N)
    a.copy_to(host[::2], down, pinned=True)
    b.copy_from(host[1::2], up, pinned=True)
    with pytest.raises(errors.MissingSync):
        b.copy_from(host[:1], up)
    device.synchronize()
    assert (host[::2] == 1).all()


@pytest.mark.parametrize("kind", ["unified", "pinned"])
def test_the_host_must_not_write_through_an_old_view_while_a_kernel_has_it(device: Accelerator, kind: Any) -> None:
    a = device.empty(N, kind=kind)

    def program() -> None:
        seen = a.host()  # HERE
        seen[...] = 1
        device.launch(double, 1, 32, a)  # HERE
        seen[0] = 5
        device.synchronize()  # HERE

    with pytest.raises(errors.MissingSync, match=r"through the view made at line") as caught:
        program()
    assert caught.value.lines == lines_of(program)


def test_the_host_must_not_write_to_what_a_kernel_only_reads_either(device: Accelerator) -> None:
    a, out = device.empty(N, kind="unified"), device.empty(N)
    seen = a.host()
    seen[...] = 1
    device.launch(put, 1, 32, a, out)
    seen[3] = 0
    with pytest.raises(errors.MissingSync, match="'put' on the default stream .* may still read"):
        device.launch(put, 1, 32, a, out)


@pytest.mark.parametrize("kernel", [double, add_from])
def test_the_usual_loop_over_unified_memory_has_no_finding(device: Accelerator, kernel: Any) -> None:
    a, rest = device.empty(N, kind="unified"), () if kernel is double else (0, N)
    seen = a.host()
    seen[...] = 0
    for turn in range(4):
        a.host()[...] += turn
        device.launch(kernel, N // 128, 128, a, *rest)
        device.launch(kernel, N // 128, 128, a, *rest)
        if turn % 2:
            device.synchronize()
            seen[...] += 1  # an old view, after waiting
    expected = 0
    for turn in range(4):
        expected += turn
        expected = 4 * expected if kernel is double else expected + 2
        expected += turn % 2
    assert (a.host() == expected).all()


def test_a_view_of_pinned_memory_is_that_memory_to_a_copy(device: Accelerator) -> None:
    pages, a, (one, other) = device.empty(N, kind="pinned"), device.empty(N), two(device)
    seen = pages.host()
    device.launch(part, 1, 32, pages, 0, N, stream=one)
    with pytest.raises(errors.MissingSync, match="copy in on stream 2 .* reads .* 'part' on stream 1 .* writes"):
        a.copy_from(seen[:10], other, pinned=True)
    one.synchronize()
    a.copy_from(seen, other, pinned=True)
    a.copy_to(seen, other, pinned=True)
    device.synchronize()
    assert (seen == 1).all()


def test_a_ring_kernel_shares_its_state_with_the_host_by_design(device: Accelerator) -> None:
    state = device.empty(1, np.float64, kind="pinned")
    seen = state.host()
    seen[0] = 0

    def step(message: Any, into: np.ndarray) -> Any:
        into[0] += message
        return into[0]

    with device.ring(step, 1, 32, state, message=np.float64, reply=np.float64) as ring:
        assert ring.call(2.0) == 2.0
        seen[0] = 5
        assert ring.call(2.0) == 7.0
    assert device.to_host(state)[0] == 7


def test_it_can_be_turned_off_with_the_rest() -> None:
    device = windtunnel.device(SKU, catalogue=KNOWN, checked=False)
    a, streams = device.to_device(ONES), two(device)
    for stream in streams:
        device.launch(double, 1, 32, a, stream=stream)
    device.synchronize()
    assert (device.to_host(a) == 4).all()


def test_what_is_remembered_of_a_buffer_does_not_grow_with_what_is_done(device: Accelerator) -> None:
    a, streams, event = device.to_device(ONES), two(device), device.event()
    for turn in range(200):
        stream = streams[turn % 2]
        stream.wait(event)
        device.launch(add_from, 1, 32, a, turn, 32, stream=stream)
        event.record(stream)
    tracked: TrackedBuffer = a.memory.tracked  # type: ignore[attr-defined]
    assert device.counters.launches == 200 and 0 < len(tracked.accesses) <= 64
    assert sum(len(stream.clock) for stream in device.context.order.streams) <= 6  # type: ignore[attr-defined]
