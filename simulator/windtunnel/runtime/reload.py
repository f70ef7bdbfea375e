"""Kernels from a file that is reloaded when it changes while the program runs; every version is kept.

>>> kernels = KernelFile("kernels.py", accelerator)
>>> accelerator.launch(kernels["scale"], grid, block, a)   # the current version
>>> kernels.check()                                        # if the file changed: compiles it, and makes it the current
version >>> kernels.compare("scale", 1, 2, on, lambda device, scale: device.compute(scale, a))

The file is Python code, and loading executes it, so load only trusted files. The current version changes only in
``check()``, after the whole file was read and executed, has all previous kernels with the same parameters, and was
compiled for every accelerator. A captured graph or a variable keeps its kernel of an earlier version. Imported files
are not checked for changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import linecache
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.files import CODE_BYTES, read_bytes
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.kernels import Kernel

Program = Callable[[Accelerator, Kernel], Any]
"""Runs a kernel on an accelerator and returns its results: ``lambda device, scale: device.compute(scale, a)``."""


class ReloadError(InputError):
    """A kernel file cannot be used; the current version remains."""


@dataclass(frozen=True)
class Version:
    """One version of a kernel file."""

    number: int
    """The number of the version, from 1."""
    digest: str
    """The SHA-256 hash of the file."""
    path: Path
    source: str
    modified_s: float
    """The file's modification time (s since 1970)."""
    loaded_s: float
    """The clock (s) of the first accelerator when it became the current version; 0 without an accelerator."""
    wall_s: float
    """The wall time (s) of loading: reading, executing and checking the file, and compiling for all accelerators."""
    kernels: Mapping[str, Kernel] = field(repr=False)

    def __str__(self) -> str:
        return f"version {self.number} of {self.path.name} ({self.digest[:8]})"


@dataclass(frozen=True)
class FirstResult:
    """The virtual time (s) from a change of the file to the first result of the changed kernel."""

    version: Version
    poll_s: float
    """The longest time (s) until the change is detected: the time between two checks."""
    compile_s: float
    run_s: float
    output: Any
    wall_s: float
    """The wall time (s) of reading, checking and executing the file; not a part of ``total_s``."""

    @property
    def total_s(self) -> float:
        """The time until the first result (s): to detect, to compile and to run."""
        return self.poll_s + self.compile_s + self.run_s


@dataclass(frozen=True)
class Run:
    """A run of one version's kernel on a separate device: virtual time (s), energy (J), output."""

    version: Version
    compile_s: float
    run_s: float
    energy_j: float
    output: Any


@dataclass(frozen=True)
class Comparison:
    """Two versions of a kernel with the same input."""

    baseline: Run
    candidate: Run
    max_abs_difference: float
    """The largest absolute difference of the outputs; infinite if only one is a number; equal NaNs do not differ."""


class KernelFile:
    """The kernels of a Python file by name, in the current version.

    Each later version is compiled for ``accelerators``, at the API's cost, before it becomes the current one. The first
    is shipped with the program, as other kernels are. Raises ReloadError for a file that cannot be used.
    """

    def __init__(self, path: str | Path, *accelerators: Accelerator) -> None:
        self.path = Path(path)
        self.accelerators = accelerators
        self._versions: list[Version] = []
        self._refused: tuple[str, ReloadError] | None = None
        contents, _ = self._read()
        self._versions.append(self._loaded(*contents))

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions, in order."""
        return tuple(self._versions)

    @property
    def current(self) -> Version:
        """The current version."""
        return self._versions[-1]

    def __getitem__(self, name: str) -> Kernel:
        return self.kernel(name)

    def kernel(self, name: str, version: int | None = None) -> Kernel:
        """Return a kernel of the current or an earlier version; InputError for an unknown name or number."""
        if version is not None and not 1 <= version <= len(self._versions):
            raise InputError(f"{self.path} has no version {version}", expected=f"1 to {len(self._versions)}")
        kernels = (self.current if version is None else self._versions[version - 1]).kernels
        if name not in kernels:
            raise InputError(
                f"{self.path} has no kernel '{name}'", expected=list_choices(kernels), nearest=nearest(name, kernels)
            )
        return kernels[name]

    def check(self) -> Version | None:
        """Load the file if it changed; return the new version, which is then current, or None if it is unchanged.

        Raises ReloadError, with file and line, for a file that cannot be used, at every call until it changes again,
        and DeviceError if it does not compile for a device. The current version then remains.
        """
        begun = time.perf_counter()
        contents, digest = self._read()
        if digest == self.current.digest:
            return None
        if self._refused is not None and self._refused[0] == digest:
            raise self._refused[1].with_traceback(None)
        try:
            version = self._loaded(*contents, begun=begun)
        except ReloadError as error:
            self._refused = (digest, error)  # not executed again until it changes
            raise
        self._versions.append(version)
        return version

    async def watch(self, poll_s: float = 0.25) -> AsyncIterator[Version | ReloadError]:
        """Check every ``poll_s`` of real time; yield each new version, and each error of the file once."""
        reported: str | None = None
        while True:
            try:
                version = self.check()
            except ReloadError as error:
                if str(error) != reported:
                    reported = str(error)
                    yield error
            else:
                reported = None
                if version is not None:
                    yield version
            await asyncio.sleep(poll_s)

    # Measuring versions.

    def first_result(self, name: str, on: Callable[[], Accelerator], program: Program, *, poll_s: float) -> FirstResult:
        """Measure the time from a change of the file to the first result of the current version.

        ``poll_s`` is the time between two checks. ``on`` opens the device for the run.
        """
        if not 0.0 <= poll_s < float("inf"):
            raise InputError(f"checks every {poll_s!r} s", expected="seconds from 0")
        run = self._run(name, self.current.number, on, program)
        return FirstResult(run.version, poll_s, run.compile_s, run.run_s, run.output, run.version.wall_s)

    def compare(
        self, name: str, baseline: int, candidate: int, on: Callable[[], Accelerator], program: Program
    ) -> Comparison:
        """Run two versions of a kernel, each on a separate device that ``on`` opens.

        Raises InputError if their outputs differ in shape.
        """
        runs = [self._run(name, number, on, program) for number in (baseline, candidate)]
        if any(run.output is None for run in runs):
            raise InputError(f"the program returns nothing for '{name}'", expected="the kernel's result")
        outputs = [np.asarray(run.output) for run in runs]
        shapes = [output.shape for output in outputs]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"'{name}' returns {shapes[0]} in version {baseline} and {shapes[1]} in version {candidate}",
                expected="equal shapes",
            )
        return Comparison(runs[0], runs[1], _difference(*outputs))

    def _run(self, name: str, number: int, on: Callable[[], Accelerator], program: Program) -> Run:
        kernel = self.kernel(name, number)
        with on() as device:
            begun_s = device.clock_s
            device.compile(kernel)
            compiled_s, before_j = device.clock_s, device.energy_j
            output = program(device, kernel)
            device.synchronize()
            ended_s = device.clock_s
            spent_j = device.energy_j - before_j
        return Run(self._versions[number - 1], compiled_s - begun_s, ended_s - compiled_s, spent_j, output)

    # Loading.

    def _read(self) -> tuple[tuple[bytes, float], str]:
        """Return ((content, time), digest). The digest also detects two changes within one tick of the file's clock."""
        try:
            content = read_bytes(self.path, "kernel file", CODE_BYTES)
            modified_s = self.path.stat().st_mtime
        except (InputError, OSError) as error:
            raise ReloadError(
                error.problem if isinstance(error, InputError) else f"this cannot be read: {error.strerror}",
                where=Location(str(self.path)),
                expected="the file there, or a new KernelFile of another",
            ) from None
        return (content, modified_s), hashlib.sha256(content).hexdigest()

    def _loaded(self, content: bytes, modified_s: float, begun: float | None = None) -> Version:
        begun = time.perf_counter() if begun is None else begun
        number = len(self._versions) + 1
        kernels = self._executed(content, number)
        if self._versions:
            self._check_same(kernels)
            for accelerator in self.accelerators:
                for kernel in kernels.values():
                    accelerator.compile(kernel)
        return Version(
            number=number,
            digest=hashlib.sha256(content).hexdigest(),
            path=self.path,
            source=content.decode("utf-8", "replace"),
            modified_s=modified_s,
            loaded_s=self.accelerators[0].clock_s if self.accelerators else 0.0,
            wall_s=time.perf_counter() - begun,
            kernels=kernels,
        )

    def _executed(self, content: bytes, number: int) -> dict[str, Kernel]:
        """Execute the file as a separate module, and return its kernels."""
        module = ModuleType(f"windtunnel_kernels_{self.path.stem}_{number}")
        module.__file__ = str(self.path)
        # Registered like an imported module, because dataclasses look it up.
        sys.modules[module.__name__] = module
        try:
            code = compile(content, str(self.path), "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102  a program's own kernels, as an import would run them
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
            raise ReloadError(
                f"the kernel file cannot be run: {text}",
                where=Location(str(self.path), _line_of(error, str(self.path))),
            ) from error
        # Kernels are compiled from this text when they are first launched, also if the file is gone by then.
        text = content.decode("utf-8", "replace")
        linecache.cache[str(self.path)] = (len(content), None, text.splitlines(keepends=True), str(self.path))
        own = {
            name: value
            for name, value in vars(module).items()
            # Without imported kernels.
            if isinstance(value, Kernel) and getattr(value.function, "__module__", None) == module.__name__
        }
        if not own:
            raise ReloadError(
                "the file has no kernel", where=Location(str(self.path)), expected="a function under @windtunnel.kernel"
            )
        return own

    def _check_same(self, kernels: Mapping[str, Kernel]) -> None:
        """Check that all kernels of the current version remain, with the same parameters."""
        for name, before in self.current.kernels.items():
            if name not in kernels:
                raise ReloadError(
                    f"the kernel '{name}' was removed",
                    where=Location(str(self.path)),
                    expected="all previous kernels; to rename one, keep the old name as well",
                    nearest=nearest(name, kernels),
                )
            was, now = _parameters(before), _parameters(kernels[name])
            if was != now:
                code = getattr(kernels[name].function, "__code__", None)
                raise ReloadError(
                    f"the kernel '{name}' takes ({now}) instead of ({was})",
                    where=Location(str(self.path), getattr(code, "co_firstlineno", None)),
                    expected="the same parameters, or another name",
                )


def _parameters(kernel: Kernel) -> str:
    """Return the parameters' names, kinds and which have defaults, as text."""
    signature = inspect.signature(kernel.function)
    empty = inspect.Parameter.empty
    bare = [
        parameter.replace(annotation=empty, default=empty if parameter.default is empty else ...)
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))[1:-1]


def _line_of(error: BaseException, path: str) -> int | None:
    """Return the last line of the file in the error's traceback."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _difference(left: np.ndarray, right: np.ndarray) -> float:
    """Return the largest absolute difference; 0 for empty arrays and for equal NaNs and infinities."""
    if not left.size:
        return 0.0
    if left.dtype.kind in "iub" and right.dtype.kind in "iub":
        # Exact integers, because no float represents every 64-bit integer.
        return float(np.abs(left.astype(object) - right.astype(object)).max())
    wide = np.complex128 if np.iscomplexobj(left) or np.iscomplexobj(right) else np.float64
    a, b = left.astype(wide), right.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
    return float(np.where(np.isnan(apart), np.inf, apart).max())
