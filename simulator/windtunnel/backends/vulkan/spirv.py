"""SPIR-V of an emitted kernel: glslang compiles it, and what GLSL cannot say is then written into the module.

A module is a row of 32-bit words: five of a header, then instructions, whose first word has its length above 16 bits
and its opcode below (the SPIR-V specification, 2.3). Sections come in the order of its 2.4.
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

COMPILERS = ("glslangValidator", "glslang")
INSTALL = "apt install glslang-tools (or glslang from its own releases), on the path as glslangValidator or glslang"
TIME_LIMIT_S = 60.0
_MAGIC = 0x07230203
_CAPABILITY, _EXTENSION, _ENTRY, _MODE, _DECORATE, _FLOAT = 17, 10, 15, 16, 71, 22
_BEFORE_ANNOTATIONS = frozenset((2, 3, 4, 5, 6, 7, 10, 11, 14, 15, 16, 330, 331))
"""Extensions, imports, the memory model, the entry point, modes, and what is for debugging."""
_ANNOTATIONS = frozenset((71, 72, 73, 74, 75, 332, 5632, 5633))
_ARITHMETIC = frozenset((127, 129, 131, 133, 136, 140, 141))
"""OpFNegate, OpFAdd, OpFSub, OpFMul, OpFDiv, OpFRem, OpFMod."""
_NO_CONTRACTION = 42


class CompilerError(Exception):
    """glslang is missing, or refuses a text. ``missing``: which."""

    def __init__(self, words: str, missing: bool = False) -> None:
        super().__init__(words)
        self.missing = missing


def compiler() -> str | None:
    """Where glslang is; None where it is not."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def compiled(emitted: Emitted, controls: Sequence[tuple[str, int]] = ()) -> bytes:
    """The module of a kernel in GLSL: every operation on floats rounds alone, and floats are as ``controls`` says
    ((one of `CONTROLS`, bits) that the device has). CompilerError where glslang is missing or refuses the text.
    """
    return with_floats_as_written(_compiled(emitted.source, tuple(emitted.options)), controls)


@lru_cache(maxsize=256)
def _compiled(source: str, options: tuple[str, ...]) -> bytes:
    program = compiler()
    if program is None:
        raise CompilerError(f"glslang, which makes SPIR-V of kernels, is not here: {INSTALL}", missing=True)
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
        text, made = Path(folder, "kernel.comp"), Path(folder, "kernel.spv")
        text.write_text(source)
        try:
            done = subprocess.run(  # noqa: S603  a fixed program, and a file of our own
                [program, *options, "-S", "comp", str(text), "-o", str(made)],
                capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CompilerError(f"glslang has not ended after {TIME_LIMIT_S:g} s") from None
        if done.returncode or not made.exists():
            said = [
                line.replace(str(text), "line") for line in (done.stdout + done.stderr).splitlines() if line.strip()
            ]
            lines = [line for line in said if line.startswith("ERROR")] or said
            raise CompilerError("; ".join(lines[:5]) or f"glslang ended with {done.returncode}")
        return made.read_bytes()


def instructions(module: bytes) -> Iterator[tuple[int, np.ndarray]]:
    """(opcode, all words) of each instruction."""
    words = np.frombuffer(module, "<u4")
    if len(words) < 5 or words[0] != _MAGIC:
        raise CompilerError("what glslang wrote is no SPIR-V")
    at = 5
    while at < len(words):
        length = int(words[at]) >> 16
        yield int(words[at]) & 0xFFFF, words[at : at + length]
        at += length


def capabilities(module: bytes) -> frozenset[int]:
    """The numbers of what a module asks of a device."""
    return frozenset(int(words[1]) for opcode, words in instructions(module) if opcode == _CAPABILITY)


def with_floats_as_written(module: bytes, controls: Sequence[tuple[str, int]]) -> bytes:
    """The module with every operation on floats marked NoContraction, and the execution modes that ``controls`` names.

    A mode is set for the widths that the module has floats of.
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
    asked = [(what, bits) for what, bits in controls if bits in widths]
    for what in dict.fromkeys(what for what, _ in asked):
        sections["capabilities"].append(_instruction(_CAPABILITY, CONTROLS[what][0]))
    first = [_text(_EXTENSION, "SPV_KHR_float_controls")] if asked else []
    modes = [_instruction(_MODE, entry, CONTROLS[what][1], bits) for what, bits in asked]
    before = sections["before"]
    # Modes come after the entry point, and before what is for debugging: sources and names.
    last = max(n for n, words in enumerate(before) if int(words[0]) & 0xFFFF in (_ENTRY, _MODE)) + 1
    marks = [_instruction(_DECORATE, result, _NO_CONTRACTION) for result in results]
    header = np.frombuffer(module, "<u4")[:5]
    rows = [header, *sections["capabilities"], *first, *before[:last], *modes, *before[last:], *sections["annotations"]]
    return b"".join(words.tobytes() for words in [*rows, *marks, *sections["rest"]])


def _instruction(opcode: int, *operands: int) -> np.ndarray:
    return np.array([len(operands) + 1 << 16 | opcode, *operands], "<u4")


def _text(opcode: int, words: str) -> np.ndarray:
    held = words.encode() + b"\0" * (4 - len(words) % 4)
    return _instruction(opcode, *np.frombuffer(held, "<u4").tolist())
