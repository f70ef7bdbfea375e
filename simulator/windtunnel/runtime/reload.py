"""Kernels from a file, swapped when it changes while the program runs; every version is kept.

>>> kernels = KernelFile("kernels.py", accelerator)
>>> accelerator.launch(kernels["scale"], grid, block, a)   # whatever version is in service
>>> kernels.check()                                        # the file changed: compiled, then in service
>>> kernels.compare("scale", 1, 2, on, lambda device, scale: device.compute(scale, a))

The file is Python, and loading it runs it: load what you would run. What is in service changes within ``check()``, and
only when the whole file was read, run, found to have every kernel that was there with the parameters that it had, and
compiled for every accelerator. Whatever holds a kernel of an earlier version (a captured graph, a variable) keeps it.
Files that it imports are not looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError, Where, nearest, one_of
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.kernels import Kernel

Program = Callable[[Accelerator, Kernel], Any]
"""What runs a kernel on an accelerator and gives its numbers: ``lambda device, scale: device.compute(scale, a)``."""


class ReloadError(InputError):
    """A kernel file that cannot be used as it is now; what was in service before still is."""


@dataclass(frozen=True)
class Version:
    """A kernel file as it was at one time."""

    number: int
    """From 1."""
    digest: str
    """SHA-256 of its bytes."""
    path: Path
    source: str
    modified_s: float
    """The file's time (s since 1970)."""
    loaded_s: float
    """The clock (s) of the first accelerator when it came into service; 0 where there is none."""
    wall_s: float
    """Wall time that loading took, measured here: reading, running and checking the file, compiling for all."""
    kernels: Mapping[str, Kernel] = field(repr=False)

    def __str__(self) -> str:
        return f"version {self.number} of {self.path.name} ({self.digest[:8]})"


@dataclass(frozen=True)
class FirstResult:
    """How long it takes from a change of the file to the changed kernel's first result, on the virtual clock (s)."""

    version: Version
    poll_s: float
    """Until the change is noticed, at most: the time between two checks."""
    compile_s: float
    run_s: float
    output: Any
    wall_s: float
    """Wall time of reading, checking and running the file, measured here; no part of ``total_s``."""

    @property
    def total_s(self) -> float:
        """Until the first result (s): to notice, to compile and to run."""
        return self.poll_s + self.compile_s + self.run_s


@dataclass(frozen=True)
class Run:
    """One version's kernel on a device of its own: virtual time (s), energy (J), output."""

    version: Version
    compile_s: float
    run_s: float
    energy_j: float
    output: Any


@dataclass(frozen=True)
class Comparison:
    """Two versions of a kernel that were given the same."""

    one: Run
    other: Run
    max_abs_difference: float
    """Of their outputs; infinite where only one of them has a number, NaN in the same places is no difference."""


class KernelFile:
    """The kernels of a Python file, by name, in the version that is in service.

    ``accelerators``: each later version is compiled for them, at the API's price, before it comes into service; the
    first comes with the program, as other kernels do. ReloadError for a file that is wrong.
    """

    def __init__(self, path: str | Path, *accelerators: Accelerator) -> None:
        self.path = Path(path)
        self.accelerators = accelerators
        self._versions: list[Version] = []
        self._refused: tuple[str, ReloadError] | None = None
        found, _ = self._read()
        self._versions.append(self._loaded(*found))

    @property
    def versions(self) -> tuple[Version, ...]:
        """Every version that was in service, in order."""
        return tuple(self._versions)

    @property
    def current(self) -> Version:
        """The version in service."""
        return self._versions[-1]

    def __getitem__(self, name: str) -> Kernel:
        return self.kernel(name)

    def kernel(self, name: str, version: int | None = None) -> Kernel:
        """A kernel of the version in service, or of an earlier one; InputError for an unknown name or number."""
        if version is not None and not 1 <= version <= len(self._versions):
            raise InputError(f"{self.path} has no version {version}", expected=f"1 to {len(self._versions)}")
        kernels = (self.current if version is None else self._versions[version - 1]).kernels
        if name not in kernels:
            raise InputError(
                f"{self.path} has no kernel '{name}'", expected=one_of(kernels), nearest=nearest(name, kernels)
            )
        return kernels[name]

    def check(self) -> Version | None:
        """Look at the file: the new version, in service now; None where it is as it was.

        ReloadError, with file and line, for a file that cannot be used, each time until it changes again; DeviceError
        where it does not compile for a device. Either way what was in service stays.
        """
        begun = time.perf_counter()
        found, digest = self._read()
        if digest == self.current.digest:
            return None
        if self._refused is not None and self._refused[0] == digest:
            raise self._refused[1].with_traceback(None)
        try:
            version = self._loaded(*found, begun=begun)
        except ReloadError as error:
            self._refused = (digest, error)  # not run again until it changes
            raise
        self._versions.append(version)
        return version

    async def watch(self, poll_s: float = 0.25) -> AsyncIterator[Version | ReloadError]:
        """Check every ``poll_s`` of real time: each new version, and each way in which the file is wrong, once."""
        told: str | None = None
        while True:
            try:
                version = self.check()
            except ReloadError as error:
                if str(error) != told:
                    told = str(error)
                    yield error
            else:
                told = None
                if version is not None:
                    yield version
            await asyncio.sleep(poll_s)

    # Trying versions out.

    def first_result(self, name: str, on: Callable[[], Accelerator], program: Program, *, poll_s: float) -> FirstResult:
        """How long from a change of the file to the first result of the version in service, which was that change.

        ``poll_s``: the time between two checks. On a device that ``on`` opens for it.
        """
        if not 0.0 <= poll_s < float("inf"):
            raise InputError(f"checks every {poll_s!r} s", expected="seconds from 0")
        run = self._run(name, self.current.number, on, program)
        return FirstResult(run.version, poll_s, run.compile_s, run.run_s, run.output, run.version.wall_s)

    def compare(self, name: str, one: int, other: int, on: Callable[[], Accelerator], program: Program) -> Comparison:
        """Run two versions of a kernel side by side, each on a device that ``on`` opens for it.

        InputError where their outputs are not of one shape.
        """
        runs = [self._run(name, number, on, program) for number in (one, other)]
        if any(run.output is None for run in runs):
            raise InputError(f"the program returns nothing for '{name}'", expected="what the kernel gave")
        outputs = [np.asarray(run.output) for run in runs]
        shapes = [output.shape for output in outputs]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"'{name}' gives {shapes[0]} in version {one} and {shapes[1]} in version {other}", expected="one shape"
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
        """((content, file's time), digest). By content, not by time: two changes within a tick of the file's clock."""
        try:
            modified_s = self.path.stat().st_mtime
            content = self.path.read_bytes()
        except OSError as error:
            raise ReloadError(
                f"the kernel file cannot be read: {error.strerror or error}",
                where=Where(str(self.path)),
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
        """The kernels of the file, run as a module of its own."""
        module = ModuleType(f"windtunnel_kernels_{self.path.stem}_{number}")
        module.__file__ = str(self.path)
        # Found under its name, as an imported module is: dataclasses look there.
        sys.modules[module.__name__] = module
        try:
            code = compile(content, str(self.path), "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102  a program's own kernels, as an import would run them
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
            raise ReloadError(
                f"the kernel file cannot be run: {said}", where=Where(str(self.path), _line_of(error, str(self.path)))
            ) from error
        own = {
            name: value
            for name, value in vars(module).items()
            # Not what it imports from elsewhere.
            if isinstance(value, Kernel) and getattr(value.function, "__module__", None) == module.__name__
        }
        if not own:
            raise ReloadError(
                "the file has no kernel", where=Where(str(self.path)), expected="a function under @windtunnel.kernel"
            )
        return own

    def _check_same(self, kernels: Mapping[str, Kernel]) -> None:
        """Programs launch by name, with the arguments that they were written for."""
        for name, before in self.current.kernels.items():
            if name not in kernels:
                raise ReloadError(
                    f"the kernel '{name}' was removed",
                    where=Where(str(self.path)),
                    expected="all previous kernels; to rename one, keep the old name as well",
                    nearest=nearest(name, kernels),
                )
            was, now = _parameters(before), _parameters(kernels[name])
            if was != now:
                code = getattr(kernels[name].function, "__code__", None)
                raise ReloadError(
                    f"the kernel '{name}' takes ({now}), where it took ({was})",
                    where=Where(str(self.path), getattr(code, "co_firstlineno", None)),
                    expected="the same parameters; for others another name",
                )


def _parameters(kernel: Kernel) -> str:
    """Names, kinds, and which have defaults; annotations and what the defaults are change no call."""
    signature = inspect.signature(kernel.function)
    empty = inspect.Parameter.empty
    bare = [
        one.replace(annotation=empty, default=empty if one.default is empty else ...)
        for one in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))[1:-1]


def _line_of(error: BaseException, path: str) -> int | None:
    """The last line of the file that the error passed."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest absolute difference; 0 of nothing, and where both are NaN or the same infinity."""
    if not one.size:
        return 0.0
    if one.dtype.kind in "iub" and other.dtype.kind in "iub":
        # Exactly, however large: no float holds every 64-bit integer.
        return float(np.abs(one.astype(object) - other.astype(object)).max())
    wide = np.complex128 if np.iscomplexobj(one) or np.iscomplexobj(other) else np.float64
    a, b = one.astype(wide), other.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
    return float(np.where(np.isnan(apart), np.inf, apart).max())
