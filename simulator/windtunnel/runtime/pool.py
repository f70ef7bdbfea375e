"""Accelerators that are opened once and lent: a guard gives each back, whatever happens to its borrower.

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
    """All devices of a pool are lent, and the caller cannot wait."""


@dataclass
class DevicePool:
    """At most ``size`` accelerators, each opened by ``open`` when it is first needed.

    A device comes back as it went: what the borrower left allocated is freed (to the memory pool of the device, so that
    the next borrower need not ask the driver), and one that failed for good is reset.
    """

    open: Callable[[], Accelerator]
    size: int
    opened: int = 0
    """Devices that were opened so far: no more than were ever lent at once."""
    lent: int = 0
    left_bytes: int = 0
    """What borrowers left allocated, in all."""
    _idle: deque[Accelerator] = field(default_factory=deque)
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a pool of {self.size} devices lends none", expected="a size from 1")

    @contextmanager
    def acquire(self) -> Iterator[Accelerator]:
        """Lend a device for a while; PoolExhausted when none is left, since nothing here could give one back."""
        if self.lent >= self.size:
            raise PoolExhausted(f"all {self.size} devices of the pool are lent")
        device = self._take()
        try:
            yield device
        finally:
            self._give_back(device)

    @asynccontextmanager
    async def acquire_async(self) -> AsyncIterator[Accelerator]:
        """Lend a device for a while; waits, in order of asking, until one is there."""
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
                    self._leave()  # its turn had come already: the next has it
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
        # A borrower that closed its device leaves none to lend; the next opens another.
        if not device.closed:
            device.clear()
            self._idle.append(device)
        self._leave()

    def _leave(self) -> None:
        """Hand the place over to who has waited longest; it stays taken meanwhile, so that nobody slips in."""
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
