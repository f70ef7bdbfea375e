"""Writes a run as a timeline for ui.perfetto.dev: the jobs on each device, the fleet's power, and the waiting jobs.

The file uses Chrome's Trace Event format, which is plain JSON that other scripts can read. Each device is a process,
each of its lanes (a stream or a hardware engine) is a thread, and a separate process of the fleet has the counters.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.recording import DEGRADATION_CAUSES, DegradedIntervals, Recording, Slice, Steps

MAX_COUNTER_POINTS = 200_000
MAX_DEGRADED_INTERVALS = 100_000
FLEET = 0
"""The process of the counters. Device i is process i + 1."""

_CHUNK = 4096
_MICROSECOND = 1_000_000
"""Ticks of a microsecond."""


def write_trace(path: Path | str, recording: Recording, *, name: str) -> None:
    """Write ``recording`` to ``path`` as gzipped Trace Event JSON; the same recording gives the same bytes.

    Times are microseconds with six decimals, which represents the run's picoseconds exactly. (Perfetto rounds them down
    to nanoseconds when it loads the file.) Events are streamed, so the memory use does not grow with the trace.
    """
    with (
        Path(path).open("wb") as raw,
        # gzip's header has no file name and no time, so that the bytes depend on the recording alone.
        # Level 1 takes a third of the time of level 6, and the file is a tenth larger.
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=1, mtime=0) as file,
    ):
        file.write(b'{"displayTimeUnit":"ns","otherData":' + _json(_about(recording, name)).encode())
        file.write(b',"traceEvents":[\n')
        separator, events = "", _events(recording)
        while chunk := list(islice(events, _CHUNK)):
            file.write((separator + ",\n".join(chunk)).encode())
            separator = ",\n"
        file.write(b"\n]}\n")


def overlaps(slices: Iterable[Slice]) -> list[tuple[Slice, Slice]]:
    """Return the pairs of slices that overlap in one lane of one device. No run may contain such a pair."""
    lanes: dict[tuple[int, str], list[Slice]] = defaultdict(list)
    for piece in slices:
        lanes[piece.device, piece.lane].append(piece)
    pairs = []
    for pieces in lanes.values():
        pieces.sort(key=lambda piece: (piece.start, piece.end))
        # Compare with the slice that ends last so far, because a long slice may cover several later ones.
        latest = pieces[0]
        for piece in pieces[1:]:
            if piece.start < latest.end:
                pairs.append((latest, piece))
            if piece.end > latest.end:
                latest = piece
    return pairs


def _about(recording: Recording, name: str) -> dict[str, object]:
    about: dict[str, object] = {
        "title": f"Windtunnel: {name}",
        "jobs": len(recording.jobs),
        "devices": len(recording.devices),
        "slices": len(recording.slices),
        "sampled": recording.sampled_slices,
    }
    if recording.notes:
        about["notes"] = list(recording.notes)
    if recording.sampled_slices:
        about["sample"] = "The slices are a sample of the run; devices may be busy where no slice is shown."
    if len(recording.power.ticks) > MAX_COUNTER_POINTS or len(recording.waiting.ticks) > MAX_COUNTER_POINTS:
        about["counters"] = f"Downsampled to at most {MAX_COUNTER_POINTS} points each; every peak is kept."
    return about


def _events(recording: Recording) -> Iterator[str]:
    # The threads of a device are in alphabetical order of its lanes.
    lanes = sorted({(piece.device, piece.lane) for piece in recording.slices})
    degraded = [] if recording.degraded is None else _degraded_slices(recording.degraded)
    lanes = sorted({*lanes, *((piece.device, piece.lane) for piece in degraded)})
    threads: dict[tuple[int, str], int] = {}
    busy: dict[int, int] = {}
    for device, lane in lanes:
        # Faults of the whole fleet have device -1, so they are on process 0, the fleet's.
        busy[device] = threads[device, lane] = busy.get(device, 0) + 1

    yield from _named(FLEET, "process", "fleet")
    for entry, members in recording.devices.by_entry():
        for index in range(members.start, members.stop):
            # In a sample from a large fleet, empty tracks would hide the others.
            if index in busy or not recording.sampled_slices:
                name = entry.name_of(index - members.start)
                yield from _named(index + 1, "process", f"{name} ({entry.label})")
    for (device, lane), thread in threads.items():
        yield from _named(device + 1, "thread", lane, thread)

    yield from _counter("power (W)", "W", recording.power)
    yield from _counter("waiting jobs", "jobs", recording.waiting)

    quoted: dict[str, str] = {}
    for device, lane, name, start, end in chain(degraded, recording.slices):
        label = quoted.get(name)
        if label is None:
            label = quoted[name] = _json(name)
        whole, part = divmod(start, _MICROSECOND)
        length, rest = divmod(end - start, _MICROSECOND)
        yield (
            f'{{"ph":"X","pid":{device + 1},"tid":{threads[device, lane]},"name":{label},'
            f'"ts":{whole}.{part:06d},"dur":{length}.{rest:06d}}}'
        )


def _degraded_slices(degraded: DegradedIntervals) -> list[Slice]:
    """Return the degraded intervals as slices on separate lanes, because a device can be down and throttled at once."""
    columns = (degraded.device, degraded.cause, degraded.start, degraded.end)
    return [
        Slice(device, f"fault: {DEGRADATION_CAUSES[cause]}", DEGRADATION_CAUSES[cause], start, end)
        for device, cause, start, end in zip(
            *(column[:MAX_DEGRADED_INTERVALS].tolist() for column in columns), strict=True
        )
    ]


def microseconds(ticks: int) -> str:
    """Return picoseconds as microseconds with six decimals, exactly."""
    return f"{ticks // _MICROSECOND}.{ticks % _MICROSECOND:06d}"


def _named(process: int, what: str, name: str, thread: int = 0) -> Iterator[str]:
    """Yield the events that name and order a process or a thread."""
    order = thread if what == "thread" else process
    yield (f'{{"ph":"M","pid":{process},"tid":{thread},"name":"{what}_name","args":{{"name":{_json(name)}}}}}')
    yield (f'{{"ph":"M","pid":{process},"tid":{thread},"name":"{what}_sort_index","args":{{"sort_index":{order}}}}}')


def _counter(name: str, key: str, steps: Steps) -> Iterator[str]:
    head = f'{{"ph":"C","pid":{FLEET},"name":{_json(name)},"ts":'
    index = downsampled(steps, MAX_COUNTER_POINTS - 1)
    last = 0.0
    for tick, value in zip(steps.ticks[index].tolist(), steps.values[index].tolist(), strict=True):
        last = value
        yield f'{head}{microseconds(tick)},"args":{{"{key}":{value!r}}}}}'
    # A counter is drawn up to its last event, so the last value is repeated at the end of the run.
    yield f'{head}{microseconds(steps.end)},"args":{{"{key}":{last!r}}}}}'


def downsampled(steps: Steps, points: int) -> npt.NDArray[np.int64]:
    """Return indices of at most ``points`` steps: all of them, or the peak and the last step of each bin.

    The last step of a bin holds after the bin, so that every value between bins is a value of the run.
    """
    n = len(steps.ticks)
    if n <= points:
        return np.arange(n, dtype=np.int64)
    bins = (points - 1) // 2
    starts = np.arange(bins, dtype=np.int64) * n // bins
    stops = np.append(starts[1:], n)
    # The peak of each bin: sort by (bin, value) and take the last of each bin.
    bin_of = np.repeat(np.arange(bins), stops - starts)
    peaks = np.lexsort((steps.values, bin_of))[stops - 1]
    return np.unique(np.concatenate([[0], peaks, stops - 1])).astype(np.int64)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
