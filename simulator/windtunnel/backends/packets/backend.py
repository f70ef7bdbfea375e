"""The host's packet path, as a DPU's: packets through the Linux kernel over a veth pair in separate network namespaces.

This module finds out whether the host permits namespaces; `packets.trials` has the operation and `packets.driver` the
child process that holds the namespaces.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.backends.common.backend import DetectedDevice, RealBackend
from windtunnel.backends.common.host_work import detected_host, processor_name, require_first
from windtunnel.backends.packets.driver import Child
from windtunnel.core.errors import DeviceNotPresentError

if TYPE_CHECKING:
    from windtunnel.backends.packets.trials import VethDevice


def _detected(child: Child) -> DetectedDevice:
    v = child.versions
    driver = f"Linux {v['Linux']} AF_PACKET over veth, {v['how']}, pyroute2 {v['pyroute2']}"
    return detected_host("packets", f"veth pair on {processor_name()}", driver)


def _present() -> bool:
    return sys.platform == "linux" and Path("/proc/self/ns/net").exists()


def _start() -> Child:
    if not _present():
        raise DeviceNotPresentError("packets:0 not found: it requires Linux with network namespaces")
    if find_spec("pyroute2") is None:
        raise ModuleNotFoundError("No module named 'pyroute2'", name="pyroute2")
    return Child()


def find() -> list[DetectedDevice]:
    """Return the host's packet path. Raises DeviceNotPresentError if this process may not create namespaces."""
    child = _start()
    try:
        return [_detected(child)]
    finally:
        child.close()


def operations(index: int) -> VethDevice:
    """Open the host's packet path: namespaces created, ports up. Raises DeviceNotPresentError as `find` does."""
    require_first("packets", index)
    from windtunnel.backends.packets.trials import VethDevice

    child = _start()
    return VethDevice(child, _detected(child))


BACKEND = RealBackend(
    name="packets",
    description="the host's packet path (Linux), as a DPU's",
    install="pip install 'windtunnel[packets]'; and root, or a kernel that permits user namespaces",
    find=find,
    packages=("pyroute2",),
    operations=operations,
    present=_present,
)
