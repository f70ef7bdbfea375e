"""NVIDIA's management library (NVML): a device's energy, power, clocks and temperature. Nothing is ever set.

A device is found by its PCI address, by its UUID, which Vulkan reports as ``deviceUUID``, or by its name if no other
device has it. NVML works beside every API, so that clocks are known of a device that is driven through Vulkan or wgpu.

From the NVML API Reference: the energy counter is in mJ since the driver was loaded (Volta and later), and power is in
mW. From Ampere on (except GA100) ``nvmlDeviceGetPowerUsage`` is a mean over the last second. The field of the
instantaneous power is therefore read first, which drivers have from version 530 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from windtunnel.core.results.validation import Conditions

_REASONS: Mapping[int, str] = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
"""Reasons why the clocks are below their maximum, by nvmlClocksEventReason (nvml.h)."""


class Nvml:
    """One device in NVML."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._nvml, self._handle = library, handle

    @property
    def name(self) -> str:
        """NVML's name of the device."""
        return str(self._nvml.nvmlDeviceGetName(self._handle))

    @property
    def driver(self) -> str:
        """The driver's version: ``550.54.15``."""
        return str(self._nvml.nvmlSystemGetDriverVersion())

    def energy_j(self) -> float | None:
        """Return the device's energy counter (J since the driver was loaded)."""
        energy_mj = self._query(self._nvml.nvmlDeviceGetTotalEnergyConsumption)
        return None if energy_mj is None else energy_mj * 1e-3

    def power_w(self) -> float | None:
        """Return the present power (W)."""
        field = self._query(lambda handle: self._nvml.nvmlDeviceGetFieldValues(handle, [self._instant])[0])
        if field is not None and field.nvmlReturn == self._nvml.NVML_SUCCESS:
            return float(field.value.uiVal) * 1e-3
        power_mw = self._query(self._nvml.nvmlDeviceGetPowerUsage)
        return None if power_mw is None else power_mw * 1e-3

    def power_limit_w(self) -> float | None:
        """Return the power (W) at which the device throttles: the lowest of all its limits."""
        limit_mw = self._query(self._nvml.nvmlDeviceGetEnforcedPowerLimit)
        return None if limit_mw is None else limit_mw * 1e-3

    def state(self) -> Conditions:
        """Return the present state of the device, as far as it reports it."""
        nvml = self._nvml
        sm_mhz = self._query(lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        memory_mhz = self._query(lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))
        temperature_c = self._query(lambda handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        throttle_bits = self._query(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return Conditions(
            power_w=self.power_w(),
            sm_clock_hz=None if sm_mhz is None else sm_mhz * 1e6,
            memory_clock_hz=None if memory_mhz is None else memory_mhz * 1e6,
            temperature_c=None if temperature_c is None else float(temperature_c),
            held_back=None if throttle_bits is None else throttle_reasons(int(throttle_bits)),
            power_limit_w=self.power_limit_w(),
            application_clock_hz=self._application_clock_hz(),
        )

    def _application_clock_hz(self) -> float | None:
        """Return the SM clock (Hz) that the device has if nothing limits it; None if it reports none, as GeForce."""
        try:
            return float(self._nvml.nvmlDeviceGetApplicationsClock(self._handle, self._nvml.NVML_CLOCK_GRAPHICS)) * 1e6
        except (AttributeError, self._nvml.NVMLError):  # the call is deprecated and may leave the library
            return None

    @property
    def _instant(self) -> Any:
        return self._nvml.NVML_FI_DEV_POWER_INSTANT

    def _query(self, function: Callable[[Any], Any]) -> Any:
        """Return the result of an NVML function; None if the device or its driver does not support it."""
        nvml = self._nvml
        try:
            return function(self._handle)
        except nvml.NVMLError as error:
            unsupported = (
                nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND
            )  # fmt: skip
            if error.value in unsupported:
                return None
            raise


def throttle_reasons(bits: int) -> Sequence[str]:
    """Return why the clocks are lowered, in words. An unknown bit is returned as a number."""
    names = [name for bit, name in _REASONS.items() if bits & bit]
    unknown = bits & ~sum(_REASONS)
    return tuple(names + ([f"{unknown:#x}"] if unknown else []))


def nvml_of(bus_id: str) -> Nvml | None:
    """Return the device at a PCI address (``0000:1B:00.0``); None without NVML, its package, or the device in it."""
    return _found(lambda nvml: nvml.nvmlDeviceGetHandleByPciBusId(bus_id))


def nvml_with_uuid(uuid: bytes) -> Nvml | None:
    """Return the device with these 16 bytes as UUID; None as for `nvml_of`."""
    return _found(lambda nvml: nvml.nvmlDeviceGetHandleByUUID(f"GPU-{UUID(bytes=uuid)}"))


def nvml_named(name: str) -> Nvml | None:
    """Return the only device with this name; None as for `nvml_of`, or if several have it."""

    def only(nvml: Any) -> Any:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        named = [handle for handle in handles if str(nvml.nvmlDeviceGetName(handle)) == name]
        return named[0] if len(named) == 1 else None

    return _found(only)


def _found(handle_of: Callable[[Any], Any]) -> Nvml | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()  # counts its calls: only the first one does anything
        handle = handle_of(pynvml)
    except pynvml.NVMLError:
        return None
    return None if handle is None else Nvml(pynvml, handle)
