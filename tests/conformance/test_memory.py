"""Memory and copies, on whatever is a device: what is allocated, typed, copied, refused and given back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.conformance.cases import for_each

from windtunnel.core import errors

MIB = 1 << 20
DTYPES = ("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64", "complex64")


def holds(buffer: Any, expected: Any) -> bool:
    return np.array_equal(buffer.owner.to_host(buffer), np.asarray(expected).reshape(buffer.shape))


# Allocation.


def test_what_is_allocated_is_counted_and_given_back(device_under_test: Any) -> None:
    one, other = device_under_test.empty(MIB, np.uint8), device_under_test.empty((3, 5), np.float64)
    assert device_under_test.allocated_bytes == MIB + 120
    assert (other.shape, other.size, other.nbytes, other.dtype) == ((3, 5), 15, 120, np.float64)
    one.free()
    assert device_under_test.allocated_bytes == 120 and one.freed and not other.freed
    other.free()
    assert device_under_test.allocated_bytes == 0


def test_addresses_are_given_once(device_under_test: Any) -> None:
    seen = set()
    for size in (1, 256, 257, 1000, 1):
        buffer = device_under_test.empty(size, np.uint8)
        seen.add(buffer.memory.address)
        buffer.free()
    assert len(seen) == 5


def test_what_is_no_size_is_refused(device_under_test: Any) -> None:
    def check(shape: Any) -> None:
        with pytest.raises(errors.InvalidArgument):
            device_under_test.empty(shape)
        assert device_under_test.allocated_bytes == 0

    for_each([(), -1, (2, -1), (2, -3), 2.5, (2.5,), "3", None], check)


def test_what_is_no_element_is_refused(device_under_test: Any) -> None:
    def check(dtype: Any) -> None:
        with pytest.raises(errors.InvalidArgument):
            device_under_test.empty(3, dtype)

    for_each([object, "no-such-type", "U"], check)


def test_sizes_are_whole_numbers_of_any_kind(device_under_test: Any) -> None:
    def check(shape: Any) -> None:
        assert device_under_test.empty(shape).size == 6

    for_each([np.int64(6), (np.int32(2), 3), [2, 3], np.array([2, 3])], check)


def test_no_memory_of_a_kind_that_is_none(device_under_test: Any) -> None:
    with pytest.raises(errors.InputError, match="did you mean 'pinned'"):
        device_under_test.empty(3, kind="pined")


def test_memory_that_is_not_there_is_refused_and_what_is_there_still_lent(device_under_test: Any) -> None:
    held = device_under_test.to_device(np.arange(MIB, dtype=np.uint8))
    for shape in (int(device_under_test.info.memory_bytes) - MIB + 1, (2**32 + 1, 2**32 + 1)):
        with pytest.raises(errors.DeviceOutOfMemory):
            device_under_test.empty(shape, np.uint8)
        assert device_under_test.allocated_bytes == MIB
    again = device_under_test.empty(MIB, np.uint8)
    again.copy_within(held)
    assert holds(again, np.arange(MIB, dtype=np.uint8))


def test_memory_is_given_back_once_and_not_used_again(device_under_test: Any, kernels: Any) -> None:
    device, here = device_under_test, np.ones(3, np.float32)
    gone, kept = device.empty(3), device.empty(3)
    gone.free()
    for program in (
        gone.free,
        lambda: device.copy_in(gone, here),
        lambda: device.copy_out(here, gone),
        lambda: device.to_host(gone),
        lambda: device.to_device(gone),
        lambda: device.copy_within(gone, kept),
        lambda: device.copy_within(kept, gone),
        lambda: device.launch(kernels.double, 1, 32, gone),
        gone.host,
    ):
        with pytest.raises(errors.InvalidArgument, match="was freed"):
            program()
    assert device.allocated_bytes == 12


# Typed buffers.


def test_values_go_there_and_back(device_under_test: Any) -> None:
    def check(case: tuple[str, tuple[int, ...]]) -> None:
        dtype, shape = case
        values = (np.arange(np.prod(shape)) % 3).astype(dtype).reshape(shape)
        buffer = device_under_test.to_device(values)
        found = device_under_test.to_host(buffer)
        assert (buffer.dtype, buffer.shape) == (values.dtype, shape)
        assert (found.dtype, found.shape) == (values.dtype, shape) and np.array_equal(found, values)

    for_each(product(DTYPES, ((1,), (7,), (2, 3), (2, 1, 3, 5))), check)


def test_other_types_and_more_elements_are_refused(device_under_test: Any) -> None:
    buffer = device_under_test.to_device(np.arange(4, dtype=np.float32))
    for program, says in (
        (lambda: buffer.copy_from(np.ones(4)), "float64 elements for a buffer of float32"),
        (lambda: buffer.copy_to(np.ones(4, np.int32)), "int32 elements for a buffer of float32"),
        (lambda: buffer.copy_from(np.ones(5, np.float32)), r"shape \(5,\) for a buffer of shape \(4,\)"),
        (lambda: buffer.copy_to(np.ones((3, 2), np.float32)), r"shape \(3, 2\) for a buffer of shape \(4,\)"),
        (lambda: buffer.copy_from(np.ones((2, 2), np.float32)), r"shape \(2, 2\) for a buffer of shape \(4,\)"),
        (lambda: buffer.copy_within(device_under_test.empty(5)), "does not fit into"),
        (lambda: buffer.copy_within(device_under_test.empty((2, 2))), "does not fit into"),
        (lambda: buffer.copy_within(device_under_test.empty(4, np.int32)), "does not fit into"),
    ):
        with pytest.raises(errors.InvalidArgument, match=says):
            program()
    assert holds(buffer, [0, 1, 2, 3])


def test_an_array_that_cannot_be_written_is_refused(device_under_test: Any) -> None:
    buffer, constant = device_under_test.to_device(np.ones(3)), np.zeros(3)
    constant.flags.writeable = False
    with pytest.raises(errors.InvalidArgument, match="read-only"):
        buffer.copy_to(constant)
    with pytest.raises(errors.InvalidArgument, match="expected a NumPy array, got list"):
        buffer.copy_to([0.0, 0.0, 0.0])


def test_part_of_a_buffer_is_copied_and_the_rest_stays(device_under_test: Any) -> None:
    buffer, found = device_under_test.to_device(np.zeros((3, 2), np.float32)), np.full((1, 2), 9, np.float32)
    buffer.copy_from(np.array([[1, 2], [3, 4]], np.float32))
    assert holds(buffer, [1, 2, 3, 4, 0, 0])
    buffer.copy_within(device_under_test.to_device(np.array([[7, 8]], np.float32)))
    assert holds(buffer, [7, 8, 3, 4, 0, 0])
    buffer.copy_to(found)
    assert found.tolist() == [[7, 8]]


CUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "every second row": lambda a: a[::2],
    "reversed": lambda a: a[::-1],
    "transposed": lambda a: a.T,
    "a column": lambda a: a[:, 1],
    "every third of two rows": lambda a: a[1:3, ::3],
    "Fortran order": np.asfortranarray,
}


def test_arrays_with_strides_are_copied_in_their_own_order(device_under_test: Any) -> None:
    def check(case: tuple[str, bool]) -> None:
        cut, pinned = CUTS[case[0]], case[1]
        values = cut(np.arange(24, dtype=np.float32).reshape(4, 6))
        buffer = device_under_test.empty(values.shape)
        buffer.copy_from(values, pinned=pinned)
        assert holds(buffer, values)
        target = cut(np.zeros((4, 6), np.float32))
        buffer.copy_to(target, pinned=pinned)
        device_under_test.synchronize()
        assert np.array_equal(target, values)

    for_each(product(CUTS, (False, True)), check)


def test_an_array_of_no_dimensions_is_one_element(device_under_test: Any) -> None:
    buffer, found = device_under_test.to_device(np.array(2.5)), np.array(0.0)
    assert buffer.shape == (1,)
    buffer.copy_from(np.array(3.5))
    buffer.copy_to(found)
    assert found == 3.5 and found.shape == ()


def test_no_elements_are_copied_as_such(device_under_test: Any) -> None:
    buffer, empty = device_under_test.to_device(np.ones(3)), np.empty((2, 0))
    buffer.copy_from(empty)
    buffer.copy_to(empty)
    assert holds(buffer, [1, 1, 1])
    nothing = device_under_test.to_device(empty)
    assert nothing.shape == device_under_test.to_host(nothing).shape == (2, 0)


def test_a_buffer_is_given_through_where_it_is_and_nowhere_else(device_under_test: Any, other_device: Any) -> None:
    buffer = device_under_test.to_device(np.ones(3))
    assert device_under_test.to_device(buffer) is buffer
    with pytest.raises(errors.InvalidArgument, match="of another device"):
        other_device.to_device(buffer)


# Copies.


def test_copies_of_a_stream_are_in_order(device_under_test: Any) -> None:
    device = device_under_test

    def check(case: tuple[str, bool]) -> None:
        queue, pinned = case
        stream = None if queue == "default" else device.stream(non_blocking=queue == "non_blocking")
        one, other = device.empty(1000), device.empty(1000)
        source, found = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
        one.copy_from(np.zeros(1000, np.float32), stream, pinned=pinned)
        one.copy_from(source, stream, pinned=pinned)
        other.copy_within(one, stream)
        one.copy_from(np.ones(1000, np.float32), stream, pinned=pinned)
        other.copy_to(found, stream, pinned=pinned)
        device.synchronize()
        assert np.array_equal(found, source) and holds(one, np.ones(1000))

    for_each(product(("default", "blocking", "non_blocking"), (False, True)), check)


def test_the_host_s_array_is_free_again_after_a_pageable_copy(device_under_test: Any) -> None:
    values = np.ones(1000, np.float32)
    buffer = device_under_test.to_device(values, device_under_test.stream())
    values[:] = 9
    device_under_test.synchronize()
    assert holds(buffer, np.ones(1000))


def test_a_copy_onto_itself_is_refused(device_under_test: Any) -> None:
    buffer = device_under_test.to_device(np.ones(3))
    with pytest.raises(errors.InvalidArgument, match="overlaps itself"):
        buffer.copy_within(buffer)


def test_memory_of_another_device_is_refused(device_under_test: Any, other_device: Any, kernels: Any) -> None:
    device, mine, theirs = device_under_test, device_under_test.empty(3), other_device.empty(3)
    here = np.ones(3, np.float32)
    for program in (
        lambda: device.copy_in(theirs, here),
        lambda: device.copy_out(here, theirs),
        lambda: device.launch(kernels.double, 1, 32, theirs),
        lambda: device.graph().copy_in(theirs, here),
        lambda: device.graph().copy_out(here, theirs),
        lambda: device.graph().copy_within(theirs, theirs),
        lambda: device.copy_within(theirs, mine),
    ):
        with pytest.raises(errors.InvalidArgument, match="of another device"):
            program()
    with pytest.raises(errors.InvalidArgument):
        device.copy_within(mine, theirs)
    with pytest.raises(errors.InvalidArgument):
        device.context.free(theirs.memory)


# Unified and pinned memory.


def test_unified_memory_is_seen_by_both_sides_or_refused(device_under_test: Any, kernels: Any) -> None:
    if "unified" not in device_under_test.info.features:
        with pytest.raises(errors.InvalidArgument, match="has no unified memory"):
            device_under_test.empty(8, kind="unified")
        assert device_under_test.allocated_bytes == 0
        return
    buffer = device_under_test.empty(8, kind="unified")
    buffer.host()[...] = np.arange(8)
    device_under_test.launch(kernels.double, 1, 32, buffer)
    assert np.array_equal(buffer.host(), 2 * np.arange(8))
    assert holds(buffer, 2 * np.arange(8))


def test_pinned_memory_is_the_host_s_or_refused(device_under_test: Any) -> None:
    if "pinned" not in device_under_test.info.features:
        with pytest.raises(errors.InvalidArgument, match="has no pinned memory"):
            device_under_test.empty(8, kind="pinned")
        return
    buffer = device_under_test.empty(8, kind="pinned")
    buffer.host()[...] = np.arange(8)
    assert holds(buffer, np.arange(8))


def test_device_memory_is_not_seen_by_the_host(device_under_test: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="the host cannot access device memory"):
        device_under_test.empty(3).host()
