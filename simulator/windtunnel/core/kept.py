"""Values kept in files, so that later processes need not compute them again.

A value is a pure function of files of the package and of what its name contains. The name has digests of both, of NumPy
and of the processor, so that nothing is found that was computed otherwise. What cannot be read is computed again. The
files lie where the machine code lies (``folders``), and are as trusted as it is. ``WINDTUNNEL_KEEP_TABLES=0`` in the
environment switches them off.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TypeVar, cast

from windtunnel.core.processors import processors

T = TypeVar("T")
PACKAGE = Path(__file__).parents[1]
CORE = PACKAGE / "core"
"""The sources on which every kept value depends."""
BESIDE = PACKAGE / "engine" / "transitions" / "__pycache__"
"""The folder of files of this installation alone."""
_MOST_BYTES = 256_000_000
"""The size of all kept values above which the least recently used ones are deleted."""
_MOST_BYTES_OF_ONE = 16_000_000
_SUFFIX = ".kept"


def folders(beside: Path = BESIDE) -> list[Path]:
    """Return the folders that may have machine code and kept values, the first one first: ``beside``, then the user's.

    Only the folder in the environment variable ``NUMBA_CACHE_DIR`` if that is set.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return [Path(chosen)]
    user = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache" if os.environ.get("HOME") else None)
    return [beside, *([] if user is None else [Path(user) / "windtunnel"])]


def first_writable(candidates: list[Path]) -> Path | None:
    """Return the first folder that can be written to, made if it does not exist; None if there is none."""
    for folder in candidates:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


def stated_processor() -> list[str]:
    """Return the model and the features of the processor as Linux states them; nothing where it does not."""
    with suppress(OSError, UnicodeDecodeError):
        first, _, _ = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")
        stated = [line for line in first.splitlines() if line.startswith(("model name", "flags"))]
        if len(stated) == 2:
            return stated
    return []


@cache
def contents_digest(part: Path) -> str:
    """Return a digest of the names and the contents of all files in a folder, without compiled ones."""
    digest = hashlib.blake2b(digest_size=16)
    for folder, inner, names in os.walk(part):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        for name in sorted(names):
            content = Path(folder, name).read_bytes()
            digest.update(f"{folder[len(str(part)) :]}\0{name}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


@cache
def _numerics() -> str:
    """Return what the last bit of a computed number may depend on besides the sources; threads divide products."""
    threads = [os.environ.get(f"{of}_NUM_THREADS", "") for of in ("OPENBLAS", "MKL", "OMP")]
    facts = [sys.version, metadata.version("numpy"), platform.machine(), str(processors()), *threads]
    return "\0".join([*facts, *stated_processor()])


def is_on() -> bool:
    """Return whether values are kept."""
    return os.environ.get("WINDTUNNEL_KEEP_TABLES", "1") != "0"


def name_of(what: str, *parts: str) -> str:
    """Return the name of a value: ``what`` and a digest of ``parts``, Python, NumPy and the processor."""
    digest = hashlib.blake2b("\0".join([_numerics(), *parts]).encode(), digest_size=16)
    return f"{what}.{digest.hexdigest()}{_SUFFIX}"


def value(what: str, sources: Sequence[Path], inputs: Sequence[str], compute: Callable[[], T]) -> T:
    """Return what ``compute`` returns, from a file if an earlier process has kept it.

    Args:
        what: The word that the name of the file begins with.
        sources: The folders of the package on whose files the value depends, besides ``core``.
        inputs: All else that it depends on.
        compute: It returns the value, which must be picklable and not None.
    """
    if not is_on():
        return compute()
    name = name_of(what, *(contents_digest(part) for part in (CORE, *sources)), *inputs)
    found = read(name)
    if found is None:
        found = compute()
        write(name, found)
    return cast(T, found)


def read(name: str) -> object | None:
    """Return the value that was written by this name; None if there is none that is whole."""
    for folder in folders():
        with suppress(Exception):  # whatever a damaged file leads to, its value is computed again
            stored = (folder / name).read_bytes()
            check, content = stored[:_CHECK], stored[_CHECK:]
            if check == _check(content):
                os.utime(folder / name)
                found: object = pickle.loads(content)  # noqa: S301  written by ``write``, as trusted as machine code
                return found
    return None


def write(name: str, value: object) -> bool:
    """Keep a picklable value, if a folder can be written to and it is not too large; return whether it is kept.

    Old values are deleted above a limit.
    """
    content = pickle.dumps(value, protocol=5)
    folder = first_writable(folders())
    if folder is None or len(content) > _MOST_BYTES_OF_ONE:
        return False
    made = folder / f"{name}.{os.getpid()}.tmp"
    with suppress(OSError):
        made.write_bytes(_check(content) + content)
        made.replace(folder / name)
        _delete_old(folder)
        return True
    return False


_CHECK = 16
"""The bytes of the digest of a value at the beginning of its file."""


def _check(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_CHECK).digest()


def _delete_old(folder: Path) -> None:
    """Delete the values that were not used for the longest time, until the others are within the limit."""
    with os.scandir(folder) as entries:
        kept = sorted(
            ((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in entries if _is_kept(entry.name)),
            reverse=True,
        )
    total = 0
    for _, size, path in kept:
        total += size
        if total > _MOST_BYTES:
            Path(path).unlink(missing_ok=True)


def _is_kept(name: str) -> bool:
    return name.endswith(_SUFFIX)
