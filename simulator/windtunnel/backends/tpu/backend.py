"""TPUs through JAX, and whatever else JAX runs on: a processor where there is no TPU, which then says so.

JAX has no blocks, streams or device memory that a program sees, so that it does operations and runs no programs. Times
are the host's, around work that was waited for (``block_until_ready``): on a TPU or GPU many runs are enqueued and
waited for together, on a processor each is waited for, since JAX runs them side by side otherwise.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common import system as _system
from windtunnel.backends.common.backend import Found, RealBackend
from windtunnel.backends.common.host_work import Columns, HostDevice, HostTrial, Job, Refused, cold_operands
from windtunnel.core.errors import DeviceNotPresentError, DeviceOutOfMemory, LaunchError, UnsupportedOperationError

if TYPE_CHECKING:
    import numpy as np

INSTALL = "pip install 'jax[tpu]' on a TPU host; pip install jax elsewhere (597 MB)"
_DTYPES = ("float32", "float16", "bfloat16", "int8")
_ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff: half the distance from 1 to the next number."""
_LEAST = {"float32": 2.0**-126, "float16": 2.0**-25, "bfloat16": 2.0**-126}
"""What may be lost of the smallest numbers: half of float16's smallest; the others' may be taken for 0."""
_KIND = {"tpu": "tpu", "cpu": "cpu"}
_BEYOND_CACHES = 512e6
"""Operands of an accelerator are gone through in so many bytes (a TPU's VMEM and CMEM hold 128 MiB)."""
_MOST_SETS = 2048
_ROWS_CHECKED = 32


def _devices() -> Sequence[Any]:
    """JAX's devices. It is asked before its start not to take most of a GPU's memory for itself."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    found: Sequence[Any] = jax.devices()
    return found


def _find() -> list[Found]:
    return [_found(index, device) for index, device in enumerate(_devices())]


def _found(index: int, device: Any) -> Found:
    import jax

    software = device.platform == "cpu"
    memory = _system.limits().memory_bytes if software else (device.memory_stats() or {}).get("bytes_limit", 0.0)
    version = " ".join(str(device.client.platform_version).split()) or device.platform
    return Found(
        backend="tpu",
        index=index,
        label="this host's processor, through JAX: no TPU" if software else str(device.device_kind),
        kind=_KIND.get(device.platform, "gpu"),
        software=software,
        driver=f"JAX {jax.__version__}" + ("" if software else f", {version}"),
        api="jax",
        vendor="" if software else {"tpu": "Google"}.get(device.platform, ""),
        memory_bytes=float(memory),
    )


def _operations(index: int) -> JaxDevice:
    try:
        devices = _devices()
    except ImportError as error:
        raise DeviceNotPresentError(f"tpu:{index} is not here: {error}; {INSTALL}") from None
    if not 0 <= index < len(devices):
        raise DeviceNotPresentError(f"tpu:{index} is not here: JAX has {len(devices)} devices")
    return JaxDevice(_found(index, devices[index]), devices[index])


class JaxDevice(HostDevice):
    """A device of JAX's; see ``runtime.trial.Operations``. JAX itself keeps it until the process ends."""

    def __init__(self, found: Found, device: Any) -> None:
        import jax
        import jaxlib

        from windtunnel.runtime.interface import DeviceInfo, Limits

        self.found, self.device = found, device
        one = (1, 1, 1)
        info = DeviceInfo(
            name=found.name,
            kind=found.kind,
            api="jax",
            memory_bytes=found.memory_bytes,
            limits=Limits(1, one, one, 0, 1, "JAX has no blocks of threads"),
            features=frozenset(),
            virtual=False,
            software=found.software,
            driver=found.driver,
        )
        platform = " ".join(str(device.client.platform_version).split())
        super().__init__(
            info, {"jax": jax.__version__, "jaxlib": jaxlib.__version__, "platform": platform}, _jobs(found.software)
        )

    def _context_refused(self, op: str, columns: Columns) -> Refused:
        dispatch = columns["dispatch"]
        if dispatch == "graph":
            return UnsupportedOperationError("JAX has no graphs to replay: what it compiles is launched as one")
        if dispatch == "eager" and op == "copy":
            return UnsupportedOperationError("a copy is timed as it is", expected="dispatch=device")
        # On a processor each run is waited for anyway; elsewhere only what is launched one by one is.
        waited = dispatch == "eager" and not self.info.software
        return super()._context_refused(op, {**columns, "dispatch": "device"} if waited else columns)

    def trial(self, op: str, columns: Mapping[str, Any]) -> Any:
        """See ``runtime.trial.Operations``."""
        with self.errors(op):
            return super().trial(op, columns)

    @contextmanager
    def errors(self, operation: str) -> Iterator[None]:
        """What JAX raises, as a device's error."""
        import jax

        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            said = " ".join(str(error).split())[:300]
            kind = DeviceOutOfMemory if "RESOURCE_EXHAUSTED" in said else LaunchError
            raise self.error(kind, said, operation) from error

    @property
    def room_bytes(self) -> float:
        """What the device has; of a processor's, which would swap or end the process, a share of what is free."""
        return super().room_bytes if self.info.software else self.found.memory_bytes or math.inf

    def sets(self, size: float, columns: Columns) -> int:
        """How many sets of operands of ``size`` bytes are gone through, so that the next is in no cache."""
        beyond = None if self.info.software else _BEYOND_CACHES
        return cold_operands(size, 1, str(columns["cache"]), most=_MOST_SETS, beyond_bytes=beyond)

    def put(self, array: np.ndarray) -> Any:
        """The array on the device; on a processor perhaps in its own memory, where JAX likes how that is aligned."""
        import jax

        return jax.device_put(array, self.device).block_until_ready()


def _drawn(shape: Sequence[int], dtype: str, generator: np.random.Generator) -> np.ndarray:
    """Operands as anybody's: normal, or any byte."""
    import ml_dtypes
    import numpy as np

    if dtype == "int8":
        return generator.integers(-128, 128, shape, np.int8)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return generator.standard_normal(shape, np.float32).astype(kind)


class _JaxTrial(HostTrial):
    """``_last`` is what the last run gave; ``_held`` what it works on. Both are given back when it is closed."""

    device: JaxDevice
    _last: Any = None
    _held: Sequence[Any] = ()

    def __init__(self, device: JaxDevice, columns: Columns, note: str) -> None:
        import jax

        super().__init__(device, f"{note}, JAX {jax.__version__}")
        self._each = columns["dispatch"] == "eager" or device.info.software

    def _close(self) -> None:
        self._held, self._last = (), None


class _Compiled(_JaxTrial):
    """A compiled function on sets of operands in turn; all sets hold the same numbers."""

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
        import jax

        size = float(sum(operand.nbytes for operand in operands))
        count = on.sets(size, columns)
        on.require_memory(size * count + scratch_bytes, op)
        super().__init__(on, columns, note)
        self.note += f"; operands of {size * count / 1e6:,.3g} MB in turn"
        self._op, self._compare, self._next = op, check, 0
        self._held = [tuple(on.put(operand.copy()) for operand in operands) for _ in range(count)]
        # Without this a TPU multiplies float32 in one pass of bfloat16.
        with jax.default_matmul_precision("highest" if columns.get("dtype") == "float32" else "default"):
            self._function = jax.jit(function).lower(*self._held[0]).compile()

    def _run(self, count: int) -> float:
        each, sets, function = self._each, self._held, self._function
        last: Any = None
        with self.device.errors(self._op):
            began = time.perf_counter()
            for number in range(self._next, self._next + count):
                last = function(*sets[number % len(sets)])
                if each:
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


def _share(got: Any, right: np.ndarray, allowed: np.ndarray) -> float:
    """The largest of |got - right| / allowed; infinite for what is no number."""
    import numpy as np

    off = np.abs(np.asarray(got).astype(np.float64) - right)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(off == 0.0, 0.0, off / allowed)
    return math.inf if np.isnan(shares).any() else float(shares.max(initial=0.0))


def _some(count: int, generator: np.random.Generator) -> np.ndarray:
    """Up to 32 of ``count`` rows, in order."""
    import numpy as np

    return np.sort(generator.choice(count, min(count, _ROWS_CHECKED), replace=False))


def _gemm(on: JaxDevice, columns: Columns) -> HostTrial:
    import jax.numpy as jnp
    import numpy as np

    m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))
    dtype = str(columns["dtype"])
    on.require_memory((m * k + k * n + m * n) * batch * (1.0 if dtype == "int8" else 2.0), "gemm")
    generator = np.random.default_rng(0)
    a, b = _drawn((batch, m, k), dtype, generator), _drawn((batch, k, n), dtype, generator)
    out = jnp.int32 if dtype == "int8" else jnp.dtype(a.dtype)

    def check(got: Any) -> float:
        rows, page = _some(m, generator), int(generator.integers(batch))
        left, right = a[page, rows].astype(np.float64), b[page].astype(np.float64)
        exact = left @ right
        if dtype == "int8":  # sums below 2^53 are exact in float64, and wrap in int32 from 2^31
            return _share(np.asarray(got[page, rows]), exact, np.zeros_like(exact))
        # Sums of k products in float32, each order of them within some sqrt(k) roundings of the exact one with a
        # probability that Higham and Mary (2019, doi 10.1137/18M1226312, theorem 2.4) bound; then one rounding.
        sums = 4.0 * math.sqrt(k) * _ROUNDING["float32"] * (np.abs(left) @ np.abs(right))
        rounded = 1.01 * _ROUNDING[dtype] * np.abs(exact) + _LEAST[dtype]
        return _share(np.asarray(got[page, rows]), exact, sums + rounded)

    def product(left: Any, right: Any) -> Any:
        return jnp.matmul(left, right, preferred_element_type=out)

    held = batch * m * n * np.dtype(out).itemsize
    return _Compiled(on, "gemm", columns, product, (a, b), check, f"matmul to {np.dtype(out).name}", held)


def _attention(on: JaxDevice, columns: Columns) -> HostTrial:
    import jax
    import numpy as np

    batch, heads, kv_heads, width, tokens = (
        int(columns[name]) for name in ("batch", "heads", "kv_heads", "head_dim", "kv_tokens")
    )
    dtype, causal = str(columns["dtype"]), columns["phase"] == "prefill"
    queries = tokens if causal else 1
    scores = batch * heads * queries * tokens * 4.0  # written out in float32 where XLA does not fuse them
    on.require_memory(scores, "attention")
    generator = np.random.default_rng(0)
    q = _drawn((batch, queries, heads, width), dtype, generator)
    keys, values = (_drawn((batch, tokens, kv_heads, width), dtype, generator) for _ in range(2))

    def check(got: Any) -> float:
        page, head = int(generator.integers(batch)), int(generator.integers(heads))
        rows = _some(queries, generator)
        group = head // (heads // kv_heads)
        k, v = keys[page, :, group].astype(np.float64), values[page, :, group].astype(np.float64)
        logits = q[page, rows, head].astype(np.float64) @ k.T / math.sqrt(width)
        if causal:
            logits[np.arange(tokens)[None, :] > rows[:, None]] = -np.inf
        weights = np.exp(logits - logits.max(1, keepdims=True))
        exact = weights / weights.sum(1, keepdims=True) @ v
        # A mean of values, whose weights are rounded to the type before the second product.
        allowed = (64.0 * _ROUNDING["float32"] + 4.0 * _ROUNDING[dtype]) * np.abs(v).max()
        return _share(np.asarray(got[page, rows, head]), exact, np.full_like(exact, allowed))

    def function(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)

    return _Compiled(on, "attention", columns, function, (q, keys, values), check, "dot_product_attention", scores)


_SCALAR = 1.25
"""The second operand of arithmetic that has one array."""


def _elementwise(on: JaxDevice, columns: Columns) -> HostTrial:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from scipy.special import erf

    name, dtype = str(columns["op"]), str(columns["dtype"])
    shape = (int(columns["rows"]), int(columns["width"]))
    on.require_memory(8.0 * shape[0] * shape[1], "elementwise")
    generator = np.random.default_rng(0)
    x, y = (_drawn(shape, dtype, generator) for _ in range(2))
    if name.startswith(("pow", "div")):  # of positive numbers, near to 1
        x, y = ((np.abs(one.astype(np.float32)) + 0.5).astype(one.dtype) for one in (x, y))
    two = name in ("add", "mul", "div", "pow")

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
    other: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "relu": (jax.nn.relu, lambda x: np.maximum(x, 0.0)),
        "gelu": (lambda x: jax.nn.gelu(x, approximate=False), lambda x: 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))),
        "tanh": (jnp.tanh, np.tanh),
        "softmax": (jax.nn.softmax, softmax),
        "ln": (lambda x: layer_norm(x, jnp), lambda x: layer_norm(x, np)),
    }

    def function(x: Any, y: Any = _SCALAR) -> Any:
        wide = x.astype(jnp.float32)
        if name in other:
            return other[name][0](wide).astype(x.dtype)
        return arithmetic[name.removesuffix("u")](wide, y.astype(jnp.float32) if two else y).astype(x.dtype)

    def check(got: Any) -> float:
        rows = _some(shape[0], generator)
        a, b = x[rows].astype(np.float64), y[rows].astype(np.float64)
        exact = other[name][1](a) if name in other else arithmetic[name.removesuffix("u")](a, b if two else _SCALAR)
        # Done in float32 in some steps, of numbers as large as the operands, and rounded once to the type; layer norm
        # and softmax add up a row.
        steps = 16.0 + (4.0 * math.sqrt(shape[1]) if name in ("ln", "softmax") else 0.0)
        scale = np.abs(exact) + (0.0 if name == "softmax" else np.abs(a))
        rounded = 1.01 * _ROUNDING[dtype] * np.abs(exact) + _LEAST[dtype]
        return _share(np.asarray(got[rows]), exact, steps * _ROUNDING["float32"] * scale + rounded)

    operands = (x, y) if two else (x,)
    return _Compiled(on, "elementwise", columns, function, operands, check, f"{name} compiled by XLA", float(x.nbytes))


def _copy(on: JaxDevice, columns: Columns) -> HostTrial:
    import jax.numpy as jnp
    import numpy as np

    size, direction = int(columns["bytes"]), str(columns["direction"])
    on.require_memory(2.0 * size, "copy")
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    if direction != "d2d":
        return _HostCopies(on, columns, data)

    def check(got: Any) -> float:
        return 0.0 if np.array_equal(np.asarray(got), data) else math.inf

    return _Compiled(on, "copy", columns, jnp.copy, (data,), check, "a copy on the device", float(size))


class _HostCopies(_JaxTrial):
    """Copies between host and device."""

    def __init__(self, on: JaxDevice, columns: Columns, data: np.ndarray) -> None:
        import numpy as np

        self._to_device = columns["direction"] == "h2d"
        count = on.sets(data.nbytes, columns)
        on.require_memory(3.0 * data.nbytes * count, "copy")
        super().__init__(
            on, columns, "device_put to memory of its own" if self._to_device else "to an array of NumPy's"
        )
        self.note += f"; {data.nbytes * count / 1e6:,.3g} MB in turn"
        self._data = data
        # At an odd address, whose memory JAX cannot take for its own: it has to copy.
        self._hosts = [np.zeros(data.nbytes + 1, np.uint8)[1:] for _ in range(count)]
        self._held = [] if self._to_device else [on.put(data.copy()) for _ in range(count)]
        if self._to_device:
            for host in self._hosts:
                np.copyto(host, data)

    def _run(self, count: int) -> float:
        took, left = 0.0, count
        with self.device.errors("copy"):
            while left > 0:
                some = min(left, len(self._hosts))
                took += self._put(some) if self._to_device else self._get(some)
                left -= some
        return took / count

    def _put(self, count: int) -> float:
        began = time.perf_counter()
        for host in self._hosts[:count]:
            self._last = self.device.put(host)
        return time.perf_counter() - began

    def _get(self, count: int) -> float:
        import jax.numpy as jnp
        import numpy as np

        # JAX keeps what it once copied to the host: each copy is of an array that is new.
        fresh = [jnp.copy(array).block_until_ready() for array in self._held[:count]]
        began = time.perf_counter()
        if self.device.info.software:  # where JAX gives a view of its memory
            for array, host in zip(fresh, self._hosts, strict=False):
                np.copyto(host, np.asarray(array))
            self._last = self._hosts[count - 1]
        else:
            for array in fresh:
                self._last = np.asarray(array)
        return time.perf_counter() - began

    def _check(self) -> float:
        import numpy as np

        return 0.0 if np.array_equal(np.asarray(self._last), self._data) else math.inf

    def _close(self) -> None:
        super()._close()
        self._hosts = []


class _Launches(_JaxTrial):
    """The least that JAX launches, again and again: right where it counted each launch."""

    def __init__(self, on: JaxDevice, columns: Columns) -> None:
        import jax
        import numpy as np

        super().__init__(on, columns, "an addition to one number (JAX has no empty kernel)")
        self._count, self._launched = int(columns["count"]), 0
        self._last = on.put(np.zeros((), np.int32))
        self._function = jax.jit(lambda x: x + 1).lower(self._last).compile()

    def _run(self, count: int) -> float:
        function, value, each = self._function, self._last, self._each
        with self.device.errors("launch"):
            began = time.perf_counter()
            for _ in range(count * self._count):
                value = function(value)
                if each:
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


def _other_type(dtypes: Sequence[str], columns: Columns) -> Refused:
    if columns["dtype"] in dtypes:
        return None
    return UnsupportedOperationError(f"{columns['dtype']} is not done here, only in {', '.join(dtypes)}")


def _no_attention(software: bool, columns: Columns) -> Refused:
    why = ""
    if columns["kv_dtype"] != columns["dtype"]:
        why = f"JAX's attention has keys and values in the type of the queries, not {columns['kv_dtype']}"
    elif columns["dtype"] == "float16" and software:
        why = "XLA's attention is not compiled for a processor in float16"
    elif float(columns["heads"]) % float(columns["kv_heads"]):
        why = "JAX's attention has as many query heads for each head of keys and values"
    return _other_type(_DTYPES[:-1], columns) or (UnsupportedOperationError(why) if why else None)


def _no_copy(columns: Columns) -> Refused:
    if columns["direction"] == "d2d" or columns["memory"] == "pageable":
        return None
    return UnsupportedOperationError(f"JAX copies from and to pageable memory, not {columns['memory']}")


def _no_launch(columns: Columns) -> Refused:
    if columns["mode"] == "stream":
        return None
    return UnsupportedOperationError(f"JAX has no launch of mode {columns['mode']}")


def _jobs(software: bool) -> Mapping[str, Job]:
    return {
        "gemm": Job(_gemm, partial(_other_type, _DTYPES)),
        "attention": Job(_attention, partial(_no_attention, software)),
        "elementwise": Job(_elementwise, partial(_other_type, _DTYPES[:-1])),
        "copy": Job(_copy, _no_copy),
        "launch": Job(_Launches, _no_launch),
    }


BACKEND = RealBackend(
    name="tpu",
    reaches="TPUs, and GPUs that JAX was installed for, through JAX; the host's processor where there is none",
    install=INSTALL,
    find=_find,
    operations=_operations,
    present=lambda: find_spec("jax") is not None,
    timeout_s=60.0,  # a TPU's first start takes some ten seconds
)
