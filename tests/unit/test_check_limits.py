"""What `windtunnel check` says of launches that are too large or too long, and of checks that could not be done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.checking import SAXPY, Command

from windtunnel.app import check as checks
from windtunnel.app.check import check as checked
from windtunnel.app.check_arguments import LaunchRequest
from windtunnel.runtime.steps import Steps

LOOP = "__global__ void turns(int *a, int n) {\n  for (int i = 0; i < n; ++i)\n    a[threadIdx.x] += i;\n}\n"
TICKET = """__global__ void turns(int *next, int *out) {
    while (atomicAdd(next, 0) != (int)threadIdx.x);
    for (int i = 0; i < 100; ++i) out[threadIdx.x] += i;
    atomicAdd(next, 1);
}
"""


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ("4000000000", "1", "grid.x is 4,000,000,000, of at most 2,147,483,647"),
        ("1,65536", "1", "grid.y is 65,536, of at most 65,535"),
        ("1", "1025", "1,025 threads a block, of at most 1,024"),
        ("1,1,2", "1,1,65", "block.z is 65, of at most 64"),
        ("2147483647", "1024", "2,199,023,254,528 threads are too many to emulate; expected at most 4,294,967,296, or"),
        ("2097152", "64", "at most 67,108,864, or a size for each buffer (--arg x=zeros:N)"),
    ],
)
def test_a_launch_beyond_the_device_or_the_emulator_is_an_error_with_the_limit(
    check: Command, grid: str, block: str, message: str
) -> None:
    code, out, err = check(SAXPY, "--grid", grid, "--block", block, "--format", "json")
    assert code == 2, err
    assert message in err
    assert message in json.loads(out)["error"]


def test_a_launch_whose_buffers_are_stated_may_have_more_threads(check: Command) -> None:
    guarded = "__global__ void one(int *a) { if (blockIdx.x + threadIdx.x == 0) a[0] = 1; }"
    assert check(guarded, "--grid", "2097152", "--block", "64", "--arg", "a=zeros:1")[0] == 0
    assert check(None, "--grid", "2147483647", "--block", "64", "--arg", "a=zeros:1")[0] == 2


def test_a_launch_that_takes_too_many_steps_ends_at_its_loop(check: Command) -> None:
    launch = ("--grid", "1", "--block", "8")
    code, out, err = check(LOOP, *launch, "--arg", "n=1001", "--steps", "1000", "--format", "json")
    assert code == 2
    assert err == f"windtunnel: {json.loads(out)['error']}\n"
    assert err.startswith("windtunnel: kernel.cu:2:")
    assert "the launch of turns takes more than 1,000 steps" in err
    assert "smaller numbers and sizes (--arg, --grid), or --steps N for another limit (0 for none)" in err
    assert "made up" not in err
    assert check(None, *launch, "--arg", "n=900", "--steps", "1000")[0] == 0
    assert check(None, *launch, "--arg", "n=1001", "--steps", "0")[0] == 0
    assert "n = 8 is not given and made up" in check(None, *launch, "--steps", "4")[2]


def test_steps_have_a_limit_unless_it_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "STEPS", 50)
    file = tmp_path / "kernel.cu"
    file.write_text(LOOP)
    request = LaunchRequest(file, None, (1, 1, 1), (8, 1, 1), {"n": "100"})
    with pytest.raises(checks.StepsExceededError, match="more than 50 steps"):
        checked([request])
    assert checked([request], steps=0).findings == []


def test_turns_of_threads_that_run_one_by_one_are_counted_too(check: Command) -> None:
    launch = ("--grid", "1", "--block", "64", "--arg", "next=zeros:1", "--arg", "out=zeros:64")
    assert check(TICKET, *launch)[0] == 0
    code, _, err = check(None, *launch, "--steps", "100")
    assert (code, "takes more than 100 steps" in err) == (2, True)
    assert check(LOOP, "--grid", "1", "--block", "64", "--schedules", "1", "--arg", "n=200", "--steps", "250")[0] == 2


def test_findings_count_if_a_further_order_takes_too_many_steps(check: Command) -> None:
    race = LOOP.replace("a[threadIdx.x] += i", "a[0] = threadIdx.x")
    launch = ("--grid", "1", "--block", "64", "--arg", "n=20", "--arg", "a=zeros:1", "--schedules", "1")
    assert "DataRace" in check(race, *launch)[1]
    later = race.replace("a[0] = threadIdx.x;", "a[threadIdx.x] += i;\n  a[0] = threadIdx.x;")
    code, out, err = check(later, *launch[:-4], "--schedules", "1", "--steps", "30")
    assert (code, "DataRace" in out) == (1, True), (out, err)
    assert "note: kernel.cu:2:" in err


FIRST = """__global__ void first(int *count, int *out) {
    if (atomicAdd(count, 1) == 0)
        for (int i = 0; i < 3000; ++i) out[0] += i;
}
"""


def test_a_further_launch_with_too_many_steps_is_a_note_and_no_error(check: Command) -> None:
    code, out, err = check(FIRST, "--grid", "2", "--block", "32", "--steps", "500")
    assert (code, out.splitlines()[0]) == (0, "nothing found (1 launch)")
    assert "note: in a further launch, with zeros in 'count': kernel.cu:3:" in err
    assert "takes more than 500 steps" in err
    assert check(None, "--grid", "2", "--block", "32")[1].startswith("nothing found (1 launch, and one with zeros in")


def test_steps_are_reported_from_time_to_time() -> None:
    seen: list[int] = []
    steps = Steps(5000, seen.append)
    assert not any(steps.take() for _ in range(5000))
    assert seen == [1024, 2048, 3072, 4096]
    assert steps.take()
    steps.begin()
    assert not any(steps.take(of_thread=True) for _ in range(32 * 1024))
    assert seen[4:] == [1024]


@pytest.mark.parametrize("error", [RuntimeError("no such state"), MemoryError("Unable to allocate 29.8 GiB")])
def test_what_could_not_be_checked_is_said_in_each_format(
    check: Command, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("windtunnel.app.check_running.arguments_of", fail)
    expected = 70 if isinstance(error, RuntimeError) else 2
    launch = ("--grid", "1", "--block", "8")
    code, out, err = check(SAXPY, *launch, "--format", "json")
    assert (code, str(error) in json.loads(out)["error"], str(error) in err) == (expected, True, True)
    code, out, _ = check(SAXPY, *launch, "--format", "sarif")
    (invocation,) = json.loads(out)["runs"][0]["invocations"]
    assert (code, invocation["executionSuccessful"], invocation["exitCode"]) == (expected, False, expected)
    assert str(error) in invocation["toolExecutionNotifications"][0]["message"]["text"]
    assert check(SAXPY, *launch)[1] == ""
