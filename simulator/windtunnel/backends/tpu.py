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
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from windtunnel.backends import _system
from windtunnel.backends._known import Found, RealBackend
from windtunnel.core.errors import (
    DeviceError,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    InputError,
    InvalidArgument,
    LaunchError,
    UnsupportedOperationError,
    one_of,
)

if TYPE_CHECKING:
    import numpy as np

    from windtunnel.runtime.interface import DeviceInfo
    from windtunnel.runtime.trial import Timer, Trial

INSTALL = "pip install 'jax[tpu]' on a TPU host; pip install jax elsewhere (597 MB)"
_OPS = ("gemm", "attention", "elementwise", "copy", "launch")
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


def _operations(index: int) -> JaxOperations:
    try:
        devices = _devices()
    except ImportError as error:
        raise DeviceNotPresentError(f"tpu:{index} is not here: {error}; {INSTALL}") from None
    if not 0 <= index < len(devices):
        raise DeviceNotPresentError(f"tpu:{index} is not here: JAX has {len(devices)} devices")
    return JaxOperations(_found(index, devices[index]), devices[index])


class JaxOperations:
    """A device of JAX's; see ``runtime.trial.Operations``."""

    def __init__(self, found: Found, device: Any) -> None:
        self.found, self.device = found, device
        self._closed = False

    @property
    def info(self) -> DeviceInfo:
        """What JAX says of it."""
        from windtunnel.runtime.interface import DeviceInfo, Limits

        one = (1, 1, 1)
        return DeviceInfo(
            name=self.found.name,
            kind=self.found.kind,
            api="jax",
            memory_bytes=self.found.memory_bytes,
            limits=Limits(1, one, one, 0, 1, "JAX has no blocks of threads"),
            features=frozenset(),
            virtual=False,
            software=self.found.software,
            driver=self.found.driver,
        )

    @property
    def versions(self) -> Mapping[str, str]:
        """JAX, its compiler's library, and what JAX says of the platform."""
        import jax
        import jaxlib

        return {
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "platform": " ".join(str(self.device.client.platform_version).split()),
        }

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        """Why not, in words; None where it does it."""
        if op not in _OPS:
            return f"JAX is not asked for {op} here, only for {', '.join(_OPS)}"
        if columns.get("dispatch") == "graph":
            return "JAX has no graphs to replay: what it compiles is launched as one"
        if op == "launch":
            return None if columns["mode"] == "stream" else f"JAX has no launch of mode {columns['mode']}"
        if op == "copy":
            given = columns["memory"]
            if columns["direction"] != "d2d" and given != "pageable":
                return f"JAX copies from and to pageable memory, not {given}"
            return None
        dtypes = {"gemm": _DTYPES}.get(op, _DTYPES[:-1])
        if columns["dtype"] not in dtypes:
            return f"{op} in {columns['dtype']} is not done here, only in {', '.join(dtypes)}"
        if op == "attention" and columns["kv_dtype"] != columns["dtype"]:
            return f"JAX's attention has keys and values in the type of the queries, not {columns['kv_dtype']}"
        if op == "attention" and columns["dtype"] == "float16" and self.found.software:
            return "XLA's attention is not compiled for a processor in float16"
        if op == "attention" and columns["heads"] % columns["kv_heads"]:
            return "JAX's attention has as many query heads for each head of keys and values"
        return None

    def trial(self, op: str, columns: Mapping[str, Any]) -> Trial:
        """See ``runtime.trial.Operations``."""
        if self._closed:
            raise self.error(InvalidArgument, "the device is closed", op)
        refused = self.refusal(op, columns)
        if refused is not None:
            raise UnsupportedOperationError(refused, expected=one_of(_OPS) if op not in _OPS else None)
        make: Callable[[JaxOperations, Mapping[str, Any]], Trial] = {
            "gemm": _gemm,
            "attention": _attention,
            "elementwise": _elementwise,
            "copy": _copy,
            "launch": _Launches,
        }[op]
        with self.errors(op):
            return make(self, columns)

    def energy_j(self) -> float | None:
        """See ``Operations``: JAX tells no energy."""
        return None

    def close(self) -> None:
        """Refuse what comes after. JAX itself keeps the device until the process ends."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """Whether it is."""
        return self._closed

    def error(self, kind: type[DeviceError], problem: str, operation: str) -> DeviceError:
        """A device's error, shaped as every API's."""
        from windtunnel.runtime.codes import code_of

        return kind(problem, operation=operation, device=self.found.name, code=code_of("jax", kind))

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

    def need(self, size: float, operation: str) -> None:
        """DeviceOutOfMemory for more bytes than the device has; a processor would swap, or the process be ended."""
        have = self.found.memory_bytes
        if have and size > have:
            raise self.error(DeviceOutOfMemory, f"{size:,.0f} bytes are needed and it has {have:,.0f}", operation)

    def sets(self, size: float, columns: Mapping[str, Any]) -> int:
        """How many sets of operands of ``size`` bytes are gone through, so that the next is in no cache."""
        if columns.get("cache") == "warm":
            return 1
        beyond = 2.0 * _last_level_bytes() if self.found.software else _BEYOND_CACHES
        return min(_MOST_SETS, 1 + math.ceil(beyond / size))

    def put(self, array: np.ndarray) -> Any:
        """The array on the device; on a processor perhaps in its own memory, where JAX likes how that is aligned."""
        import jax

        return jax.device_put(array, self.device).block_until_ready()

    def array(self, shape: Sequence[int], dtype: str, generator: np.random.Generator) -> np.ndarray:
        """Operands as anybody's: normal, or any byte."""
        import ml_dtypes
        import numpy as np

        if dtype == "int8":
            return generator.integers(-128, 128, shape, np.int8)
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
        return generator.standard_normal(shape, np.float32).astype(kind)


def _last_level_bytes() -> float:
    """Of this processor's largest cache; 64 MB where it does not say."""
    from pathlib import Path

    sizes = [0.0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        digits = text.rstrip("KM")
        if digits.isdigit():
            sizes.append(float(digits) * {"K": 2.0**10, "M": 2.0**20}.get(text[-1:], 1.0))
    return max(sizes) or 64e6


class _Compiled:
    """A compiled function on sets of operands in turn; see ``runtime.trial.Trial``."""

    timer: Timer = "host"

    def __init__(
        self,
        on: JaxOperations,
        op: str,
        columns: Mapping[str, Any],
        function: Callable[..., Any],
        operands: Sequence[np.ndarray],
        check: Callable[[Any], float],
        note: str,
        scratch_bytes: float = 0.0,
    ) -> None:
        import jax

        self._on, self._op, self._compare = on, op, check
        size = float(sum(operand.nbytes for operand in operands))
        count = on.sets(size, columns)
        on.need(size * count + scratch_bytes, op)
        self._sets = [tuple(on.put(operand.copy()) for operand in operands) for _ in range(count)]
        # Without this a TPU multiplies float32 in one pass of bfloat16.
        with jax.default_matmul_precision("highest" if columns.get("dtype") == "float32" else "default"):
            self._function = jax.jit(function).lower(*self._sets[0]).compile()
        self._each = columns.get("dispatch") == "eager" or on.found.software
        self._next, self._last = 0, None  # type: int, Any
        self.note = f"{note}, JAX {jax.__version__}; operands of {size * count / 1e6:,.3g} MB in turn"

    def run(self, count: int = 1) -> float:
        """Do it, wait, and say the seconds of one."""
        _at_least_one(count)
        self._refuse_closed()
        each, sets, function = self._each, self._sets, self._function
        last: Any = None
        with self._on.errors(self._op):
            began = time.perf_counter()
            for number in range(self._next, self._next + count):
                last = function(*sets[number % len(sets)])
                if each:
                    last.block_until_ready()
            last.block_until_ready()
            took = time.perf_counter() - began
        self._next, self._last = (self._next + count) % len(sets), last
        return took / count

    def check(self) -> float:
        """How far off, as a share of what rounding allows; all sets hold the same numbers."""
        self._refuse_closed()
        if self._last is None:
            raise InputError(f"{self._op} was not run, so that there is nothing to check", expected="run() before")
        return self._compare(self._last)

    def close(self) -> None:
        """Give back the operands."""
        self._sets, self._last, self._function = [], None, None

    def _refuse_closed(self) -> None:
        if not self._sets or self._on.closed:
            raise self._on.error(InvalidArgument, "it is closed", self._op)


def _at_least_one(count: int) -> None:
    if count < 1:
        raise InputError(f"{count} runs were asked for", expected="at least 1")


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


def _gemm(on: JaxOperations, columns: Mapping[str, Any]) -> Trial:
    import jax.numpy as jnp
    import numpy as np

    m, n, k, batch = (int(columns[name]) for name in ("m", "n", "k", "batch"))
    dtype = columns["dtype"]
    on.need((m * k + k * n + m * n) * batch * (1.0 if dtype == "int8" else 2.0), "gemm")
    generator = np.random.default_rng(0)
    a, b = on.array((batch, m, k), dtype, generator), on.array((batch, k, n), dtype, generator)
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


def _attention(on: JaxOperations, columns: Mapping[str, Any]) -> Trial:
    import jax
    import numpy as np

    batch, heads, kv_heads, width, tokens = (
        int(columns[name]) for name in ("batch", "heads", "kv_heads", "head_dim", "kv_tokens")
    )
    dtype, causal = columns["dtype"], columns["phase"] == "prefill"
    queries = tokens if causal else 1
    scores = batch * heads * queries * tokens * 4.0  # written out in float32 where XLA does not fuse them
    on.need(scores, "attention")
    generator = np.random.default_rng(0)
    q = on.array((batch, queries, heads, width), dtype, generator)
    keys, values = (on.array((batch, tokens, kv_heads, width), dtype, generator) for _ in range(2))

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


def _elementwise(on: JaxOperations, columns: Mapping[str, Any]) -> Trial:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from scipy.special import erf

    name, dtype = columns["op"], columns["dtype"]
    shape = (int(columns["rows"]), int(columns["width"]))
    on.need(8.0 * shape[0] * shape[1], "elementwise")
    generator = np.random.default_rng(0)
    x, y = (on.array(shape, dtype, generator) for _ in range(2))
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


def _copy(on: JaxOperations, columns: Mapping[str, Any]) -> Trial:
    import jax.numpy as jnp
    import numpy as np

    size, direction = int(columns["bytes"]), columns["direction"]
    on.need(2.0 * size, "copy")
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    if direction != "d2d":
        return _HostCopies(on, columns, data)

    def check(got: Any) -> float:
        return 0.0 if np.array_equal(np.asarray(got), data) else math.inf

    return _Compiled(on, "copy", columns, jnp.copy, (data,), check, "a copy on the device", float(size))


class _HostCopies:
    """Copies between host and device; see ``runtime.trial.Trial``."""

    timer: Timer = "host"

    def __init__(self, on: JaxOperations, columns: Mapping[str, Any], data: np.ndarray) -> None:
        import jax
        import numpy as np

        self._on, self._to_device = on, columns["direction"] == "h2d"
        count = on.sets(data.nbytes, columns)
        on.need(3.0 * data.nbytes * count, "copy")
        self._data: np.ndarray | None = data
        # At an odd address, whose memory JAX cannot take for its own: it has to copy.
        self._hosts = [np.zeros(data.nbytes + 1, np.uint8)[1:] for _ in range(count)]
        self._devices = [] if self._to_device else [on.put(data.copy()) for _ in range(count)]
        self._last: Any = None
        if self._to_device:
            for host in self._hosts:
                np.copyto(host, data)
        way = "device_put to memory of its own" if self._to_device else "to an array of NumPy's"
        self.note = f"{way}, JAX {jax.__version__}; {data.nbytes * count / 1e6:,.3g} MB in turn"

    def run(self, count: int = 1) -> float:
        """Copy, wait, and say the seconds of one."""
        _at_least_one(count)
        self._refuse_closed()
        took, left = 0.0, count
        with self._on.errors("copy"):
            while left > 0:
                some = min(left, len(self._hosts))
                took += self._put(some) if self._to_device else self._get(some)
                left -= some
        return took / count

    def _put(self, count: int) -> float:
        began = time.perf_counter()
        for host in self._hosts[:count]:
            self._last = self._on.put(host)
        return time.perf_counter() - began

    def _get(self, count: int) -> float:
        import jax.numpy as jnp
        import numpy as np

        # JAX keeps what it once copied to the host: each copy is of an array that is new.
        fresh = [jnp.copy(array).block_until_ready() for array in self._devices[:count]]
        began = time.perf_counter()
        if self._on.found.software:  # where JAX gives a view of its memory
            for array, host in zip(fresh, self._hosts, strict=False):
                np.copyto(host, np.asarray(array))
            self._last = self._hosts[count - 1]
        else:
            for array in fresh:
                self._last = np.asarray(array)
        return time.perf_counter() - began

    def check(self) -> float:
        """0 where every byte is right."""
        import numpy as np

        self._refuse_closed()
        if self._last is None:
            raise InputError("copy was not run, so that there is nothing to check", expected="run() before")
        return 0.0 if np.array_equal(np.asarray(self._last), self._data) else math.inf  # type: ignore[arg-type]

    def close(self) -> None:
        """Give back all arrays."""
        self._hosts, self._devices, self._last, self._data = [], [], None, None

    def _refuse_closed(self) -> None:
        if not self._hosts or self._on.closed:
            raise self._on.error(InvalidArgument, "it is closed", "copy")


class _Launches:
    """The least that JAX launches, again and again; see ``runtime.trial.Trial``."""

    timer: Timer = "host"

    def __init__(self, on: JaxOperations, columns: Mapping[str, Any]) -> None:
        import jax
        import numpy as np

        self._on, self._count = on, int(columns["count"])
        self._value: Any = on.put(np.zeros((), np.int32))
        self._function: Any = jax.jit(lambda x: x + 1).lower(self._value).compile()
        self._each = columns.get("dispatch") == "eager" or on.found.software
        self._launched = 0
        self.note = f"an addition to one number (JAX has no empty kernel), JAX {jax.__version__}"

    def run(self, count: int = 1) -> float:
        """Launch, wait, and say the seconds of one."""
        _at_least_one(count)
        self._refuse_closed()
        function, value, each = self._function, self._value, self._each
        with self._on.errors("launch"):
            began = time.perf_counter()
            for _ in range(count * self._count):
                value = function(value)
                if each:
                    value.block_until_ready()
            value.block_until_ready()
            took = time.perf_counter() - began
        self._value = value
        self._launched += count * self._count
        return took / count

    def check(self) -> float:
        """0 where it counted each launch."""
        self._refuse_closed()
        return 0.0 if int(self._value) == self._launched else math.inf

    def close(self) -> None:
        """Give back the number."""
        self._function = None

    def _refuse_closed(self) -> None:
        if self._function is None or self._on.closed:
            raise self._on.error(InvalidArgument, "it is closed", "launch")


BACKEND = RealBackend(
    name="tpu",
    reaches="TPUs, and GPUs that JAX was installed for, through JAX; the host's processor where there is none",
    install=INSTALL,
    find=_find,
    operations=_operations,
    present=lambda: find_spec("jax") is not None,
    timeout_s=60.0,  # a TPU's first start takes some ten seconds
)
