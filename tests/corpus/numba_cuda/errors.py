"""Numba CUDA programs that end in an error. Each ``program_`` raises; the recording has the class and the message."""

import numpy as np
from numba import cuda, float64


@cuda.jit
def double_kernel(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] *= 2


def program_launch_without_a_configuration():
    double_kernel(np.arange(4.0))


def program_too_many_threads():
    double_kernel[1, 2048](np.arange(4.0))
    cuda.synchronize()


def program_block_of_four_dimensions():
    double_kernel[1, (1, 1, 1, 1)](np.arange(4.0))


def program_block_of_no_threads():
    double_kernel[1, 0](np.arange(4.0))
    cuda.synchronize()


def program_grid_of_floats():
    double_kernel[1.5, 32](np.arange(4.0))


def program_wrong_number_of_arguments():
    double_kernel[1, 32](np.arange(4.0), 1)


def program_an_argument_of_an_unknown_type():
    double_kernel[1, 32]({"a": 1})


def program_an_array_of_strings():
    double_kernel[1, 32](np.array(["a", "b"]))


@cuda.jit
def returning_kernel(a):
    return a[0]


def program_a_kernel_that_returns_a_value():
    returning_kernel[1, 32](np.arange(4.0))


@cuda.jit
def unknown_kernel(a):
    a[0] = undefined_name  # noqa: F821


def program_an_unknown_name():
    unknown_kernel[1, 1](np.arange(4.0))


@cuda.jit
def list_kernel(a):
    held = [1.0, 2.0]
    held.append(a[0])
    a[0] = held[2]


def program_a_list_in_a_kernel():
    list_kernel[1, 1](np.arange(4.0))


@cuda.jit
def unify_kernel(a):
    if a[0] > 0:
        x = 1
    else:
        x = (1, 2)
    a[1] = x[0]


def program_a_variable_of_two_types():
    unify_kernel[1, 1](np.arange(4.0))


@cuda.jit
def shared_size_kernel(a, n):
    held = cuda.shared.array(n, dtype=float64)
    held[0] = a[0]
    a[1] = held[0]


def program_shared_array_of_a_size_that_is_no_constant():
    shared_size_kernel[1, 1](np.arange(4.0), 4)


@cuda.jit
def too_much_shared_kernel(a):
    held = cuda.shared.array(200000, dtype=float64)
    held[cuda.threadIdx.x] = a[0]
    a[1] = held[0]


def program_too_much_static_shared_memory():
    too_much_shared_kernel[1, 1](np.arange(4.0))
    cuda.synchronize()


@cuda.jit
def dynamic_kernel(a):
    held = cuda.shared.array(0, dtype=float64)
    held[0] = a[0]


def program_too_much_dynamic_shared_memory():
    dynamic_kernel[1, 1, 0, 10_000_000](np.arange(4.0))
    cuda.synchronize()


def program_copy_of_another_shape():
    cuda.to_device(np.arange(10.0)).copy_to_device(np.arange(4.0))


def program_copy_of_another_type():
    cuda.to_device(np.arange(4.0)).copy_to_device(np.arange(4, dtype=np.float32))


def program_copy_to_a_host_array_of_another_shape():
    cuda.to_device(np.arange(10.0).reshape(2, 5)).copy_to_host(np.empty(10))


def program_reshape_to_another_size():
    cuda.to_device(np.arange(10.0)).reshape(3, 3)


def program_a_device_that_is_not_there():
    cuda.select_device(99)


def program_an_array_that_is_not_contiguous_to_device_array_copy():
    a = cuda.to_device(np.arange(24.0).reshape(4, 6))
    a[:, ::2].copy_to_device(np.arange(12.0).reshape(4, 3)[:, ::-1])


@cuda.jit("void(float64[:])")
def fixed_kernel(a):
    a[0] = 1


def program_an_argument_that_does_not_match_the_signature():
    fixed_kernel[1, 1](np.zeros((2, 2)))


@cuda.jit
def raising_kernel(a):
    if a[0] == 0:
        raise ValueError("a is zero")


def program_raise_without_debug_is_ignored():
    raising_kernel[1, 1](np.zeros(1))
    cuda.synchronize()
    return {"ended": np.array([True])}


@cuda.jit(debug=True, opt=False)
def raising_debug_kernel(a):
    if a[0] == 0:
        raise ValueError("a is zero")


def program_raise_with_debug():
    raising_debug_kernel[1, 1](np.zeros(1))
    cuda.synchronize()


@cuda.jit(debug=True, opt=False)
def assert_debug_kernel(a):
    assert a[0] > 0


def program_assert_with_debug():
    assert_debug_kernel[1, 1](np.zeros(1))
    cuda.synchronize()


@cuda.jit(debug=True, opt=False)
def zero_debug_kernel(a, out):
    out[0] = 1 / a[0]


def program_division_by_zero_with_debug():
    out = np.zeros(1)
    zero_debug_kernel[1, 1](np.zeros(1), out)
    cuda.synchronize()


@cuda.jit(debug=True, opt=False)
def bounds_debug_kernel(a):
    a[cuda.grid(1) + 100] = 1


def program_index_out_of_bounds_with_debug():
    bounds_debug_kernel[1, 1](np.zeros(1))
    cuda.synchronize()


def program_link_of_a_missing_file():
    @cuda.jit(link=["absent.cu"])
    def kernel(a):
        a[0] = 1

    kernel[1, 1](np.zeros(1))


def program_device_function_called_from_the_host():
    @cuda.jit(device=True)
    def function(x):
        return x + 1

    function(3)


def program_out_of_memory():
    cuda.device_array(1 << 45, np.float64)


def program_an_event_that_was_not_recorded():
    cuda.event_elapsed_time(cuda.event(), cuda.event())


def program_vectorize_with_wrong_shapes():
    from numba import vectorize

    @vectorize(["float64(float64, float64)"], target="cuda")
    def added(a, b):
        return a + b

    added(np.zeros(3), np.zeros(4))


def program_a_host_array_that_is_not_contiguous():
    double_kernel[1, 32](np.arange(10.0)[::2])


@cuda.jit
def none_kernel(a, given):
    if given is None:
        a[0] = 1


def program_none_as_an_argument():
    none_kernel[1, 1](np.zeros(1), None)


@cuda.jit
def array_to_slice_kernel(a, out):
    out[0:3] = a[1:4]


def program_an_array_assigned_to_a_slice():
    array_to_slice_kernel[1, 1](np.arange(5.0), np.zeros(5))


@cuda.jit
def bool_barrier_kernel(out):
    out[0] = cuda.syncthreads_count(out[0] > 3)


def program_a_bool_given_to_syncthreads_count():
    bool_barrier_kernel[1, 1](np.zeros(1, np.int32))


@cuda.jit
def root_kernel(a):
    a[0] = np.sqrt(a[0])


def program_a_function_of_numpy_without_an_implementation():
    root_kernel[1, 1](np.ones(1))


def program_a_callback_of_a_stream():
    seen = []
    stream = cuda.stream()
    stream.add_callback(lambda stream, status, arg: seen.append(arg), 7)
    stream.synchronize()


def program_a_lambda_vectorized():
    from numba import vectorize

    vectorize(["int64(int64, int64)"], target="cuda")(lambda a, b: a + b)


@cuda.jit
def new_array_kernel(a):
    held = np.zeros(4)
    a[0] = held[0]


def program_an_array_made_in_a_kernel():
    new_array_kernel[1, 1](np.zeros(1))


@cuda.jit
def text_kernel(a):
    s = "a" + "b"
    a[0] = len(s)


def program_text_in_a_kernel():
    text_kernel[1, 1](np.zeros(1))


@cuda.jit
def try_kernel(a):
    try:
        a[0] = 1
    except Exception:
        a[0] = 2


def program_try_in_a_kernel():
    try_kernel[1, 1](np.zeros(1))


@cuda.jit
def with_kernel(a):
    with open("x"):
        a[0] = 1


def program_with_in_a_kernel():
    with_kernel[1, 1](np.zeros(1))


@cuda.jit
def global_written_kernel(a):
    global written
    written = 1
    a[0] = 1


def program_a_global_written_in_a_kernel():
    global_written_kernel[1, 1](np.zeros(1))


@cuda.jit
def recursive_type_kernel(a):
    a[0] = [x for x in range(3)][1]


def program_a_list_comprehension():
    recursive_type_kernel[1, 1](np.zeros(1))
