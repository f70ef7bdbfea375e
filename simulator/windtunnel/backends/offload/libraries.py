"""The libraries that the back end `offload` calls, and their versions."""

from __future__ import annotations

import zlib
from functools import lru_cache


def openssl() -> str:
    """Return name and version of the library behind `cryptography`: ``OpenSSL 4.0.3``."""
    from cryptography.hazmat.backends.openssl.backend import backend

    # The text is "OpenSSL 4.0.3 29 Sep 2026".
    return " ".join(backend.openssl_version_text().split()[:2])


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the version of each library by its name. Raises ImportError if one is missing."""
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
