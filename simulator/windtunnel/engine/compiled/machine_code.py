"""Machine code in files, and how it is loaded and called without importing Numba.

Numba compiles the transitions (`jit.py`). What a run needs of the outcome is one function: the object file that LLVM
makes of it, a sixtieth of what Numba's own cache keeps. It is loaded without Numba, whose import and cache take half a
second and 180 MB of memory. Where `elf.py` cannot load a file, LLVM does.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from windtunnel.core.kept import BESIDE, first_writable, folders, stated_processor
from windtunnel.engine.compiled import elf

_BESIDE = BESIDE
_USER_EXCEPTION = 1
"""The first status of Numba's calling convention that means a raised exception."""
_OF_UNUSED_CALLS = frozenset({"numba_gil_ensure", "numba_gil_release", "numba_unpickle"})
"""Functions of Numba for calling a policy that is not compiled, which is never the case."""
_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT")
"""Numba's settings on which machine code depends."""


@dataclass(frozen=True)
class ObjectCode:
    """One compiled function of Numba's calling convention: an object file and what has to be known to use it.

    ``arguments`` is the number of words that the function takes, and ``externals`` names what it calls.
    """

    symbol: str
    arguments: int
    externals: tuple[str, ...]
    content: bytes

    def to_bytes(self) -> bytes:
        """Return the content of a file."""
        head = {"symbol": self.symbol, "arguments": self.arguments, "externals": self.externals}
        head["size"] = len(self.content)
        return json.dumps(head).encode() + b"\n" + self.content

    @classmethod
    def from_bytes(cls, stored: bytes) -> ObjectCode:
        """Return the content of a file; raises ValueError if it is not whole."""
        head, _, content = stored.partition(b"\n")
        read = json.loads(head)
        if len(content) != read["size"]:
            raise ValueError("the file is not whole")
        return cls(read["symbol"], read["arguments"], tuple(read["externals"]), content)


@dataclass(frozen=True)
class Native:
    """A function in memory: its address, what has to exist as long as it is called, and the words that it takes."""

    address: int
    owner: object
    arguments: int = 0


# Files.


@cache
def _machine() -> str:
    """Return a digest of what machine code depends on besides its sources."""
    facts = [metadata.version("numba"), metadata.version("llvmlite"), sys.platform, platform.machine()]
    facts += [os.environ.get(name, "") for name in _SETTINGS]
    return hashlib.blake2b("\0".join([*facts, *_processor()]).encode(), digest_size=8).hexdigest()


def _processor() -> list[str]:
    """Return the model and the features of the processor: those that Linux states, or else those that LLVM finds."""
    stated = stated_processor()
    if stated:
        return stated
    import llvmlite.binding as llvm

    return [llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]


def _folders() -> list[Path]:
    """Return the folders that may have machine code, the first one first: beside the source, then the user's own."""
    return folders(_BESIDE)


def writable_folder() -> Path | None:
    """Return the first folder for machine code that can be written to; None if there is none."""
    return first_writable(_folders())


@dataclass(frozen=True)
class Place:
    """Where the machine code of a function is kept.

    Args:
        name: A name that is part of the file's name.
        sources: The files on which the machine code depends. Machine code of other sources is never loaded.
    """

    name: str
    sources: tuple[Path, ...]

    @property
    def file(self) -> str:
        """The name of the file, which contains digests of the sources and of the machine."""
        return f"{self.name}.{_digest(self.sources)}.{_machine()}.o"

    def is_stored(self) -> bool:
        """Return whether there is machine code of these sources for this machine."""
        return any((folder / self.file).exists() for folder in _folders())

    def read(self) -> ObjectCode | None:
        """Return the stored machine code; None if there is none."""
        for folder in _folders():
            with suppress(OSError, ValueError, KeyError):
                return ObjectCode.from_bytes((folder / self.file).read_bytes())
        return None

    def write(self, code: ObjectCode) -> None:
        """Store machine code, and delete that of other sources if the folder is this installation's alone.

        Nothing is stored where no folder can be written to.
        """
        folder = writable_folder()
        if folder is None:
            return
        made = folder / f"{self.file}.{os.getpid()}.tmp"
        with suppress(OSError):
            made.write_bytes(code.to_bytes())
            made.replace(folder / self.file)
            for other in folder.glob(f"{self.name}.*.o") if folder == _BESIDE else ():
                if not other.name.startswith(f"{self.name}.{_digest(self.sources)}."):
                    other.unlink(missing_ok=True)

    def is_locked(self) -> bool:
        """Return whether another process executes a block of ``one_process`` now."""
        folder = writable_folder()
        try:
            import fcntl
        except ImportError:
            return False
        if folder is None:
            return False
        with (folder / f"{self.name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    @contextmanager
    def one_process(self) -> Iterator[None]:
        """Let one process at a time execute the block, where the system has file locks and a folder can be written."""
        folder = writable_folder()
        try:
            import fcntl
        except ImportError:
            folder = None
        if folder is None:
            yield
            return
        with (folder / f"{self.name}.lock").open("w") as file:  # closing it releases the lock
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@cache
def _digest(sources: tuple[Path, ...]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def machine_code(place: Place, compile_it: Callable[[], ObjectCode]) -> Native:
    """Return a function in memory, from its file or else compiled now, by one process for all that wait for it."""
    code = place.read()
    if code is None:
        with place.one_process():
            code = place.read()
            if code is None:
                code = compile_it()
                place.write(code)
    return loaded(code)


# Memory.


def loaded(code: ObjectCode) -> Native:
    """Load machine code into memory."""
    try:
        address_of, owner = elf.load(code.content, _address)
        return Native(address_of(code.symbol), owner, code.arguments)
    except elf.UnsupportedObjectError:
        return loaded_by_llvm(code)


def _address(name: str) -> int | None:
    """Return the address of a function of this process, or of one that ends it in place of one that is never called."""
    own = "abort" if name in _OF_UNUSED_CALLS else name
    with suppress(AttributeError):
        return ctypes.cast(ctypes.CDLL(None)[own], ctypes.c_void_p).value
    return None


def loaded_by_llvm(code: ObjectCode) -> Native:
    """Load machine code into memory, with the library that compiled it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)  # it also finds the symbols of the process
    for name in code.externals:
        if llvm.address_of_symbol(name):
            continue
        if name in _OF_UNUSED_CALLS:
            llvm.add_symbol(name, _address(name))
        else:
            from numba.core.registry import cpu_target

            cpu_target.target_context.refresh()  # it makes Numba's functions known to LLVM
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.content))
    engine.finalize_object()
    return Native(engine.get_function_address(code.symbol), engine, code.arguments)


class _Raised(ctypes.Structure):
    """The description of an exception in Numba's calling convention."""

    _fields_ = (("pickled", ctypes.c_void_p), ("size", ctypes.c_int32))


class Call:
    """A call of a function of Numba's calling convention that returns an int64. Other threads run while it runs."""

    def __init__(self, native: Native) -> None:
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * native.arguments)
        self._native, self._entry = native, kind(native.address)

    def __call__(self, words: Sequence[int]) -> int:
        """Call the function; exceptions that it raises are raised."""
        if len(words) != self._native.arguments:
            raise TypeError(f"machine code that takes {self._native.arguments} words was called with {len(words)}")
        returned, raised = ctypes.c_int64(), ctypes.POINTER(_Raised)()
        status = self._entry(ctypes.addressof(returned), ctypes.addressof(raised), *words)
        if status >= _USER_EXCEPTION and raised:
            described: Any = pickle.loads(ctypes.string_at(raised.contents.pickled, raised.contents.size))  # noqa: S301
            raise described[0](*(described[1] or ()))
        if status != 0:
            raise RuntimeError(f"machine code ended with status {status}")
        return returned.value
