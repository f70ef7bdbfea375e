"""Arrays of the host that a device accesses too: of ``cuda.mapped_array`` and ``cuda.managed_array``."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from windtunnel.emulate.common.memory import Allocation
from windtunnel.emulate.numba_cuda.ndarray import DeviceNDArray

_UNREAD = frozenset(
    {"can_cast", "common_type", "copyto", "empty_like", "full_like", "iscomplexobj", "isrealobj", "may_share_memory",
     "min_scalar_type", "ndim", "ones_like", "result_type", "shape", "shares_memory", "size", "zeros_like"}
)  # fmt: skip
"""The functions of NumPy that read no elements of arrays and make no view of them, and ``copyto``, which reads one."""
_WRITES_FIRST = frozenset({"copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"})
"""The functions of NumPy that change their first argument."""


class MappedNDArray(np.ndarray):
    """An array of the host that the device accesses too, or a view of one. Copies and results are plain arrays.

    What it reads while a kernel that writes it is in progress is a `MissingSync`, and so is what it changes while one
    uses it. What NumPy reads without a call of the array is not seen: see `docs/numba.md`.
    """

    _memory: tuple[Allocation, int, Any] | None = None
    """Its memory on the device, that memory's address on the host, and its stream; None for an array of the host."""

    def __array_finalize__(self, other: Any) -> None:
        memory = getattr(other, "_memory", None)
        if memory is not None:
            allocation, start, _ = memory
            first = end = self.__array_interface__["data"][0]
            for side, stride in zip(self.shape, self.strides, strict=True):
                first, end = first + min(0, (side - 1) * stride), end + max(0, (side - 1) * stride)
            inside = start <= first and end + self.itemsize <= start + allocation.size
            self._memory = memory if inside or not self.size else None

    def on_device(self, allocation: Allocation, stream: Any) -> MappedNDArray:
        """Note whose memory it has, and its default stream, and return it."""
        self._memory = allocation, self.__array_interface__["data"][0], stream
        return self

    @property
    def device_side(self) -> DeviceNDArray:
        """The array of the device that has the same memory."""
        if self._memory is None:
            raise AttributeError("the array has no memory of a device")
        allocation, start, stream = self._memory
        offset = self.__array_interface__["data"][0] - start
        return DeviceNDArray(self.shape, self.strides, self.dtype, stream, allocation, offset=offset)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array interface of the device's side."""
        return self.device_side.__cuda_array_interface__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.device_side, name)

    # Reads.

    def _read(self, *, raises: bool = True) -> np.ndarray:
        """Return it as a plain array, to be read. Raises MissingSync if a kernel that writes it has not ended.

        ``raises``: otherwise the finding is reported at once, and raised where the host next waits.
        """
        plain = self.view(np.ndarray)
        if self._memory is not None and plain.size:
            self._memory[0].host_reads(plain, raises=raises)
        return plain

    def _read_places(self, chosen: Any) -> None:
        """Raise MissingSync as `_read` does for the elements of some numbers, which are counted in C's order."""
        chosen = np.asarray(chosen)
        if not chosen.size or self._memory is None:
            return
        if self.flags["C_CONTIGUOUS"]:
            flat: Any = super().reshape(-1)
            flat._part(slice(int(chosen.min()), int(chosen.max()) + 1))._read()
        else:
            self._read()

    def _numbers(self) -> np.ndarray:
        return np.arange(self.size).reshape(self.shape)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        """Apply a function of NumPy to what it holds."""
        given = [one._read() if isinstance(one, MappedNDArray) else one for one in inputs]
        out = named.get("out")
        if out is not None:
            named["out"] = tuple(one.view(np.ndarray) if isinstance(one, MappedNDArray) else one for one in out)
        made = getattr(ufunc, method)(*given, **named)
        for one in out or ():
            if isinstance(one, MappedNDArray):
                one._wrote()
        return made if out is None else out[0] if len(out) == 1 else out

    def __array_function__(self, function: Any, kinds: Any, given: Any, named: Any) -> Any:
        """Apply another function of NumPy. Only its result tells whether it has read an array or made a view of it."""
        made = super().__array_function__(function, kinds, given, named)
        name = getattr(function, "__name__", "")
        written = [*_mapped(given[:1] if name in _WRITES_FIRST else ()), *_mapped(named.get("out"))]
        results = [one for one in _leaves(made) if isinstance(one, np.ndarray)]
        read = [one for one in (*_mapped(given), *_mapped(named)) if not any(one is other for other in written)]
        if name == "copyto" or name not in _UNREAD:
            arrays = [one for one in _leaves((*given, named)) if isinstance(one, np.ndarray)]
            is_view = bool(results) and all(any(np.may_share_memory(r, one) for one in arrays) for r in results)
            for one in () if is_view else read:
                one._read()
        for one in written:
            one._wrote()
        return made

    def __getitem__(self, index: Any) -> Any:
        places = index if isinstance(index, tuple) else (index,)
        if self._memory is not None and len(places) == self.ndim and not self.dtype.names:
            # One element. A slice is a view, which is not read yet.
            with contextlib.suppress(TypeError):
                numbers = [operator.index(place) for place in places]
                one = self._part(tuple(slice(at, at + 1 or None) for at in numbers)) if numbers else self
                one._read()
        made = super().__getitem__(index)
        if self._memory is not None and isinstance(made, np.ndarray) and not np.may_share_memory(made, self):
            self._read_places(self._numbers()[index])
        return made

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        self._wrote()

    def fill(self, value: Any) -> None:
        """Assign a number to every element."""
        super().fill(value)
        self._wrote()

    def _wrote(self) -> None:
        if self._memory is not None:
            self._memory[0].host_wrote()

    def _part(self, index: Any) -> MappedNDArray:
        part: MappedNDArray = super().__getitem__(index)
        return part

    @property
    def flat(self) -> Any:
        """An iterator over the elements. What it reads later is not seen, so this counts as the read."""
        self._read()
        return super().flat

    @flat.setter
    def flat(self, value: Any) -> None:
        np.ndarray.flat.__set__(self, value)  # type: ignore[attr-defined]
        self._wrote()

    @property
    def __numba_array_subtype_dispatch__(self) -> Any:
        """Raise AttributeError: there is no such attribute. Numba asks for it whenever a compiled function gets one.

        Numba passes over all errors here, so a finding is raised later.
        """
        self._read(raises=False)
        raise AttributeError("__numba_array_subtype_dispatch__")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _mapped(value: Any) -> list[MappedNDArray]:
    return [one for one in _leaves(value) if isinstance(one, MappedNDArray)]


def _reading(name: str) -> Any:
    method = getattr(np.ndarray, name)

    @functools.wraps(method)
    def read(self: MappedNDArray, *arguments: Any, **named: Any) -> Any:
        return method(self._read(), *arguments, **named)

    return read


def _choosing(name: str) -> Any:
    method = getattr(np.ndarray, name)

    @functools.wraps(method)
    def read(self: MappedNDArray, *arguments: Any, **named: Any) -> Any:
        if self._memory is not None:
            numbers = method(self._numbers(), *arguments, **{key: named[key] for key in named if key != "out"})
            self._read_places(numbers)
        return method(self.view(np.ndarray), *arguments, **named)

    return read


def _viewing(name: str) -> Any:
    method = getattr(np.ndarray, name)

    @functools.wraps(method)
    def read(self: MappedNDArray, *arguments: Any, **named: Any) -> Any:
        made = method(self, *arguments, **named)
        if not np.may_share_memory(made, self):
            self._read()
        return made

    return read


for _how, _names in (
    (_reading, (
        "__complex__", "__copy__", "__deepcopy__", "__float__", "__index__", "__int__", "__reduce__", "__reduce_ex__",
        "argmax", "argmin", "argpartition", "argsort", "astype", "byteswap", "choose", "copy", "cumprod", "cumsum",
        "dot", "dump", "dumps", "flatten", "nonzero", "repeat", "round", "searchsorted", "tobytes", "tofile", "tolist",
        "trace",
    )),
    (_choosing, ("item", "take")),
    (_viewing, ("ravel", "reshape")),
):  # fmt: skip
    for _name in _names:
        setattr(MappedNDArray, _name, _how(_name))
ManagedNDArray = MappedNDArray
