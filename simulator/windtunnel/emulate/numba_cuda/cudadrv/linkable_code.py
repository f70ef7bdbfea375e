"""``numba.cuda.cudadrv.linkable_code``: code of other languages, which cannot be linked to an emulated kernel."""

from __future__ import annotations

from typing import Any


class LinkableCode:
    """Code of another language. A kernel that states it for ``link`` is refused."""

    def __init__(
        self,
        data: Any,
        name: str | None = None,
        setup_callback: Any = None,
        teardown_callback: Any = None,
        nrt: bool = False,
    ) -> None:
        for callback in (setup_callback, teardown_callback):
            if callback is not None and not callable(callback):
                raise TypeError("a callback of linkable code must be callable")
        self._data, self.nrt = data, nrt
        self.name = name or type(self).__name__.lower()
        self.setup_callback, self.teardown_callback = setup_callback, teardown_callback

    @property
    def data(self) -> Any:
        """The code."""
        return self._data.getvalue() if hasattr(self._data, "getvalue") else self._data


class PTXSource(LinkableCode):
    """PTX."""


class CUSource(LinkableCode):
    """CUDA C++."""


class Fatbin(LinkableCode):
    """Machine code for several devices."""


class Cubin(LinkableCode):
    """Machine code."""


class Archive(LinkableCode):
    """An archive of objects."""


class Object(LinkableCode):
    """An object file."""


class LTOIR(LinkableCode):
    """NVVM's intermediate code."""
