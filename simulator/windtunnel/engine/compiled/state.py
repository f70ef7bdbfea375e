"""The compiled engine's state: a few arrays of records, and one record that says where the run is.

All of a run's state is in these arrays, so the kernel can stop (for more room, for the next jobs) and go on, and its
memory is in proportion to devices and to jobs that are present, not to jobs in all. Few arrays: Numba's time to
compile grows with how many the functions pass on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from windtunnel.engine.prepare.fault_schedule import EVENT

Records = Any
"""An array of records, or one of them, whose fields are read by name."""


def _layout(integers: str, floats: str = "") -> np.dtype:
    """A record of integers and floats of 8 bytes, in order; ``name:4`` is an integer of 4, ``name:f`` a float.

    Large fleets want small records.
    """
    fields = [name.partition(":") for name in integers.split()]
    names = [(name, "f8" if size == "f" else f"i{size or 8}") for name, _, size in fields]
    return np.dtype(names + [(name, "f8") for name in floats.split()], align=True)


RUN = _layout(
    # Where it is. `stale`: the heap's first entry has been dealt with; its device's number plus 1. `last`: no block of
    # arrivals follows. `faults_until`: the tick before which all faults are known. `limbo`, `placing`: first and last
    # slot of the jobs that no device that is up can take, and of those that are to be placed next.
    "now end heap timer_count stale free next job arrived last turn fault faults_until written "
    "limbo limbo_end placing placing_end waiting running completed failed last_finish "
    # `last_finish`: when a job last ended, or was interrupted. `gone`: the next tick from which a device has failed for
    # good; `ended`: how many jobs had ended, and one more, when it was last asked whether others can be served.
    "gone ended returned "
    # What is to be done before the next event. `feeding`: a device that may take work; `sweeping`: the place in the
    # list of classes whose idle devices are offered work, until `sweep_end`; `draining`: whether power may have
    # become free.
    "feeding sweeping sweep_end draining tried refused line_first line_count paused "
    # Where no more than sums is kept: jobs of a batch, every which job is kept, and the present short time.
    "tallying batch_width stride last_arrival span span_width span_until spans_end hour hour_until "
    # Where batches are continuous: gaps between tokens that were written down, and how often memory ran out.
    "gaps preemptions "
    # What does not change. `careful`: what a device does may be interrupted, slowed, paused or a batch. `looks`: the
    # score asks for more of a device than what the tree holds. `far`: the fleet is larger than the cache.
    "routed by keyed batch batch_size batch_wait batch_tokens gated workloads devices classes draws stretched careful "
    "looks far write "
    # Places in `ints` of: the classes of signature s (from signature_at + s), the queues that class c takes from (from
    # queue_at + c) and all classes.
    "signature_at signature_classes queue_at queues_of all_classes",
    "drawn_w cap_w drawing_w idle_w peak_w",
)
DEVICE = _layout(
    # One line of the cache. slot: the job under way, the first of a batch; -1 without. since: the tick from which the
    # present segment is accounted for. up, linked: 0 while it has failed, or cannot be reached. held: its job has ended
    # and cannot be delivered. paused: its job waits for power; in_line: its next one does. energy: above idle (J).
    "slot:4 present:4 segment:4 last:4 count:4 done:4 cls:2 up:1 linked:1 held:1 paused:1 in_line:1 since busy ready "
    "energy:f "
    # Another, which only careful runs touch (turn: only routes by turn). left: ticks of the present segment from
    # `since` on, at full speed. rate: its speed, 1.0 unless throttled. full, watts: above idle, at full speed and now.
    # need: what the power budget holds for it.
    "turn left began watts:f rate:f full:f need:f",
)
SLOT = _layout(
    # One line of the cache. A job's slowdown, where there are stragglers, stands behind its draws.
    "job arrival start rank:4 signature:4 next:4 child:4 work:2 starts:2 timed:1",
    "key energy",
)
ENTRY = _layout("tick which")
NODE = _layout("load winner")
QUEUE = _layout("head:4 tail:4 number:4")
# tree: the top of its tree; leaf: the first of its leaves.
CLASS = _layout("first count tree leaf", "memory")
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
SPAN = _layout("", "power waiting")
BATCHES, STRETCHES = 2048, 64
"""Stretches of a run, in order of arrival, of which the number and sum of times are kept; and histograms."""
BINS = 4416
"""Zero, and the bins of engine/sketch.py that hold every time in ticks: log(2^63) / log(gamma) of them."""
SPANS = 2048
HOURS = 24
HOUR_TICKS = 3600 * 10**12
"""Short times over which power and waiting are averaged."""
SAMPLE = 200_000
"""Jobs whose times are kept of a run too long to keep them all."""

CONSTANT, BY_JOB, DRAWN = range(3)
"""How a segment's ticks are stated: one number, one a job, or seconds times the job's draw."""
BY_PRESENT, BY_BACKLOG, BY_TURN = range(3)
NO_BATCH, REQUEST = range(2)

# A run whose batches are continuous (continuous.py) has records of its own for devices, slots, classes, workloads and
# jobs. They share the names of what the dispatch reads, so that the same source serves both.
SERVER = _layout(
    # slot: -1 between steps and when idle, else 0. began: when the present step began; chunks: how many of the prompts
    # that are read it takes part of. cached: tokens that memory is taken for; attended: those that the decoding
    # sequences attend to, all together; steps: taken so far. Lists of slots, first and last: reading, in the order in
    # which they came; off: put off, the next to be taken up again first; decoding, the youngest last; ending: the
    # decoding ones in the order in which they end.
    "slot began present ready turn cls up linked done chunks cached attended steps "
    "reading reading_end reading_count off decoding decoding_end decoding_count ending ending_end",
    # watts: of the present step, above idle. per_token: joules that each decoding sequence would have, had it been
    # there from the start.
    "watts per_token",
)
# prompt: tokens to be read before the next one can be made: the job's prompt, and after it was put off what was made.
# output: tokens still to be made from then on. read: tokens of the prompt that have been read; chunk: those that the
# present step reads. born, ends: the steps after which it began to decode and is done; joules_at_birth: its device's
# per_token when it began. last: when it was put off. next, before: in the list that it is in; later, earlier: in that
# of ending sequences.
SEQUENCE = _layout(
    "job arrival start work rank signature next child timed prompt output read chunk born ends last "
    "before later earlier",
    "key energy joules_at_birth",
)
# columns: points of context in a table. Places in `numbers` of its device's tables of seconds, followed by those of
# joules: linear and head by tokens and sequences, prefill by points of context, decode by sequences and points.
SERVER_CLASS = _layout("first count tree leaf capacity columns linear head prefill decode", "above_idle")
MODEL = _layout("deadline priority prompts outputs")
SERVED = _layout("start finish first on", "energy")
GAP = _layout("ticks tokens end work")

(
    DONE,
    MORE_JOBS,
    MORE_SLOTS,
    MORE_INTERVALS,
    MORE_TIMERS,
    MORE_FAULTS,
    MORE_BATCHES,
    MORE_ROWS,
    MORE_GAPS,
    TOO_LONG,
    STUCK,
) = range(11)
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
    hours: np.ndarray
    """Watts times ticks by hour of day."""


class Serving(NamedTuple):
    """Everything of a run whose batches are continuous; what is not said here is as in ``World``."""

    run: Records
    devices: Records
    slots: Records
    """Sequences that are present."""
    ends: Records
    """The heap of devices at work, by the tick at which their steps end."""
    tree: Records
    classes: Records
    programs: Records
    workloads: Records
    ints: np.ndarray
    numbers: np.ndarray
    queues: Records
    decoding_of: np.ndarray
    """By device and workload: sequences that decode."""
    arrivals: Records
    intervals: Records
    jobs: Records
    gaps: Records
    """Times between tokens."""


Either = World | Serving


_LINE = 64


def records(count: int, layout: np.dtype) -> Records:
    """So many records of zeros, from an address on which a line of the cache begins.

    Filled and not merely asked for: NumPy asks for large pages only for memory that it does not get zeroed, and with
    small ones a fleet of 100,000 devices spends its time looking up where they are.
    """
    size = count * layout.itemsize
    room = np.empty(size + _LINE, dtype=np.uint8)
    room.fill(0)
    first = -room.ctypes.data % _LINE
    return room[first : first + size].view(layout).view(np.recarray)
