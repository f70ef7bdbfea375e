"""The trace: what Perfetto needs is there, lanes never overlap, times are exact, bytes repeat."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.core.recording import DegradedIntervals, DeviceRecord, Devices, Jobs, Recording, Slice, Steps, TokenGaps
from windtunnel.report import perfetto
from windtunnel.report.perfetto import downsampled, microseconds, overlaps, write_trace

NAME = 'a "quoted" </script> name\n\u2028 é'


def recording(slices: list[Slice], power: Steps | None = None, **more: Any) -> Recording:
    none = np.zeros(0, np.int64)
    end = 10_000_000_000_001
    flat = Steps(np.array([0, 5, 7_000_001]), np.array([10.0, 25.5, 12.0]), end)
    return Recording(
        end=end,
        jobs=Jobs(none, none, none, none, none, none, none, none, np.zeros(0), none),
        devices=Devices.of([DeviceRecord(f"gpu-{i}", "l40s", "gpu", 0, 0.0, 0, 350.0, 35.0) for i in range(3)]),
        workloads=[],
        power=power or flat,
        waiting=flat,
        slices=slices,
        token_gaps=TokenGaps(none, none, none, none, none),
        **more,
    )


SLICES = [
    Slice(1, "copy_h2d", "upload", 0, 1_500_001),
    Slice(0, "compute", NAME, 123_456_789_012, 123_456_789_013),
    Slice(1, "compute", "gemm", 1_500_001, 9_000_000),
    Slice(1, "compute", "gemm", 9_000_000, 9_000_001),
]


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def test_every_device_is_a_process_and_every_lane_a_thread(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json.gz", recording(SLICES), name=NAME)
    document = read(tmp_path / "t.json.gz")
    events = document["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "fleet", 1: "gpu-0 (l40s)", 2: "gpu-1 (l40s)", 3: "gpu-2 (l40s)"}
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    assert order == {0: 0, 1: 1, 2: 2, 3: 3}
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes == {(1, 1): "compute", (2, 1): "compute", (2, 2): "copy_h2d"}
    slices = [e for e in events if e["ph"] == "X"]
    assert [(e["pid"], lanes[e["pid"], e["tid"]], e["name"]) for e in slices] == [
        (piece.device + 1, piece.lane, piece.name) for piece in SLICES
    ]
    assert document["otherData"]["title"] == f"Windtunnel: {NAME}"
    assert document["otherData"]["sampled"] is False


def test_what_is_wrong_has_lanes_of_its_own(tmp_path: Path) -> None:
    """On the device's process; a brown-out, of no device, on the fleet's."""
    columns = (
        np.array(column) for column in ([-1, 1, 1], [3, 0, 2], [10**6, 2 * 10**6, 10**6], [3 * 10**6, 4 * 10**6, 10**7])
    )
    write_trace(tmp_path / "t.json.gz", recording(SLICES, degraded=DegradedIntervals(*columns)), name="faults")
    events = read(tmp_path / "t.json.gz")["traceEvents"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    shown = [(e["pid"], lanes[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert shown[:3] == [
        (0, "fault: brown-out", "brown-out", 1.0, 2.0),
        (2, "fault: down", "down", 2.0, 2.0),
        (2, "fault: throttled", "throttled", 1.0, 9.0),
    ]
    assert len(shown) == 3 + len(SLICES)
    assert len(set(lanes)) == len(lanes)


def test_times_are_the_very_picoseconds(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json.gz", recording(SLICES), name="exact")
    text = gzip.decompress((tmp_path / "t.json.gz").read_bytes()).decode()
    pairs = re.findall(r'"ph":"X".*?"ts":(\d+)\.(\d{6}),"dur":(\d+)\.(\d{6})', text)
    found = [(int(a + b), int(c + d)) for a, b, c, d in pairs]
    assert found == [(piece.start, piece.end - piece.start) for piece in SLICES]
    ticks = [0, 1, 999_999, 1_000_000, 9_999_999, 10_000_000, 10**12, 10**18 - 1, 10**18, 2**63 - 1]
    for many in (ticks, ticks[:1], ticks[:4]):
        written = [bytes(row).lstrip(b"\0").decode() for row in microseconds(np.array(many))]
        assert written == [f"{tick // 10**6}.{tick % 10**6:06d}" for tick in many]


def test_counters_hold_until_the_end(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json.gz", recording([]), name="counters")
    events = read(tmp_path / "t.json.gz")["traceEvents"]
    watts = [(e["ts"], e["args"]["W"]) for e in events if e["ph"] == "C" and "W" in e["args"]]
    assert watts == [(0.0, 10.0), (5e-6, 25.5), (7.000001, 12.0), (10000000.000001, 12.0)]
    assert sum("jobs" in e["args"] for e in events if e["ph"] == "C") == 4


def test_long_counters_are_downsampled_and_keep_every_peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n, points = 20_000, 8_000
    monkeypatch.setattr(perfetto, "MAX_COUNTER_POINTS", points)
    rng = np.random.default_rng(3)
    values = rng.uniform(0, 100, n)
    spikes = rng.choice(n, 40, replace=False)
    values[spikes] = 1_000 + np.arange(40)
    steps = Steps(np.arange(n, dtype=np.int64) * 7, values, n * 7)
    index = downsampled(steps, points - 1)
    assert len(index) < points
    assert index[0] == 0
    assert index[-1] == n - 1
    assert (np.diff(index) > 0).all()
    assert set(spikes) <= set(index.tolist())
    write_trace(tmp_path / "t.json.gz", recording([], steps), name="long")
    document = read(tmp_path / "t.json.gz")
    watts = [e["args"]["W"] for e in document["traceEvents"] if e["ph"] == "C" and "W" in e["args"]]
    assert len(watts) <= points
    assert max(watts) == 1_039
    assert "Downsampled" in document["otherData"]["counters"]


def test_the_same_recording_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first.json.gz", "a-longer-name.json.gz"):
        write_trace(tmp_path / name, recording(SLICES), name="same")
    first = (tmp_path / "first.json.gz").read_bytes()
    assert first == (tmp_path / "a-longer-name.json.gz").read_bytes()
    # Gzip's header would hold the time of writing.
    assert first[4:8] == bytes(4)


def test_a_sample_says_that_it_is_one(tmp_path: Path) -> None:
    partial = recording(SLICES, sampled_slices=True, notes=["the timeline shows the first 4 intervals of 9"])
    write_trace(tmp_path / "t.json.gz", partial, name="part")
    document = read(tmp_path / "t.json.gz")
    assert document["otherData"]["sampled"] is True
    assert "sample of the run" in document["otherData"]["sample"]
    assert document["otherData"]["notes"] == ["the timeline shows the first 4 intervals of 9"]
    # Devices without a slice in the sample take no room.
    assert {e["pid"] for e in document["traceEvents"] if e["name"] == "process_name"} == {0, 1, 2}


def test_more_slices_than_a_chunk_are_all_written(tmp_path: Path) -> None:
    many = [Slice(0, "compute", f"k{i % 3}", i * 10, i * 10 + 10) for i in range(10_000)]
    write_trace(tmp_path / "t.json.gz", recording(many), name="many")
    slices = [e for e in read(tmp_path / "t.json.gz")["traceEvents"] if e["ph"] == "X"]
    assert len(slices) == 10_000
    assert overlaps(many) == []


def test_slices_that_touch_or_lie_in_other_lanes_do_not_overlap() -> None:
    assert overlaps(SLICES) == []
    assert overlaps([]) == []
    same_time = [Slice(0, "a", "x", 0, 10), Slice(0, "b", "x", 0, 10), Slice(1, "a", "x", 0, 10)]
    assert overlaps(same_time) == []


@pytest.mark.parametrize(
    ("planted", "with_whom"),
    [
        (Slice(1, "compute", "late", 8_999_999, 9_000_000), 2),
        (Slice(1, "compute", "around", 0, 20_000_000), None),
        (Slice(1, "copy_h2d", "early", 1_500_000, 1_500_002), 0),
    ],
)
def test_a_planted_overlap_is_found(planted: Slice, with_whom: int | None) -> None:
    found = overlaps([*SLICES, planted])
    assert found
    assert all(planted in pair for pair in found)
    if with_whom is not None:
        assert found == [(SLICES[with_whom], planted)]


def test_an_overlap_hidden_behind_a_short_slice_is_found() -> None:
    long, short, late = Slice(0, "a", "long", 0, 100), Slice(0, "a", "short", 10, 20), Slice(0, "a", "late", 50, 60)
    assert overlaps([short, late, long]) == [(long, short), (long, late)]


def test_the_writer_leaves_the_recording_alone(tmp_path: Path) -> None:
    given = recording(list(SLICES))
    write_trace(tmp_path / "t.json.gz", replace(given), name="untouched")
    assert list(given.slices) == SLICES
