"""The device pool: guards always return their device, and returned devices are in their initial state."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import windtunnel
from windtunnel.core import errors
from windtunnel.emulator.device.timeline import Host
from windtunnel.runtime.pool import DevicePool, PoolExhausted


@pytest.fixture
def pool() -> DevicePool:
    host = Host()
    return DevicePool(lambda: windtunnel.device("l4", host=host), size=2)


def test_a_guard_gives_back_whatever_happens(pool: DevicePool) -> None:
    with pytest.raises(ZeroDivisionError), pool.acquire() as device:
        device.to_device(np.ones(1000))
        raise ZeroDivisionError
    assert (pool.lent, pool.opened, pool.left_bytes) == (0, 1, 8000)
    with pool.acquire() as again:
        assert again is device and again.allocated_bytes == 0


def test_no_more_are_lent_than_there_are_nor_opened_than_lent_at_once(pool: DevicePool) -> None:
    for _ in range(5):
        with pool.acquire():
            pass
    assert pool.opened == 1
    with pool.acquire() as one, pool.acquire() as other:
        assert one is not other
        with pytest.raises(PoolExhausted, match="all 2 devices"), pool.acquire():
            pass
    assert (pool.lent, pool.opened) == (0, 2)
    with pytest.raises(errors.InputError, match="lends none"):
        DevicePool(pool.open, 0)


def test_a_device_that_was_lost_comes_back_reset(pool: DevicePool) -> None:
    with pool.acquire() as device, device.faults("device_lost"), pytest.raises(errors.DeviceLost):
        device.empty(3)
    with pool.acquire() as device:
        device.empty(3)


def test_who_waits_is_served_in_order_of_asking(pool: DevicePool) -> None:
    served: list[int] = []

    async def borrow(number: int) -> None:
        async with pool.acquire_async() as device:
            device.to_device(np.ones(10))
            served.append(number)
            assert pool.lent <= 2
            await asyncio.sleep(0)

    async def all_of_them() -> None:
        await asyncio.gather(*(borrow(number) for number in range(20)))

    asyncio.run(all_of_them())
    assert served == list(range(20))
    assert (pool.lent, pool.opened) == (0, 2)


def test_who_stops_waiting_holds_nobody_up(pool: DevicePool) -> None:
    async def program() -> str:
        async with pool.acquire_async(), pool.acquire_async():
            impatient = asyncio.create_task(hold("impatient"))
            patient = asyncio.create_task(hold("patient"))
            await asyncio.sleep(0)
            impatient.cancel()
            await asyncio.sleep(0)
        assert impatient.cancelled() or impatient.cancelling()
        return await patient

    async def hold(name: str) -> str:
        async with pool.acquire_async():
            return name

    assert asyncio.run(program()) == "patient"
    assert pool.lent == 0


def test_a_device_that_cannot_be_opened_is_not_counted_as_lent() -> None:
    pool = DevicePool(lambda: windtunnel.device("no-such-device"), 1)
    for _ in range(2):
        with pytest.raises(errors.InputError), pool.acquire():
            pass
    assert (pool.lent, pool.opened) == (0, 0)


def test_nobody_slips_in_before_who_was_handed_the_place() -> None:
    pool = DevicePool(lambda: windtunnel.device("l4"), 1)
    order: list[str] = []

    async def hold(name: str) -> None:
        async with pool.acquire_async():
            order.append(name)
            assert pool.lent == 1
            await asyncio.sleep(0)

    async def program() -> None:
        async with pool.acquire_async():
            waits = asyncio.create_task(hold("waits"))
            await asyncio.sleep(0)
        # The place is the waiter's now, though it has not run yet.
        with pytest.raises(PoolExhausted), pool.acquire():
            pass
        await hold("comes later")
        await waits

    asyncio.run(program())
    assert order == ["waits", "comes later"] and (pool.opened, pool.lent) == (1, 0)
