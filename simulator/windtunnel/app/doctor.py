"""`windtunnel doctor`: the packages, compilers and back ends of this host, and how to install what is missing."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from shutil import which

from windtunnel.backends.common import system
from windtunnel.backends.discovery import real_devices, registry
from windtunnel.backends.discovery.probe import ProbeResult, probe
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.results.host import (
    BackendState,
    BusDevice,
    Compiler,
    FoundDevice,
    HostLimits,
    HostReport,
    Measurable,
    Package,
    PythonVersion,
)
from windtunnel.core.time_limits import time_limit
from windtunnel.core.version import __version__

NEEDED = (
    "click", "jinja2", "ml_dtypes", "numba", "numpy", "pydantic", "PyYAML", "scipy", "simpy", "threadpoolctl", "tqdm",
)  # fmt: skip
"""The required distributions of pyproject.toml."""

# The command that prints the version, the purpose, and how to install it.
_COMPILERS: Mapping[str, tuple[Sequence[str], str, str]] = {
    "g++": (("g++", "--version"), "tests of kernels as C++ and of Metal syntax", "apt install g++"),
    "iverilog": (("iverilog", "-V"), "RTL simulation of kernels", "apt install iverilog"),
    "verilator": (("verilator", "--version"), "long RTL simulations", "apt install verilator"),
    "hipcc": (("hipcc", "--version"), "compiling HIP code, without an AMD device", "apt install hipcc (189 MB)"),
}
_NVRTC = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")
_ANSWER_S = 20.0
"""A compiler that does not print its version within this time counts as missing."""


def names_of(required: Sequence[str]) -> list[str]:
    """Parse ``--require opencl,wgpu``. Raises InputError for an unknown back end."""
    names = [name.strip() for value in required for name in value.split(",") if name.strip()]
    for name in names:
        if name not in registry.names():
            raise InputError(
                f"unknown back end '{name}'",
                where=Location(field="--require"),
                expected=list_choices(registry.names()),
                nearest=nearest(name, registry.names()),
            )
    return names


def doctor(required: Sequence[str] = ()) -> HostReport:
    """Describe the host. ``missing`` lists the back ends of ``required`` that found no device."""
    with ThreadPoolExecutor() as pool:
        versions = {name: pool.submit(_compiler_version, command) for name, (command, _, _) in _COMPILERS.items()}
        probed = probe()
        compilers = [
            Compiler(name, versions[name].result(), what, install) for name, (_, what, install) in _COMPILERS.items()
        ]
    wheels = [(name, _version(name)) for name in _NVRTC]
    nvrtc = next((f"{name} {number}" for name, number in wheels if number is not None), None)
    what, install = "compiling CUDA code, with or without a device", "pip install nvidia-cuda-nvrtc-cu12 (142 MB)"
    compilers.append(Compiler("nvrtc", nvrtc, what, install))
    devices = real_devices.identify(probed)
    limits = system.limits()
    return HostReport(
        windtunnel=__version__,
        python=PythonVersion(platform.python_version(), sys.executable, platform.platform()),
        packages=[Package(name, _version(name)) for name in NEEDED],
        compilers=compilers,
        bus=[BusDevice(device.address, device.ids, device.kind, device.label) for device in system.accelerators()],
        unreached=[device.address for device in real_devices.without_backend(devices)],
        backends=[_backend(result) for result in probed],
        root=_is_root(),
        limits=HostLimits(limits.cores, limits.memory_bytes, limits.address_space_bytes),
        required=list(required),
        missing=[result.name for result in probed if result.name in required and not result.present],
        validate=[
            Measurable(device.detected.name, device.model, device.detected.software)
            for device in sorted(devices, key=lambda device: device.detected.software)
        ],
    )


def _backend(probed: ProbeResult) -> BackendState:
    backend = registry.backend(probed.name)
    return BackendState(
        name=probed.name,
        state=probed.failure or "present",
        present=probed.present,
        why=probed.why,
        reaches=backend.description,
        install=backend.install,
        took_s=probed.probe_s,
        devices=[FoundDevice(found.name, found.label, found.software, found.driver) for found in probed.devices],
    )


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _compiler_version(command: Sequence[str]) -> str | None:
    """Run ``command`` and return the first line of its output that has a digit; None if it is missing or fails."""
    program = which(command[0])
    if program is None:
        return None
    try:
        process = subprocess.Popen(  # noqa: S603  a compiler on the PATH prints its version
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        output, _ = process.communicate(timeout=time_limit(_ANSWER_S))
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    text = output.decode("utf-8", "replace")
    return next((line.strip() for line in text.splitlines() if any(c.isdigit() for c in line)), None)
