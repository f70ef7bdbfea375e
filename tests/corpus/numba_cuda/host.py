"""Numba CUDA programs: memory, streams and devices from the host. Each ``program_`` returns what it computed."""

import numpy as np
from numba import cuda


@cuda.jit
def double_kernel(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] *= 2


@cuda.jit
def add_kernel(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


def program_host_arrays_are_copied_both_ways():
    a = np.arange(10.0)
    double_kernel[1, 32](a)
    return {"a": a}


def program_to_device_and_back():
    a = np.arange(10.0)
    held = cuda.to_device(a)
    double_kernel[1, 32](held)
    before = a.copy()
    back = held.copy_to_host()
    given = np.empty(10)
    held.copy_to_host(given)
    return {
        "before": before,
        "back": back,
        "given": given,
        "shape": np.array(held.shape),
        "bytes": np.array([held.nbytes]),
    }


def program_device_array_and_like():
    a, b = cuda.to_device(np.arange(6.0)), cuda.to_device(np.ones(6))
    out = cuda.device_array(6, np.float64)
    like = cuda.device_array_like(out)
    add_kernel[1, 32](a, b, out)
    add_kernel[1, 32](out, out, like)
    return {"out": out.copy_to_host(), "like": like.copy_to_host()}


def program_copy_to_device():
    held = cuda.device_array((2, 3), np.int32)
    held.copy_to_device(np.arange(6, dtype=np.int32).reshape(2, 3))
    other = cuda.device_array((2, 3), np.int32)
    other.copy_to_device(held)
    return {"out": other.copy_to_host()}


def program_to_device_in_and_out():
    a, out = np.arange(4.0), np.zeros(4)
    held = out_of(a)
    cuda.to_device(a, to=held)
    double_kernel[1, 32](held)
    held.copy_to_host(out)
    return {"out": out}


def out_of(a):
    return cuda.device_array(a.shape, a.dtype)


def program_views_of_device_arrays():
    held = cuda.to_device(np.arange(24.0).reshape(4, 6))
    row = held[1].copy_to_host()
    part = held[1:3, ::2].copy_to_host()
    flat = held.ravel().copy_to_host()
    shaped = held.reshape(6, 4).copy_to_host()
    turned = held.T.copy_to_host()
    viewed = cuda.to_device(np.arange(4, dtype=np.float32)).view(np.int32).copy_to_host()
    one = held[2, 3]
    held[0] = 7.0
    held[1, 1:3] = np.array([-1.0, -2.0])
    return {
        "row": row, "part": part, "flat": flat, "shaped": shaped, "turned": turned, "viewed": viewed,
        "one": np.array([one]), "after": held.copy_to_host(),
    }  # fmt: skip


def program_kernels_on_views():
    held = cuda.to_device(np.arange(12.0))
    double_kernel[1, 32](held[3:9])
    double_kernel[1, 32](held[::4])
    return {"out": held.copy_to_host()}


def program_split():
    held = cuda.to_device(np.arange(10.0))
    return {f"part{i}": part.copy_to_host() for i, part in enumerate(held.split(4))}


def program_pinned_memory():
    a = cuda.pinned_array(8, np.float64)
    a[:] = np.arange(8)
    stream = cuda.stream()
    held = cuda.to_device(a, stream=stream)
    double_kernel[1, 32, stream](held)
    held.copy_to_host(a, stream=stream)
    stream.synchronize()
    plain = np.arange(4.0)
    with cuda.pinned(plain):
        again = cuda.to_device(plain)
        double_kernel[1, 32](again)
        again.copy_to_host(plain)
    like = cuda.pinned_array_like(plain)
    like[:] = plain
    return {"a": a.copy(), "plain": plain, "like": np.array(like)}


def program_mapped_memory():
    a = cuda.mapped_array(8, np.float64)
    a[:] = np.arange(8)
    double_kernel[1, 32](a)
    cuda.synchronize()
    return {"a": np.array(a)}


def program_managed_memory():
    a = cuda.managed_array(8, np.float64)
    a[:] = np.arange(8)
    double_kernel[1, 32](a)
    cuda.synchronize()
    return {"a": np.array(a)}


def program_streams():
    one, two = cuda.stream(), cuda.stream()
    a = cuda.to_device(np.arange(100.0), stream=one)
    b = cuda.to_device(np.ones(100), stream=two)
    double_kernel[1, 128, one](a)
    double_kernel[1, 128, two](b)
    two.synchronize()
    one.synchronize()
    out = cuda.device_array(100, np.float64, stream=one)
    add_kernel[1, 128, one](a, b, out)
    with one.auto_synchronize():
        result = out.copy_to_host(stream=one)
    return {"out": result}


def program_default_streams():
    found = {}
    for name in ("default_stream", "legacy_default_stream", "per_thread_default_stream"):
        stream = getattr(cuda, name)()
        a = cuda.to_device(np.arange(4.0), stream=stream)
        double_kernel[1, 32, stream](a)
        found[name] = a.copy_to_host(stream=stream)
        stream.synchronize()
    return found


def program_events():
    stream = cuda.stream()
    began, ended = cuda.event(), cuda.event(timing=True)
    began.record(stream)
    a = cuda.to_device(np.arange(100.0), stream=stream)
    double_kernel[1, 128, stream](a)
    ended.record(stream)
    ended.wait(stream)
    ended.synchronize()
    took = cuda.event_elapsed_time(began, ended)
    return {"positive": np.array([took > 0]), "done": np.array([ended.query()]), "a": a.copy_to_host()}


def program_devices_and_contexts():
    names = [gpu.id for gpu in cuda.gpus]
    chosen = cuda.select_device(0)
    device = cuda.get_current_device()
    with cuda.gpus[0]:
        a = np.arange(4.0)
        double_kernel[1, 32](a)
    context = cuda.current_context()
    free, total = context.get_memory_info()
    cuda.synchronize()
    return {
        "ids": np.array(names), "capability": np.array(device.compute_capability), "warp": np.array([device.WARP_SIZE]),
        "threads": np.array([device.MAX_THREADS_PER_BLOCK]), "shared": np.array([device.MAX_SHARED_MEMORY_PER_BLOCK]),
        "chosen": np.array([chosen.id]), "a": a, "enough": np.array([0 < free <= total]),
        "available": np.array([cuda.is_available(), bool(cuda.detect())]),
    }  # fmt: skip


def program_forall():
    a = np.arange(1000.0)
    held = cuda.to_device(a)
    double_kernel.forall(1000)(held)
    return {"out": held.copy_to_host()}


def program_grid_and_block_as_tuples_and_numpy_integers():
    found = {}
    for name, grid, block in (
        ("plain", 2, 16), ("tuples", (2,), (16,)), ("three", (2, 1, 1), (16, 1, 1)), ("numpy", np.int64(2), np.int32(16)),
    ):  # fmt: skip
        a = np.arange(32.0)
        double_kernel[grid, block](a)
        found[name] = a
    return found


class Foreign:
    """An array of another library: it has the interface and nothing else."""

    def __init__(self, held):
        self.held = held

    @property
    def __cuda_array_interface__(self):
        return self.held.__cuda_array_interface__


def program_cuda_array_interface():
    held = cuda.to_device(np.arange(6.0))
    interface = held.__cuda_array_interface__
    double_kernel[1, 32](Foreign(held))
    view = cuda.as_cuda_array(Foreign(held))
    double_kernel[1, 32](view)
    return {
        "out": held.copy_to_host(), "is": np.array([cuda.is_cuda_array(held), cuda.is_cuda_array(np.zeros(1))]),
        "shape": np.array(interface["shape"]), "version": np.array([interface["version"]]),
        "typestr": np.frombuffer(interface["typestr"].encode(), np.uint8),
    }  # fmt: skip


def program_const_and_read_only_arguments():
    a = np.arange(5.0)
    a.flags.writeable = False
    out = np.zeros(5)
    add_kernel[1, 32](a, a, out)
    return {"out": out}


def program_lazy_kernels_compile_for_each_type():
    found = {}
    for dtype in (np.float32, np.int64, np.int8, np.complex64):
        a = np.arange(4).astype(dtype)
        double_kernel[1, 32](a)
        found[np.dtype(dtype).name] = a
    found["variants"] = np.array([len(add_kernel.overloads) >= 0])
    return found


def program_in_out_wrappers():
    a, b, out = np.arange(4.0), np.ones(4), np.zeros(4)
    add_kernel[1, 32](cuda.In(a), cuda.In(b), cuda.Out(out))
    both = np.arange(4.0)
    double_kernel[1, 32](cuda.InOut(both))
    return {"out": out, "both": both}


def program_defer_cleanup():
    with cuda.defer_cleanup():
        a = cuda.to_device(np.arange(4.0))
        double_kernel[1, 32](a)
        out = a.copy_to_host()
        del a
    return {"out": out}


def program_attributes_of_a_compiled_kernel():
    a = np.arange(4.0)
    double_kernel[1, 32](a)
    return {
        "registers": np.array(sorted(double_kernel.get_regs_per_thread().values())[:1]) > 0,
        "shared": np.array(sorted(double_kernel.get_shared_mem_per_block().values())[:1]),
        "local": np.array(sorted(double_kernel.get_local_mem_per_thread().values())[:1]),
        "threads": np.array(sorted(double_kernel.get_max_threads_per_block().values())[:1]) > 0,
    }


def program_of_two_kernels_and_scalars_kept_on_the_device():
    a = cuda.to_device(np.ones(64))
    for _ in range(5):
        double_kernel[2, 32](a)
        add_kernel[2, 32](a, a, a)
    return {"out": a.copy_to_host()}
