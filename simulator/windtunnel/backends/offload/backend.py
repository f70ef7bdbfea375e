"""The software path of a QAT card: encryption, compression and signatures by libraries on the host's processor."""

from __future__ import annotations

from windtunnel.backends.common.backend import DetectedDevice, RealBackend
from windtunnel.backends.common.host_work import HostDevice, detected_host, host_info, processor_name, require_first
from windtunnel.backends.offload.libraries import versions


def find() -> list[DetectedDevice]:
    """Return the host's processor. Raises ImportError if one of the libraries is missing."""
    v = versions()
    driver = (
        f"cryptography {v['cryptography']} (OpenSSL {v['OpenSSL']}), isal {v['isal']}, zlib {v['zlib']}, "
        f"lz4 {v['lz4']}, zstandard {v['zstandard']}"
    )
    return [detected_host("offload", processor_name(), driver)]


def operations(index: int) -> HostDevice:
    """Open the host's processor. Raises DeviceNotPresentError for any index but 0."""
    require_first("offload", index)
    from windtunnel.backends.offload.trials import TRIALS

    return HostDevice(host_info(find()[0]), versions(), TRIALS)


BACKEND = RealBackend(
    name="offload",
    description="the host's processor, as the software path of a QAT card",
    install="pip install 'windtunnel[offload]'",
    find=find,
    packages=("cryptography", "isal", "lz4", "zstandard"),
    operations=operations,
)
