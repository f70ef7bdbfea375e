"""Programs of Numba CUDA for numba_study.py that end in an error, or of which one would expect it.

The process is not used further after a program whose name ends in ``_last``.
"""

import tempfile
from pathlib import Path

import numpy as np
from numba import cuda
from numba_host import stated_kernel
from numba_more import mixed_ufunc, product_ufunc


@cuda.jit
def twice_kernel(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] *= 2


def _launched(*configuration):
    twice_kernel[configuration](np.arange(4.0))
    cuda.synchronize()


def program_error_block_too_deep():
    _launched(1, (1, 1, 65))


def program_error_block_of_1025():
    _launched(1, 1025)


def program_error_grid_too_high():
    _launched((1, 70000), 32)


def program_error_grid_of_zero():
    _launched(0, 32)


def program_error_grid_negative():
    _launched(-1, 32)


def program_error_block_of_a_string():
    _launched(1, "32")


def program_error_grid_of_four_sides():
    _launched((1, 1, 1, 1), 32)


def program_error_no_block():
    twice_kernel[1](np.arange(4.0))


def program_error_five_in_the_configuration():
    twice_kernel[1, 2, 0, 0, 0](np.arange(4.0))


def program_error_shared_memory_negative():
    _launched(1, 32, 0, -4)


def program_error_stream_of_a_string():
    _launched(1, 32, "stream")


def program_error_too_few_arguments():
    stated_kernel()[1, 32](np.zeros(4, np.int32), 1)


def program_error_a_list():
    twice_kernel[1, 32]([1.0, 2.0])


def program_error_objects():
    twice_kernel[1, 32](np.array([object()]))


def program_error_none_for_an_array():
    twice_kernel[1, 32](None)


def program_error_number_for_an_array():
    twice_kernel[1, 32](5)


def program_error_read_only():
    a = np.arange(4.0)
    a.flags.writeable = False
    twice_kernel[1, 32](a)


def program_error_complex_for_a_float():
    stated_kernel()[1, 32](np.zeros(4, np.int32), 1j, 2)


def debugged(text, *arguments):
    names: dict = {"cuda": cuda, "np": np}
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write("import math\n@cuda.jit(debug=True, opt=False)\ndef kernel(a, out):\n    i = cuda.grid(1)\n" + text)
    exec(compile(Path(file.name).read_text(), file.name, "exec"), names)
    out = np.zeros(4)
    names["kernel"][1, 4](*(arguments or (np.arange(4),)), out)
    cuda.synchronize()
    return {"out": out}


def program_error_debug_floor_division():
    return debugged("    out[i] = 5 // a[i]\n")


def program_error_debug_modulo():
    return debugged("    out[i] = 5 % a[i]\n")


def program_error_debug_division_of_floats():
    return debugged("    out[i] = 1.5 / a[i]\n", np.arange(4.0))


def program_error_debug_floor_division_of_floats():
    return debugged("    out[i] = 1.5 // a[i]\n", np.arange(4.0))


def program_error_debug_index_error():
    return debugged("    if a[i] == 2:\n        raise IndexError('the index', 5)\n    out[i] = 1\n")


def program_error_debug_without_a_message():
    return debugged("    if i == 3:\n        raise RuntimeError\n")


def program_error_debug_two_threads():
    return debugged("    if i > 1:\n        raise ValueError('both')\n")


def program_error_debug_assertion_with_a_message():
    return debugged("    assert a[i] < 2, 'too large'\n")


def program_error_debug_tuple_index():
    return debugged("    t = (1, 2, 3)\n    out[i] = t[i]\n")


def program_error_debug_root_of_a_negative_number():
    return debugged("    out[i] = math.sqrt(a[i] - 2.0)\n")


def program_error_debug_shift():
    return debugged("    out[i] = 1 << (a[i] - 2)\n")


def program_error_debug_power_of_zero():
    return debugged("    out[i] = a[i] ** -1\n")


def program_error_debug_float_power_of_zero():
    return debugged("    out[i] = (a[i] * 1.0) ** -1.5\n")


def program_error_debug_step_of_zero():
    return debugged("    for k in range(0, 5, a[i]):\n        out[i] += k\n        if k > 3:\n            break\n")


def program_error_debug_zero_in_a_slice():
    return debugged("    out[i] = a[::a[0]].size\n")


def program_error_debug_in_a_called_function():
    return debugged("    out[i] = a[1] / (a[i] * 0.0)\n")


def program_error_unknown_attribute():
    return debugged("    out[i] = a.nothing\n")


def program_error_unknown_function():
    return debugged("    out[i] = math.nothing(a[i])\n")


def program_error_unknown_name_of_cuda():
    return debugged("    out[i] = cuda.nothing(a[i])\n")


def program_error_sum_of_an_array_and_a_number():
    return debugged("    out[i] = a + 1\n")


def program_error_undefined_on_a_path():
    return debugged("    if a[i] > 1:\n        x = 5\n    out[i] = x\n", np.arange(2, 6))


def program_error_too_many_indices():
    return debugged("    out[i] = a[i, 0]\n")


def program_error_float_index():
    return debugged("    out[i] = a[i * 0.5]\n")


def program_error_tuples_compared():
    return debugged("    out[i] = (1, i) < (1, 3)\n")


def program_error_reshape_of_a_view():
    return debugged("    out[i] = a[:, 1].reshape(a.shape[0])[i]\n", np.arange(12.0).reshape(4, 3))


def program_error_string_added():
    return debugged("    out[i] = a[i] + 'x'\n")


def program_error_call_of_a_number():
    return debugged("    out[i] = a[i](3)\n")


def program_error_wrong_count_in_a_call():
    return debugged("    out[i] = math.sqrt(a[i], 2)\n")


def program_error_unpack():
    return debugged("    x, y = (1, 2, 3)\n    out[i] = x\n")


def program_error_dict():
    return debugged("    x = {1: 2}\n    out[i] = x[1]\n")


def program_error_yield():
    return debugged("    yield i\n")


def program_error_mixed_return():
    return debugged("    if i > 2:\n        return\n    out[i] = 1\n")


def program_error_atomic_on_int8():
    return debugged("    cuda.atomic.add(a, 0, 1)\n", np.zeros(4, np.int8))


def program_error_atomic_with_a_float():
    return debugged("    cuda.atomic.add(a, 0, 1.5)\n", np.zeros(4, np.int32))


def program_error_shared_array_of_a_variable():
    return debugged("    n = a.size\n    s = cuda.shared.array(n, np.int32)\n    s[i] = 1\n")


def program_error_copy_of_another_type():
    cuda.to_device(np.zeros(4)).copy_to_host(np.zeros(4, np.float32))


def program_error_copy_smaller():
    cuda.to_device(np.zeros(4)).copy_to_host(np.zeros(3))


def program_error_assigned_too_long():
    cuda.to_device(np.zeros(4))[:2] = np.zeros(3)


def program_error_device_index():
    cuda.to_device(np.zeros(4))[7]


def program_error_device_index_negative():
    cuda.to_device(np.zeros(4))[-5]


def program_error_device_too_many_indices():
    cuda.to_device(np.zeros(4))[1, 1]


def program_error_device_mask():
    cuda.to_device(np.zeros(4))[np.array([True, False, True, False])]


def program_error_device_arithmetic():
    return {"out": cuda.to_device(np.zeros(4)) + 1}


def program_error_device_to_numpy():
    return {"out": np.asarray(cuda.to_device(np.arange(4.0)))}


def program_error_device_iterated():
    return {"out": np.array([float(x) for x in cuda.to_device(np.arange(4.0))])}


def program_error_to_device_of_a_list():
    return {"out": cuda.to_device([1, 2, 3]).copy_to_host()}


def program_error_to_device_of_objects():
    cuda.to_device(np.array([object()]))


def program_error_device_array_of_a_negative_size():
    cuda.device_array(-4)


def program_error_view_as_a_wider_type():
    cuda.to_device(np.zeros(3, np.int32)).view(np.int64)


def program_error_reshape():
    cuda.to_device(np.zeros(6)).reshape(4)


def program_error_ravel_of_a_view():
    return {"out": cuda.to_device(np.arange(12.0).reshape(3, 4))[:, 1:].ravel().copy_to_host()}


def program_error_out_of_memory():
    cuda.device_array(1 << 42, np.uint8)


def program_error_elapsed_time_of_events_never_recorded():
    cuda.event_elapsed_time(cuda.event(), cuda.event())


def program_error_vectorize_of_a_wrong_type():
    mixed_ufunc()(np.array(["a"]), np.array(["b"]))


def program_error_vectorize_of_too_few():
    mixed_ufunc()(np.zeros(3))


def program_error_guvectorize_of_wrong_shapes():
    product_ufunc()(np.zeros((4, 3), np.int64), np.zeros(5, np.int64))


def program_error_reduce_of_two_dimensions():
    return {"out": np.asarray(cuda.reduce(lambda a, b: a + b)(np.ones((3, 4))))}


def program_error_index_far_outside_last():
    @cuda.jit
    def kernel(a):
        a[1 << 40] = 1

    kernel[1, 1](np.zeros(4))
    cuda.synchronize()


def program_error_null_last():
    @cuda.jit
    def kernel(a, n):
        a[n] = 1

    kernel[1, 1](np.zeros(4), -(1 << 45))
    cuda.synchronize()


def program_closed_context_last():
    a = cuda.to_device(np.arange(4.0))
    cuda.close()
    twice_kernel[1, 32](a)
    cuda.synchronize()
    return {"a": a.copy_to_host()}


def program_closed_context_and_new_arrays_last():
    cuda.to_device(np.arange(4.0))
    cuda.close()
    a = cuda.to_device(np.arange(4.0))
    twice_kernel[1, 32](a)
    return {"a": a.copy_to_host()}


def program_context_reset_last():
    a = cuda.to_device(np.arange(4.0))
    cuda.current_context().reset()
    return {"a": a.copy_to_host()}
