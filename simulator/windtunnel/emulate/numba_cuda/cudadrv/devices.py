"""``numba.cuda.cudadrv.devices``: the devices of the program, and the current one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, NoReturn, Self

from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.emulate import session
from windtunnel.emulate.common import current
from windtunnel.emulate.common.current import current_accelerator, current_index
from windtunnel.emulate.numba_cuda.cudadrv.error import CudaDriverError

__all__ = ["current_accelerator", "current_index"]

session.forked = lambda: CudaDriverError("CUDA initialized before forking")
factories: dict[str, Callable[..., Any]] = {}
"""What makes streams, events and memory; the modules of these fill it."""


NO_HANDLES = (
    "handles of memory for other processes (get_ipc_handle, open_ipc_array) are not available: an emulated device "
    "belongs to one process"
)


class MemoryInfo(tuple[int, int]):
    """Free and total memory (bytes)."""

    def __new__(cls, free: int, total: int) -> Self:
        """Return the pair."""
        return super().__new__(cls, (free, total))

    free = property(lambda self: self[0])
    total = property(lambda self: self[1])


class Device:
    """A device."""

    def __init__(self, index: int) -> None:
        self.id = self.index = index

    @property
    def lst(self) -> Any:
        """The context manager that makes it the current device."""
        return self

    @property
    def _info(self) -> Any:
        return session.current.accelerator(self.id).info

    @property
    def name(self) -> bytes:
        """Its name."""
        return str(self._info.name).encode()

    @property
    def uuid(self) -> str:
        """An identifier."""
        return f"GPU-00000000-0000-0000-0000-{self.id:012d}"

    @property
    def compute_capability(self) -> tuple[int, int]:
        """The compute capability."""
        return current.compute_capability()

    cc = compute_capability
    supports_float16 = True
    supports_bfloat16 = True

    def __getattr__(self, name: str) -> Any:
        info = self._info
        limits = info.limits
        known = {
            "MULTIPROCESSOR_COUNT": info.compute_units, "WARP_SIZE": limits.warp,
            "MAX_THREADS_PER_BLOCK": limits.threads_per_block, "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
            **{f"MAX_BLOCK_DIM_{axis}": limits.block[at] for at, axis in enumerate("XYZ")},
            **{f"MAX_GRID_DIM_{axis}": limits.grid[at] for at, axis in enumerate("XYZ")},
            "COMPUTE_CAPABILITY_MAJOR": self.compute_capability[0],
            "COMPUTE_CAPABILITY_MINOR": self.compute_capability[1], "UNIFIED_ADDRESSING": 1, "CAN_MAP_HOST_MEMORY": 1,
            "PCI_BUS_ID": self.id, "PCI_DEVICE_ID": 0, "PCI_DOMAIN_ID": 0, "ASYNC_ENGINE_COUNT": 2,
            "CONCURRENT_KERNELS": 1, "MANAGED_MEMORY": 1, "CONCURRENT_MANAGED_ACCESS": 1,
            "TOTAL_CONSTANT_MEMORY": 65536,
            "MAX_THREADS_PER_MULTI_PROCESSOR": 2048, "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
        }  # fmt: skip
        if name not in known:
            raise AttributeError(f"the attribute {name!r} of a device is not known to Windtunnel")
        return known[name]

    def reset(self) -> None:
        """Free everything on it."""
        session.current.reset(self.id)

    def get_primary_context(self) -> Context:
        """Return its context."""
        return _context(self.id)

    def __enter__(self) -> Context:
        current.push(self.id)
        return _context(self.id)

    def __exit__(self, *_: object) -> None:
        current.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA device {self.id} '{self.name.decode()}'>"


class Context:
    """The context of a device."""

    allocations: dict[Any, Any] = {}  # noqa: RUF012  Numba's name; there is nothing in it
    modules: dict[Any, Any] = {}  # noqa: RUF012  Numba's name; there is nothing in it

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def accelerator(self) -> Any:
        """The emulated device."""
        return session.current.accelerator(self.device.id)

    def get_memory_info(self) -> MemoryInfo:
        """Return the free and the total memory (bytes)."""
        total = int(self.accelerator.info.memory_bytes)
        return MemoryInfo(total - int(self.accelerator.allocated_bytes), total)

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        self.accelerator.synchronize()

    def reset(self) -> None:
        """Free everything on the device."""
        session.current.reset(self.device.id)

    def push(self) -> None:
        """Make the device the current one."""
        current.push(self.device.id)

    def pop(self) -> None:
        """Return to the device before."""
        current.pop()

    def __enter__(self) -> Self:
        self.push()
        return self

    def __exit__(self, *_: object) -> None:
        self.pop()

    def create_stream(self) -> Any:
        """Create a stream."""
        return factories["stream"]()

    def create_event(self, timing: bool = True) -> Any:
        """Create an event."""
        return factories["event"](timing)

    def get_default_stream(self) -> Any:
        """Return the default stream."""
        return factories["default_stream"]()

    get_legacy_default_stream = get_default_stream

    def can_access_peer(self, peer_context: int) -> bool:
        """Return whether another device's memory can be accessed: there is one device."""
        del peer_context
        return False

    @contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Do nothing: memory is freed when nothing refers to it."""
        yield

    def memalloc(self, bytesize: int) -> Any:
        """Allocate memory."""
        return factories["memory"](bytesize, self.device.id)

    def memhostalloc(self, bytesize: int, mapped: bool = False, portable: bool = False, wc: bool = False) -> Any:
        """Raise UnsupportedOperationError."""
        del bytesize, portable, wc
        self._refuse("memhostalloc", "mapped_array" if mapped else "pinned_array")

    def mempin(self, owner: Any, pointer: Any, size: int, mapped: bool = False) -> Any:
        """Raise UnsupportedOperationError."""
        del owner, pointer, size
        self._refuse("mempin", "mapped" if mapped else "pinned")

    def memallocmanaged(self, bytesize: int, attach_global: bool = True) -> Any:
        """Raise UnsupportedOperationError."""
        del bytesize, attach_global
        self._refuse("memallocmanaged", "managed_array")

    def _refuse(self, name: str, instead: str) -> NoReturn:
        problem = f"the method {name} of a context is not available on an emulated device"
        raise UnsupportedOperationError(problem, expected=f"cuda.{instead}")

    @property
    def memory_manager(self) -> Context:
        """What allocates memory."""
        return self

    class deallocations:  # noqa: N801  Numba's name
        """What waits to be freed: nothing."""

        @staticmethod
        def clear() -> None:
            """Free it."""

    def get_ipc_handle(self, memory: Any) -> Any:
        """Raise UnsupportedOperationError: no other process has the memory of an emulated device."""
        del memory
        raise UnsupportedOperationError(NO_HANDLES)

    def prepare_for_use(self) -> None:
        """Do nothing."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and other.device == self.device

    def __hash__(self) -> int:
        return hash(self.device)


@cache
def _device(index: int) -> Device:
    """Return the one object of a device, as Numba has it."""
    return Device(index)


@cache
def _context(index: int) -> Context:
    """Return the one object of a device's context."""
    return Context(_device(index))


class DeviceList:
    """The devices of the program."""

    @property
    def lst(self) -> list[Device]:
        """The devices."""
        session.current.initialise()
        return [_device(index) for index in range(session.current.count)]

    def __len__(self) -> int:
        session.current.initialise()
        return session.current.count

    def __iter__(self) -> Iterator[Device]:
        return iter(self.lst)

    def __getitem__(self, index: int) -> Device:
        return self.lst[index]

    def __str__(self) -> str:
        return ", ".join(str(device) for device in self.lst)

    @property
    def current(self) -> Device:
        """The current device."""
        session.current.initialise()
        return _device(current_index())


gpus = DeviceList()


def get_context(devnum: int | None = None) -> Context:
    """Return the context of a device, by default of the current one, and make it the current one."""
    if devnum is not None:
        gpus[devnum]
        current.select(devnum)
    context = gpus.current.get_primary_context()
    _ = context.accelerator  # CUDA initialises the device now, after which the process must not be forked
    return context


def require_context(fn: Any) -> Any:
    """Return a function as it is: a context is opened where one is needed."""

    @wraps(fn)
    def function(*arguments: Any, **named: Any) -> Any:
        return fn(*arguments, **named)

    return function


def reset() -> None:
    """Free everything on all devices."""
    for device in gpus:
        device.reset()


class _Runtime:
    """The state of the runtime."""

    @property
    def gpus(self) -> DeviceList:
        """The devices."""
        return gpus


_runtime = _Runtime()
