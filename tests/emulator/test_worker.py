"""Shared-nothing workers: no shared state, no lost messages, and the same virtual times in every interleaving."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import windtunnel
from windtunnel.core import errors
from windtunnel.emulator.device.timeline import Host
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.message import carried
from windtunnel.runtime.worker import (
    AcceleratedWorker,
    Address,
    ComputeTask,
    Deadlock,
    Envelope,
    HandlerError,
    UndeliveredMessage,
    UnhandledWorkerFailures,
    WorkerGroup,
)

KNOWN = windtunnel.catalogue()
US = 1e-6


def device(name: str = "l4") -> Accelerator:
    return windtunnel.device(name, catalogue=KNOWN)


@windtunnel.kernel(work=lambda a, b, c: {"op": "vector_add", "n": a.size})
def add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[...] = a + b


ONES = np.ones(1000, np.float32)


@dataclass(frozen=True)
class Job:
    """Sleep, then send on."""

    name: str
    cost_us: int = 0
    then: tuple[tuple[str, Any], ...] = ()


class Forwarder(AcceleratedWorker):
    def handle_message(self, state: list[Any], envelope: Envelope) -> Any:
        job = envelope.payload
        state.append((job.name, round(self.clock_s / US, 3), envelope.sender and envelope.sender.name, envelope.number))
        self.accelerator.sleep(job.cost_us * US)
        for to, what in job.then:
            self._group.address(to).send(what)
        return job.name


def names_of(worker: AcceleratedWorker) -> list[str]:
    return [entry[0] for entry in worker.state]


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


def test_what_is_sent_is_copied_so_that_neither_side_sees_what_the_other_writes() -> None:
    kept: list[Any] = []

    class Keeper(AcceleratedWorker):
        def handle_message(self, state: Any, envelope: Envelope) -> Any:
            kept.append(envelope.payload)
            state.append(np.zeros(3))
            return state[-1]

    with WorkerGroup() as group:
        keeper = Keeper(group, "keeper", device)
        a, inner = np.zeros(4), [1, 2]
        reply = keeper.address.send({"a": a, "inner": inner})
        a[...] = 7
        inner.append(3)
        answer = reply.result()
        assert (kept[0]["a"] == 0).all() and kept[0]["inner"] == [1, 2]
        assert not np.shares_memory(a, kept[0]["a"])
        with pytest.raises(ValueError, match="read-only"):
            kept[0]["a"][0] = 1
        assert not np.shares_memory(answer, keeper._state[0])
        keeper.state[0] = "other"
        assert isinstance(keeper.state[0], np.ndarray)


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclass
class Mutable:
    x: int = 1


class Loud(str):
    pass


def closing_over(what: Any) -> Any:
    def f(a: np.ndarray) -> None:
        a += what

    return f


def selfish() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda d: ComputeTask(add, (ONES, d.empty(3))),
            r"the payload\.arrays\[1\] is <float32 3 on l4>, memory that belongs",
        ),
        (lambda d: [d], r"the payload\[0\] is the accelerator <emulated l4>"),
        (lambda d: {"s": d.stream()}, r"the payload\['s'\] is a .*EmulatedStream"),
        (lambda d: (d.event(),), "EmulatedEvent"),
        (lambda d: Pair(1, d.empty(3).memory), r"the payload\.other is a .*EmulatedMemory"),
        (lambda d: d.context, "EmulatedContext"),
        (lambda d: np.array([d], object), r"an array of objects \(object\)"),
        (lambda d: Mutable(), "Mutable"),
        (lambda d: Loud("a"), "Loud"),
        (lambda d: selfish(), r"the payload\[0\] contains itself"),
        (lambda d: closing_over(ONES), "'f' holds a ndarray that it shares"),
        (lambda d: windtunnel.kernel(closing_over([1])), "'f' holds a list"),
        (lambda d: partial(print), "partial"),
        (lambda d: np.ma.array([1, 2], mask=[0, 1]), "MaskedArray"),
    ],
)
def test_what_belongs_to_one_side_or_may_be_shared_is_refused_with_its_place(make: Any, said: str) -> None:
    with WorkerGroup() as group:
        worker = AcceleratedWorker(group, "w", device)
        with pytest.raises(errors.InputError, match=said):
            worker.address.send(make(device()))
        group.run()
        assert worker.handled == 0


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.binary(max_size=3)
)
KEYS = st.integers() | st.text(max_size=2)
MESSAGES = st.recursive(
    LEAVES | st.lists(st.integers(-9, 9), max_size=4).map(lambda v: np.array(v, np.int64)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Job, st.text(max_size=2), then=st.tuples(inner))
    ),
    max_leaves=8,
)


def same_and_apart(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other) and not np.shares_memory(one, other) and not other.flags.writeable
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one is not other and list(one) == list(other) and all(same_and_apart(one[k], other[k]) for k in one)
    if isinstance(one, Job):
        return one is not other and one.name == other.name and same_and_apart(one.then, other.then)
    if isinstance(one, (list, tuple)):
        apart = one is not other or isinstance(one, tuple)
        return apart and len(one) == len(other) and all(map(same_and_apart, one, other))
    return bool(one == other)


@given(MESSAGES)
def test_whatever_is_carried_is_the_same_and_shares_nothing(message: Any) -> None:
    assert same_and_apart(message, carried(message))


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


def test_a_record_is_copied_though_it_is_a_scalar() -> None:
    record = np.zeros(1, [("x", float)])[0]
    copy = carried([record])[0]
    record["x"] = 1
    assert copy["x"] == 0
    with pytest.raises(errors.InputError, match=r"the payload\[0\] is a numpy.void"):
        carried([np.zeros(1, [("x", object)])[0]])


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


# Failures.


def test_a_failure_reaches_the_sender_with_operation_api_and_code_and_the_worker_goes_on() -> None:
    with WorkerGroup() as group:
        worker = AcceleratedWorker(group, "w", device)
        with worker.accelerator.faults({"kind": "out_of_memory", "call": 1}):
            bad, good = (worker.address.send(ComputeTask(add, (ONES, ONES))) for _ in range(2))
            with pytest.raises(errors.DeviceOutOfMemory) as raised:
                bad.result()
            assert (raised.value.operation, raised.value.api, raised.value.code.number) == ("allocate", "cuda", 2)
            assert raised.value.__notes__ == ["while handling message 1 from main to w"]
            assert raised.value.__cause__ is None and raised.value.__context__ is None
            assert (good.result() == 2).all()
        assert worker.failed is None and worker.state == [2.0] * 1000


def test_any_other_error_comes_as_text_since_its_traceback_leads_into_the_worker() -> None:
    with WorkerGroup() as group:
        worker = AcceleratedWorker(group, "w", device)
        with pytest.raises(
            HandlerError, match="message 1 from main to w failed: InputError: .* is a str; expected a Comp"
        ) as raised:
            worker.address.send("no task").result()
        assert raised.value.kind == "InputError" and "handle_message" in raised.value.details

        class Leaky(AcceleratedWorker):
            def handle_message(self, state: Any, envelope: Envelope) -> Any:
                return self.accelerator.empty(3)

        leaky = Leaky(group, "leaky", device)
        with pytest.raises(HandlerError, match="the result is <float32 3 on l4>, memory that belongs"):
            leaky.address.send(1).result()


def test_a_sticky_error_stops_a_worker_and_its_mail_comes_back() -> None:
    with WorkerGroup() as group:
        worker = AcceleratedWorker(group, "w", device, capacity=2)
        with worker.accelerator.faults("device_lost"):
            replies = [worker.address.send(ComputeTask(add, (ONES, ONES))) for _ in range(2)]
            with pytest.raises(errors.DeviceLost):
                replies[0].result()
        assert isinstance(worker.failed, errors.DeviceLost) and worker.waiting == 0
        with pytest.raises(
            UndeliveredMessage, match="message 2 from main to w was not delivered: the worker failed: allocate on l4"
        ):
            replies[1].result()
        with pytest.raises(UndeliveredMessage):
            worker.address.send(ComputeTask(add, (ONES, ONES))).result()
        assert [envelope.number for envelope in worker.returned] == [2, 3]
        worker.restart()
        again = worker.address.send(worker.returned[0].payload)
        assert (again.result() == 2).all()


def test_mail_comes_back_when_its_worker_fails_from_the_mailbox_and_from_the_door() -> None:
    class Losing(Forwarder):
        def handle_message(self, state: Any, envelope: Envelope) -> Any:
            self.accelerator.sleep(50 * US)
            try:
                self.accelerator.synchronize()
            except errors.DeviceLost as error:
                raise ValueError("it hides what happened") from error

    with WorkerGroup() as group:
        sender, losing = Forwarder(group, "a", device), Losing(group, "b", device, capacity=1)
        with losing.accelerator.faults("device_lost"):
            sender.address.send(Job("all", 0, tuple(("b", Job(f"{i}")) for i in range(3))))
            group.sleep(10 * US)
            late = losing.address.send(Job("late"))
            group.run()
        assert isinstance(losing.failed, errors.DeviceLost)
        assert [(e.sender and e.sender.name, e.number) for e in losing.returned] == [("a", 2), ("a", 3), (None, 2)]
        assert late.arrived_s == pytest.approx(50 * US)  # the device was there until then
        assert [type(error) for _, error in group.failures()] == [HandlerError] + 3 * [UndeliveredMessage]
        assert sender.address.send(Job("goes on")).result() == "goes on"


def test_a_worker_that_may_restart_goes_on_with_the_rest_of_its_mail() -> None:
    class Counting(AcceleratedWorker):
        def on_restart(self, state: Any) -> Any:
            return [*state, "reset"]

    with WorkerGroup() as group:
        worker = Counting(group, "w", device, restarts=1)
        with worker.accelerator.faults({"kind": "device_lost", "call": 1, "times": 2}):
            replies = [worker.address.send(ComputeTask(add, (np.ones(1), np.ones(1)))) for _ in range(3)]
            for reply in replies[:2]:
                with pytest.raises(errors.DeviceLost):
                    reply.result()
        assert worker.state == ["reset"] and worker.failed is not None
        with pytest.raises(UndeliveredMessage):
            replies[2].result()


def test_a_state_that_cannot_be_restored_fails_the_worker_and_loses_no_mail() -> None:
    class Broken(AcceleratedWorker):
        def on_restart(self, state: Any) -> Any:
            raise ValueError("no copy of it")

    with WorkerGroup() as group:
        worker = Broken(group, "w", device, restarts=9)
        with worker.accelerator.faults("device_lost"):
            replies = [worker.address.send(ComputeTask(add, (ONES, ONES))) for _ in range(2)]
            group.run()
        with pytest.raises(errors.DeviceLost):
            replies[0].result()
        with pytest.raises(UndeliveredMessage, match="the worker failed: no copy of it"):
            replies[1].result()


def test_a_failure_that_nobody_looked_at_is_raised_when_the_group_is_left() -> None:
    class Dividing(AcceleratedWorker):
        def handle_message(self, state: Any, envelope: Envelope) -> Any:
            if self.name == "a":
                self._group.address("b").send(0)
                return None
            return 1 / envelope.payload

    said = "1 messages failed and were not handled: message 1 from a to b: .*ZeroDivisionError"
    with pytest.raises(UnhandledWorkerFailures, match=said), WorkerGroup() as group:
        for name in "ab":
            Dividing(group, name, device)
        group.address("a").send(1)


def test_an_interrupt_ends_the_run_and_the_message_in_hand_is_reported() -> None:
    class Interrupted(AcceleratedWorker):
        def handle_message(self, state: Any, envelope: Envelope) -> Any:
            raise KeyboardInterrupt

    group = WorkerGroup()
    worker = Interrupted(group, "w", device)
    reply = worker.address.send(1)
    with pytest.raises(KeyboardInterrupt):
        group.run()
    with pytest.raises(HandlerError, match="KeyboardInterrupt"):
        reply.result()


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
