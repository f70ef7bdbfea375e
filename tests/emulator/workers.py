"""What tests of workers share: a worker that sleeps and sends on, and a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import windtunnel
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.worker import AcceleratedWorker, Envelope

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
