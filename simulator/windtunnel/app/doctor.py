"""`windtunnel doctor`: what this host has, what is missing and what to install, in the order in which it is needed."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from shutil import which
from typing import Any

from windtunnel.backends.common import system as _system
from windtunnel.backends.discovery import real_devices as probing
from windtunnel.backends.discovery import registry
from windtunnel.backends.discovery.probe import Probed, probe
from windtunnel.core.errors import InputError, Where, nearest, one_of
from windtunnel.core.version import __version__

NEEDED = (
    "click", "jinja2", "ml_dtypes", "numba", "numpy", "pydantic", "PyYAML", "scipy", "simpy", "threadpoolctl", "tqdm",
)  # fmt: skip
"""Distributions that Windtunnel does not run without, as pyproject.toml has them."""

# What each is for, and what to install where it is missing.
_COMPILERS: Mapping[str, tuple[Sequence[str], str, str]] = {
    "g++": (("g++", "--version"), "kernels as C++, Metal's syntax", "apt install g++"),
    "iverilog": (("iverilog", "-V"), "kernels as RTL, simulated", "apt install iverilog"),
    "verilator": (("verilator", "--version"), "long RTL simulations", "apt install verilator"),
    "hipcc": (("hipcc", "--version"), "HIP code is compiled, for no AMD card", "apt install hipcc (189 MB)"),
}
_NVRTC = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")
_ANSWER_S = 20.0
"""A compiler that does not say its version in so long is taken not to work."""


def names_of(required: Sequence[str]) -> list[str]:
    """The back ends of ``--require opencl,wgpu``; InputError for one that is none."""
    names = [name.strip() for one in required for name in one.split(",") if name.strip()]
    for name in names:
        if name not in registry.names():
            raise InputError(
                f"unknown back end '{name}'",
                where=Where(field="--require"),
                expected=one_of(registry.names()),
                nearest=nearest(name, registry.names()),
            )
    return names


def doctor(required: Sequence[str] = ()) -> dict[str, Any]:
    """What the host has: ``missing`` are those of ``required`` (names of back ends) that reach no device here."""
    with ThreadPoolExecutor() as pool:
        asked = {name: pool.submit(_says, command) for name, (command, _, _) in _COMPILERS.items()}
        probed = probe()
        compilers = [
            {"name": name, "version": asked[name].result(), "for": what, "install": install}
            for name, (_, what, install) in _COMPILERS.items()
        ]
    wheels = [(name, _version(name)) for name in _NVRTC]
    nvrtc = next((f"{name} {number}" for name, number in wheels if number is not None), None)
    compilers.append(
        {
            "name": "nvrtc",
            "version": nvrtc,
            "for": "CUDA code is compiled, with or without a card",
            "install": "pip install nvidia-cuda-nvrtc-cu12 (142 MB)",
        }
    )
    found = probing.reached(probed)
    limits = _system.limits()
    return {
        "windtunnel": __version__,
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
        },
        "packages": [{"name": name, "version": _version(name)} for name in NEEDED],
        "compilers": compilers,
        "bus": [
            {"address": device.address, "ids": device.ids, "kind": device.kind, "what": device.words}
            for device in _system.accelerators()
        ],
        "unreached": [device.address for device in probing.unreached(found)],
        "backends": [_backend(one) for one in probed],
        "root": _is_root(),
        "limits": {
            "cores": limits.cores,
            "memory_bytes": limits.memory_bytes,
            "address_space_bytes": limits.address_space_bytes,
        },
        "required": list(required),
        "missing": [one.name for one in probed if one.name in required and not one.present],
        "validate": [
            {"name": one.found.name, "as": one.modelled_as, "software": one.found.software}
            for one in sorted(found, key=lambda one: one.found.software)
        ],
    }


def _backend(probed: Probed) -> dict[str, Any]:
    backend = registry.backend(probed.name)
    return {
        "name": probed.name,
        "state": probed.kind_of_failure or "present",
        "present": probed.present,
        "why": probed.why,
        "reaches": backend.reaches,
        "install": backend.install,
        "took_s": probed.took_s,
        "devices": [
            {"name": found.name, "label": found.label, "software": found.software, "driver": found.driver}
            for found in probed.devices
        ],
    }


def missing_words(report: Mapping[str, Any]) -> str:
    """Of the back ends that were required and are not here: which, why, and what to install."""
    said = [
        f"{one['name']}: {one['why']}; to install: {one['install']}"
        for one in report["backends"]
        if one["name"] in report["missing"]
    ]
    return f"required, and not here: {'; '.join(said)}"


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report for people."""
    python = report["python"]
    yield f"Windtunnel {report['windtunnel']}, Python {python['version']} ({python['executable']})"
    yield f"  {python['platform']}"
    yield "  " + ", ".join(f"{one['name']} {one['version']}" for one in report["packages"] if one["version"])
    lacking = [one["name"] for one in report["packages"] if not one["version"]]
    if lacking:
        yield f"  missing: pip install {' '.join(lacking)}"
    yield ""
    yield "Compilers, for the tests of what is written in other languages"
    for one in report["compilers"]:
        state = one["version"] or f"missing ({one['for']}): {one['install']}"
        yield f"  {one['name']:<10} {state}"
    yield ""
    yield "Back ends of real devices"
    for one in report["backends"]:
        yield f"  {one['name']:<10} {one['state'] if one['present'] else one['state'] + ': ' + one['why']}"
        for device in one["devices"]:
            software = ", software: no accelerator" if device["software"] else ""
            yield f"  {'':<10} {device['name']}  {device['label']}{software} ({device['driver']})"
        if not one["present"]:
            yield f"  {'':<10} reaches {one['reaches']}; to install: {one['install']}"
    for device in report["bus"]:
        if device["address"] in report["unreached"]:
            yield (
                f"  on the bus at {device['address']}: {device['what']} ({device['ids']}), which no back end reaches: "
                "is its driver installed?"
            )
    yield ""
    if report["root"]:
        yield "Running as root: packets makes its network namespaces by right of it. Nothing else needs it or uses it."
    else:
        yield "Not root: packets runs where users may make namespaces, and apt needs sudo. Nothing else is different."
    limits = report["limits"]
    space = limits["address_space_bytes"]
    yield (
        f"Limits: {limits['cores']:g} cores, {limits['memory_bytes'] / 1e9:,.1f} GB of memory"
        + ("" if space is None else f", {space / 1e9:,.1f} GB of address space for a process")
    )
    ways = [f"{one['name']} (as {one['as']})" if one["as"] else f"{one['name']}" for one in report["validate"]]
    yield f"windtunnel validate can measure here: {', '.join(ways) or 'nothing, as no back end reaches a device'}"


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _says(command: Sequence[str]) -> str | None:
    """The first line with a number of what a command says of its version; None where it is not here or says nothing."""
    program = which(command[0])
    if program is None:
        return None
    try:
        process = subprocess.Popen(  # noqa: S603  a compiler of the path, asked for its version
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        said, _ = process.communicate(timeout=_ANSWER_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    text = said.decode("utf-8", "replace")
    return next((line.strip() for line in text.splitlines() if any(c.isdigit() for c in line)), None)
