"""A pool of accelerators, each opened once and lent to one borrower at a time.

>>> pool = DevicePool(lambda: windtunnel.device("l4"), size=2)
>>> with pool.acquire() as accelerator:
...     program(accelerator)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from windtunnel.core.errors import InputError, WindtunnelError
from windtunnel.runtime.accelerator import Accelerator


class PoolExhausted(WindtunnelError):
    """All devices of a pool are lent, and the call does not wait."""


@dataclass
class DevicePool:
    """At most ``size`` accelerators, each opened by ``open`` when it is first needed.

    A returned device is restored: memory that the borrower left is freed (to the device's memory pool, which the next
    borrower uses without a call of the driver), and a device that failed permanently is reset.
    """

    open: Callable[[], Accelerator]
    size: int
    opened: int = 0
    """The number of devices opened so far: the largest number lent at one time."""
    lent: int = 0
    left_bytes: int = 0
    """The memory (bytes) that borrowers left allocated, in total."""
    _idle: deque[Accelerator] = field(default_factory=deque)
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a pool of {self.size} devices lends none", expected="a size from 1")

    @contextmanager
    def acquire(self) -> Iterator[Accelerator]:
        """Lend a device for a ``with`` block. Raises PoolExhausted if all are lent."""
        if self.lent >= self.size:
            raise PoolExhausted(f"all {self.size} devices of the pool are lent")
        device = self._take()
        try:
            yield device
        finally:
            self._give_back(device)

    @asynccontextmanager
    async def acquire_async(self) -> AsyncIterator[Accelerator]:
        """Lend a device for an ``async with`` block. Waits for a free device, in order of the calls."""
        waits = self.lent >= self.size
        if waits:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                elif not turn.cancelled():
                    self._leave()  # it had received a device already, which the next waiter takes
                raise
        device = self._take(handed_over=waits)
        try:
            yield device
        finally:
            self._give_back(device)

    def _take(self, *, handed_over: bool = False) -> Accelerator:
        self.lent += not handed_over
        try:
            if self._idle:
                return self._idle.popleft()
            device = self.open()
        except BaseException:
            self._leave()
            raise
        self.opened += 1
        return device

    def _give_back(self, device: Accelerator) -> None:
        self.left_bytes += device.allocated_bytes
        device.injector.plan = None
        # If the borrower closed the device, the next borrower opens another.
        if not device.closed:
            device.clear()
            self._idle.append(device)
        self._leave()

    def _leave(self) -> None:
        """Pass the place to the longest waiting task; it stays reserved, so that no other task takes it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.lent -= 1

    def close(self) -> None:
        """Close the devices that are not lent."""
        while self._idle:
            self._idle.popleft().close()
