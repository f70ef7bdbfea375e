"""Opens devices for programs: emulated devices, and the real devices of this host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from windtunnel.core.device import Device
from windtunnel.core.errors import InputError
from windtunnel_models.catalogue import Catalogue, device_model, shipped_catalogue
from windtunnel_models.kinds import kind_names
from windtunnel_models.specs import api_names

if TYPE_CHECKING:
    from windtunnel.emulator.device.timeline import Host
    from windtunnel.runtime.accelerator import Accelerator
    from windtunnel.runtime.explore import Exploration
    from windtunnel.runtime.interface import Interval
    from windtunnel.runtime.selection import Choice, KnownBackend


def open_device(
    name: str,
    *,
    host: Host | None = None,
    catalogue: Catalogue | None = None,
    calibration: str | None = None,
    interval: Interval = "best",
    leaks: Literal["ignore", "error"] = "ignore",
    schedule: int | None = None,
    checked: bool = True,
    strict: bool = False,
    counted: bool = True,
) -> Accelerator:
    """Open an emulated accelerator, ``SKU`` or ``SKU@API``.

    Args:
        name: The name of the device.
        host: The host program whose virtual clock the device uses. Devices of one host share its clock.
        catalogue: The catalogue of devices. The default is the shipped one.
        calibration: The path of a calibration file, or "none" to ignore the shipped calibration.
        interval: The clock uses the best estimate of the model, or the ``low`` or ``high`` end of its 90% interval.
        leaks: "error" raises `Leak` if the device is closed while memory is allocated or a ring kernel runs.
        schedule: The seed of the order in which the threads of a kernel are executed one by one. See ``explore``.
        checked: Whether kernels and the order of streams are checked for errors.
        strict: Whether two unordered writes of an equal value to one element are a `DataRace`.
        counted: Whether the work of kernels that state none is counted, for the clock. Otherwise they move the contents
            of their arrays once.

    Raises:
        InputError: The device is not in the catalogue, or another argument is not valid.
    """
    from windtunnel.emulator.device.context import EmulatedContext
    from windtunnel.emulator.device.timeline import Host as Clock
    from windtunnel.runtime.accelerator import Accelerator

    if not isinstance(name, str):
        raise InputError(f"{name!r} is not a device name", expected="SKU or SKU@API")
    if host is not None and not isinstance(host, Clock):
        raise InputError(f"{host!r} is not a host", expected="windtunnel.Host()")
    if interval not in ("low", "best", "high"):
        raise InputError(f"'{interval}' is not a valid interval", expected="low, best or high")
    if leaks not in ("ignore", "error"):
        raise InputError(f"'{leaks}' is not a valid value of leaks", expected="ignore or error")
    if schedule is not None and (isinstance(schedule, bool) or not isinstance(schedule, int) or schedule < 0):
        raise InputError(f"{schedule!r} is not a valid schedule", expected="a seed: an integer of at least 0")
    model = device_model(name, catalogue or shipped_catalogue(), calibration)
    if not isinstance(strict, bool):
        raise InputError(f"{strict!r} is not a valid value of strict", expected="True or False")
    if not isinstance(counted, bool):
        raise InputError(f"{counted!r} is not a valid value of counted", expected="True or False")
    if strict and not checked:
        raise InputError("strict=True needs the checks that checked=False turns off", expected="checked=True")
    context = EmulatedContext(model, host, interval, checked=checked, strict=strict, counted=counted, schedule=schedule)
    return Accelerator(context, leaks=leaks)


def explore(
    program: Callable[[Accelerator], Any],
    device: str,
    *,
    schedules: int | Sequence[int] = 64,
    strict: bool = False,
    catalogue: Catalogue | None = None,
) -> Exploration:
    """Run ``program(accelerator)`` on a new ``device`` for each schedule of its kernels' threads.

    ``schedules`` is the number of schedules, or their seeds, and ``strict`` is as for ``device``. The exception of the
    first schedule that fails (a finding, or an assertion of the program) has a note with the seed and how to repeat it.
    See ``docs/kernels.md``.
    """
    from windtunnel.runtime.explore import explored

    catalogue = catalogue or shipped_catalogue()
    return explored(
        program, lambda seed: open_device(device, catalogue=catalogue, schedule=seed, strict=strict), schedules
    )


def open_real_device(name: str) -> Accelerator:
    """Open a real accelerator: ``SKU``, ``SKU@API``, or a name that `windtunnel devices --real` lists (``opencl:0``).

    Raises InputError for an unknown name, and DeviceNotPresentError for a device that is not present.
    """
    from windtunnel.backends.discovery import real_devices
    from windtunnel.runtime.accelerator import Accelerator

    # A misspelt name is a wrong input, and not an absent device.
    usual_api = None if ":" in name else device_model(name, shipped_catalogue()).spec.apis[0]
    return Accelerator(real_devices.open_real(name, usual_api))


def select(
    *preferred: str,
    use_case: str | None = None,
    device: str | None = None,
    machine: Sequence[str] | None = None,
    real: bool = False,
    host: Host | None = None,
    catalogue: Catalogue | None = None,
) -> Choice:
    """Choose a device by a list of preferred back ends, or by the recommendation for the use case ``use_case``.

    A back end is an API (``cuda``, ``wgpu`` ...) or a kind (``tpu``, ``cpu`` ...), as in the recommendation matrix.
    ``device`` restricts the choice to one ``SKU`` or ``SKU@API``. ``machine`` lists the SKUs of the emulated machine,
    which has every SKU of the catalogue unless given. With ``real`` the choice is among the devices of this host, and
    ``device`` may be a name such as ``opencl:0`` without a back end. The result states the ``reason`` and opens the
    device (``open()``).

    Raises InputError for an unknown name, and DeviceNotPresentError, with a reason for each back end, if no device is
    present.
    """
    from windtunnel.runtime import selection

    if real and device is not None and ":" in device and not preferred and use_case is None:
        preferred = (device.partition(":")[0],)
    if bool(preferred) == (use_case is not None):
        raise InputError(
            "select takes either back ends or a use case", expected="names of back ends, or use_case='...'"
        )
    catalogued = catalogue or shipped_catalogue()
    if device is not None and not (real and ":" in device):
        device_model(device, catalogued)  # a misspelt name is a wrong input, and not an absent device
    backends: Mapping[str, KnownBackend] = _real_backends() if real else _emulated_backends(machine, host, catalogued)
    if use_case is not None:
        return selection.select_for(use_case, backends, device=device)
    return selection.select(preferred, backends, device=device)


def _emulated_backends(
    machine: Sequence[str] | None, host: Host | None, catalogue: Catalogue
) -> dict[str, KnownBackend]:
    """Every kind and every API, with the devices of the machine that it reaches."""
    from windtunnel.emulator.device.backend import EmulatedBackend

    specs = list(catalogue.specs()) if machine is None else [catalogue.spec(sku) for sku in machine]
    words = "the catalogue" if machine is None else f"the emulated machine ({', '.join(machine) or 'no devices'})"
    reached = {kind: [f"{spec.sku}@{spec.apis[0]}" for spec in specs if spec.kind == kind] for kind in kind_names()}
    reached |= {api: [f"{spec.sku}@{api}" for spec in specs if api in spec.apis] for api in api_names()}
    make = partial(device_model, catalogue=catalogue)
    return {name: EmulatedBackend(name, devices, make, words, host) for name, devices in reached.items()}


def _real_backends() -> dict[str, KnownBackend]:
    from windtunnel.backends.discovery import real_devices

    return {**real_devices.real_backends(api_names(), kind_names())}


def emulator() -> Callable[[Device], Accelerator]:
    """Return a function that opens emulated accelerators on one virtual clock."""
    from windtunnel.emulator.device.context import EmulatedContext
    from windtunnel.emulator.device.timeline import Host
    from windtunnel.runtime.accelerator import Accelerator

    host = Host()
    return lambda target: Accelerator(EmulatedContext(target, host))
