"""jobs.csv gives back the very ticks, leaves a cell empty where nothing happened, and is quick."""

from __future__ import annotations

import csv
import tracemalloc
from decimal import Decimal
from pathlib import Path

import numpy as np

from windtunnel.core.recording import (
    COMPLETED,
    DROPPED,
    FAILED,
    QUEUED,
    RUNNING,
    DeviceRecord,
    Devices,
    Jobs,
    Recording,
    Steps,
    TokenGaps,
)
from windtunnel.core.ticks import MAX_TICKS
from windtunnel.report.byte_columns import cells, decimals, floats, integers
from windtunnel.report.tables import COLUMNS, write_jobs_csv

WORKLOADS = ['plain, "quoted"\nand broken', "=1+1 </script> é"]


def recording(jobs: Jobs) -> Recording:
    none, flat = np.zeros(0, np.int64), Steps(np.zeros(1, np.int64), np.zeros(1), 1)
    device = DeviceRecord("gpu, 0", "l40s", "gpu", 0, 0.0, 0, 350.0, 35.0)
    return Recording(1, jobs, Devices.of([device]), WORKLOADS, flat, flat, (), TokenGaps(none, none, none, none, none))


def some_jobs() -> Jobs:
    def ints(*values: int) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    return Jobs(
        workload=ints(0, 1, 0, 1, 0),
        arrival=ints(0, 1, 123_456_789_012_345, 10**12, MAX_TICKS - 1),
        start=ints(0, 3, 123_456_789_012_346, -1, -1),
        finish=ints(100_000_000_000, -1, 123_456_789_012_400, -1, -1),
        first=ints(7, -1, -1, -1, -1),
        tokens=ints(12, 0, 0, 0, 0),
        device=ints(0, 0, 0, -1, -1),
        status=ints(COMPLETED, RUNNING, FAILED, DROPPED, QUEUED),
        energy_j=np.array([0.1, 1 / 3, 2e-20, 0.0, 0.5]),
        starts=ints(1, 1, 3, 0, 2),
        prompts=ints(30, 0, 0, 0, 0),
    )


def many_jobs(n: int) -> Jobs:
    rng = np.random.default_rng(5)
    arrival = np.sort(rng.integers(0, 10**16, n))
    start = arrival + rng.integers(0, 10**12, n)
    finish = start + rng.integers(1, 10**13, n)
    zeros = np.zeros(n, np.int64)
    return Jobs(
        rng.integers(0, 2, n), arrival, start, finish, start + 1, zeros + 3, zeros, zeros, rng.random(n), zeros + 1
    )


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def ticks(text: str) -> int:
    scaled = Decimal(text) * 10**12
    assert scaled == scaled.to_integral_value()
    return int(scaled)


def test_columns_and_cells(tmp_path: Path) -> None:
    write_jobs_csv(tmp_path / "jobs.csv", recording(some_jobs()))
    rows = read(tmp_path / "jobs.csv")
    assert list(rows[0]) == list(COLUMNS)
    assert list(rows[0].values()) == [
        *(
            "0",
            WORKLOADS[0],
            "gpu, 0",
            "completed",
            "0",
            "0",
            "0.1",
            "0",
            "0.1",
            "0.000000000007",
            "0.00909090909",
            "30",
            "12",
            "0",
            "0.1",
            "1",
        )
    ]
    assert rows[1]["waiting_s"] == "0.000000000002"
    assert [row["status"] for row in rows] == ["completed", "running", "failed", "dropped", "queued"]
    assert [row["workload"] for row in rows] == [WORKLOADS[i] for i in (0, 1, 0, 1, 0)]
    assert float(rows[1]["energy_j"]) == 1 / 3


def test_a_cell_is_empty_where_it_did_not_come_to_that(tmp_path: Path) -> None:
    write_jobs_csv(tmp_path / "jobs.csv", recording(some_jobs()))
    empty = [{name for name, cell in row.items() if cell == ""} for row in read(tmp_path / "jobs.csv")]
    never = {"device", "start_s", "finish_s", "waiting_s", "latency_s", "ttft_s", "tpot_s", "energy_j"}
    assert empty == [
        set(),
        {"finish_s", "latency_s", "ttft_s", "tpot_s"},
        # A job that failed has an end but no latency: percentiles over the column are those of the report.
        {"latency_s", "ttft_s", "tpot_s"},
        never,
        # One that was interrupted and waits again has no start, but what it drew is there.
        never - {"energy_j"},
    ]
    assert [row["attempts"] for row in read(tmp_path / "jobs.csv")] == ["1", "1", "3", "0", "2"]


def test_ticks_come_back_exactly(tmp_path: Path) -> None:
    jobs = many_jobs(2_000)
    write_jobs_csv(tmp_path / "jobs.csv", recording(jobs))
    rows = read(tmp_path / "jobs.csv")
    assert [ticks(row["arrival_s"]) for row in rows] == jobs.arrival.tolist()
    assert [ticks(row["finish_s"]) for row in rows] == jobs.finish.tolist()
    assert [ticks(row["latency_s"]) for row in rows] == (jobs.finish - jobs.arrival).tolist()
    assert [ticks(row["waiting_s"]) for row in rows] == (jobs.start - jobs.arrival).tolist()
    assert [float(row["energy_j"]) for row in rows] == jobs.energy_j.tolist()


def test_seconds_are_written_without_rounding() -> None:
    exact = {
        0: "0",
        1: "0.000000000001",
        10**12: "1",
        10**13: "10",
        1_500_000_000_000: "1.5",
        MAX_TICKS: "9223372.036854775807",
        -1: "",
    }
    for together in (list(exact), *([value] for value in exact)):
        assert cells(decimals(np.array(together), 12, trimmed=True)) == [exact[value] for value in together]


def test_numbers_in_columns_are_those_of_python() -> None:
    """Also around the powers of ten, where the number of digits changes."""
    rng = np.random.default_rng(2)
    near = [10**power + step for power in range(19) for step in (-1, 0, 1, 10**power)]
    drawn = np.append(near, rng.integers(0, 10 ** rng.integers(1, 19, 3_000), dtype=np.int64))
    assert cells(integers(drawn)) == list(map(str, drawn.tolist()))
    for places in (1, 4, 6, 12, 18):
        scaled = [f"{number // 10**places}.{number % 10**places:0{places}d}" for number in drawn.tolist()]
        assert cells(decimals(drawn, places, trimmed=False)) == scaled
        trimmed = [text.rstrip("0").rstrip(".") for text in scaled]
        assert cells(decimals(drawn, places, trimmed=True)) == trimmed
    values = np.append(rng.random(500) * 10.0 ** rng.integers(-30, 30, 500), [0.0, -1.5, 1e16, 5e-324])
    assert cells(floats(values)) == list(map(repr, values.tolist()))


def test_a_sample_keeps_the_jobs_own_numbers(tmp_path: Path) -> None:
    jobs = many_jobs(1_000)
    write_jobs_csv(tmp_path / "jobs.csv", recording(jobs), np.arange(0, 1_000, 7))
    rows = read(tmp_path / "jobs.csv")
    assert [int(row["job"]) for row in rows] == list(range(0, 1_000, 7))
    assert ticks(rows[3]["arrival_s"]) == jobs.arrival[21]


def test_no_jobs_leave_a_header(tmp_path: Path) -> None:
    write_jobs_csv(tmp_path / "jobs.csv", recording(many_jobs(0)))
    assert (tmp_path / "jobs.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks = []
    for n in (35_000, 75_000):
        given = recording(many_jobs(n))
        tracemalloc.start()
        write_jobs_csv(tmp_path / "jobs.csv", given)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2
