"""Designs simulated by Icarus Verilog: compiled in a folder of their own, run by processes with a time limit."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.core.errors import DeviceError, DeviceHang, DeviceNotPresentError, InvalidArgument, LaunchError
from windtunnel.runtime.codes import code_of

if TYPE_CHECKING:  # the version is asked for without NumPy
    import numpy as np
    import numpy.typing as npt

    Words = npt.NDArray[np.uint8]
    """Words of a port: a row each, the lowest byte first."""

API = "xrt"
"""How the SKUs of this kind are reached by default: errors are named as that API names them."""
LABEL = "Icarus Verilog"
INSTALL = "Icarus Verilog (apt install iverilog)"
LIMIT_S = 300.0
"""Of one simulation. Sizes are refused above what takes about a minute; a busy machine is slower than that."""
SOURCES = Path(__file__).parent


@dataclass(frozen=True)
class Design:
    """A module of this folder with its parameters, and how many bytes wide its ports are."""

    module: str
    parameters: Mapping[str, int]
    in_bytes: int
    out_bytes: int
    tables: Mapping[str, Words] = field(default_factory=dict)
    """Memories that it is configured with: files of words by name."""


@dataclass(frozen=True)
class Flow:
    """How words are offered and taken: in so many of 100 cycles, by a random choice that ``seed`` makes."""

    in_percent: int = 100
    out_percent: int = 100
    seed: int = 1


STEADY = Flow()
"""A word each cycle, at either end."""


@dataclass(frozen=True)
class Run:
    """One run in cycles of one clock: when its first and last words went in and came out."""

    first_in: int
    last_in: int
    first_out: int
    last_out: int
    outs: npt.NDArray[np.int64]
    """When each word came out."""
    words: Words
    """What came out."""

    @property
    def cycles(self) -> int:
        """From the cycle that takes the first word in to that in which the last one is out, both counted."""
        return self.last_out - self.first_in + 1


def missing() -> str | None:
    """What has to be installed, in words; None where all is here."""
    if shutil.which("iverilog") and shutil.which("vvp"):
        return None
    return f"no iverilog and vvp on the path: install {INSTALL}"


def version() -> str:
    """``11.0``. DeviceNotPresentError where Icarus is not here."""
    absent = missing()
    if absent:
        raise DeviceNotPresentError(absent)
    first = _called(["iverilog", "-V"], Path(tempfile.gettempdir()), "the version", 10.0).splitlines()[0]
    words = first.split()
    return words[words.index("version") + 1] if "version" in words[:-1] else first


class Compiled:
    """A design and the words it is to be given, ready to be simulated. Closing it takes its folder away."""

    def __init__(self, design: Design, words: Words, out_words: int) -> None:
        absent = missing()
        if absent:
            raise DeviceNotPresentError(absent)
        if words.ndim != 2 or words.shape[1] != design.in_bytes or not len(words):
            raise ValueError(f"words of {design.in_bytes} bytes, not {words.shape}")
        self.design, self.in_words, self.out_words = design, len(words), out_words
        self._folder: tempfile.TemporaryDirectory[str] | None = tempfile.TemporaryDirectory(prefix="windtunnel-rtl-")
        try:
            self._compile(Path(self._folder.name), words)
        except BaseException:
            self.close()
            raise

    def _compile(self, folder: Path, words: Words) -> None:
        import numpy as np

        for name, content in {"in.hex": words, **self.design.tables}.items():
            digits = np.ascontiguousarray(content[:, ::-1]).tobytes().hex()
            size = 2 * content.shape[1]
            lines = (digits[at : at + size] for at in range(0, len(digits), size))
            (folder / name).write_text("\n".join(lines) + "\n")
        (folder / "under_test.v").write_text(_wrapper(self.design))
        ports = {
            "IN_WIDTH": 8 * self.design.in_bytes,
            "OUT_WIDTH": 8 * self.design.out_bytes,
            "IN_WORDS": self.in_words,
            "OUT_WORDS": self.out_words,
        }
        sources = [str(path) for path in sorted(SOURCES.glob("*.v"))]
        settings = [f"-Pbench.{name}={value}" for name, value in ports.items()]
        command = ["iverilog", "-g2005", "-s", "bench", "-o", "design.vvp", *settings, "under_test.v", *sources]
        _called(command, folder, f"compile {self.design.module}", LIMIT_S)

    def simulate(self, runs: int = 1, flow: Flow = STEADY) -> list[Run]:
        """Give the words ``runs`` times, each time once all that they make is out. DeviceError where that fails."""
        if self._folder is None:
            raise InvalidArgument(
                "its simulation was closed", operation="run", device=LABEL, code=code_of(API, InvalidArgument)
            )
        folder = Path(self._folder.name)
        # A word waits for others, for a pipeline or an array to empty, or for a sink that hardly takes any.
        patience = 1000 * (self.in_words + self.out_words) + 10_000
        command = ["vvp", "-n", "design.vvp", f"+runs={runs}", f"+max_cycles={min(runs * patience, 2**31 - 1)}"]
        command += [f"+in_percent={flow.in_percent}", f"+out_percent={flow.out_percent}", f"+seed={flow.seed}"]
        (folder / "out.txt").unlink(missing_ok=True)
        _called(command, folder, f"run {self.design.module}", LIMIT_S)
        return self._read((folder / "out.txt").read_text().splitlines(), runs)

    def _read(self, lines: Sequence[str], runs: int) -> list[Run]:
        """The lines that bench.v writes."""
        import numpy as np

        each = self.out_words + 1
        if not lines or lines[-1] != "done" or len(lines) != runs * each + 1:
            last = lines[-1] if lines else "nothing"
            raise _failed(LaunchError, f"the design did not give {self.out_words} words: {last}", self.design.module)
        found = []
        for index in range(runs):
            *outs, summary = lines[index * each : (index + 1) * each]
            pairs = [line.split() for line in outs]
            try:
                raw = bytes.fromhex("".join(digits for _, digits in pairs))
            except ValueError:
                raise _failed(LaunchError, "words with undefined bits came out", self.design.module) from None
            words = np.frombuffer(raw, np.uint8).reshape(self.out_words, self.design.out_bytes)[:, ::-1]
            cycles = np.array([int(cycle) for cycle, _ in pairs], np.int64)
            first_in, last_in, first_out, last_out = (int(number) for number in summary.split()[1:])
            found.append(Run(first_in, last_in, first_out, last_out, cycles, np.ascontiguousarray(words)))
        return found

    def close(self) -> None:
        """Take the folder away. Closing again does nothing."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _wrapper(design: Design) -> str:
    """The module that bench.v has under test."""
    parameters = ", ".join(f".{name}({int(value)})" for name, value in design.parameters.items())
    high = 8 * design.in_bytes - 1, 8 * design.out_bytes - 1
    return (
        f"module under_test (input wire clk, input wire rst, input wire in_valid, output wire in_ready,\n"
        f"    input wire [{high[0]}:0] in_data, output wire out_valid, input wire out_ready,\n"
        f"    output wire [{high[1]}:0] out_data);\n"
        f"  {design.module} #({parameters}) it (.clk(clk), .rst(rst), .in_valid(in_valid), .in_ready(in_ready),\n"
        f"    .in_data(in_data), .out_valid(out_valid), .out_ready(out_ready), .out_data(out_data));\n"
        f"endmodule\n"
    )


def _called(command: list[str], folder: Path, what: str, limit_s: float) -> str:
    """What a program wrote; DeviceHang beyond the limit, LaunchError where it failed."""
    try:
        done = subprocess.run(  # noqa: S603  our own words, no shell
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise _failed(DeviceHang, f"not done in {limit_s:g} s", what) from None
    except OSError as error:
        raise _failed(LaunchError, f"{command[0]} cannot be called: {error}", what) from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise _failed(LaunchError, f"{command[0]} failed: {said[0] if said else done.returncode}", what)
    return done.stdout


def _failed(error: type[DeviceError], problem: str, what: str) -> DeviceError:
    return error(problem, operation=what, device=LABEL, code=code_of(API, error))
