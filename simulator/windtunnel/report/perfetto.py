"""Writes a run as a timeline for ui.perfetto.dev: the jobs on each device, the fleet's power, and the waiting jobs.

The file uses Chrome's Trace Event format, which is plain JSON that other scripts can read. Each device is a process,
each of its lanes (a stream or a hardware engine) is a thread, and a separate process of the fleet has the counters.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.recording import DEGRADATION_CAUSES, DegradedIntervals, IntArray, Recording, Slice, Slices, Steps
from windtunnel.core.ticks import TickArray
from windtunnel.report.byte_columns import Column, decimals, joined, words

MAX_COUNTER_POINTS = 200_000
MAX_DEGRADED_INTERVALS = 100_000
FLEET = 0
"""The process of the counters. Device i is process i + 1."""

_ROWS = 8192
"""Events that are converted to text at once; this bounds the memory."""
_BETWEEN = b",\n"


def write_trace(path: Path | str, recording: Recording, *, name: str) -> None:
    """Write ``recording`` to ``path`` as gzipped Trace Event JSON; the same recording gives the same bytes.

    Times are microseconds with six decimals, which represents the run's picoseconds exactly. (Perfetto rounds them down
    to nanoseconds when it loads the file.) Powers are rounded to milliwatts. Events are streamed, so the memory use is
    bounded.
    """
    with (
        Path(path).open("wb") as raw,
        # gzip's header has no file name and no time, so that the bytes depend on the recording alone.
        # Level 1 takes a third of the time of level 6, and the file is a tenth larger.
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=1, mtime=0) as file,
    ):
        file.write(b'{"displayTimeUnit":"ns","otherData":' + _json(_about(recording, name)).encode())
        file.write(b',"traceEvents":[\n')
        separator = b""
        for lines in _blocks(recording):
            file.write(separator + lines[: -len(_BETWEEN)])
            separator = _BETWEEN
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


def _blocks(recording: Recording) -> Iterator[bytes]:
    """Yield the events in blocks of lines; each line ends with a comma and a line break."""
    degraded = [] if recording.degraded is None else _degraded_slices(recording.degraded)
    shown = [slices for slices in (Slices.of(degraded), Slices.of(recording.slices)) if len(slices)]
    # The threads of a device are in alphabetical order of its lanes.
    lanes = sorted({lane for slices in shown for lane in _lanes(slices)[0]})
    threads: dict[tuple[int, str], int] = {}
    busy: dict[int, int] = {}
    for device, lane in lanes:
        # Faults of the whole fleet have device -1, so they are on process 0, the fleet's.
        busy[device] = threads[device, lane] = busy.get(device, 0) + 1
    names = _names(recording, threads, busy)
    while lines := list(islice(names, _ROWS)):
        yield "".join(lines).encode()
    yield from _counter("power (W)", "W", recording.power)
    yield from _counter("waiting jobs", "jobs", recording.waiting)
    for slices in shown:
        yield from _slice_lines(slices, threads)


def _names(recording: Recording, threads: dict[tuple[int, str], int], busy: dict[int, int]) -> Iterator[str]:
    """Yield the lines that name the processes and their threads."""
    yield from _named(FLEET, "process", "fleet")
    for entry, members in recording.devices.by_entry():
        for index in range(members.start, members.stop):
            # In a sample from a large fleet, empty tracks would hide the others.
            if index in busy or not recording.sampled_slices:
                name = entry.name_of(index - members.start)
                yield from _named(index + 1, "process", f"{name} ({entry.label})")
    for (device, lane), thread in threads.items():
        yield from _named(device + 1, "thread", lane, thread)


def _lanes(slices: Slices) -> tuple[list[tuple[int, str]], IntArray]:
    """Return the device and the lane of slices, each pair once; and which of them each slice has."""
    count = len(slices.words)
    pairs, which = np.unique(slices.device * count + slices.lane, return_inverse=True)
    return [(device, slices.words[lane]) for device, lane in (divmod(pair, count) for pair in pairs.tolist())], which


def _slice_lines(slices: Slices, threads: dict[tuple[int, str], int]) -> Iterator[bytes]:
    """Yield the lines of slices."""
    lanes, which = _lanes(slices)
    heads = [f'{{"ph":"X","pid":{lane[0] + 1},"tid":{threads[lane]},"name":' for lane in lanes]
    for begin in range(0, len(slices), _ROWS):
        some = slice(begin, begin + _ROWS)
        start = slices.start[some]
        names, name_of = np.unique(slices.name[some], return_inverse=True)
        labels = words([_json(slices.words[name]) for name in names.tolist()], name_of)
        length = microseconds(slices.end[some] - start)
        yield joined([words(heads, which[some]), labels, ',"ts":', microseconds(start), ',"dur":', length, "},\n"])


def _degraded_slices(degraded: DegradedIntervals) -> list[Slice]:
    """Return the degraded intervals as slices on separate lanes, because a device can be down and throttled at once."""
    columns = (degraded.device, degraded.cause, degraded.start, degraded.end)
    return [
        Slice(device, f"fault: {DEGRADATION_CAUSES[cause]}", DEGRADATION_CAUSES[cause], start, end)
        for device, cause, start, end in zip(
            *(column[:MAX_DEGRADED_INTERVALS].tolist() for column in columns), strict=True
        )
    ]


def microseconds(ticks: TickArray) -> Column:
    """Return picoseconds as microseconds with six decimals, exactly."""
    return decimals(ticks, 6, trimmed=False)


def _named(process: int, what: str, name: str, thread: int = 0) -> Iterator[str]:
    """Yield the lines that name and order a process or a thread."""
    order = thread if what == "thread" else process
    head = f'{{"ph":"M","pid":{process},"tid":{thread},"name":"{what}_'
    yield f'{head}name","args":{{"name":{_json(name)}}}}},\n'
    yield f'{head}sort_index","args":{{"sort_index":{order}}}}},\n'


def _counter(name: str, key: str, steps: Steps) -> Iterator[bytes]:
    """Yield the lines of a counter."""
    head = f'{{"ph":"C","pid":{FLEET},"name":{_json(name)},"ts":'
    index = downsampled(steps, MAX_COUNTER_POINTS - 1)
    # A counter is drawn up to its last event, so the last value is repeated at the end of the run.
    ticks = np.append(steps.ticks[index], steps.end)
    values = np.append(steps.values[index], steps.values[index[-1:]])
    for begin in range(0, len(ticks), _ROWS):
        some = slice(begin, begin + _ROWS)
        shown = decimals(np.rint(values[some] * 1e3).astype(np.int64), 3, trimmed=True)
        yield joined([head, microseconds(ticks[some]), f',"args":{{"{key}":', shown, "}},\n"])


def downsampled(steps: Steps, points: int) -> npt.NDArray[np.int64]:
    """Return indices of at most ``points`` steps: all of them, or the peak and the last step of each bin.

    The last step of a bin holds after the bin, so that every value between bins is a value of the run.
    """
    n = len(steps.ticks)
    if n <= points:
        return np.arange(n, dtype=np.int64)
    bins = (points - 1) // 2
    starts = np.arange(bins, dtype=np.int64) * n // bins
    sizes = np.diff(starts, append=n)
    # The peak of each bin, and the last one of equal peaks.
    peaks = np.flatnonzero(steps.values == np.repeat(np.maximum.reduceat(steps.values, starts), sizes))
    bin_of = np.repeat(np.arange(bins), sizes)[peaks]
    shown = np.zeros(n, dtype=np.bool_)
    shown[peaks[np.diff(bin_of, append=bins) > 0]] = True
    shown[0] = shown[starts - 1] = True  # starts[0] - 1 is the last step
    return np.flatnonzero(shown)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
