"""Kernels as RTL, simulated cycle by cycle: what an FPGA card would do, counted and not timed (`_rtl.device`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.backends.common.backend import Found, RealBackend
from windtunnel.backends.fpga.rtl import icarus
from windtunnel.core.errors import DeviceNotPresentError

if TYPE_CHECKING:
    from windtunnel.backends.fpga.rtl.device import RtlDevice


def _find() -> list[Found]:
    version = icarus.version()
    label = f"{icarus.LABEL} {version}"
    return [Found("fpga", 0, label, kind="fpga", software=True, driver=label, api=icarus.API)]


def _operations(index: int) -> RtlDevice:
    if index != 0:
        raise DeviceNotPresentError(f"fpga:{index} is not here: there is one simulator of designs, fpga:0")
    from windtunnel.backends.fpga.rtl.device import RtlDevice

    return RtlDevice()


BACKEND = RealBackend(
    name="fpga",
    reaches="kernels as RTL, simulated cycle by cycle",
    install=icarus.INSTALL,
    find=_find,
    operations=_operations,
    present=lambda: icarus.missing() is None,
)
