"""The name and number of each error in each API, which are read from codes.yaml beside this module.

Sources: driver_types.h and cuda.h (CUDA 12; ``cuda driver`` is for programs that use the driver), hip_runtime_api.h
(ROCm 6), CL/cl.h, vulkan_core.h, MTLCommandBuffer.h, the WebGPU specification's GPUError and GPUDeviceLostInfo, and
cpa.h (QAT API 2). ``xrt`` and ``native`` report the errno that the operating system gives. DOCA's numbers differ
between releases, so only its names are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from windtunnel.core.errors import ApiCode, DeviceError

Reason = Literal["configuration", "cooperative", "kernel", "not ready", "handle", "capture", "source"]
"""Causes of errors for which some APIs have separate codes."""

ErrorKind = Callable[[type[DeviceError], str, Reason | None], type[DeviceError]]
"""Returns the class that replaces one of an error, given the operation and the reason."""

_Codes = Mapping[str, tuple[str, int | None]]
"""The codes of one API, by the name of the error class or by the reason."""


@cache
def _tables() -> Mapping[str, Mapping[Literal["errors", "reasons"], _Codes]]:
    """Return the codes by API. The file is read at the first error, because most programs have none."""
    import yaml

    tables: Mapping[str, Mapping[Literal["errors", "reasons"], _Codes]] = yaml.safe_load(
        Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    )
    return tables


def code_of(api: str, error: type[DeviceError], reason: Reason | None = None) -> ApiCode:
    """Return the code of ``api`` for an error class, or for its reason if the API has a code for it."""
    table = _tables().get(api, _tables()["errno"])
    own = None if reason is None else table.get("reasons", {}).get(reason)
    errors = table["errors"]
    name, number = own or next(errors[kind.__name__] for kind in error.__mro__ if kind.__name__ in errors)
    return ApiCode(api, name, number)


def same_kind(kind: type[DeviceError], operation: str, reason: Reason | None) -> type[DeviceError]:
    """Return the class of an error unchanged: an `ErrorKind`."""
    del operation, reason
    return kind
