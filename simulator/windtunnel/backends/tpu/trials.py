"""Operations on JAX's devices, compiled by XLA: GEMM, attention, elementwise operations, copies and launches.

Times are the host's, around work that was waited for (``block_until_ready``). On a TPU or GPU many runs are enqueued
and waited for together. On a processor each run is waited for, because JAX would execute them in parallel otherwise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import ml_dtypes
import numpy as np
from scipy.special import erf

from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.common.host_work import HostDevice, HostTrial, Refusal, TrialFactory, cold_operands
from windtunnel.core.columns import Columns
from windtunnel.core.errors import DeviceOutOfMemory, LaunchError, UnsupportedOperationError
from windtunnel.runtime.interface import Limits

_DTYPES = ("float32", "float16", "bfloat16", "int8")
_ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff: half the distance from 1 to the next number."""
_UNDERFLOW = {"float32": 2.0**-126, "float16": 2.0**-25, "bfloat16": 2.0**-126}
"""Absolute tolerance: half of float16's smallest number; numbers of the other types below this may become 0."""
_BEYOND_CACHES = 512e6
"""Cold operands of an accelerator take this many bytes (a TPU's VMEM and CMEM hold 128 MiB)."""
_MAX_SETS = 2048
_ROWS_CHECKED = 32


class JaxDevice(HostDevice):
    """A device of JAX for single operations. JAX itself keeps it open until the process ends."""

    def __init__(self, detected: DetectedDevice, device: Any) -> None:
        self.detected, self.device = detected, device
        dims = (1, 1, 1)
        limits = Limits(1, dims, dims, 0, 1, "JAX has no blocks of threads")
        info = replace(detected.opened(limits, ()), name=detected.name)
        platform = " ".join(str(device.client.platform_version).split())
        versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__, "platform": platform}
        super().__init__(info, versions, _trials(detected.software))

    def _context_refusal(self, op: str, columns: Columns) -> Refusal:
        dispatch = columns["dispatch"]
        if dispatch == "graph":
            return UnsupportedOperationError("JAX replays no graphs: a compiled function is launched as a whole")
        if dispatch == "eager" and op == "copy":
            return UnsupportedOperationError("a copy is timed without a dispatch", expected="dispatch=device")
        # With eager dispatch every run is waited for; on a processor that is always so, and eager is refused.
        waits = dispatch == "eager" and not self.info.software
        return super()._context_refusal(op, {**columns, "dispatch": "device"} if waits else columns)

    def trial(self, op: str, columns: Columns) -> Any:
        """Prepare ``op``. Raises a DeviceError for what JAX raises."""
        with self.errors(op):
            return super().trial(op, columns)

    @contextmanager
    def errors(self, operation: str) -> Iterator[None]:
        """Raise what JAX raises within as a DeviceError."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            message = " ".join(str(error).split())[:300]
            kind = DeviceOutOfMemory if "RESOURCE_EXHAUSTED" in message else LaunchError
            raise self.error(kind, message, operation) from error

    @property
    def available_bytes(self) -> float:
        """The device's memory (bytes). For a processor, a share of the free memory, because more would swap."""
        return super().available_bytes if self.info.software else self.detected.memory_bytes or math.inf

    def sets(self, size: float, columns: Columns) -> int:
        """Return how many sets of operands of ``size`` bytes to rotate, so that the next set is in no cache."""
        beyond = None if self.info.software else _BEYOND_CACHES
        return cold_operands(size, 1, str(columns["cache"]), limit=_MAX_SETS, beyond_bytes=beyond)

    def put(self, array: np.ndarray) -> Any:
        """Copy the array to the device. On a processor JAX may use the array's own memory if it is aligned."""
        return jax.device_put(array, self.device).block_until_ready()


def _random(shape: Sequence[int], dtype: str, generator: np.random.Generator) -> np.ndarray:
    """Return operands from a normal distribution, or for int8 from all values."""
    if dtype == "int8":
        return generator.integers(-128, 128, shape, np.int8)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return generator.standard_normal(shape, np.float32).astype(kind)


class _JaxTrial(HostTrial):
    """``_last`` is the result of the last run and ``_held`` the operands. Closing releases both."""

    device: JaxDevice
    _last: Any = None
    _held: Sequence[Any] = ()

    def __init__(self, device: JaxDevice, columns: Columns, note: str) -> None:
        super().__init__(device, f"{note}, JAX {jax.__version__}")
        self._waits = columns["dispatch"] == "eager" or device.info.software

    def _close(self) -> None:
        self._held, self._last = (), None


class _Compiled(_JaxTrial):
    """A compiled function on sets of operands in turn. All sets hold the same numbers."""

    def __init__(
        self,
        on: JaxDevice,
        op: str,
        columns: Columns,
        function: Callable[..., Any],
        operands: Sequence[np.ndarray],
        check: Callable[[Any], float],
        note: str,
        scratch_bytes: float = 0.0,
    ) -> None:
        size = float(sum(operand.nbytes for operand in operands))
        count = on.sets(size, columns)
        on.require_memory(size * count + scratch_bytes, op)
        super().__init__(on, columns, note)
        self.note += f"; operands of {size * count / 1e6:,.3g} MB, used in turn"
        self._op, self._compare, self._next = op, check, 0
        self._held = [tuple(on.put(operand.copy()) for operand in operands) for _ in range(count)]
        # With the default precision a TPU multiplies float32 in one pass of bfloat16.
        with jax.default_matmul_precision("highest" if columns.get("dtype") == "float32" else "default"):
            self._function = jax.jit(function).lower(*self._held[0]).compile()

    def _run(self, count: int) -> float:
        waits, sets, function = self._waits, self._held, self._function
        last: Any = None
        with self.device.errors(self._op):
            began = time.perf_counter()
            for number in range(self._next, self._next + count):
                last = function(*sets[number % len(sets)])
                if waits:
                    last.block_until_ready()
            last.block_until_ready()
            took = time.perf_counter() - began
        self._next, self._last = (self._next + count) % len(sets), last
        return took / count

    def _check(self) -> float:
        return self._compare(self._last)

    def _close(self) -> None:
        super()._close()
        self._function = None


def _error_share(result: Any, expected: np.ndarray, tolerance: np.ndarray) -> float:
    """Return the largest of |result - expected| / tolerance; infinity if a result is NaN."""
    error = np.abs(np.asarray(result).astype(np.float64) - expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(error == 0.0, 0.0, error / tolerance)
    return math.inf if np.isnan(shares).any() else float(shares.max(initial=0.0))


def _sample_rows(count: int, generator: np.random.Generator) -> np.ndarray:
    """Return up to 32 of ``count`` row numbers, sorted."""
    return np.sort(generator.choice(count, min(count, _ROWS_CHECKED), replace=False))


def _gemm(on: JaxDevice, columns: Columns) -> HostTrial:
    m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))
    dtype = str(columns["dtype"])
    on.require_memory((m * k + k * n + m * n) * batch * (1.0 if dtype == "int8" else 2.0), "gemm")
    generator = np.random.default_rng(0)
    a, b = _random((batch, m, k), dtype, generator), _random((batch, k, n), dtype, generator)
    out = jnp.int32 if dtype == "int8" else jnp.dtype(a.dtype)

    def check(result: Any) -> float:
        rows, page = _sample_rows(m, generator), int(generator.integers(batch))
        left, right = a[page, rows].astype(np.float64), b[page].astype(np.float64)
        exact = left @ right
        if dtype == "int8":  # sums below 2^53 are exact in float64, and wrap in int32 from 2^31
            return _error_share(np.asarray(result[page, rows]), exact, np.zeros_like(exact))
        # A sum of k products in float32, in any order, is within about sqrt(k) roundings of the exact sum, with a
        # probability that Higham and Mary (2019, doi 10.1137/18M1226312, theorem 2.4) bound. One rounding follows.
        sums = 4.0 * math.sqrt(k) * _ROUNDING["float32"] * (np.abs(left) @ np.abs(right))
        rounded = 1.01 * _ROUNDING[dtype] * np.abs(exact) + _UNDERFLOW[dtype]
        return _error_share(np.asarray(result[page, rows]), exact, sums + rounded)

    def product(left: Any, right: Any) -> Any:
        return jnp.matmul(left, right, preferred_element_type=out)

    result_bytes = batch * m * n * np.dtype(out).itemsize
    return _Compiled(on, "gemm", columns, product, (a, b), check, f"matmul to {np.dtype(out).name}", result_bytes)


def _attention(on: JaxDevice, columns: Columns) -> HostTrial:
    batch, heads, kv_heads, width, tokens = (
        int(columns[name]) for name in ("batch", "heads", "kv_heads", "head_dim", "kv_tokens")
    )
    dtype, causal = str(columns["dtype"]), columns["phase"] == "prefill"
    queries = tokens if causal else 1
    scores = batch * heads * queries * tokens * 4.0  # stored in float32 where XLA does not fuse them
    on.require_memory(scores, "attention")
    generator = np.random.default_rng(0)
    q = _random((batch, queries, heads, width), dtype, generator)
    keys, values = (_random((batch, tokens, kv_heads, width), dtype, generator) for _ in range(2))

    def check(result: Any) -> float:
        page, head = int(generator.integers(batch)), int(generator.integers(heads))
        rows = _sample_rows(queries, generator)
        group = head // (heads // kv_heads)
        k, v = keys[page, :, group].astype(np.float64), values[page, :, group].astype(np.float64)
        logits = q[page, rows, head].astype(np.float64) @ k.T / math.sqrt(width)
        if causal:
            logits[np.arange(tokens)[None, :] > rows[:, None]] = -np.inf
        weights = np.exp(logits - logits.max(1, keepdims=True))
        exact = weights / weights.sum(1, keepdims=True) @ v
        # A weighted mean of values; the weights are rounded to the type before the second product.
        tolerance = (64.0 * _ROUNDING["float32"] + 4.0 * _ROUNDING[dtype]) * np.abs(v).max()
        return _error_share(np.asarray(result[page, rows, head]), exact, np.full_like(exact, tolerance))

    def function(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)

    return _Compiled(on, "attention", columns, function, (q, keys, values), check, "dot_product_attention", scores)


_SCALAR = 1.25
"""The second operand of arithmetic with one array."""


def _elementwise(on: JaxDevice, columns: Columns) -> HostTrial:
    name, dtype = str(columns["op"]), str(columns["dtype"])
    shape = (int(columns["rows"]), int(columns["width"]))
    on.require_memory(8.0 * shape[0] * shape[1], "elementwise")
    generator = np.random.default_rng(0)
    x, y = (_random(shape, dtype, generator) for _ in range(2))
    if name.startswith(("pow", "div")):  # positive operands close to 1
        x, y = ((np.abs(array.astype(np.float32)) + 0.5).astype(array.dtype) for array in (x, y))
    binary = name in ("add", "mul", "div", "pow")

    def layer_norm(x: Any, lib: Any) -> Any:
        mean = lib.mean(x, -1, keepdims=True)
        return (x - mean) / lib.sqrt(lib.mean((x - mean) ** 2, -1, keepdims=True) + 1e-5)

    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(e / e.sum(-1, keepdims=True))

    arithmetic: Mapping[str, Callable[[Any, Any], Any]] = {
        "add": lambda x, y: x + y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
        "pow": lambda x, y: x**y,
    }
    functions: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "relu": (jax.nn.relu, lambda x: np.maximum(x, 0.0)),
        "gelu": (lambda x: jax.nn.gelu(x, approximate=False), lambda x: 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))),
        "tanh": (jnp.tanh, np.tanh),
        "softmax": (jax.nn.softmax, softmax),
        "ln": (lambda x: layer_norm(x, jnp), lambda x: layer_norm(x, np)),
    }

    def function(x: Any, y: Any = _SCALAR) -> Any:
        wide = x.astype(jnp.float32)
        if name in functions:
            return functions[name][0](wide).astype(x.dtype)
        return arithmetic[name.removesuffix("u")](wide, y.astype(jnp.float32) if binary else y).astype(x.dtype)

    def check(result: Any) -> float:
        rows = _sample_rows(shape[0], generator)
        a, b = x[rows].astype(np.float64), y[rows].astype(np.float64)
        if name in functions:
            exact = functions[name][1](a)
        else:
            exact = arithmetic[name.removesuffix("u")](a, b if binary else _SCALAR)
        # A few float32 steps on numbers as large as the operands, and one rounding to the type. Layer norm and softmax
        # also add up a row.
        steps = 16.0 + (4.0 * math.sqrt(shape[1]) if name in ("ln", "softmax") else 0.0)
        scale = np.abs(exact) + (0.0 if name == "softmax" else np.abs(a))
        rounded = 1.01 * _ROUNDING[dtype] * np.abs(exact) + _UNDERFLOW[dtype]
        return _error_share(np.asarray(result[rows]), exact, steps * _ROUNDING["float32"] * scale + rounded)

    operands = (x, y) if binary else (x,)
    return _Compiled(on, "elementwise", columns, function, operands, check, f"{name} compiled by XLA", float(x.nbytes))


def _copy(on: JaxDevice, columns: Columns) -> HostTrial:
    size, direction = int(columns["bytes"]), str(columns["direction"])
    on.require_memory(2.0 * size, "copy")
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    if direction != "d2d":
        return _HostCopies(on, columns, data)

    def check(result: Any) -> float:
        return 0.0 if np.array_equal(np.asarray(result), data) else math.inf

    return _Compiled(on, "copy", columns, jnp.copy, (data,), check, "a copy on the device", float(size))


class _HostCopies(_JaxTrial):
    """Copies between host and device, in either direction."""

    def __init__(self, on: JaxDevice, columns: Columns, data: np.ndarray) -> None:
        self._to_device = columns["direction"] == "h2d"
        count = on.sets(data.nbytes, columns)
        on.require_memory(3.0 * data.nbytes * count, "copy")
        note = "device_put to new device memory" if self._to_device else "to a NumPy array"
        super().__init__(on, columns, note)
        self.note += f"; {data.nbytes * count / 1e6:,.3g} MB, used in turn"
        self._data = data
        # At odd addresses, so that JAX cannot use this memory as its own and has to copy it.
        self._hosts = [np.zeros(data.nbytes + 1, np.uint8)[1:] for _ in range(count)]
        self._held = [] if self._to_device else [on.put(data.copy()) for _ in range(count)]
        if self._to_device:
            for host in self._hosts:
                np.copyto(host, data)

    def _run(self, count: int) -> float:
        total_s, remaining = 0.0, count
        with self.device.errors("copy"):
            while remaining > 0:
                copies = min(remaining, len(self._hosts))
                total_s += self._put(copies) if self._to_device else self._get(copies)
                remaining -= copies
        return total_s / count

    def _put(self, count: int) -> float:
        began = time.perf_counter()
        for host in self._hosts[:count]:
            self._last = self.device.put(host)
        return time.perf_counter() - began

    def _get(self, count: int) -> float:
        # JAX caches an array's copy on the host, so every copy needs a new array.
        fresh = [jnp.copy(array).block_until_ready() for array in self._held[:count]]
        began = time.perf_counter()
        if self.device.info.software:  # np.asarray is a view of JAX's memory
            for array, host in zip(fresh, self._hosts, strict=False):
                np.copyto(host, np.asarray(array))
            self._last = self._hosts[count - 1]
        else:
            for array in fresh:
                self._last = np.asarray(array)
        return time.perf_counter() - began

    def _check(self) -> float:
        return 0.0 if np.array_equal(np.asarray(self._last), self._data) else math.inf

    def _close(self) -> None:
        super()._close()
        self._hosts = []


class _Launches(_JaxTrial):
    """Launches of the smallest function that JAX executes, which counts its launches."""

    def __init__(self, on: JaxDevice, columns: Columns) -> None:
        super().__init__(on, columns, "an addition to one number (JAX has no empty kernel)")
        self._count, self._launched = int(columns["count"]), 0
        self._last = on.put(np.zeros((), np.int32))
        self._function = jax.jit(lambda x: x + 1).lower(self._last).compile()

    def _run(self, count: int) -> float:
        function, value, waits = self._function, self._last, self._waits
        with self.device.errors("launch"):
            began = time.perf_counter()
            for _ in range(count * self._count):
                value = function(value)
                if waits:
                    value.block_until_ready()
            value.block_until_ready()
            took = time.perf_counter() - began
        self._last = value
        self._launched += count * self._count
        return took / count

    def _check(self) -> float:
        return 0.0 if int(self._last) == self._launched else math.inf

    def _close(self) -> None:
        super()._close()
        self._function = None


def _dtype_refusal(dtypes: Sequence[str], columns: Columns) -> Refusal:
    if columns["dtype"] in dtypes:
        return None
    return UnsupportedOperationError(f"{columns['dtype']} is not supported, only {', '.join(dtypes)}")


def _attention_refusal(software: bool, columns: Columns) -> Refusal:
    why = ""
    if columns["kv_dtype"] != columns["dtype"]:
        why = f"JAX's attention requires keys and values in the type of the queries, not {columns['kv_dtype']}"
    elif columns["dtype"] == "float16" and software:
        why = "XLA does not compile attention in float16 for a processor"
    elif float(columns["heads"]) % float(columns["kv_heads"]):
        why = "JAX's attention requires that heads is a multiple of kv_heads"
    return _dtype_refusal(_DTYPES[:-1], columns) or (UnsupportedOperationError(why) if why else None)


def _copy_refusal(columns: Columns) -> Refusal:
    if columns["direction"] == "d2d" or columns["memory"] == "pageable":
        return None
    return UnsupportedOperationError(f"JAX copies to and from pageable memory only, not {columns['memory']}")


def _launch_refusal(columns: Columns) -> Refusal:
    if columns["mode"] == "stream":
        return None
    return UnsupportedOperationError(f"JAX has no launch with mode={columns['mode']}", expected="mode=stream")


def _trials(software: bool) -> Mapping[str, TrialFactory]:
    return {
        "gemm": TrialFactory(_gemm, partial(_dtype_refusal, _DTYPES)),
        "attention": TrialFactory(_attention, partial(_attention_refusal, software)),
        "elementwise": TrialFactory(_elementwise, partial(_dtype_refusal, _DTYPES[:-1])),
        "copy": TrialFactory(_copy, _copy_refusal),
        "launch": TrialFactory(_Launches, _launch_refusal),
    }
