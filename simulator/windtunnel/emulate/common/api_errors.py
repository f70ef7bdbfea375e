"""Errors of an emulated device in the classes of the interfaces that the program uses.

An error is of the class of `windtunnel.errors` and of the class that the interface raises, so that a program and a test
may expect either. Both name the error of CUDA: the driver's for Numba, the runtime's or the driver's for CuPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from windtunnel.core.errors import ApiCode, DeviceError, DeviceHang, UseAfterFree
from windtunnel.runtime.codes import Reason, code_of


@dataclass(frozen=True)
class Presented:
    """An error as an interface raises it: its class, its attributes, and its text."""

    kind: type[Exception]
    text: str
    attributes: dict[str, Any] = field(default_factory=dict)


Presenter = Callable[[str, ApiCode, ApiCode], Presented]
"""Presents an error of an operation (``launch``, ``copy in``), given the codes of the runtime and of the driver."""
presenters: dict[str, Presenter] = {}
"""The interfaces that the program has imported, by name. Each adds itself."""
_made: dict[tuple[type[DeviceError], str, Reason | None, tuple[str, ...]], type[DeviceError]] = {}
_OPERATIONS = ("allocate", "copy in", "copy out", "copy within", "launch", "synchronize", "event", "stream")


class Number(int):
    """The number of an error, as Numba's ``code``, which also has the fields of an `ApiCode`."""

    name: str
    api: str

    def __new__(cls, code: ApiCode) -> Self:
        """Return the number of a code; 999, CUDA's unknown error, for one that has none."""
        made = super().__new__(cls, 999 if code.number is None else code.number)
        made.name, made.api = code.name, "cuda"
        return made

    @property
    def number(self) -> int:
        """The number alone."""
        return int(self)


def error_kind(kind: type[DeviceError], operation: str, reason: Reason | None = None) -> type[DeviceError]:
    """Return the class of an error for the program: ``kind`` itself if the program uses no other interface."""
    plain: type[DeviceError] = getattr(kind, "device_error", kind)
    known = next((name for name in _OPERATIONS if operation.startswith(name)), operation)
    if issubclass(plain, DeviceHang):
        known = "synchronize"  # a kernel that does not end is reported to a wait
    if not presenters:
        return plain
    key = plain, known, reason, tuple(presenters)
    if key not in _made:
        _made[key] = _joined(*key)
    return _made[key]


def _joined(
    plain: type[DeviceError], operation: str, reason: Reason | None, names: tuple[str, ...]
) -> type[DeviceError]:
    codes = code_of("cuda", plain, reason), code_of("cuda driver", plain, reason)
    presented = [presenters[name](operation, *codes) for name in names]
    is_freed = issubclass(plain, UseAfterFree)

    def initialise(self: Any, problem: str, *, operation: str, device: str, code: ApiCode) -> None:
        DeviceError.__init__(self, problem, operation=operation, device=device, code=code)
        # The text has the interface's own code alone. Of a use of freed memory it would say nothing.
        said, own = f"{operation} on {device}: {problem}", presented[0].text
        self.args, self.device_code = (f"{said}: {own}" if is_freed else f"{own}: {said}",), code
        for one in presented:
            vars(self).update(one.attributes)

    def text(self: Any) -> str:
        return str(self.args[0])

    def rebuild(self: Any) -> Any:
        return _rebuilt, (plain, reason, self.problem, self.operation, self.device, self.device_code)

    first = presented[0].kind
    members = {
        "__init__": initialise, "__str__": text, "__reduce__": rebuild, "__module__": first.__module__,
        "__qualname__": first.__qualname__, "__doc__": f"{plain.__doc__} It is an error of {' and '.join(names)} too.",
        "device_error": plain,
    }  # fmt: skip
    return type(first.__name__, (*(one.kind for one in presented), plain), members)


def _rebuilt(
    plain: type[DeviceError], reason: Reason | None, problem: str, operation: str, device: str, code: ApiCode
) -> DeviceError:
    return error_kind(plain, operation, reason)(problem, operation=operation, device=device, code=code)
