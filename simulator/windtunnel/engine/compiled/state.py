"""The compiled engine's state: a few arrays of records, and one record that says where the run is.

All of a run's state is in these arrays, so the kernel can stop (for more room, for the next jobs) and go on, and its
memory is in proportion to devices and to jobs that are present, not to jobs in all. Few arrays: Numba's time to
compile grows with how many the functions pass on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from windtunnel.engine.faults import EVENT

Records = Any
"""An array of records, or one of them, whose fields are read by name."""


def _layout(integers: str, floats: str = "") -> np.dtype:
    names = [(name, np.int64) for name in integers.split()] + [(name, np.float64) for name in floats.split()]
    return np.dtype(names, align=True)


RUN = _layout(
    # Where it is. `stale`: the heap's first entry has been dealt with; its device's number plus 1. `last`: no block of
    # arrivals follows. `faults_until`: the tick before which all faults are known. `limbo`, `placing`: first and last
    # slot of the jobs that no device that is up can take, and of those that are to be placed next.
    "now end heap timer_count stale free next job arrived last turn fault faults_until written "
    "limbo limbo_end placing placing_end waiting running completed failed last_finish "
    # What is to be done before the next event. `feeding`: a device that may take work; `sweeping`: the place in the
    # list of classes whose idle devices are offered work, until `sweep_end`; `draining`: whether power may have
    # become free.
    "feeding sweeping sweep_end draining tried refused line_first line_count paused "
    # Where no more than sums is kept: jobs of a batch, every which job is kept, and the present short time.
    "tallying batch_width stride last_arrival span span_width span_until "
    # What does not change.
    "routed by keyed batch batch_size batch_wait gated workloads devices classes draws write "
    # Places in `ints` of: the classes of signature s (from signature_at + s), the queues that class c takes from (from
    # queue_at + c) and all classes.
    "signature_at signature_classes queue_at queues_of all_classes",
    "drawn_w cap_w drawing_w idle_w peak_w",
)
DEVICE = _layout(
    # slot: the job under way, the first of a batch; -1 without. since, left: the tick from which the present segment is
    # accounted for, and its ticks still to do from then on at full speed. up, linked: 0 while it has failed, or
    # cannot be reached. held: its job has ended and cannot be delivered. paused: its job waits for power; in_line:
    # its next one does.
    "slot count segment last since left began present ready turn cls up linked held paused in_line busy done",
    # rate: its speed, 1.0 unless throttled. full, watts: above idle, of the present segment at full speed, and now.
    # need: what the power budget holds for it. energy: above idle (J).
    "rate full watts need energy",
)
SLOT = _layout("job arrival start work rank signature next child starts timed", "key stretch energy")
ENTRY = _layout("tick which")
NODE = _layout("load winner")
QUEUE = _layout("head tail number")
CLASS = _layout("first count root leaves", "memory")
# A workload on a class, at class * workloads + workload. *_at: place in `numbers` of the first job's value, or -1:
# one for all. batch_at: place of the seconds of a batch of one; the watts follow the seconds. weights: bytes that a
# batch shares.
PROGRAM = _layout(
    "ways estimate_at energy_at footprint_at batch_at batch_drawn own",
    "estimate energy footprint weights mean price preference",
)
WAY = _layout("first last")
SEGMENT = _layout("kind ticks ticks_at draw watts_at lane name", "seconds watts")
WORKLOAD = _layout("deadline priority way_at")
INTERVAL = _layout("on lane name start end", "watts")
FAULT = EVENT
ARRIVAL = _layout("tick work rank signature", "stretch")
JOB = _layout("arrival work start finish on starts lost", "energy")
BATCH_OF_JOBS = _layout("latency_n waiting_n", "latency_sum waiting_sum")
SPAN = _layout("", "power waiting peak")
BATCHES, STRETCHES = 2048, 64
"""Stretches of a run, in order of arrival, of which the number and sum of times are kept; and histograms."""
BINS = 4416
"""Zero, and the bins of engine/sketch.py that hold every time in ticks: log(2^63) / log(gamma) of them."""
SPANS = 2048
"""Short times over which power and waiting are averaged."""
SAMPLE = 200_000
"""Jobs whose times are kept of a run too long to keep them all."""

CONSTANT, BY_JOB, DRAWN = range(3)
"""How a segment's ticks are stated: one number, one a job, or seconds times the job's draw."""
BY_PRESENT, BY_BACKLOG, BY_TURN = range(3)
NO_BATCH, REQUEST = range(2)

DONE, MORE_JOBS, MORE_SLOTS, MORE_INTERVALS, MORE_TIMERS, MORE_FAULTS, MORE_BATCHES, MORE_SPANS, TOO_LONG = range(9)
"""Why the kernel stopped."""


class World(NamedTuple):
    """Everything, as the kernel takes it."""

    run: Records
    """One record."""
    devices: Records
    slots: Records
    """Jobs that are present."""
    draws: np.ndarray
    """Each slot's draws: slots by draws."""
    ends: Records
    """The heap of devices at work, by the tick at which their segments end."""
    timers: Records
    tree: Records
    classes: Records
    programs: Records
    ways: Records
    """Ways through programs: their first and last segments."""
    segments: Records
    workloads: Records
    ints: np.ndarray
    numbers: np.ndarray
    queues: Records
    faults: Records
    line: np.ndarray
    """Ring of the devices whose next jobs wait for power."""
    arrivals: Records
    arrival_draws: np.ndarray
    intervals: Records
    jobs: Records
    """Times of every ``stride``-th job."""
    batches: Records
    """Series after series, ``BATCHES`` each: all jobs, then each workload's."""
    bins: np.ndarray
    """Latency and waiting by (series, stretch) and bin (int32)."""
    counts: np.ndarray
    """By workload: jobs completed, failed, running at the end, arrived."""
    spans: Records


def records(count: int, layout: np.dtype) -> Records:
    """So many records of zeros."""
    return np.zeros(count, dtype=layout).view(np.recarray)
