"""Shared-nothing workers: no lost messages, and the same virtual times in every interleaving."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from tests.emulator.workers import KNOWN, ONES, US, Forwarder, Job, add, device, names_of

import windtunnel
from windtunnel.core import errors
from windtunnel.emulator.device.timeline import Host
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.worker import (
    AcceleratedWorker,
    Address,
    ComputeTask,
    Deadlock,
    Envelope,
    HandlerError,
    WorkerGroup,
)


def test_a_worker_computes_keeps_its_state_and_answers() -> None:
    with WorkerGroup() as group:
        worker = AcceleratedWorker(group, "adder", device)
        reply = worker.address.send(ComputeTask(add, (ONES, 2 * ONES)))
        assert not reply.done
        assert (reply.result() == 3).all()
        assert worker.state == [3.0] * 1000
    alone = device()
    alone.compute(add, ONES, 2 * ONES)
    assert worker.clock_s == group.clock_s == reply.arrived_s == alone.clock_s > 0


def test_a_message_is_taken_up_no_earlier_than_it_was_sent_nor_than_the_receiver_is_free() -> None:
    with WorkerGroup() as group:
        a, b = Forwarder(group, "a", device), Forwarder(group, "b", device)
        a.address.send(Job("first", 50, (("b", Job("second", 10)),)))
        b.address.send(Job("busy", 70))
        group.run()
        assert a.state == [("first", 0.0, None, 1)]
        assert b.state == [("busy", 0.0, None, 2), ("second", 70.0, "a", 1)]
        assert (a.clock_s, b.clock_s, group.clock_s) == pytest.approx((50 * US, 80 * US, 80 * US))
        # The program had waited for all of that: what it sends now is sent then.
        assert a.address.send(Job("later")).result() == "later"
        assert a.state[-1][1] == 80.0


def test_an_earlier_message_is_handled_first_even_if_its_sender_is_run_later() -> None:
    # z sends at 10 us, a at 30 us; to run a's chain first must not bring a's message in first.
    with WorkerGroup() as group:
        workers = {name: Forwarder(group, name, device) for name in ("a", "c", "z")}
        workers["a"].address.send(Job("x", 30, (("c", Job("from a")),)))
        workers["z"].address.send(Job("y", 10, (("c", Job("from z")),)))
        workers["a"].run()
        workers["c"].run()
        assert names_of(workers["c"]) == ["from z", "from a"]


def test_what_is_busy_for_long_keeps_nothing_earlier_from_coming_first() -> None:
    class SendsFirst(Forwarder):
        def handle_message(self, state: list[Any], envelope: Envelope) -> None:
            for to, what in envelope.payload.then:
                self._group.address(to).send(what)
            self.accelerator.sleep(envelope.payload.cost_us * US)

    with WorkerGroup() as group:
        a, b, c = Forwarder(group, "a", device), SendsFirst(group, "b", device), Forwarder(group, "c", device)
        for job in (Job("p", 5), Job("q", 100, (("c", Job("from b")),)), Job("r")):
            b.address.send(job)
        a.address.send(Job("x", 3, (("c", Job("from a")),)))
        group.run()
        assert c.state == [("from a", 3.0, "a", 1), ("from b", 5.0, "b", 1)]


def test_workers_begin_when_they_are_started_and_go_on_when_they_are_restarted() -> None:
    with WorkerGroup() as group:
        group.sleep(10 * US)
        worker = Forwarder(group, "w", device)
        assert worker.clock_s == pytest.approx(10 * US)
        group.sleep(10 * US)
        worker.restart()
        assert worker.clock_s == group.clock_s == pytest.approx(20 * US)


# Laws over any programs and any way of driving them.

WORKERS = ("a", "b", "c")
LEAF = st.tuples(st.sampled_from(WORKERS), st.integers(0, 3), st.just(()))
TREES = st.recursive(
    LEAF,
    lambda inner: st.tuples(st.sampled_from(WORKERS), st.integers(0, 3), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=6,
)
PLANS = st.lists(TREES, min_size=1, max_size=5)
DRIVES = st.lists(st.sampled_from([*WORKERS, "step", "reply", "gather"]), max_size=8)


def named(plan: list[Any]) -> list[tuple[str, Job]]:
    count = 0

    def job(tree: Any) -> tuple[str, Job]:
        nonlocal count
        to, cost, inner = tree
        count += 1
        return to, Job(f"m{count}", cost, tuple(job(one) for one in inner))

    return [job(tree) for tree in plan]


def all_names(jobs: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    for _, job in jobs:
        found[job.name] += 1
        found += all_names(job.then)
    return found


def run_plan(plan: Any, drives: Any, capacity: int, faults: Any = (), restarts: int = 0) -> Any:
    group = WorkerGroup()
    workers = {name: Forwarder(group, name, device, capacity=capacity, restarts=restarts) for name in sorted(WORKERS)}
    replies = []
    try:
        replies += [workers[to].address.send(job) for to, job in named(plan)]
        for drive in drives:
            if drive in workers:
                workers[drive].run()
            elif drive == "step":
                group._step()
            elif drive == "reply":
                replies[0].result()
            else:
                asyncio.run(_gather(replies))
        group.run()
    except Deadlock:
        return "deadlock"
    done = {name: (worker.clock_s, worker.state, worker.handled) for name, worker in workers.items()}
    return done, [reply.arrived_s for reply in replies], group.clock_s


async def _gather(replies: list[Any]) -> None:
    async def wait(reply: Any) -> Any:
        return await reply

    await asyncio.gather(*(wait(reply) for reply in reversed(replies)))


@given(PLANS, DRIVES, st.integers(1, 4))
def test_any_interleaving_gives_the_same_clocks_states_and_replies(plan: Any, drives: Any, capacity: int) -> None:
    assert run_plan(plan, drives, capacity) == run_plan(plan, [], capacity)


@given(PLANS, DRIVES)
def test_no_message_is_lost_or_handled_twice_and_each_worker_goes_forward_in_time(plan: Any, drives: Any) -> None:
    done, _, _ = run_plan(plan, drives, capacity=64)
    handled = Counter(entry[0] for _, state, _ in done.values() for entry in state)
    assert handled == all_names(named(plan))
    for clock_s, state, _ in done.values():
        starts = [entry[1] for entry in state]
        assert starts == sorted(starts) and (not starts or starts[-1] <= clock_s / US + 1e-3)


@given(PLANS, st.integers(1, 3), st.integers(0, 2), st.integers(1, 4))
def test_with_a_device_that_is_lost_each_message_is_handled_or_comes_back_once(
    plan: Any, capacity: int, restarts: int, call: int
) -> None:
    group = WorkerGroup()

    class Computing(Forwarder):
        def handle_message(self, state: Any, envelope: Envelope) -> Any:
            self.accelerator.synchronize()
            return super().handle_message(state, envelope)

    workers = {name: Computing(group, name, device, capacity=capacity, restarts=restarts) for name in WORKERS}
    armed = workers["b"].accelerator.faults({"kind": "device_lost", "call": call, "times": 2})
    armed.__enter__()
    asked = []
    try:
        for to, job in named(plan):
            asked.append(workers[to].address.send(job))
        group.run()
    except Deadlock:
        reject()  # Hypothesis fails if nearly all plans are rejected
    failed = group.failures()
    sent = sum(group._sent.values())
    handled = sum(worker.handled for worker in workers.values())
    returned = [envelope for worker in workers.values() for envelope in worker.returned]
    assert handled + len(returned) == sent and len(set(map(id, returned))) == len(returned)
    assert all(reply.done for reply in asked)
    answered = sum(len(worker.state) for worker in workers.values())
    assert answered + len(failed) == sent
    assert workers["b"].failed is None or (workers["b"].restarts == 0 and workers["b"].waiting == 0)
    assert len(armed.plan.log) <= 2


# Backpressure.


def test_a_full_mailbox_holds_its_senders_until_there_is_room() -> None:
    with WorkerGroup() as group:
        fast, slow = Forwarder(group, "fast", device), Forwarder(group, "slow", device, capacity=1)
        fast.address.send(Job("all", 1, tuple(("slow", Job(f"{i}", 100)) for i in range(3))))
        fast.address.send(Job("next"))
        group.run()
        # At 1 us the three come: one is taken up, one is in the mailbox, one waits at the door until the first is done.
        assert slow.state[2][:2] == ("2", 201.0)
        assert fast.state[1][:2] == ("next", 101.0)


def test_the_program_outside_stands_still_too_and_only_as_long() -> None:
    with WorkerGroup() as group:
        slow = Forwarder(group, "slow", device, capacity=2)
        at = []
        for i in range(5):
            slow.address.send(Job(f"{i}", 100))
            at.append(round(group.clock_s / US))
        # Two fit in; the third once the first is taken up, at once; the fourth and fifth when the next ones are.
        assert at == [0, 0, 0, 100, 200]


def test_the_program_waits_for_room_even_where_nothing_else_happens_then() -> None:
    def opened_late() -> Accelerator:
        found = device()
        found.sleep(50 * US)
        return found

    with WorkerGroup() as group:
        worker = Forwarder(group, "w", opened_late, capacity=1)
        for name in "xy":
            worker.address.send(Job(name))
        assert group.clock_s == pytest.approx(50 * US)


def test_workers_that_wait_for_each_other_are_a_deadlock_that_names_them() -> None:
    group = WorkerGroup()
    for name in "ab":
        Forwarder(group, name, device, capacity=1)
    many = tuple(("b", Job(f"{i}", 0, (("a", Job("back")),) * 3)) for i in range(3))
    group.address("a").send(Job("start", 0, many))
    with pytest.raises(Deadlock, match=r"a for room with b \(1 of 1 taken\).*") as raised:
        group.run()
    assert "b for room with a (1 of 1 taken)" in str(raised.value)


# What a group refuses.


def test_nothing_is_shared_between_workers_not_even_a_clock() -> None:
    one, host = device(), Host()
    group = WorkerGroup(one)
    with pytest.raises(errors.InputError, match="'w' shares an accelerator with 'main'"):
        AcceleratedWorker(group, "w", lambda: one)
    AcceleratedWorker(group, "a", lambda: windtunnel.device("l4", host=host, catalogue=KNOWN))
    with pytest.raises(errors.InputError, match="'b' shares a clock with 'a'"):
        AcceleratedWorker(group, "b", lambda: windtunnel.device("l4", host=host, catalogue=KNOWN))
    for name in ("a", "", "main"):
        with pytest.raises(errors.InputError, match="is not a valid name of a worker"):
            AcceleratedWorker(group, name, device)
    with pytest.raises(errors.InputError, match="capacity from 1"):
        AcceleratedWorker(group, "c", device, capacity=0)
    with pytest.raises(errors.InputError, match="there is no worker 'A'; did you mean 'a'"):
        group.address("A")
    with pytest.raises(errors.InputError, match="is not a worker of this group"):
        Address("a", WorkerGroup()).send(1)


def test_a_handler_cannot_wait_and_an_address_can_be_sent_to_be_answered() -> None:
    class Asking(AcceleratedWorker):
        def handle_message(self, state: Any, envelope: Envelope) -> Any:
            if envelope.payload == "wait":
                return group.address("b").send("x").result()
            if isinstance(envelope.payload, Address):
                return envelope.payload.send("answer") and None
            state.append((envelope.payload, envelope.sender and envelope.sender.name))
            return None

    with WorkerGroup() as group:
        a, b = (Asking(group, name, device) for name in "ab")
        with pytest.raises(HandlerError, match="the handler of 'a' must not wait for a reply"):
            a.address.send("wait").result()
        b.address.send(a.address)
        group.run()
        assert a.state == [("answer", "b")] and b.state == [("x", "a")]


def test_the_program_has_the_clock_of_its_own_accelerator() -> None:
    own = device()
    with WorkerGroup(own) as group:
        worker = Forwarder(group, "w", device)
        own.sleep(30 * US)
        reply = worker.address.send(Job("x", 20))
        assert own.clock_s == pytest.approx(30 * US)
        reply.result()
        assert worker.state[0][1] == 30.0 and own.clock_s == group.clock_s == pytest.approx(50 * US)


def test_tasks_of_asyncio_wait_side_by_side_and_each_goes_on_when_its_reply_is_there() -> None:
    async def ask(group: WorkerGroup, name: str, cost: int, seen: list[Any]) -> None:
        await group.address(name).send(Job("one", cost))
        seen.append((name, round(group.clock_s / US)))
        await group.address(name).send(Job("two", cost))
        seen.append((name, round(group.clock_s / US)))

    async def program(group: WorkerGroup, seen: list[Any]) -> None:
        await asyncio.gather(ask(group, "a", 100, seen), ask(group, "b", 30, seen))

    seen: list[Any] = []
    with WorkerGroup() as group:
        for name in "ab":
            Forwarder(group, name, device)
        asyncio.run(program(group, seen))
    assert seen == [("b", 30), ("b", 60), ("a", 100), ("a", 200)]


def test_the_program_is_never_behind_what_has_happened() -> None:
    async def wait(group: WorkerGroup) -> None:
        await group.address("a").send(Job("x", 100))

    async def look(group: WorkerGroup) -> float:
        await asyncio.sleep(0)  # the reply is there, and who waits for it has not gone on yet
        return group.clock_s

    async def program(group: WorkerGroup) -> float:
        return (await asyncio.gather(wait(group), look(group)))[1]

    with WorkerGroup() as group:
        Forwarder(group, "a", device)
        assert asyncio.run(program(group)) == pytest.approx(100 * US)


def test_a_task_that_stops_waiting_leaves_its_message_to_be_handled_and_errors_reach_who_awaits() -> None:
    async def program(group: WorkerGroup) -> None:
        reply = group.address("a").send(Job("x", 5))

        async def wait() -> None:
            await reply

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(HandlerError):
            await group.address("a").send("no job")
        assert reply.done

    with WorkerGroup() as group:
        worker = Forwarder(group, "a", device)
        asyncio.run(program(group))
        assert names_of(worker) == ["x"]


def test_who_awaits_what_cannot_come_is_told_of_the_deadlock() -> None:
    group = WorkerGroup()
    Forwarder(group, "a", device, capacity=1)
    start = Job("start", 0, (("a", Job("1")), ("a", Job("2"))))

    async def program() -> None:
        group.address("a").send(start)
        await group.address("a").send(Job("x"))

    with pytest.raises(Deadlock, match="a for room with a"):
        asyncio.run(program())
