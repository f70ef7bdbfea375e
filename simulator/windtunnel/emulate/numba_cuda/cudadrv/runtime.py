"""``numba.cuda.cudadrv.runtime``: the version of the runtime."""

from __future__ import annotations


class Runtime:
    """The runtime of emulated devices."""

    def get_version(self) -> tuple[int, int]:
        """Return the version of CUDA."""
        return 12, 8

    def is_supported_version(self) -> bool:
        """Return True."""
        return True

    @property
    def supported_versions(self) -> tuple[tuple[int, int], ...]:
        """The versions of CUDA."""
        return (self.get_version(),)


runtime = Runtime()


def get_version() -> tuple[int, int]:
    """Return the version of CUDA."""
    return runtime.get_version()
