"""TPUs through JAX, and whatever else JAX runs on. Without a TPU that is the host's processor, reported as software.

JAX shows a program no blocks, streams or device memory, so that this back end executes single operations and no
programs. `tpu.trials` has the operations.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common import system
from windtunnel.backends.common.backend import DetectedDevice, RealBackend, device_at
from windtunnel.core.errors import DeviceNotPresentError

if TYPE_CHECKING:
    from windtunnel.backends.tpu.trials import JaxDevice

INSTALL = "pip install 'jax[tpu]' on a TPU host; pip install jax elsewhere (597 MB)"


def _devices() -> Sequence[Any]:
    """Return JAX's devices. The setting keeps JAX from reserving most of a GPU's memory when it starts."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    devices: Sequence[Any] = jax.devices()
    return devices


def _find() -> list[DetectedDevice]:
    return [_detected(index, device) for index, device in enumerate(_devices())]


def _detected(index: int, device: Any) -> DetectedDevice:
    import jax

    software = device.platform == "cpu"
    memory = system.limits().memory_bytes if software else (device.memory_stats() or {}).get("bytes_limit", 0.0)
    version = " ".join(str(device.client.platform_version).split()) or device.platform
    return DetectedDevice(
        backend="tpu",
        index=index,
        label="this host's processor, through JAX: no TPU" if software else str(device.device_kind),
        kind=device.platform if device.platform in ("tpu", "cpu") else "gpu",
        software=software,
        driver=f"JAX {jax.__version__}" + ("" if software else f", {version}"),
        api="jax",
        vendor="Google" if device.platform == "tpu" else "",
        memory_bytes=float(memory),
    )


def _operations(index: int) -> JaxDevice:
    try:
        devices = _devices()
    except ImportError as error:
        raise DeviceNotPresentError(f"tpu:{index} not found: {error}; {INSTALL}") from None
    device = device_at(index, devices, "tpu")
    from windtunnel.backends.tpu.trials import JaxDevice

    return JaxDevice(_detected(index, device), device)


BACKEND = RealBackend(
    name="tpu",
    description="TPUs, and GPUs that JAX was installed for, through JAX; the host's processor without either",
    install=INSTALL,
    find=_find,
    operations=_operations,
    present=lambda: find_spec("jax") is not None,
    timeout_s=60.0,  # the first start on a TPU takes about ten seconds
)
