"""Accelerators for programs: emulated ones, and the real devices of this host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from windtunnel.core.device import Device
from windtunnel.core.errors import InputError
from windtunnel.simulation.fleet import device_model
from windtunnel_models.catalogue import Catalogue, api_names
from windtunnel_models.kinds import kind_names

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
    known: Catalogue | None = None,
    calibration: str | None = None,
    interval: Interval = "best",
    leaks: Literal["ignore", "error"] = "ignore",
    schedule: int | None = None,
    checked: bool = True,
) -> Accelerator:
    """An emulated accelerator: ``SKU`` or ``SKU@API``. Those of one ``host`` share its virtual clock.

    ``interval``: the clock takes the model's best values, or the ``low`` or ``high`` end of their 90% intervals: what
    is in time at the high end is in time wherever the model holds. ``leaks``: whether closing it while memory is
    allocated or a ring kernel runs is an error (`Leak`). ``schedule``: threads of kernels are executed one by one in
    the order that this seed picks (``explore`` tries many). Without ``checked`` neither kernels nor the order of
    streams are looked at for what is wrong. Raises InputError for a device that is not in the catalogue.
    """
    from windtunnel.emulator.device.context import EmulatedContext
    from windtunnel.emulator.device.timeline import Host as Clock
    from windtunnel.runtime.accelerator import Accelerator

    if not isinstance(name, str):
        raise InputError(f"{name!r} is no device", expected="a SKU, or SKU@API")
    if host is not None and not isinstance(host, Clock):
        raise InputError(f"{host!r} is no clock of a host program", expected="windtunnel.Host()")
    if interval not in ("low", "best", "high"):
        raise InputError(f"'{interval}' is no part of an interval", expected="low, best or high")
    if leaks not in ("ignore", "error"):
        raise InputError(f"'{leaks}' is nothing to do with leaks", expected="ignore or error")
    if schedule is not None and (isinstance(schedule, bool) or not isinstance(schedule, int) or schedule < 0):
        raise InputError(f"{schedule!r} is no schedule", expected="a seed: a whole number from 0")
    model = device_model(name, known or Catalogue(), calibration)
    return Accelerator(EmulatedContext(model, host, interval, checked=checked, schedule=schedule), leaks=leaks)


def explore(
    program: Callable[[Accelerator], Any],
    device: str,
    *,
    schedules: int | Sequence[int] = 64,
    known: Catalogue | None = None,
) -> Exploration:
    """Run ``program(accelerator)`` on a fresh ``device`` for each schedule, which its kernels' threads then follow.

    ``schedules``: how many, or their seeds. What the first failing one raises (a finding, or the program's own
    assertion) has a note with the seed, and how to run it so again. See ``docs/kernels.md``.
    """
    from windtunnel.runtime.explore import explored

    catalogue = known or Catalogue()
    return explored(program, lambda seed: open_device(device, known=catalogue, schedule=seed), schedules)


def open_real_device(name: str) -> Accelerator:
    """A real accelerator: ``SKU`` or ``SKU@API``, or ``opencl:0`` as `windtunnel devices --real` calls it.

    InputError for a name that is none; DeviceNotPresentError where it is not here.
    """
    from windtunnel.backends.discovery import real_devices as probing
    from windtunnel.runtime.accelerator import Accelerator

    # A slip in a name is not an absent device.
    usual_api = None if ":" in name else device_model(name, Catalogue()).spec.apis[0]
    return Accelerator(probing.open_real(name, usual_api))


def select(
    *preferred: str,
    use: str | None = None,
    device: str | None = None,
    machine: Sequence[str] | None = None,
    real: bool = False,
    host: Host | None = None,
    known: Catalogue | None = None,
) -> Choice:
    """Choose a device by back ends in order of preference, or by what the recommendation matrix says for ``use``.

    A back end is an API (``cuda``, ``wgpu`` ...) or a kind (``tpu``, ``cpu`` ...), as in the matrix; ``device`` is the
    ``SKU`` or ``SKU@API`` that it has to be. Emulated is a machine with the SKUs of ``machine``, the whole catalogue
    unless given. With ``real`` it is what back ends reach on this host; ``device`` may be ``opencl:0`` then, with no
    back end beside it. The choice says why (``reason``) and opens the device (``open()``).

    Raises InputError for an unknown name; DeviceNotPresentError, with why for each, where none of it is here.
    """
    from windtunnel.runtime import selection

    if real and device is not None and ":" in device and not preferred and use is None:
        preferred = (device.partition(":")[0],)
    if bool(preferred) == (use is not None):
        raise InputError(
            "a back end is chosen by a preference or by a use", expected="names, or use='...', one of them"
        )
    catalogued = known or Catalogue()
    if device is not None and not (real and ":" in device):
        device_model(device, catalogued)  # a slip in a name is not an absent device
    found: Mapping[str, KnownBackend] = _real_backends() if real else _emulated_backends(machine, host, catalogued)
    if use is not None:
        return selection.select_for(use, found, device=device)
    return selection.select(preferred, found, device=device)


def _emulated_backends(machine: Sequence[str] | None, host: Host | None, known: Catalogue) -> dict[str, KnownBackend]:
    """Every kind and every API, with what it reaches of the machine's devices."""
    from windtunnel.emulator.device.backend import EmulatedBackend

    specs = list(known.specs()) if machine is None else [known.spec(sku) for sku in machine]
    words = "the catalogue" if machine is None else f"the emulated machine ({', '.join(machine) or 'no devices'})"
    reached = {kind: [f"{spec.sku}@{spec.apis[0]}" for spec in specs if spec.kind == kind] for kind in kind_names()}
    reached |= {api: [f"{spec.sku}@{api}" for spec in specs if api in spec.apis] for api in api_names()}
    make = partial(device_model, known=known)
    return {name: EmulatedBackend(name, devices, make, words, host) for name, devices in reached.items()}


def _real_backends() -> dict[str, KnownBackend]:
    from windtunnel.backends.discovery import real_devices as probing

    return {**probing.real_backends(api_names(), kind_names())}


def emulator() -> Callable[[Device], Accelerator]:
    """Opens emulated accelerators on one virtual clock."""
    from windtunnel.emulator.device.context import EmulatedContext
    from windtunnel.emulator.device.timeline import Host
    from windtunnel.runtime.accelerator import Accelerator

    host = Host()
    return lambda target: Accelerator(EmulatedContext(target, host))
