"""Compilers behind the stand-in for CuPy: NVRTC and Clang say whether a source is right, g++ makes it run here."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import subprocess
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {
    "float": 4, "int": 4, "unsigned int": 4, "unsigned": 4, "double": 8, "long long": 8, "unsigned long long": 8, "short": 2,
    "unsigned char": 1, "signed char": 1, "bool": 1, "__half": 2,
}  # fmt: skip


@cache
def _nvrtc_library() -> Any:
    """NVRTC of CUDA 12, or of CUDA 13, which has another package and folder."""
    for package in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        with suppress(ModuleNotFoundError):
            for folder in import_module(package).__path__:
                for library in Path(folder, "lib").glob("libnvrtc.so.*"):
                    for part in library.parent.glob("libnvrtc-builtins.so.*"):
                        ctypes.CDLL(str(part))  # NVRTC opens it by its name
                    return ctypes.CDLL(str(library))
    raise ModuleNotFoundError("the stand-in for CuPy needs NVRTC: pip install nvidia-cuda-nvrtc-cu12")


def nvrtc(source: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    """(machine code, or PTX for an architecture that is ``compute_``; what was wrong) by the real NVRTC."""
    return nvrtc_named(source, options)[:2]


@cache
def nvrtc_named(
    source: str, options: tuple[str, ...], names: tuple[str, ...] = ()
) -> tuple[bytes, str, dict[str, str]]:
    """The same, and the names as they are mangled."""
    library, program, size = _nvrtc_library(), ctypes.c_void_p(), ctypes.c_size_t()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"", 0, None, None) == 0
    for name in names:
        assert library.nvrtcAddNameExpression(program, name.encode()) == 0
    given = [one.encode() for one in options]
    status = library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
    what = "Log" if status else "PTX" if any("compute_" in one for one in options) else "CUBIN"
    getattr(library, f"nvrtcGet{'Program' if status else ''}{what}Size")(program, ctypes.byref(size))
    held = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{'Program' if status else ''}{what}")(program, held)
    mangled, found = {}, ctypes.c_char_p()
    for name in () if status else names:
        assert library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(found)) == 0
        mangled[name] = (found.value or b"").decode()
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return (b"", held.value.decode(), {}) if status else (held.raw, "", mangled)


@cache
def hip_says(source: str) -> str:
    """What Clang's front end finds wrong with a HIP source."""
    from clang import cindex

    stubs = Path(__file__).parents[1] / "data" / "transpile_stubs"
    arguments = ["-x", "hip", "--cuda-device-only", "--offload-arch=gfx90a", "-nogpuinc", "-nogpulib", f"-I{stubs}"]
    unit = cindex.Index.create().parse(
        "kernel.hip", args=[*arguments, "-include", "hip/hip_runtime.h"], unsaved_files=[("kernel.hip", source)]
    )
    return "\n".join(str(one) for one in unit.diagnostics if one.severity >= cindex.Diagnostic.Error)


HOST = Path(__file__).with_name("cuda_on_host.h")


@dataclass(frozen=True)
class Host:
    """A kernel of CUDA's text, compiled for this host. ``sizes``: of its parameters, in bytes."""

    library: Any
    sizes: list[int]

    def run(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], shared: int) -> None:
        held = [np.array(one) for one in args]
        pointers = (ctypes.c_void_p * max(len(held), 1))(*(one.ctypes.data for one in held))
        sides = [(ctypes.c_uint * 3)(*sizes) for sizes in (grid, block)]
        dynamic = np.empty(max(shared, 1), np.uint8)
        with _ONE_AT_A_TIME:
            self.library.wt_run(*sides, pointers, ctypes.c_void_p(dynamic.ctypes.data))


_ONE_AT_A_TIME = threading.Lock()
"""Sizes of blocks and grids are the library's variables."""


_TO_LIBRARY = ("g++", "-std=c++20", "-O1", "-w", "-ffp-contract=off", "-fPIC", "-pthread")


def _compile(*words: str, into: Path) -> None:
    made = into.with_name(f"{os.getpid()}-{into.name}")
    done = subprocess.run([*_TO_LIBRARY, *words, "-o", str(made)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the stand-in lacks what this kernel uses:\n{done.stderr}"
    made.replace(into)


def on_host(text: str, flags: Iterable[str] = ()) -> Any:
    """A C++ text as a library of this host's, by g++: compiled once for all workers, with precompiled standard headers."""
    folder = Path(os.environ["WINDTUNNEL_TESTS_FOLDER"])
    key = hashlib.blake2b("\0".join([text, HOST.read_text(), *flags]).encode(), digest_size=16).hexdigest()
    library, source, headers = folder / f"{key}.so", folder / f"{key}.cpp", folder / "standard.h"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not headers.exists():
            lines = HOST.read_text().splitlines()
            headers.write_text("\n".join(line for line in lines if line.startswith("#include")) + "\n")
            _compile("-x", "c++-header", str(headers), into=folder / "standard.h.gch")
        if not library.exists():
            source.write_text(f'#include "{headers}"\n{text}')
            _compile(*flags, "-shared", str(source), into=library)
    return ctypes.CDLL(str(library))


@cache
def built(source: str, name: str, hip: bool) -> Host:
    """For this host, by g++."""
    text = re.sub(r"#include <((hip/hip_)?cooperative_groups|cuda_fp16|hip/hip_fp16).h>\n", "", source)
    text = text[max(text.find("#line 1 "), 0) :]  # g++ has the headers of C
    text = re.sub(r"extern __shared__ (.+?) (\w+)\[\];", r"\1 *\2 = (\1 *)wt_dynamic;", text)
    wide, meet = "this_grid()" in text, "__syncthreads()" in text
    assert not (wide and "__shared__" in text), "shared memory of blocks side by side is not done here"
    text = f'#include "{HOST}"\n{text}\n#define WT_KERNEL {name}\n#include "{HOST}"\n'
    flags = ["-DWT_WIDE"] if wide else ["-DWT_MEET"] if meet else []
    library = on_host(text, flags)
    sizes = (ctypes.c_size_t * 64)()
    count = library.wt_parameters(sizes)
    return Host(library, list(sizes)[:count])
