"""Planted bugs of host programs: use after free, stream races, limits; and correct programs beside them.

Streams are asked for as ``stream(non_blocking=True)``: others wait for the default stream, and it for them.
"""

import numpy as np

import windtunnel
from windtunnel import f32, grid, i32, shared, syncthreads, threadIdx

N = 1000
GRID, BLOCK = 8, 128


@windtunnel.kernel
def scale(x: f32[:], out: f32[:], factor: f32, n: i32):
    i = grid(1)
    if i < n:
        out[i] = factor * x[i]


@windtunnel.kernel
def all_but_the_last(x: f32[:], out: f32[:], n: i32):
    i = grid(1)
    if i < n - 1:
        out[i] = x[i]


@windtunnel.kernel
def sum_by_one(x: f32[:], out: f32[:], n: i32):
    if grid(1) == 0:
        total = f32(0.0)
        for i in range(n):
            total += x[i]  # BUG
        out[0] = total


@windtunnel.kernel
def much_shared(x: f32[:], out: f32[:]):
    # 48 KiB are 12,288 floats.
    tile = shared.array(12289, f32)
    tile[threadIdx.x] = x[threadIdx.x]
    syncthreads()
    out[threadIdx.x] = tile[threadIdx.x]


@windtunnel.kernel
def as_much_shared_as_there_is(x: f32[:], out: f32[:]):
    tile = shared.array(12288, f32)
    tile[threadIdx.x] = x[threadIdx.x]
    syncthreads()
    out[threadIdx.x] = tile[31 - threadIdx.x]


X = np.arange(N, dtype=np.float32)


def launch_after_free(accelerator):
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    x.free()
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N)  # BUG
    accelerator.synchronize()


def download_after_free(accelerator):
    x = accelerator.to_device(X)
    x.free()
    accelerator.to_host(x)  # BUG


def upload_after_free(accelerator):
    x = accelerator.empty(N, np.float32)
    x.free()
    x.copy_from(X)  # BUG


def free_twice(accelerator):
    x = accelerator.to_device(X)
    x.free()
    x.free()  # BUG


def free_in_a_cleanup_too(accelerator):
    buffers = [accelerator.to_device(X) for _ in range(3)]
    buffers[1].free()
    for buffer in buffers:
        buffer.free()  # BUG


def download_on_another_stream(accelerator):
    compute, copies = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N, stream=compute)  # BUG
    accelerator.to_host(out, stream=copies)  # BUG


def upload_under_a_running_kernel(accelerator):
    compute, copies = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N, stream=compute)  # BUG
    x.copy_from(X + 1, stream=copies)  # BUG
    accelerator.synchronize()


def no_event_between_streams(accelerator):
    first, second = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x, middle, out = accelerator.to_device(X), accelerator.empty(N, np.float32), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    accelerator.launch(scale, GRID, BLOCK, x, middle, 2.0, N, stream=first)  # BUG
    accelerator.launch(scale, GRID, BLOCK, middle, out, 3.0, N, stream=second)  # BUG
    accelerator.synchronize()


def event_recorded_too_early(accelerator):
    first, second = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x, middle, out = accelerator.to_device(X), accelerator.empty(N, np.float32), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    done = accelerator.event()
    done.record(first)
    accelerator.launch(scale, GRID, BLOCK, x, middle, 2.0, N, stream=first)  # BUG
    second.wait(done)
    accelerator.launch(scale, GRID, BLOCK, middle, out, 3.0, N, stream=second)  # BUG
    accelerator.synchronize()


def waits_for_the_wrong_stream(accelerator):
    first, second = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N, stream=second)  # BUG
    first.synchronize()
    accelerator.to_host(out, stream=first)  # BUG


def default_stream_waits_for_no_other(accelerator):
    own = accelerator.stream(non_blocking=True)
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N, stream=own)  # BUG
    accelerator.to_host(out)  # BUG


def two_streams_write_one_buffer(accelerator):
    first, second = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N, stream=first)  # BUG
    accelerator.launch(scale, GRID, BLOCK, x, out, 3.0, N, stream=second)  # BUG
    accelerator.synchronize()


def launch_before_the_upload_is_done(accelerator):
    compute, copies = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x = accelerator.to_device(X, stream=copies, pinned=True)  # BUG
    out = accelerator.empty(N, np.float32)
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N, stream=compute)  # BUG
    accelerator.synchronize()


def passes_on_a_download_under_way(accelerator):
    # The host's array goes up again on another stream while it still comes down.
    down, up = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x, again = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    host = np.zeros(N, np.float32)
    x.copy_to(host, stream=down, pinned=True)  # BUG
    again.copy_from(host, stream=up, pinned=True)  # BUG
    accelerator.synchronize()


def reads_a_download_under_way(accelerator):
    x = accelerator.to_device(X)
    host = np.zeros(N, np.float32)
    x.copy_to(host, stream=accelerator.stream(non_blocking=True), pinned=True)  # BUG
    total = float(host.sum())  # OR
    accelerator.synchronize()
    return total


def too_many_threads(accelerator):
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.launch(scale, 1, 1025, x, out, 2.0, N)  # BUG
    accelerator.synchronize()


def too_many_threads_in_all(accelerator):
    # Each side is allowed, the product is not.
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.launch(scale, 1, (64, 32, 1), x, out, 2.0, N)  # BUG
    accelerator.synchronize()


def too_deep_a_block(accelerator):
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.launch(scale, 1, (1, 1, 65), x, out, 2.0, N)  # BUG
    accelerator.synchronize()


def too_wide_a_grid(accelerator):
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.launch(scale, (1, 65536), 1, x, out, 2.0, N)  # BUG
    accelerator.synchronize()


def no_blocks(accelerator):
    # n // block of a small n.
    x, out = accelerator.to_device(X[:100]), accelerator.empty(100, np.float32)
    accelerator.launch(scale, 100 // BLOCK, BLOCK, x, out, 2.0, 100)  # BUG
    accelerator.synchronize()


def too_much_shared_memory(accelerator):
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.launch(much_shared, 1, 32, x, out)  # BUG
    accelerator.synchronize()


def too_much_dynamic_shared_memory(accelerator):
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N, shared_bytes=accelerator.info.limits.shared_bytes + 1)  # BUG
    accelerator.synchronize()


def one_byte_too_many(accelerator):
    accelerator.empty(int(accelerator.info.memory_bytes) + 1, np.uint8)  # BUG


def all_of_it_beside_a_little(accelerator):
    accelerator.empty(4096, np.uint8)
    accelerator.empty(int(accelerator.info.memory_bytes), np.uint8)  # BUG


def second_kernel_reads_what_the_first_left(accelerator):
    x, middle, out = accelerator.to_device(X), accelerator.empty(N, np.float32), accelerator.empty(1, np.float32)
    accelerator.launch(all_but_the_last, GRID, BLOCK, x, middle, N)
    accelerator.launch(sum_by_one, 1, 32, middle, out, N)
    accelerator.synchronize()


def event_between_streams(accelerator):
    first, second = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x, middle, out = accelerator.to_device(X), accelerator.empty(N, np.float32), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    accelerator.launch(scale, GRID, BLOCK, x, middle, 2.0, N, stream=first)
    done = accelerator.event()
    done.record(first)
    second.wait(done)
    accelerator.launch(scale, GRID, BLOCK, middle, out, 3.0, N, stream=second)
    return accelerator.to_host(out, stream=second), 6 * X


def synchronised_between_streams(accelerator):
    first, second = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N, stream=first)
    first.synchronize()
    return accelerator.to_host(out, stream=second), 2 * X


def default_stream_waits_for_blocking_ones(accelerator):
    own = accelerator.stream()
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N, stream=own)
    return accelerator.to_host(out), 2 * X


def two_streams_read_one_buffer(accelerator):
    first, second = accelerator.stream(non_blocking=True), accelerator.stream(non_blocking=True)
    x, one, other = accelerator.to_device(X), accelerator.empty(N, np.float32), accelerator.empty(N, np.float32)
    accelerator.synchronize()
    accelerator.launch(scale, GRID, BLOCK, x, one, 2.0, N, stream=first)
    accelerator.launch(scale, GRID, BLOCK, x, other, 3.0, N, stream=second)
    accelerator.synchronize()
    return accelerator.to_host(one) + accelerator.to_host(other), 5 * X


def pinned_copies_in_one_stream(accelerator):
    own = accelerator.stream(non_blocking=True)
    x, out = accelerator.to_device(X, stream=own, pinned=True), accelerator.empty(N, np.float32)
    accelerator.launch(scale, GRID, BLOCK, x, out, 2.0, N, stream=own)
    host = np.zeros(N, np.float32)
    out.copy_to(host, stream=own, pinned=True)
    own.synchronize()
    return host, 2 * X


def new_buffer_in_the_place_of_a_freed_one(accelerator):
    x = accelerator.to_device(X)
    x.free()
    y, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.launch(scale, GRID, BLOCK, y, out, 2.0, N)
    found = accelerator.to_host(out)
    y.free()
    out.free()
    return found, 2 * X


def largest_block(accelerator):
    x, out = accelerator.to_device(X), accelerator.empty(N, np.float32)
    accelerator.launch(scale, 1, 1024, x, out, 2.0, N)
    return accelerator.to_host(out), 2 * X


def largest_shared_array(accelerator):
    x, out = accelerator.to_device(X[:32]), accelerator.empty(32, np.float32)
    accelerator.launch(as_much_shared_as_there_is, 1, 32, x, out)
    return accelerator.to_host(out), X[31::-1]


def _row(finding):
    return lambda program, **rest: {"name": program.__name__, "finding": finding, "program": program, **rest}


_freed, _unordered = _row("UseAfterFree"), _row("MissingSync")
_refused, _full = _row("LaunchError"), _row("DeviceOutOfMemory")

PLANTED = (
    *(_freed(p) for p in (launch_after_free, download_after_free, upload_after_free, free_twice, free_in_a_cleanup_too)),
    *(
        _unordered(p)
        for p in (
            download_on_another_stream, upload_under_a_running_kernel, no_event_between_streams, event_recorded_too_early,
            waits_for_the_wrong_stream, default_stream_waits_for_no_other, two_streams_write_one_buffer, launch_before_the_upload_is_done,
            passes_on_a_download_under_way,
        )
    ),
    _unordered(reads_a_download_under_way, notes="seen only if the host's array watches who reads it"),
    *(
        _refused(p, notes="limits of CUDA's devices")
        for p in (
            too_many_threads, too_many_threads_in_all, too_deep_a_block, too_wide_a_grid, no_blocks, too_much_shared_memory,
            too_much_dynamic_shared_memory,
        )
    ),
    _full(one_byte_too_many),
    _full(all_of_it_beside_a_little),
    _row("UninitializedRead")(
        second_kernel_reads_what_the_first_left, within=(sum_by_one,), notes="the gap is in one kernel, the read in the next"
    ),
)  # fmt: skip

CONTROLS = tuple(
    {"name": p.__name__, "program": p}
    for p in (
        event_between_streams, synchronised_between_streams, default_stream_waits_for_blocking_ones, two_streams_read_one_buffer,
        pinned_copies_in_one_stream, new_buffer_in_the_place_of_a_freed_one, largest_block, largest_shared_array,
    )
)  # fmt: skip
