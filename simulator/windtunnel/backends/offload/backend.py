"""QAT's software path and functional twin: encryption, compression and signatures by libraries on the processor.

Here is what finds it and which libraries it has; `_offload_jobs` is what is done with them.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

from windtunnel.backends.common.backend import Found, RealBackend
from windtunnel.backends.common.host_work import HostDevice, host_found, host_info, only_one, processor_name


def openssl() -> str:
    """Name and version of the library behind `cryptography`."""
    from cryptography.hazmat.backends.openssl.backend import backend

    # "OpenSSL 4.0.3 29 Sep 2026"
    return " ".join(backend.openssl_version_text().split()[:2])


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Of all libraries, by name. ImportError where one is missing."""
    import cryptography
    import isal
    import lz4
    import zstandard

    return {
        "cryptography": cryptography.__version__,
        "OpenSSL": openssl().split()[1],
        "isal": isal.__version__,
        "ISA-L": isal.ISAL_VERSION,
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "lz4": lz4.__version__,
        "liblz4": lz4.library_version_string(),
        "zstandard": zstandard.__version__,
        "libzstd": ".".join(map(str, zstandard.ZSTD_VERSION)),
    }


def find() -> list[Found]:
    """The host's processor. ImportError where one of the libraries is missing."""
    v = versions()
    driver = (
        f"cryptography {v['cryptography']} (OpenSSL {v['OpenSSL']}), isal {v['isal']}, zlib {v['zlib']}, "
        f"lz4 {v['lz4']}, zstandard {v['zstandard']}"
    )
    return [host_found("offload", processor_name(), driver)]


def operations(index: int) -> HostDevice:
    """The host's processor, ready."""
    only_one("offload", index)
    from windtunnel.backends.offload.jobs import JOBS

    return HostDevice(host_info(find()[0]), versions(), JOBS)


BACKEND = RealBackend(
    name="offload",
    reaches="the host's processor, as a QAT card's software path",
    install="pip install 'windtunnel[offload]'",
    find=find,
    packages=("cryptography", "isal", "lz4", "zstandard"),
    operations=operations,
)
