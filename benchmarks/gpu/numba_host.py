"""Programs of Numba CUDA for numba_study.py: what the host sees of devices, arrays, types and compiled kernels."""

import functools

import numpy as np
from numba import cuda, float32, float64
from numba_more import Point


def program_device_arrays():
    a = cuda.to_device(np.arange(12, dtype=np.float32).reshape(3, 4))
    b = cuda.device_array_like(a.T)
    a[0, 1] = 9
    a[2] = np.arange(4, dtype=np.float32)
    b[:] = 3
    facts = [a.nbytes, a.size, a.ndim, *a.strides, *b.strides, a.is_c_contiguous(), b.is_c_contiguous(), len(a)]
    return {"a": a.copy_to_host(), "b": b.copy_to_host(), "element": np.asarray(a[1, 2]), "facts": np.array(facts),
            "row": a[1].copy_to_host(), "column": a[:, 1].copy_to_host(), "view": a.view(np.int32).copy_to_host(),
            "ravel": a.ravel().copy_to_host(), "text": np.array(f"{a.dtype} {a.shape}")}  # fmt: skip


@functools.cache
def stated_kernel():
    @cuda.jit("void(int32[:], float32, int8)")
    def kernel(out, x, n):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x * 10 + n

    return kernel


def program_a_signature_converts():
    found = {}
    for name, (x, n) in {
        "plain": (1, 2),
        "wide": (0.1, 300),
        "float": (2**40, -129),
        "numpy": (np.int16(3), np.int64(5)),
    }.items():
        out = np.zeros(4, np.int32)
        stated_kernel()[1, 32](out, x, n)
        found[name] = out
    return found


def program_a_float_for_an_integer():
    out = np.zeros(4, np.int32)
    stated_kernel()[1, 32](out, 1.0, 2.5)
    return {"out": out}


def program_types_of_scalars():
    @cuda.jit
    def kernel(x, out):
        out[0] = x + 1

    out, found = np.zeros(1), []
    for value in (
        1,
        2**31,
        2**63,
        1.5,
        True,
        1j,
        np.int8(1),
        np.uint64(1),
        np.float32(1),
        np.float16(1),
        np.bool_(1),
        np.datetime64(5, "s"),
    ):
        try:
            kernel[1, 1](value, out)
            found.append(str(list(kernel.overloads)[-1]))
        except Exception as error:
            found.append(type(error).__name__)
    return {"kinds": np.array(found)}


def program_types_of_arrays():
    @cuda.jit
    def kernel(x):
        pass

    found = []
    a = np.zeros((4, 6), np.int16)
    read_only = a.copy()
    read_only.flags.writeable = False
    for value in (a, a.T, a[0], a[:, 0], a[::2], a[:, 1:], a[1:], a[:1], read_only, np.zeros(()), cuda.to_device(a), cuda.to_device(a)[1:],
                  cuda.to_device(a)[:, 1:], cuda.to_device(a).T, (a, 1), Point(1, a), np.zeros(2, "M8[s]"), np.zeros((0, 3))):  # fmt: skip
        try:
            kernel[1, 1](value)
            found.append(str(list(kernel.overloads)[-1]))
        except Exception as error:
            found.append(type(error).__name__)
    return {"kinds": np.array(found)}


def program_facts_of_the_device():
    device = cuda.get_current_device()
    names = ("MAX_THREADS_PER_BLOCK", "MAX_BLOCK_DIM_X", "MAX_BLOCK_DIM_Y", "MAX_BLOCK_DIM_Z", "MAX_GRID_DIM_X", "MAX_GRID_DIM_Y",
             "MAX_GRID_DIM_Z", "MAX_SHARED_MEMORY_PER_BLOCK", "WARP_SIZE", "MULTIPROCESSOR_COUNT", "COMPUTE_CAPABILITY_MAJOR",
             "COMPUTE_CAPABILITY_MINOR", "MAX_THREADS_PER_MULTI_PROCESSOR", "TOTAL_CONSTANT_MEMORY",
             "CONCURRENT_KERNELS", "ECC_ENABLED", "MANAGED_MEMORY", "UNIFIED_ADDRESSING", "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
             "ASYNC_ENGINE_COUNT", "CAN_MAP_HOST_MEMORY", "INTEGRATED", "L2_CACHE_SIZE", "GLOBAL_MEMORY_BUS_WIDTH", "CLOCK_RATE",
             "MEMORY_CLOCK_RATE", "MAX_PITCH", "TEXTURE_ALIGNMENT")  # fmt: skip
    values = [int(getattr(device, name, -1)) for name in names]
    name = device.name.decode() if isinstance(device.name, bytes) else device.name
    memory = cuda.current_context().get_memory_info()
    return {"values": np.array(values), "name": np.array(name), "capability": np.array(device.compute_capability),
            "total": np.array(memory.total), "runtime": np.array(cuda.runtime.get_version())}  # fmt: skip


def program_attributes_of_compiled_kernels():
    @cuda.jit
    def kernel(a):
        s = cuda.shared.array(100, float32)
        t = cuda.local.array(10, float64)
        i = cuda.grid(1)
        s[i % 100] = a[i]
        s[(i + 32) % 100] = a[i]
        for k in range(10):
            t[k] = a[i] * k
        cuda.syncthreads()
        a[i] = s[(i + 1) % 100] + t[(i * 3) % 10]

    a = np.zeros(32)
    kernel[1, 32](a)
    compiled = next(iter(kernel.overloads.values()))
    return {"shared": np.array(compiled.shared_mem_per_block), "threads": np.array(compiled.max_threads_per_block),
            "signature": np.array(str(list(kernel.overloads))), "local": np.array(compiled.local_mem_per_thread)}  # fmt: skip
