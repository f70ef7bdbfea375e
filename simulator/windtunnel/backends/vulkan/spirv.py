"""SPIR-V of emitted kernels: glslang compiles them, and properties that GLSL cannot express are added to the module.

A module is an array of 32-bit words: a header of five words, then instructions. The first word of an instruction has
its length in the upper and its opcode in the lower 16 bits (SPIR-V specification, section 2.3). Sections come in the
order of section 2.4.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from windtunnel.backends.vulkan.api import CONTROLS
from windtunnel.codegen import Emitted
from windtunnel.core.time_limits import time_limit

COMPILERS = ("glslangValidator", "glslang")
INSTALL = "apt install glslang-tools (or glslang from its own releases), on the path as glslangValidator or glslang"
TIME_LIMIT_S = 60.0
_MAGIC = 0x07230203
_CAPABILITY, _EXTENSION, _ENTRY, _MODE, _DECORATE, _FLOAT = 17, 10, 15, 16, 71, 22
_BEFORE_ANNOTATIONS = frozenset((2, 3, 4, 5, 6, 7, 10, 11, 14, 15, 16, 330, 331))
"""Extensions, imports, the memory model, the entry point, execution modes, and debug information."""
_ANNOTATIONS = frozenset((71, 72, 73, 74, 75, 332, 5632, 5633))
_ARITHMETIC = frozenset((127, 129, 131, 133, 136, 140, 141))
"""OpFNegate, OpFAdd, OpFSub, OpFMul, OpFDiv, OpFRem, OpFMod."""
_NO_CONTRACTION = 42


class CompilerError(Exception):
    """glslang is missing (``missing``), or rejects a source text."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


def compiler() -> str | None:
    """Return the path of glslang; None if it is not installed."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def compiled(emitted: Emitted, controls: Sequence[tuple[str, int]] = ()) -> bytes:
    """Compile a GLSL kernel to a module in which every floating-point operation is rounded separately.

    ``controls`` lists (one of `CONTROLS`, bits) that the device supports. Raises CompilerError if glslang is missing or
    rejects the text.
    """
    return with_floats_as_written(_compiled(emitted.source, tuple(emitted.options)), controls)


@lru_cache(maxsize=256)
def _compiled(source: str, options: tuple[str, ...]) -> bytes:
    program = compiler()
    if program is None:
        raise CompilerError(f"kernels require glslang to compile SPIR-V: {INSTALL}", missing=True)
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
        text, output = Path(folder, "kernel.comp"), Path(folder, "kernel.spv")
        text.write_text(source)
        limit_s = time_limit(TIME_LIMIT_S)
        try:
            done = subprocess.run(  # noqa: S603  a fixed program, and a file of this module
                [program, *options, "-S", "comp", str(text), "-o", str(output)],
                capture_output=True, text=True, check=False, timeout=limit_s,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CompilerError(f"glslang has not finished after {limit_s:g} s") from None
        if done.returncode or not output.exists():
            log = [line.replace(str(text), "line") for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            lines = [line for line in log if line.startswith("ERROR")] or log
            raise CompilerError("; ".join(lines[:5]) or f"glslang ended with {done.returncode}")
        return output.read_bytes()


def instructions(module: bytes) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (opcode, all words) of each instruction. Raises CompilerError if the module is not SPIR-V."""
    words = np.frombuffer(module, "<u4")
    if len(words) < 5 or words[0] != _MAGIC:
        raise CompilerError("the output of glslang is not SPIR-V")
    at = 5
    while at < len(words):
        length = int(words[at]) >> 16
        yield int(words[at]) & 0xFFFF, words[at : at + length]
        at += length


def capabilities(module: bytes) -> frozenset[int]:
    """Return the numbers of the capabilities that a module requires."""
    return frozenset(int(words[1]) for opcode, words in instructions(module) if opcode == _CAPABILITY)


def with_floats_as_written(module: bytes, controls: Sequence[tuple[str, int]]) -> bytes:
    """Mark every floating-point operation NoContraction, and add the execution modes in ``controls``.

    A mode is added for the floating-point widths that occur in the module.
    """
    sections: dict[str, list[np.ndarray]] = {name: [] for name in ("capabilities", "before", "annotations", "rest")}
    results, widths, entry = [], set(), 0
    for opcode, words in instructions(module):
        if opcode in _ARITHMETIC:
            results.append(int(words[2]))
        elif opcode == _FLOAT:
            widths.add(int(words[2]))
        elif opcode == _ENTRY:
            entry = int(words[2])
        if opcode == _CAPABILITY:
            section = "capabilities"
        elif opcode in _ANNOTATIONS:
            section = "annotations"
        elif opcode in _BEFORE_ANNOTATIONS:
            section = "before"
        else:
            section = "rest"
        sections[section].append(words)
    used = [(control, bits) for control, bits in controls if bits in widths]
    for control in dict.fromkeys(control for control, _ in used):
        sections["capabilities"].append(_instruction(_CAPABILITY, CONTROLS[control][0]))
    first = [_text(_EXTENSION, "SPV_KHR_float_controls")] if used else []
    modes = [_instruction(_MODE, entry, CONTROLS[control][1], bits) for control, bits in used]
    before = sections["before"]
    # Execution modes come after the entry point and before debug information.
    last = max(n for n, words in enumerate(before) if int(words[0]) & 0xFFFF in (_ENTRY, _MODE)) + 1
    marks = [_instruction(_DECORATE, result, _NO_CONTRACTION) for result in results]
    header = np.frombuffer(module, "<u4")[:5]
    rows = [header, *sections["capabilities"], *first, *before[:last], *modes, *before[last:], *sections["annotations"]]
    return b"".join(words.tobytes() for words in [*rows, *marks, *sections["rest"]])


def _instruction(opcode: int, *operands: int) -> np.ndarray:
    return np.array([len(operands) + 1 << 16 | opcode, *operands], "<u4")


def _text(opcode: int, text: str) -> np.ndarray:
    padded = text.encode() + b"\0" * (4 - len(text) % 4)
    return _instruction(opcode, *np.frombuffer(padded, "<u4").tolist())
