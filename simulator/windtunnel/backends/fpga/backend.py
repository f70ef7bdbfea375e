"""FPGA designs in Verilog, simulated cycle by cycle. Times are cycles at a stated clock (`fpga.trials`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.backends.common.backend import DetectedDevice, RealBackend
from windtunnel.backends.fpga.rtl import icarus
from windtunnel.core.errors import DeviceNotPresentError

if TYPE_CHECKING:
    from windtunnel.backends.fpga.trials import RtlDevice


def _find() -> list[DetectedDevice]:
    label = f"{icarus.LABEL} {icarus.version()}"
    return [DetectedDevice("fpga", 0, label, kind="fpga", software=True, driver=label, api=icarus.API)]


def _operations(index: int) -> RtlDevice:
    if index != 0:
        raise DeviceNotPresentError(f"fpga:{index} not found: there is one simulator, fpga:0")
    from windtunnel.backends.fpga.trials import RtlDevice

    return RtlDevice()


BACKEND = RealBackend(
    name="fpga",
    description="FPGA designs, simulated cycle by cycle",
    install=icarus.INSTALL,
    find=_find,
    operations=_operations,
    present=lambda: icarus.missing() is None,
)
