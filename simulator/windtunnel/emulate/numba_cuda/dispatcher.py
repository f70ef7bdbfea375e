"""``cuda.jit``: kernels and device functions, compiled for the types of their arguments when they are launched."""

from __future__ import annotations

import contextlib
import functools
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba.core import config, serialize, sigutils, types
from numba.core.errors import NumbaPerformanceWarning, TypingError
from numba.core.typing import signature as typing_signature
from numba.np.numpy_support import from_dtype

from windtunnel.core.errors import UnsupportedOperationError, nearest
from windtunnel.emulate import session
from windtunnel.emulate.common.warn import warn
from windtunnel.emulate.numba_cuda import launchconfig
from windtunnel.emulate.numba_cuda.arguments import check_count, check_dtypes, check_layouts
from windtunnel.emulate.numba_cuda.cudadrv import devices
from windtunnel.emulate.numba_cuda.errors import missing_launch_config_msg, normalize_kernel_dimensions
from windtunnel.emulate.numba_cuda.launcher import Compiled, Launch
from windtunnel.emulate.numba_cuda.types import argument_of, type_of
from windtunnel.language.numba.program import read_kernel, result_of
from windtunnel.language.numba.rules import NUMBA_NAMES, name_of
from windtunnel.language.source import KernelError

_OPTIONS = (
    "cache", "debug", "device", "extensions", "fastmath", "forceinline", "inline", "launch_bounds", "lineinfo", "link",
    "lto", "max_registers", "opt", "shared_memory_carveout",
)  # fmt: skip
"""The options of a kernel in numba-cuda, which ignores others of a device function."""
_BOUNDS = 3
"""The most numbers of ``launch_bounds``."""
_CARVEOUTS = ("default", "maxl1", "maxshared")
_FEW_BLOCKS = 128
"""Numba warns of grids with fewer blocks."""


class KernelTypingError(TypingError, KernelError):
    """A kernel that Numba would not compile either, or that Windtunnel's language does not have, with its line."""

    def __init__(self, error: KernelError) -> None:
        self._error = error
        Exception.__init__(self, str(error))
        self.msg = str(error)
        self.problem, self.where = error.problem, error.where
        self.expected, self.nearest = error.expected, error.nearest
        self.loc = None

    def __str__(self) -> str:
        return f"Failed in cuda mode pipeline (step: nopython frontend)\n{self._error}"


class LaunchConfiguration:
    """``kernel[grid, block, stream, shared]``."""

    def __init__(self, dispatcher: CUDADispatcher, griddim: Any, blockdim: Any, stream: Any, sharedmem: int) -> None:
        self.dispatcher = dispatcher
        self.griddim, self.blockdim, self.stream, self.sharedmem = griddim, blockdim, stream, sharedmem
        self.args: tuple[Any, ...] = ()
        self.pre_launch_callbacks: list[Callable[..., None]] = []
        """Called with the compiled kernel and this configuration before each launch."""
        if config.CUDA_LOW_OCCUPANCY_WARNINGS and not config.DISABLE_PERFORMANCE_WARNINGS:
            grid_size = math.prod(griddim)
            if grid_size < _FEW_BLOCKS:
                warn(
                    NumbaPerformanceWarning(
                        f"Grid size {grid_size} will likely result in GPU under-utilization due to low occupancy."
                    )
                )

    def __getstate__(self) -> dict[str, Any]:
        if self.pre_launch_callbacks:
            raise pickle.PicklingError("Cannot pickle configured launches with pre-launch callbacks")
        return vars(self)

    def __call__(self, *args: Any, **named: Any) -> None:
        """Launch the kernel. Raises TypeError, as Numba does, for arguments by name."""
        if named:
            name = next(iter(named))
            raise TypeError(f"_LaunchConfiguration.__call__() got an unexpected keyword argument '{name}'")
        self.args = args
        self.dispatcher.call(args, self)


class ForAll:
    """``kernel.forall(n)``: a launch with a thread for each of n elements."""

    def __init__(self, dispatcher: CUDADispatcher, ntasks: int, tpb: int, stream: Any, sharedmem: int) -> None:
        if ntasks < 0:
            raise ValueError(f"Can't create ForAll with negative task count: {ntasks}")
        self.dispatcher, self.ntasks, self.thread_per_block = dispatcher, ntasks, tpb
        self.stream, self.sharedmem = stream, sharedmem

    def __call__(self, *args: Any) -> None:
        """Launch the kernel."""
        if self.ntasks == 0:
            return
        block = self.thread_per_block or min(1024, devices.gpus.current.MAX_THREADS_PER_BLOCK)
        grid = -(-self.ntasks // block)
        self.dispatcher[grid, block, self.stream, self.sharedmem](*args)


@dataclass(frozen=True)
class DeviceOverload:
    """A signature of a device function."""

    signature: Any


def _check_known(options: dict[str, Any]) -> None:
    """Raise TypeError, in Numba's words, for an option that kernels do not have."""
    for name in options:
        if name not in _OPTIONS:
            near = nearest(name, _OPTIONS)
            meant = f"; did you mean '{near}'?" if near else f"; expected one of {', '.join(_OPTIONS)}"
            raise TypeError(f"_Kernel.__init__() got an unexpected keyword argument '{name}'{meant}")


class CUDADispatcher(serialize.ReduceMixin):  # type: ignore[misc]
    """A kernel or a device function."""

    def __init__(self, py_func: Callable[..., Any], targetoptions: dict[str, Any]) -> None:
        self.py_func = py_func
        functools.update_wrapper(self, py_func)
        self.targetoptions = targetoptions
        self.specialized = False
        self.overloads: dict[Any, Compiled] = {}
        self.device_signatures: list[Any] = []
        """Argument types and result of the signatures that a device function states."""
        self._fixed: list[Any] = []
        """The signatures that were stated."""
        self._compiled: dict[Any, Compiled] = {}
        self.compile_watchers: list[dict[str, Any]] = []
        """What wants to know the configuration for which the kernel is compiled."""
        self.specializations: dict[Any, CUDADispatcher] = {}
        self._type: Any = types.Dispatcher(self)

    def _reduce_states(self) -> dict[str, Any]:
        """Return what is pickled: the function and what was stated for it."""
        stated = {"fixed": self._fixed, "device": self.device_signatures, "specialized": self.specialized}
        return {"py_func": self.py_func, "targetoptions": self.targetoptions, **stated}

    @classmethod
    def _rebuild(
        cls, py_func: Any, targetoptions: dict[str, Any], fixed: list[Any], device: list[Any], specialized: bool
    ) -> CUDADispatcher:
        made = cls(py_func, targetoptions)
        for signature in fixed:
            made.compile(signature)
        made.device_signatures, made.specialized = device, specialized
        return made

    @property
    def _numba_type_(self) -> Any:
        return self._type

    @property
    def signatures(self) -> list[Any]:
        """The signatures that it was compiled for."""
        return list(self.overloads)

    nopython_signatures = signatures

    def enable_caching(self) -> None:
        """Do nothing: kernels are compiled in no time of the program's clock."""

    # Launches.

    def __getitem__(self, args: Any) -> LaunchConfiguration:
        if not isinstance(args, tuple) or len(args) not in (2, 3, 4):
            raise ValueError("must specify at least the griddim and blockdim")
        return self.configure(*args)

    def configure(self, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> LaunchConfiguration:
        """Return a launch configuration."""
        grid, block = normalize_kernel_dimensions(griddim, blockdim)
        return LaunchConfiguration(self, grid, block, stream, sharedmem)

    def forall(self, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> ForAll:
        """Return a launch configuration with a thread for each of ``ntasks`` elements."""
        return ForAll(self, ntasks, tpb, stream, sharedmem)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Raise ValueError: there is no launch configuration."""
        raise ValueError(missing_launch_config_msg)

    def call(self, args: tuple[Any, ...], configuration: LaunchConfiguration) -> None:
        """Launch it."""
        griddim, blockdim = configuration.griddim, configuration.blockdim
        stream, sharedmem = configuration.stream, configuration.sharedmem
        if self.targetoptions.get("device"):
            raise RuntimeError("Cannot compile a device function as a kernel")
        for side, values in (("grid", griddim), ("block", blockdim)):
            if any(value < 1 for value in values):
                raise ValueError(f"LaunchConfig.{side} values must be >= 1 (got {values})")
        if stream and not any(hasattr(stream, name) for name in ("raw", "handle", "__cuda_stream__")):
            kind = type(stream).__name__
            raise TypeError(f"Expected a Stream object, ExperimentalStream, GraphBuilder, or 0, got {kind}")
        check_count(self.py_func, len(args))
        launch = Launch(stream)
        retr: list[Any] = []
        # As in Numba, the last extension is the outermost.
        for extension in reversed(self.extensions):
            args = tuple(
                extension.prepare_args(None if hasattr(value, "copies_in") else type_of(value), value, stream=stream,
                                       retr=retr)[1] for value in args
            )  # fmt: skip
        launch.after += retr
        check_dtypes(self.py_func, args)
        values = tuple(_with_layout(launch.prepared(value)) for value in args)
        with launchconfig.launching(configuration):
            compiled = self._for_values(values)
        for callback in getattr(configuration, "pre_launch_callbacks", ()):
            callback(compiled, configuration)
        launch.run(compiled, griddim, blockdim, values, int(sharedmem))

    def _for_values(self, values: tuple[Any, ...]) -> Compiled:
        actual = tuple(type_of(value) for value in values)
        stated = actual
        if self.specialized:
            # Numba takes the memory of the arguments as the one signature says, without a check.
            stated = self._fixed[0]
            check_layouts(self.py_func, stated, actual, values)
        elif self._fixed:
            stated = self._matching(actual)
        try:
            arguments = tuple(argument_of(kind, value) for kind, value in zip(stated, values, strict=True))
        except TypeError as error:
            raise TypeError(f"{self.py_func.__name__}: {error} cannot be passed to a kernel") from None
        return self._compile(stated, arguments)

    def _matching(self, actual: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of the stated signature that fits best."""
        from numba.core.registry import cpu_target

        context = cpu_target.typing_context
        best: list[tuple[Any, tuple[Any, ...]]] = []
        for signature in self._fixed:
            if len(signature) != len(actual):
                continue
            if tuple(signature) == actual:
                return tuple(signature)
            scores = [_conversion(context, have, want) for have, want in zip(actual, signature, strict=True)]
            if None not in scores:
                best.append((sorted((s for s in scores if s is not None), reverse=True), tuple(signature)))
        if not best:
            raise TypeError(f"No matching definition for argument type(s) {', '.join(map(str, actual))}")
        best.sort(key=lambda pair: pair[0])
        if len(best) > 1 and best[0][0] == best[1][0]:
            listed = "\n".join(f"{signature} -> none" for score, signature in best if score == best[0][0])
            raise TypeError(f"Ambiguous overloading for {self.py_func} {actual}:\n{listed}")
        return best[0][1]

    # Compilation.

    def compile(self, sig: Any) -> Compiled:
        """Compile it for a signature."""
        argtypes, return_type = sigutils.normalize_signature(sig)
        if return_type is not None and return_type != types.none:
            raise TypeError("CUDA kernel must have void return type.")
        session.current.initialise()  # Numba loads the kernel onto the device
        self._fixed.append(tuple(argtypes))
        return self._compile(tuple(argtypes), tuple(argument_of(kind) for kind in argtypes))

    def _compile(self, kinds: tuple[Any, ...], arguments: tuple[Any, ...]) -> Compiled:
        strict = session.current.strict
        try:
            known = self._compiled.get((kinds, arguments, strict))
        except TypeError:
            known = None
        if known is not None:
            return known
        _check_known(self.targetoptions)
        for record in self.compile_watchers:
            record["config"] = launchconfig.current_launch_config()
        debug = bool(self.targetoptions.get("debug"))
        from windtunnel.emulate.numba_cuda import extending

        try:
            program = read_kernel(
                self.py_func, arguments, debug=debug, fastmath=bool(self.targetoptions.get("fastmath")),
                strict=strict, overloads=extending,
            )  # fmt: skip
        except KernelError as error:
            raise KernelTypingError(error) from None
        made = Compiled(program, tuple(program.arguments), types.void(*kinds), _bound(self.targetoptions))
        with contextlib.suppress(TypeError):  # an argument that cannot be a key
            self._compiled[kinds, arguments, strict] = made
        self.overloads[kinds] = made
        return made

    def declare(self, sig: Any) -> None:
        """State a signature of a device function."""
        argtypes, return_type = sigutils.normalize_signature(sig)
        kinds = tuple(NUMBA_NAMES.get(str(kind)) for kind in argtypes)
        returned = None if return_type is None else NUMBA_NAMES.get(str(return_type))
        if return_type is None:
            try:
                found = result_of(self.py_func, [argument_of(kind) for kind in argtypes])
            except KernelError as error:
                raise KernelTypingError(error) from None
            kind = getattr(found, "type", None)
            return_type = types.none if kind is None else getattr(types, name_of(kind))
            unit = getattr(found, "unit", "")
            return_type = from_dtype(np.dtype(unit)) if unit else return_type
        self.device_signatures.append((kinds, returned))
        signature = typing_signature(return_type, *argtypes)
        self.overloads[tuple(argtypes)] = DeviceOverload(signature)  # type: ignore[assignment]

    def compile_device(self, args: Any, return_type: Any = None) -> None:
        """Check that a device function can be compiled."""
        del args, return_type

    def specialize(self, *args: Any) -> CUDADispatcher:
        """Return a dispatcher for the types of these arguments alone."""
        if self.specialized:
            raise RuntimeError("Dispatcher already specialized")
        kinds = tuple(type_of(value) for value in args)
        key = (devices.gpus.current.compute_capability, kinds)
        known = self.specializations.get(key)
        if known is None:
            known = CUDADispatcher(self.py_func, dict(self.targetoptions))
            known.compile(kinds)
            known.specialized = True
            self.specializations[key] = known
        return known

    # What it was compiled to.

    def _refuse(self, what: str) -> Any:
        raise UnsupportedOperationError(
            f"{what} of '{self.py_func.__name__}' is not available: Windtunnel compiles kernels to neither LLVM nor PTX"
        )

    def inspect_llvm(self, signature: Any = None) -> Any:
        """Raise UnsupportedOperationError."""
        del signature
        self._refuse("the LLVM IR")

    def inspect_asm(self, signature: Any = None) -> Any:
        """Raise UnsupportedOperationError."""
        del signature
        self._refuse("the PTX")

    def inspect_sass(self, signature: Any = None) -> Any:
        """Raise UnsupportedOperationError."""
        del signature
        self._refuse("the SASS")

    inspect_sass_cfg = inspect_sass

    def inspect_types(self, file: Any = None) -> Any:
        """Print the source of each compiled kernel with the types of its variables."""
        for compiled in self.overloads.values():
            compiled.inspect_types(file)

    def _number(self, signature: Any, number: Callable[[Compiled], int]) -> Any:
        if signature is not None:
            return number(self.overloads[tuple(getattr(signature, "args", signature))])
        if self.specialized:
            return number(next(iter(self.overloads.values())))
        return {kinds: number(compiled) for kinds, compiled in self.overloads.items()}

    def get_shared_mem_per_block(self, signature: Any = None) -> Any:
        """Return the bytes of the shared arrays that a block has."""
        return self._number(signature, lambda compiled: compiled.shared_mem_per_block)

    def get_local_mem_per_thread(self, signature: Any = None) -> Any:
        """Return the bytes of the local arrays that a thread has."""
        return self._number(signature, lambda compiled: compiled.local_mem_per_thread)

    def get_const_mem_size(self, signature: Any = None) -> Any:
        """Return the bytes of the arrays from outside that the kernel reads, and of the formats of what it prints."""
        return self._number(signature, lambda compiled: compiled.const_mem_size)

    def get_regs_per_thread(self, signature: Any = None) -> Any:
        """Return the 32-bit registers of a thread, if each variable of the kernel has its own, up to CUDA's limit."""
        return self._number(signature, lambda compiled: compiled.regs_per_thread)

    def get_max_threads_per_block(self, signature: Any = None) -> Any:
        """Return the largest block."""
        return self._number(signature, lambda compiled: compiled.max_threads_per_block)

    @property
    def extensions(self) -> Any:
        """The objects that prepare arguments."""
        if not isinstance(self.targetoptions.get("extensions"), list):
            self.targetoptions["extensions"] = list(self.targetoptions.get("extensions") or ())
        return self.targetoptions["extensions"]


def _bound(options: dict[str, Any]) -> int | None:
    """Return the most threads of a block that ``launch_bounds`` states: a number, or the first of up to three."""
    stated = options.get("launch_bounds")
    if stated is None:
        return None
    bounds = stated if isinstance(stated, (tuple, list)) else (stated,)
    if len(bounds) > _BOUNDS:
        raise ValueError(
            f"Got {len(bounds)} launch bounds: {stated}. A maximum of three are supported: "
            "(max_threads_per_block, min_blocks_per_sm, max_blocks_per_cluster)"
        )
    return int(bounds[0])


def _conversion(context: Any, have: Any, want: Any) -> int | None:
    """Return how much an argument changes for a signature; None if it does not fit."""
    if have == want:
        return 0
    if isinstance(have, types.Array) and isinstance(want, types.Array):
        fits = have.ndim == want.ndim and have.dtype == want.dtype and want.layout in ("A", have.layout)
        return 1 if fits and (have.mutable or not want.mutable) else None
    found = context.can_convert(have, want)
    return None if found is None else int(found)


def _with_layout(value: Any) -> Any:
    """Note the layout of a device array that the front end has to know."""
    from windtunnel.emulate.numba_cuda.ndarray import DeviceNDArray

    if isinstance(value, DeviceNDArray):
        whole = value.offset == 0 and value.size
        itemsize = value.dtype.itemsize
        exact = value.nbytes == value.allocation.size
        layout = "A"
        if whole and exact and value.is_c_contiguous():
            layout = "C"
        elif whole and exact and value.is_f_contiguous():
            layout = "F"
        del itemsize
        value.argument_layout = layout  # type: ignore[attr-defined]
    elif isinstance(value, tuple):
        for item in value:
            _with_layout(item)
    return value


def jit(
    func_or_sig: Any = None,
    device: bool = False,
    inline: Any = False,
    link: Any = (),
    debug: Any = None,
    opt: Any = None,
    lineinfo: bool = False,
    cache: bool = False,
    **kws: Any,
) -> Any:
    """Mark a function as a kernel, or with ``device=True`` as a device function."""
    if link:
        for file in link if isinstance(link, (list, tuple)) else (link,):
            if isinstance(file, str) and not Path(file).exists():
                raise FileNotFoundError(2, "No such file or directory", file)
        raise UnsupportedOperationError(f"link={link!r} is not available: Windtunnel links no code of other languages")
    _check_options(kws, debug, opt, lineinfo)
    with_debug = bool(config.CUDA_DEBUGINFO_DEFAULT if debug is None else debug)
    given = {"device": device, "inline": inline, "opt": opt, "lineinfo": lineinfo, "cache": cache}
    options = {**given, "debug": with_debug, **kws}
    specialized = False
    if sigutils.is_signature(func_or_sig):
        signatures = [func_or_sig]
        specialized = True
    elif isinstance(func_or_sig, list):
        signatures = func_or_sig
    elif func_or_sig is None:
        signatures = None
    else:
        if isinstance(func_or_sig, CUDADispatcher):
            raise TypeError("A jit decorator was called on an already jitted function")
        py_func = getattr(func_or_sig, "py_func", func_or_sig)
        if not callable(py_func):
            raise TypeError(f"Cannot jit {func_or_sig!r}: it is not a function")
        return CUDADispatcher(py_func, options)

    def decorated(function: Any) -> CUDADispatcher:
        made = CUDADispatcher(getattr(function, "py_func", function), options)
        for signature in signatures or ():
            if device:
                made.declare(signature)
                continue
            made.compile(signature)
        made.specialized = specialized
        return made

    return decorated


def _check_options(kws: dict[str, Any], debug: Any, opt: Any, lineinfo: bool) -> None:
    from numba.core.errors import DeprecationError, NumbaInvalidConfigWarning

    if kws.get("boundscheck"):
        raise NotImplementedError("bounds checking is not supported for CUDA")
    if kws.get("argtypes") is not None:
        raise DeprecationError(
            "Deprecated keyword argument `argtypes`. Signatures should be passed as the first positional argument."
        )
    if kws.get("restype") is not None:
        raise DeprecationError(
            "Deprecated keyword argument `restype`. Signatures should be passed as the first positional argument."
        )
    if kws.get("bind") is not None:
        raise DeprecationError("Deprecated keyword argument `bind`.")
    if kws.get("nopython") is False:
        raise NotImplementedError("nopython mode is required for CUDA")
    carveout = kws.get("shared_memory_carveout")
    if isinstance(carveout, str) and carveout.lower() not in _CARVEOUTS:
        listed = "'default', 'MaxL1', 'MaxShared'"
        raise ValueError(f"Invalid carveout value: {carveout}. Must be -1 to 100 or one of {listed}")
    if isinstance(carveout, int) and not -1 <= carveout <= 100:
        raise ValueError("Carveout must be between -1 and 100")
    debug = bool(config.CUDA_DEBUGINFO_DEFAULT) if debug is None else debug
    optimized = config.OPT != 0 if opt is None else opt
    if debug and optimized:
        text = (
            "debug=True with opt=True (the default) is not supported by CUDA. This may result in a crash - set "
            "debug=False or opt=False."
        )
        warn(NumbaInvalidConfigWarning(text))
    if debug and lineinfo:
        text = (
            "debug and lineinfo are mutually exclusive. Use debug to get full debug info (this disables some "
            "optimizations), or lineinfo for line info only with code generation unaffected."
        )
        warn(NumbaInvalidConfigWarning(text))


def declare_device(name: str, sig: Any, **_: Any) -> Any:
    """Declare a foreign device function; a kernel that calls it is refused."""
    argtypes, restype = sigutils.normalize_signature(sig)
    if restype is None:
        raise TypeError("Return type must be provided for device declarations")

    class ExternFunction:
        """A foreign device function."""

        external_name = name
        args = argtypes

        def __init__(self) -> None:
            self.name, self.sig = name, typing_signature(restype, *argtypes)

        def __call__(self, *_: Any) -> None:
            raise UnsupportedOperationError(f"the foreign function '{name}' is not available on an emulated device")

    return ExternFunction()
