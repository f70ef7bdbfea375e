"""Loads object files of Linux on x86-64 into memory.

LLVM can do this, but its library takes 50 MB of memory and 40 ms of processor time to load, which is more than all
other things that a run of the compiled engine needs from outside. Our object files have sections, symbols and
absolute or relative relocations, and nothing else. For other files `load` gives up, and LLVM loads them.

Source of the format: System V Application Binary Interface, AMD64 Architecture Processor Supplement, chapter 4.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Callable

import numpy as np

_HEADER = 64
_SECTION = np.dtype(
    [("name", "<u4"), ("kind", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"), ("size", "<u8"),
     ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8")]
)  # fmt: skip
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_MAGIC = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _ZEROS, _OTHER_RELOCATIONS = 2, 4, 8, 9
_ALLOCATED, _EXECUTABLE = 2, 4
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_ABSOLUTE_64, _RELATIVE_64 = 1, 24
_READ, _EXECUTE = 1, 4  # mprotect(2)


class UnsupportedObjectError(Exception):
    """An object file, or a machine, that this module cannot load."""


def is_supported() -> bool:
    """Return whether this module can load object files of this machine."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def load(content: bytes, external: Callable[[str], int | None]) -> tuple[Callable[[str], int], object]:
    """Load an object file; return a function from symbols to addresses, and what owns the memory.

    ``external`` returns the address of a function outside of the file; None if there is none.

    Raises:
        UnsupportedObjectError: The machine or the file is not supported, or a symbol is not known.
    """
    sections, symbols, names = _read(content)
    places, commons, code, size = _layout(sections, symbols)
    memory = mmap.mmap(-1, size)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for number, place in places.items():
        start, length = int(sections[number]["offset"]), int(sections[number]["size"])
        if sections[number]["kind"] != _ZEROS:
            memory[place : place + length] = content[start : start + length]
    addresses = []
    for number, (name, symbol) in enumerate(zip(names, symbols, strict=True)):
        home, value = int(symbol["section"]), int(symbol["value"])
        if home in places:
            addresses.append(base + places[home] + value)
        elif home == _COMMON:
            addresses.append(base + commons[number])
        else:
            addresses.append(_outside(name, home, value, external))
    for section in sections[sections["kind"] == _RELOCATIONS]:
        if int(section["info"]) in places:
            _relocate(memory, base, places[int(section["info"])], _relocations(content, section), addresses)
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(base), ctypes.c_size_t(code), _READ | _EXECUTE):
        raise UnsupportedObjectError("the system does not allow machine code in memory")
    return dict(zip(names, addresses, strict=True)).__getitem__, memory


def _read(content: bytes) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the sections, the symbols and the names of symbols of an object file."""
    if not is_supported() or content[: len(_MAGIC)] != _MAGIC or len(content) < _HEADER:
        raise UnsupportedObjectError("not an object file of this machine")
    if np.frombuffer(content, "<u2", 2, 16).tolist() != [_RELOCATABLE, _X86_64]:
        raise UnsupportedObjectError("not a relocatable file for x86-64")
    first, count = int.from_bytes(content[40:48], "little"), int.from_bytes(content[60:62], "little")
    sections = np.frombuffer(content, _SECTION, count, first)
    tables = [s for s in sections if s["kind"] == _SYMBOLS]
    if len(tables) != 1 or any(s["kind"] == _OTHER_RELOCATIONS for s in sections):
        raise UnsupportedObjectError("not one table of symbols, or relocations of another form")
    symbols = np.frombuffer(content, _SYMBOL, int(tables[0]["size"]) // _SYMBOL.itemsize, int(tables[0]["offset"]))
    return sections, symbols, _names(content, sections[tables[0]["link"]], symbols)


def _outside(name: str, home: int, value: int, external: Callable[[str], int | None]) -> int:
    """Return the address of a symbol that is in no section in memory; 0 for one that is not needed there."""
    if home == _ABSOLUTE:
        return value
    if home != _UNDEFINED or not name:
        return 0
    found = external(name)
    if found is None:
        raise UnsupportedObjectError(f"{name} is not known")
    return found


def _names(content: bytes, section: np.void, symbols: np.ndarray) -> list[str]:
    start = int(section["offset"])
    text = content[start : start + int(section["size"])]
    return [text[at : text.index(b"\0", at)].decode() for at in symbols["name"].tolist()]


def _layout(sections: np.ndarray, symbols: np.ndarray) -> tuple[dict[int, int], dict[int, int], int, int]:
    """Return the places of sections and of common symbols, the size of the pages of code, which are first, and all."""
    places: dict[int, int] = {}
    size = code = 0
    for wanted in (_EXECUTABLE, 0):
        for number, section in enumerate(sections):
            flags = int(section["flags"])
            if flags & _ALLOCATED and flags & _EXECUTABLE == wanted:
                size = _aligned(size, int(section["align"]))
                places[number] = size
                size += int(section["size"])
        if wanted:
            size = code = _aligned(size, mmap.PAGESIZE)
    commons = {}
    for number in np.flatnonzero(symbols["section"] == _COMMON).tolist():
        size = _aligned(size, int(symbols[number]["value"]))
        commons[number] = size
        size += int(symbols[number]["size"])
    return places, commons, code, max(size, 1)


def _aligned(place: int, multiple: int) -> int:
    return place + -place % max(multiple, 1)


def _relocations(content: bytes, section: np.void) -> np.ndarray:
    return np.frombuffer(content, _RELOCATION, int(section["size"]) // _RELOCATION.itemsize, int(section["offset"]))


def _relocate(memory: mmap.mmap, base: int, place: int, relocations: np.ndarray, addresses: list[int]) -> None:
    """Write the addresses of symbols into a section at ``place``."""
    for relocation in relocations:
        at = place + int(relocation["offset"])
        value = addresses[relocation["symbol"]] + int(relocation["addend"])
        if relocation["kind"] == _RELATIVE_64:
            value -= base + at
        elif relocation["kind"] != _ABSOLUTE_64:
            raise UnsupportedObjectError(f"a relocation of kind {relocation['kind']}")
        memory[at : at + 8] = (value & (2**64 - 1)).to_bytes(8, "little")
