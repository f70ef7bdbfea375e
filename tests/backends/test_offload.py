"""The processor doing a QAT card's work: trials, requests in flight, memory, refusals."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.backends.common import host_work
from windtunnel.backends.common.host_work import HostDevice, llc_bytes, processor_name
from windtunnel.backends.discovery.registry import backend
from windtunnel.backends.offload import backend as offload
from windtunnel.backends.offload.trials import (
    Buffers,
    Digest,
    InFlight,
)
from windtunnel.core.errors import (
    DeviceNotPresentError,
    DeviceOutOfMemory,
    InputError,
    InvalidArgument,
    UnsupportedOperationError,
)
from windtunnel.core.ops import OPERATIONS

# Warm: one operand a thread, so that a test neither fills nor reads tens of megabytes.
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    *(
        ("aes", {"bytes": 1000, "mode": mode, "key_bits": bits})
        for mode in ("gcm", "ctr", "cbc")
        for bits in ("128", "192", "256")
    ),
    *(
        (op, {"bytes": 20_000, "codec": codec, "level": level})
        for op in ("compress", "decompress")
        for codec, level in (("deflate", 1), ("deflate", 3), ("deflate", 6), ("lz4", 1), ("lz4", 9), ("zstd", 3))
    ),
    ("sign", {"scheme": "rsa2048", "count": 3}),
    ("sign", {"scheme": "ecdsa_p256", "count": 3}),
    ("copy", {"bytes": 5000, "direction": "h2d"}),
    ("launch", {"count": 5}),
]
IN_FLIGHT = [(op, columns) for op, columns in REQUESTS if OPERATIONS[op].all_columns()[-4].name == "in_flight"]


@pytest.fixture
def device() -> Iterator[HostDevice]:
    made = offload.operations(0)
    yield made
    made.close()


def name(case: Any) -> str:
    return case if isinstance(case, str) else "-".join(map(str, case.values()))


# --- trials


@pytest.mark.parametrize(("op", "columns"), REQUESTS, ids=name)
def test_a_trial_runs_tells_a_time_and_is_right(device: HostDevice, op: str, columns: dict[str, Any]) -> None:
    trial = device.trial(op, columns | {"cache": "warm"})
    assert trial.timer == "host"
    for count in (1, 3):
        assert 0.0 < trial.run(count) < math.inf
        assert trial.check() == 0.0
    assert trial.note


@pytest.mark.parametrize(("op", "columns"), REQUESTS, ids=name)
def test_a_wrong_result_fails_the_check(device: HostDevice, op: str, columns: dict[str, Any]) -> None:
    trial: Any = device.trial(op, columns | {"cache": "warm"})
    trial.run(1)
    slot = trial._flight.last[0]
    if isinstance(slot, list):
        slot[0] = 3
    elif isinstance(slot, Digest):
        slot.signature = slot.signature[:-1] + bytes([slot.signature[-1] ^ 1])
    elif isinstance(slot, Buffers):
        slot.out[7] ^= 1
    else:
        slot.out = slot.out[:100] + bytes([slot.out[100] ^ 0x55]) + slot.out[101:]
    assert trial.check() >= 2.0


@pytest.mark.parametrize(("op", "columns"), REQUESTS, ids=name)
def test_a_request_that_was_left_out_fails_the_check(device: HostDevice, op: str, columns: dict[str, Any]) -> None:
    trial: Any = device.trial(op, columns | {"cache": "warm"})
    trial.run(2)
    assert trial.check() == 0.0
    trial._flight._workers[:] = [lambda slot: None]
    trial.run(2)
    assert trial.check() >= 2.0


@pytest.mark.parametrize(("op", "columns"), IN_FLIGHT, ids=name)
def test_requests_in_flight_are_all_right(device: HostDevice, op: str, columns: dict[str, Any]) -> None:
    trial: Any = device.trial(op, columns | {"in_flight": 4})
    trial.run(20)
    assert len(trial._flight.last) == min(20 * max(4, columns.get("count", 1)), len(trial._flight._free))
    assert trial.check() == 0.0


def test_every_column_of_in_flight_is_tested() -> None:
    assert {op for op, _ in IN_FLIGHT} == {"aes", "compress", "decompress", "sign"}


def test_what_was_compressed_is_told_with_its_ratio(device: HostDevice) -> None:
    trial = device.trial("compress", {"bytes": 65536, "cache": "warm"})
    assert "ratio unknown before a run" in trial.note
    trial.run()
    shrunk = float(trial.note.rpartition("ratio ")[2])
    assert 1.6 < shrunk < 2.5
    assert "ISA-L" in trial.note
    assert float(device.trial("decompress", {"bytes": 65536}).note.rpartition("ratio ")[2]) == pytest.approx(
        2.0, abs=0.3
    )


def test_cbc_takes_whole_blocks_and_says_so(device: HostDevice) -> None:
    trial: Any = device.trial("aes", {"bytes": 17, "mode": "cbc", "cache": "warm"})
    assert "whole blocks" in trial.note
    assert [len(slot.data) for slot in trial._flight._free] == [32]


# --- requests in flight


def test_requests_in_flight_are_there_at_once() -> None:
    # Each request waits for three others: were fewer than four in flight, none would come through.
    together = threading.Barrier(4)
    flight: InFlight[int] = InFlight([lambda slot: together.wait(60) and None] * 4, range(4))
    flight.run(12)
    flight.close()


def test_never_more_are_in_flight_than_asked_for_and_none_shares_its_operand() -> None:
    lock, now, most, held = threading.Lock(), 0, 0, set[int]()
    together = threading.Barrier(3)

    def work(slot: int) -> None:
        nonlocal now, most
        with lock:
            assert slot not in held
            held.add(slot)
            now += 1
            most = max(most, now)
        together.wait()  # for the other two, which must be in flight at the same time
        with lock:
            held.remove(slot)
            now -= 1

    flight: InFlight[int] = InFlight([work] * 3, range(5))
    flight.run(60)
    flight.close()
    assert most == 3


@given(st.integers(1, 4), st.integers(0, 5), st.integers(1, 60))
def test_all_requests_are_done_and_the_last_ones_known(width: int, spare: int, requests: int) -> None:
    done: list[int] = []
    flight: InFlight[int] = InFlight([done.append] * width, range(width + spare))
    flight.run(requests)
    assert len(done) == requests
    assert len(flight.last) == len(set(flight.last)) == min(requests, width + spare)
    assert set(flight.last) <= set(done)
    flight.close()


def test_operands_are_used_in_turn() -> None:
    done: list[int] = []
    flight: InFlight[int] = InFlight([done.append], range(5))
    flight.run(7)
    flight.run(3)
    assert done == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert flight.last == [2, 3, 4]


def test_an_error_in_a_thread_comes_to_the_caller() -> None:
    def fail(slot: int) -> None:
        raise ValueError("spoilt")

    flight: InFlight[int] = InFlight([fail, fail], range(2))
    with pytest.raises(ValueError, match="spoilt"):
        flight.run(2)
    flight.close()


@pytest.mark.parametrize(
    ("op", "columns", "count", "requests", "each"),
    [
        ("aes", {"bytes": 64}, 5, 5, 1),
        ("aes", {"bytes": 64, "in_flight": 4}, 3, 12, 1),
        ("sign", {"scheme": "ecdsa_p256", "count": 10, "in_flight": 4}, 2, 20, 10),
        ("sign", {"scheme": "ecdsa_p256", "count": 2, "in_flight": 4}, 3, 12, 2),
        ("launch", {"count": 7}, 2, 14, 7),
    ],
)
def test_seconds_are_those_of_one_operation_at_the_rate_of_all(
    device: HostDevice, op: str, columns: dict[str, Any], count: int, requests: int, each: int
) -> None:
    trial: Any = device.trial(op, columns | {"cache": "warm"})
    asked: list[int] = []
    # A clock by which every request takes 3 seconds of all of them together.
    trial._flight.run = lambda n: (asked.append(n), 3.0 * n)[1]
    assert trial.run(count) == pytest.approx(3.0 * each)
    assert asked == [requests]


def test_the_clock_runs_from_the_first_request_to_the_end_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def work(slot: int) -> None:
        nonlocal now
        now += 2.0

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert InFlight([work], range(3)).run(6) == 12.0


def releases_the_lock(do: Callable[[], object], calls: int = 20_000) -> bool:
    """Whether another thread gets to run while ``do`` does; nothing but a release lets it, the interval being long."""
    ticks, stop = 0, False

    def tick() -> None:
        nonlocal ticks
        while not stop:
            ticks += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(600.0)
    other = threading.Thread(target=tick, daemon=True)
    other.start()
    try:
        for _ in range(calls):
            before = ticks
            do()
            if ticks != before:
                return True
        return False
    finally:
        sys.setswitchinterval(interval)
        stop = True
        other.join()


@pytest.mark.parametrize(("op", "columns"), IN_FLIGHT, ids=name)
def test_the_library_lets_other_threads_run_while_it_works(
    device: HostDevice, op: str, columns: dict[str, Any]
) -> None:
    sizes = {"bytes": 65536} if "bytes" in columns else {}
    trial: Any = device.trial(op, columns | sizes | {"cache": "warm"})
    # On a busy host the other thread may have to wait for many calls until it gets a processor.
    assert releases_the_lock(lambda: trial._flight._workers[0](trial._flight._free[0]), calls=10_000_000)


def test_what_holds_the_lock_is_told_from_what_does_not() -> None:
    data = memoryview(bytes(10_000))
    assert not releases_the_lock(data.tolist)


# --- caches and memory


def test_cold_operands_are_more_than_twice_what_the_last_level_cache_of_this_host_holds() -> None:
    for each_bytes in (100.0, 4096.0, 1e6, 1e12):
        assert host_work.cold_operands(each_bytes, 1, "cold") * each_bytes >= 2 * llc_bytes().bytes
        assert host_work.cold_operands(each_bytes, 3, "warm") == 3


def test_cold_operands_outgrow_the_last_level_cache_and_warm_ones_are_one_a_thread(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_work, "llc_bytes", lambda: host_work.LastLevelCache(2**21, "stated"))
    for op, columns in (
        ("aes", {"bytes": 4096}),
        ("compress", {"bytes": 65536}),
        ("copy", {"bytes": 65536, "direction": "d2d"}),
    ):
        cold: Any = device.trial(op, columns | {"cache": "cold"})
        operands = list(cold._flight._free)
        assert sum(len(slot.data) + len(slot.out or b"x" * len(slot.data)) for slot in operands) > 2**21
        # Each lies somewhere else.
        assert len({np.frombuffer(slot.data, np.uint8).ctypes.data for slot in operands}) == len(operands)
        cold.close()
    warm: Any = device.trial("aes", {"bytes": 4096, "cache": "warm", "in_flight": 3})
    assert len(warm._flight._free) == 3


@pytest.mark.parametrize(
    ("op", "columns"),
    [
        ("aes", {"bytes": 2**31}),
        ("aes", {"bytes": 64 * 2**20, "in_flight": 32}),
        ("compress", {"bytes": 2**30, "codec": "lz4"}),
        ("compress", {"bytes": 100 * 2**20, "codec": "zstd", "level": 22, "in_flight": 4}),
        ("decompress", {"bytes": 2**30}),
        ("copy", {"bytes": 2**31, "direction": "h2d"}),
    ],
    ids=name,
)
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_more_memory_than_a_trial_may_have_is_refused_before_it_is_taken(
    device: HostDevice, op: str, columns: dict[str, Any], cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_work, "available_bytes", lambda: 5.0 * 2**30)
    with pytest.raises(DeviceOutOfMemory, match="a trial may allocate 2 GiB") as raised:
        device.trial(op, columns | {"cache": cache})
    assert (raised.value.code.name, raised.value.code.number) == ("ENOMEM", 12)


def cache_folder(root: Path, *caches: tuple[str, str, str]) -> Path:
    for number, (level, kind, size) in enumerate(caches):
        index = root / f"index{number}"
        index.mkdir(parents=True)
        for file, text in (("level", level), ("type", kind), ("size", size)):
            (index / file).write_text(text + "\n")
    return root


def test_the_cache_is_the_highest_level_that_the_kernel_tells(tmp_path: Path) -> None:
    root = cache_folder(
        tmp_path, ("1", "Data", "32K"), ("3", "Unified", "16M"), ("2", "Unified", "1024K"), ("4", "Instruction", "1G")
    )
    found = llc_bytes(root, sysconf=lambda _: 1)
    assert (found.bytes, found.source) == (16 * 2**20, f"level 3 of {root}")


def test_sysconf_is_asked_where_the_kernel_does_not_tell(tmp_path: Path) -> None:
    found = llc_bytes(tmp_path, sysconf=lambda key: 123456 if key == "SC_LEVEL3_CACHE_SIZE" else 0)
    assert (found.bytes, found.source) == (123456, "level 3 of sysconf")


def test_a_cache_that_nobody_tells_is_assumed_and_said_to_be(tmp_path: Path) -> None:
    def unknown(_: str) -> int:
        raise ValueError("unrecognized configuration name")

    assert llc_bytes(tmp_path, sysconf=unknown) == llc_bytes(
        cache_folder(tmp_path, ("?", "Data", "?")), sysconf=unknown
    )
    found = llc_bytes(tmp_path, sysconf=lambda _: 0)
    assert found.bytes == host_work.ASSUMED_CACHE_BYTES
    assert "assumed" in found.source


# --- refusals


@pytest.mark.parametrize(
    ("op", "columns", "words"),
    [
        ("gemm", {"m": 8, "n": 8, "k": 8, "dtype": "float32"}, "aes, compress, decompress, sign, copy, launch"),
        ("packets", {"count": 1, "bytes": 64}, "aes, compress, decompress, sign, copy, launch"),
        ("compress", {"bytes": 64, "level": 10}, "a level from 1 to 9"),
        ("decompress", {"bytes": 64, "codec": "lz4", "level": 13}, "a level from 1 to 12"),
        ("aes", {"bytes": 64, "in_flight": 257}, "in_flight of at most 256"),
        ("sign", {"in_flight": 1000}, "in_flight of at most 256"),
        ("aes", {"bytes": 64, "dispatch": "graph"}, "dispatch=device"),
        ("aes", {"bytes": 64, "dispatch": "eager"}, "dispatch=device"),
        ("copy", {"bytes": 64, "direction": "h2d", "clock": "sustained"}, "clock=burst"),
        ("launch", {"mode": "graph"}, "mode=stream"),
        ("launch", {"mode": "persistent"}, "mode=stream"),
    ],
    ids=name,
)
def test_a_refusal_says_what_is_done_instead(device: HostDevice, op: str, columns: dict[str, Any], words: str) -> None:
    said = device.refusal(op, columns)
    assert said is not None
    assert said.endswith(f"expected {words}" if op not in {"gemm", "packets"} else f"expected one of {words}")
    with pytest.raises(UnsupportedOperationError) as raised:
        device.trial(op, columns)
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("op", "columns", "nearest"),
    [
        ("compress", {"bytes": 64, "codec": "deflat"}, "deflate"),
        ("aes", {"bytes": 64, "mode": "gmc"}, "gcm"),
        ("aes", {"byte": 64}, "bytes"),
        ("sign", {"scheme": "rsa248"}, "rsa2048"),
        ("comprss", {"bytes": 64}, "compress"),
    ],
)
def test_a_name_that_nobody_knows_is_answered_with_the_nearest(
    device: HostDevice, op: str, columns: dict[str, Any], nearest: str
) -> None:
    for ask in (device.refusal, device.trial):
        with pytest.raises(InputError) as raised:
            ask(op, columns)
        assert raised.value.nearest == nearest
        assert not isinstance(raised.value, UnsupportedOperationError)


@pytest.mark.parametrize(("op", "columns"), REQUESTS, ids=name)
def test_what_is_done_is_not_refused(device: HostDevice, op: str, columns: dict[str, Any]) -> None:
    assert device.refusal(op, columns) is None
    assert device.refusal(op, columns | {"cache": "warm"}) is None


def test_less_than_one_run_is_an_input_error(device: HostDevice) -> None:
    trial = device.trial("launch", {})
    with pytest.raises(InputError, match="at least 1"):
        trial.run(0)


# --- opening and closing


def test_a_check_without_a_run_is_an_error(device: HostDevice) -> None:
    trial = device.trial("launch", {})
    with pytest.raises(InvalidArgument, match="nothing has run"):
        trial.check()


def test_a_check_is_of_the_last_run_and_asked_again_says_the_same(device: HostDevice) -> None:
    trial: Any = device.trial("aes", {"bytes": 64, "cache": "warm"})
    trial.run()
    trial._flight.last[0].out[3] ^= 1
    assert trial.check() == trial.check() == 2.0
    trial.run()
    assert trial.check() == trial.check() == 0.0


def test_a_closed_trial_refuses_and_closing_again_does_nothing(device: HostDevice) -> None:
    before = threading.active_count()
    trial = device.trial("aes", {"bytes": 64, "cache": "warm", "in_flight": 3})
    trial.run()
    trial.close()
    trial.close()
    assert threading.active_count() == before
    for call in (trial.run, trial.check):
        with pytest.raises(InvalidArgument, match="the trial is closed"):
            call()


def test_closing_the_device_closes_its_trials() -> None:
    device = offload.operations(0)
    trial = device.trial("launch", {})
    device.close()
    device.close()
    with pytest.raises(InvalidArgument, match="the trial is closed"):
        trial.run()
    with pytest.raises(InvalidArgument, match="the device is closed"):
        device.trial("launch", {})


def test_the_host_is_found_as_a_processor_and_no_accelerator() -> None:
    made = backend("offload")
    (found,) = made.find()
    assert (found.name, found.kind, found.software, found.api) == ("offload:0", "cpu", True, "native")
    assert found.label == processor_name()
    assert found.memory_bytes > 0
    device = made.operations(0)
    assert (device.info.software, device.info.virtual, device.info.kind) == (True, False, "cpu")
    for library in ("cryptography", "OpenSSL", "isal", "lz4", "zstandard"):
        assert device.versions[library][0].isdigit()
        assert f"{library} {device.versions[library]}" in found.driver
    device.close()


def test_a_host_is_one_device() -> None:
    with pytest.raises(DeviceNotPresentError, match="offload:0"):
        offload.operations(1)


def test_the_processor_is_named_as_it_names_itself(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel\t\t: 17\nmodel name\t: Some Processor 9000\n")
    assert processor_name(file) == "Some Processor 9000"
    assert processor_name(tmp_path / "none")


def test_importing_the_back_end_imports_no_library() -> None:
    program = "import sys, windtunnel.backends.offload.backend; print(sorted({'cryptography','isal','lz4','zstandard'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("library", ["cryptography", "isal", "lz4", "zstandard"])
def test_a_missing_library_is_an_import_error_that_names_it(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    offload.versions.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=library):
        offload.find()
    offload.versions.cache_clear()


def test_the_extra_of_the_package_has_every_library(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for library in ("cryptography", "isal", "lz4", "zstandard"):
        (wanted,) = [line for line in extras["offload"] if line.startswith(library)]
        assert wanted in extras["dev"]
