"""Simulation by Icarus Verilog: a design is compiled in a temporary folder and run by a process with a time limit."""

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

if TYPE_CHECKING:  # finding the version must not import NumPy
    import numpy as np
    import numpy.typing as npt

    Words = npt.NDArray[np.uint8]
    """Words of a port, one per row, lowest byte first."""

API = "xrt"
"""The API by which SKUs of this kind are reached by default. Errors carry its codes."""
LABEL = "Icarus Verilog"
INSTALL = "Icarus Verilog (apt install iverilog)"
LIMIT_S = 300.0
"""Time limit of one simulation. Sizes are refused above about a minute; a busy machine is slower than that."""
SOURCES = Path(__file__).parent


@dataclass(frozen=True)
class Design:
    """A Verilog module of this folder with its parameters, and the widths of its ports in bytes."""

    module: str
    parameters: Mapping[str, int]
    in_bytes: int
    out_bytes: int
    tables: Mapping[str, Words] = field(default_factory=dict)
    """Contents of its memories: words by file name."""


@dataclass(frozen=True)
class Flow:
    """The percentage of cycles in which words are offered and accepted, chosen at random with ``seed``."""

    in_percent: int = 100
    out_percent: int = 100
    seed: int = 1


STEADY = Flow()
"""One word per cycle at both ports."""


@dataclass(frozen=True)
class Run:
    """One simulated run: the cycles at which its first and last words went in and came out."""

    first_in: int
    last_in: int
    first_out: int
    last_out: int
    outs: npt.NDArray[np.int64]
    """Cycle at which each word came out."""
    words: Words
    """The words that came out."""

    @property
    def cycles(self) -> int:
        """Cycles from the first word in to the last word out, both included."""
        return self.last_out - self.first_in + 1


def missing() -> str | None:
    """Return what has to be installed, in words; None if nothing is missing."""
    if shutil.which("iverilog") and shutil.which("vvp"):
        return None
    return f"iverilog and vvp are not on the path: install {INSTALL}"


def version() -> str:
    """Return the version, such as ``11.0``. Raises DeviceNotPresentError if Icarus Verilog is not installed."""
    problem = missing()
    if problem:
        raise DeviceNotPresentError(problem)
    first = _run(["iverilog", "-V"], Path(tempfile.gettempdir()), "the version", 10.0).splitlines()[0]
    words = first.split()
    return words[words.index("version") + 1] if "version" in words[:-1] else first


class Compiled:
    """A compiled design with its input words, ready to be simulated. Closing it deletes its folder."""

    def __init__(self, design: Design, words: Words, out_words: int) -> None:
        problem = missing()
        if problem:
            raise DeviceNotPresentError(problem)
        if words.ndim != 2 or words.shape[1] != design.in_bytes or not len(words):
            raise ValueError(f"expected words of {design.in_bytes} bytes, got an array of shape {words.shape}")
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
        _run(command, folder, f"compile {self.design.module}", LIMIT_S)

    def simulate(self, runs: int = 1, flow: Flow = STEADY) -> list[Run]:
        """Feed the words ``runs`` times, each time after all results are out. Raises DeviceError on failure."""
        if self._folder is None:
            raise InvalidArgument(
                "the simulation is closed", operation="run", device=LABEL, code=code_of(API, InvalidArgument)
            )
        folder = Path(self._folder.name)
        # A word may wait for other words, for a pipeline or an array to drain, or for a slow sink.
        limit = 1000 * (self.in_words + self.out_words) + 10_000
        command = ["vvp", "-n", "design.vvp", f"+runs={runs}", f"+max_cycles={min(runs * limit, 2**31 - 1)}"]
        command += [f"+in_percent={flow.in_percent}", f"+out_percent={flow.out_percent}", f"+seed={flow.seed}"]
        (folder / "out.txt").unlink(missing_ok=True)
        _run(command, folder, f"run {self.design.module}", LIMIT_S)
        return self._read((folder / "out.txt").read_text().splitlines(), runs)

    def _read(self, lines: Sequence[str], runs: int) -> list[Run]:
        """Parse the lines that bench.v writes."""
        import numpy as np

        lines_per_run = self.out_words + 1
        if not lines or lines[-1] != "done" or len(lines) != runs * lines_per_run + 1:
            last = lines[-1] if lines else "nothing"
            raise _error(LaunchError, f"the design did not return {self.out_words} words: {last}", self.design.module)
        results = []
        for index in range(runs):
            *outs, summary = lines[index * lines_per_run : (index + 1) * lines_per_run]
            pairs = [line.split() for line in outs]
            try:
                raw = bytes.fromhex("".join(digits for _, digits in pairs))
            except ValueError:
                raise _error(LaunchError, "words with undefined bits came out", self.design.module) from None
            words = np.frombuffer(raw, np.uint8).reshape(self.out_words, self.design.out_bytes)[:, ::-1]
            cycles = np.array([int(cycle) for cycle, _ in pairs], np.int64)
            first_in, last_in, first_out, last_out = (int(number) for number in summary.split()[1:])
            results.append(Run(first_in, last_in, first_out, last_out, cycles, np.ascontiguousarray(words)))
        return results

    def close(self) -> None:
        """Delete the folder. Closing again does nothing."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _wrapper(design: Design) -> str:
    """Return the Verilog module that bench.v instantiates around the design."""
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


def _run(command: list[str], folder: Path, what: str, limit_s: float) -> str:
    """Run a program and return its output. Raises DeviceHang at the time limit, LaunchError on failure."""
    try:
        done = subprocess.run(  # noqa: S603  our own words, no shell
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise _error(DeviceHang, f"not finished after {limit_s:g} s", what) from None
    except OSError as error:
        raise _error(LaunchError, f"{command[0]} cannot be started: {error}", what) from None
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise _error(LaunchError, f"{command[0]} failed: {output[0] if output else done.returncode}", what)
    return done.stdout


def _error(error: type[DeviceError], problem: str, what: str) -> DeviceError:
    return error(problem, operation=what, device=LABEL, code=code_of(API, error))
