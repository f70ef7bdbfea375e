"""A worker that fails tells its senders, loses no mail, and is reported if nobody looks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.emulator.workers import ONES, US, Forwarder, Job, add, device

from windtunnel.core import errors
from windtunnel.runtime.worker import (
    AcceleratedWorker,
    ComputeTask,
    Envelope,
    HandlerError,
    UndeliveredMessage,
    UnhandledWorkerFailures,
    WorkerGroup,
)


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
