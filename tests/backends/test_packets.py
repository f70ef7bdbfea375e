"""Packets over a veth pair in namespaces of a child process: all of them right, nothing of the host's changed."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.backends.common import host_work
from windtunnel.backends.discovery.registry import backend
from windtunnel.backends.packets import backend as packets
from windtunnel.backends.packets import driver, trials, veth
from windtunnel.backends.packets.trials import VethDevice
from windtunnel.core.errors import (
    CopyError,
    DeviceHang,
    DeviceLost,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    InputError,
    InvalidArgument,
    UnsupportedOperationError,
)

CAP_SYS_ADMIN = 21
SMALL = {"count": 10, "bytes": 64, "cache": "warm"}


def may_make_namespaces() -> bool:
    """Whether this process has root's right to; a container's root need not."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return bool(int(status["CapEff"], 16) >> CAP_SYS_ADMIN & 1)


def assert_stated(reason: str) -> None:
    """No namespaces may be made; or, where a security module takes the rights in them away, no ports in them."""
    assert "may make neither a network namespace" in reason or "could not set up a veth pair in namesp" in reason


@pytest.fixture(scope="module")
def device() -> Iterator[VethDevice]:
    try:
        made = packets.operations(0)
    except DeviceNotPresentError as reason:
        assert not may_make_namespaces(), f"it must be here for who has the right: {reason}"
        assert_stated(str(reason))
        pytest.skip(str(reason))
    yield made
    made.close()


@pytest.fixture
def own(device: VethDevice) -> Iterator[VethDevice]:
    """A device that a test may break."""
    made = packets.operations(0)
    yield made
    made.close()


def pid_of(device: VethDevice) -> int:
    return device._child._process.pid


# --- where it is, and where it is not


def test_it_is_found_by_who_has_the_right_and_says_why_it_is_not_by_others() -> None:
    if may_make_namespaces():
        (found,) = backend("packets").find()
        assert (found.name, found.kind, found.software, found.api) == ("packets:0", "cpu", True, "native")
        assert found.driver.startswith("Linux ")
        assert "AF_PACKET over veth, namespaces as root, pyroute2" in found.driver
        return
    try:
        (found,) = backend("packets").find()
    except DeviceNotPresentError as reason:
        assert_stated(str(reason))
    else:
        assert "namespaces in a user namespace" in found.driver


# A user of a user namespace who is not its root and so has no rights in it, as anybody on a host.
AS_ANYBODY = """
import ctypes, json, os, sys
from pathlib import Path
user, group, libc = os.getuid(), os.getgid(), ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000):
    print(json.dumps({"no user namespace": os.strerror(ctypes.get_errno())})); sys.exit()
try:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"1000 {user} 1")
    Path("/proc/self/gid_map").write_text(f"1000 {group} 1")
    if sys.argv[1] != "any":
        Path("/proc/sys/user/max_user_namespaces").write_text(sys.argv[1])
except OSError as error:  # a security module took the rights in it away
    print(json.dumps({"no user namespace": str(error)})); sys.exit()
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


def as_anybody(most: str, *command: str) -> str:
    """What ``command`` prints for somebody without rights, who may make so many user namespaces."""
    done = subprocess.run(
        [sys.executable, "-c", AS_ANYBODY, most, *command],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_rights_and_without_user_namespaces_the_reason_is_stated() -> None:
    told = json.loads(as_anybody("0", "-P", veth.__file__))
    if "no user namespace" in told:  # this very process is who may make none
        assert not may_make_namespaces()
        with pytest.raises(DeviceNotPresentError) as raised:
            packets.find()
        assert_stated(str(raised.value))
        return
    assert "may not create a network namespace (Operation not permitted) or a user namespace" in told["error"]
    assert "run as root, or on a kernel that permits user namespaces" in told["error"]


def test_the_reason_is_what_find_raises() -> None:
    program = (
        "from windtunnel.backends.packets import backend as packets\n"
        "from windtunnel.core.errors import DeviceNotPresentError\n"
        "try:\n    packets.find()\nexcept DeviceNotPresentError as reason:\n    print(reason.exit_code, reason)\n"
    )
    told = as_anybody("0", "-c", program)
    if "no user namespace" not in told:
        assert told.startswith("3 packets:0 not found: this process may not create a network namespace")


def test_without_rights_it_is_here_in_a_user_namespace_where_those_may_be_made() -> None:
    told = json.loads(as_anybody("any", "-P", veth.__file__))
    if "no user namespace" in told:
        assert not may_make_namespaces()
        return
    if "error" in told:  # Ubuntu's default since 24.04
        assert Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").read_text().strip() == "1"
        assert_stated(told["error"])
        return
    assert told["ready"]["how"] == "namespaces in a user namespace"


def test_a_missing_package_is_an_import_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pyroute2"):
        packets.find()


def test_a_system_without_network_namespaces_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not backend("packets").present()
    with pytest.raises(DeviceNotPresentError, match="requires Linux"):
        packets.find()


def test_a_child_that_says_nothing_is_told_and_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    silent = tmp_path / "silent.py"
    silent.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(veth, "__file__", str(silent))
    monkeypatch.setattr(driver, "START_S", 0.01)
    with pytest.raises(DeviceNotPresentError, match="did not answer"):
        packets.find()


def test_importing_the_back_end_imports_no_driver() -> None:
    program = "import sys, windtunnel.backends.packets.backend; print('pyroute2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"


def test_the_extra_of_the_package_has_its_library(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = extras["packets"]
    assert wanted.startswith("pyroute2")
    assert wanted in extras["dev"]


# --- packets


@settings(max_examples=25)
@given(st.integers(1, 300), st.integers(64, 9018), st.integers(1, 5))
def test_all_packets_come_as_they_were_sent(device: VethDevice, count: int, size: int, runs: int) -> None:
    trial = device.trial("packets", {"count": count, "bytes": size, "cache": "warm"})
    assert 0.0 < trial.run(runs) < math.inf
    assert trial.check() == 0.0
    trial.close()


def test_more_packets_than_frames_begin_a_new_lap(device: VethDevice) -> None:
    trial = device.trial("packets", {"count": 1000, "bytes": 64, "cache": "warm"})
    for _ in range(3):
        trial.run(7)
        assert trial.check() == 0.0


def test_cold_frames_outgrow_the_last_level_cache_and_are_right(
    device: VethDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    ask = device._child.ask

    def listen(*arguments: Any, **named: Any) -> dict[str, Any]:
        asked.append(named)
        return ask(*arguments, **named)

    monkeypatch.setattr(device._child, "ask", listen)
    monkeypatch.setattr(host_work, "llc_bytes", lambda: host_work.LastLevelCache(2**21, "stated"))
    trial = device.trial("packets", {"count": 1000, "bytes": 1518})
    trial.run(3)
    assert trial.check() == 0.0
    cold = asked[0]["rows"] * 2 * asked[0]["frame_bytes"]
    assert asked[0]["frame_bytes"] == 1514
    assert cold > 2**21
    device.trial("packets", SMALL)
    assert asked[-1]["rows"] == veth.MAX_BATCH


def test_seconds_are_those_of_all_the_packets_of_one_operation(
    device: VethDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = device.trial("packets", {"count": 50, "bytes": 64, "cache": "warm"})
    # 12 seconds for four operations of fifty packets.
    monkeypatch.setattr(device._child, "ask", lambda *a, **k: {"seconds": 12.0, "lost": 0, "wrong": 0})
    assert trial.run(4) == 3.0


@pytest.mark.parametrize(("lost", "wrong"), [(1, 0), (0, 1), (2, 3)])
def test_one_packet_lost_or_wrong_fails_the_check(
    device: VethDevice, monkeypatch: pytest.MonkeyPatch, lost: int, wrong: int
) -> None:
    trial = device.trial("packets", SMALL)
    monkeypatch.setattr(device._child, "ask", lambda *a, **k: {"seconds": 1.0, "lost": lost, "wrong": wrong})
    trial.run()
    assert trial.check() == 2.0 * (lost + wrong)
    with pytest.raises(CopyError, match=f"{lost + wrong} of 5 frames were lost or wrong"):
        device.round_trip_s(5)


@settings(max_examples=15)
@given(st.integers(1, 100), st.integers(64, 9018))
def test_frames_go_there_and_back(device: VethDevice, count: int, size: int) -> None:
    assert 0.0 < device.round_trip_s(count, size=size) < math.inf


# --- the ring, over a wire of the test's own


class End(NamedTuple):
    socket: socket.socket
    header: bytes


class Wire:
    """Two ends, with somebody between them who may lose or change what goes from the first to the second."""

    def __init__(self, between: Callable[[int, bytes], bytes | None], wait_s: float = 60.0) -> None:
        first, near = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        far, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        second.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, veth._timeval(wait_s))
        self.here, self.there = (
            End(first, b"B" * 6 + b"A" * 6 + b"\x88\xb5"),
            End(second, b"A" * 6 + b"B" * 6 + b"\x88\xb5"),
        )
        self.frames: list[bytes] = []

        def carry() -> None:
            while frame := near.recv(65536):
                self.frames.append(frame)
                passed = between(len(self.frames) - 1, frame)
                if passed is not None:
                    far.send(passed)

        self._sockets = [near, far, first, second]
        self._thread = threading.Thread(target=carry)
        self._thread.start()

    def ring(self, frame_bytes: int, rows: int, batch: int = 4) -> veth.Ring:
        """Its batches small: a socket pair holds few messages."""
        made = veth.Ring(self.here, self.there, frame_bytes, rows)  # type: ignore[arg-type]
        made._batch = batch
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.here.socket.send(b"")
        self._thread.join()
        for one in self._sockets:
            one.close()


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 20), st.integers(22, 100), st.integers(1, 6))
def test_exactly_the_packets_asked_for_are_sent_each_with_its_number(
    count: int, runs: int, rows: int, size: int, batch: int
) -> None:
    with Wire(lambda _, frame: frame) as wire:
        told = wire.ring(size, rows, batch).forward(count, runs)
    assert (told["lost"], told["wrong"]) == (0, 0)
    numbers = [int.from_bytes(frame[14:22]) for frame in wire.frames]
    assert numbers == list(range(count * runs))
    assert {(len(frame), frame[:14]) for frame in wire.frames} == {(size, wire.here.header)}


@settings(max_examples=30)
@given(st.integers(0, 39), st.integers(0, 59), st.integers(1, 255))
def test_any_byte_that_is_changed_on_the_way_is_found(which: int, place: int, by: int) -> None:
    def spoil(index: int, frame: bytes) -> bytes:
        if index != which:
            return frame
        return frame[:place] + bytes([frame[place] ^ by]) + frame[place + 1 :]

    with Wire(spoil) as wire:
        told = wire.ring(60, 7).forward(20, 2)
    assert (told["lost"], told["wrong"]) == (0, 1)


def test_a_packet_cut_short_is_found() -> None:
    with Wire(lambda index, frame: frame[:-1] if index == 5 else frame) as wire:
        told = wire.ring(60, 8).forward(20, 1)
    assert (told["lost"], told["wrong"]) == (0, 1)


def test_a_packet_that_comes_again_in_the_place_of_another_is_found() -> None:
    with Wire(lambda index, frame: wire.frames[5] if index == 6 else frame) as wire:
        told = wire.ring(60, 30).forward(20, 1)
    assert (told["lost"], told["wrong"]) == (0, 1)


@pytest.mark.parametrize("which", [0, 3, 19])
def test_a_packet_that_does_not_come_is_counted_as_lost(which: int) -> None:
    with Wire(lambda index, frame: None if index == which else frame, wait_s=2.0) as wire:
        told = wire.ring(60, 30, 1).forward(20, 1)
    assert (told["lost"], told["wrong"]) == (1, 0)


def test_batches_fit_the_receivers_buffer() -> None:
    with Wire(lambda _, frame: frame) as wire:
        room = wire.here.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        for size in (60, 1514, 9014):
            batch = veth.Ring(wire.here, wire.there, size, 8)._batch  # type: ignore[arg-type]
            assert 1 <= batch <= veth.MAX_BATCH
            assert batch == 1 or batch * (2 * size + 1024) <= room // 2


# --- refusals and limits


@pytest.mark.parametrize(
    ("op", "columns", "words"),
    [
        ("packets", {"count": 1, "bytes": 63}, "expected bytes from 64 to 9018"),
        ("packets", {"count": 1, "bytes": 9019}, "expected bytes from 64 to 9018"),
        ("packets", {"count": 10**9, "bytes": 64}, "expected count of at most 100,000,000"),
        ("packets", {"count": 1, "bytes": 64, "dispatch": "graph"}, "expected dispatch=device"),
        ("packets", {"count": 1, "bytes": 64, "dispatch": "eager"}, "expected dispatch=device"),
        ("packets", {"count": 1, "bytes": 64, "clock": "sustained"}, "expected clock=burst"),
        ("launch", {}, "expected one of packets"),
        ("rdma", {"bytes": 64}, "expected one of packets"),
    ],
)
def test_a_refusal_says_what_is_done_instead(device: VethDevice, op: str, columns: dict[str, Any], words: str) -> None:
    said = device.refusal(op, columns)
    assert said is not None
    assert said.endswith(words)
    with pytest.raises(UnsupportedOperationError) as raised:
        device.trial(op, columns)
    assert str(raised.value) == said


def test_a_wrong_name_is_answered_with_the_nearest(device: VethDevice) -> None:
    for op, columns, nearest in (("packet", {"count": 1, "bytes": 64}, "packets"), ("packets", {"cont": 1}, "count")):
        with pytest.raises(InputError) as raised:
            device.trial(op, columns)
        assert raised.value.nearest == nearest


@pytest.mark.parametrize(("count", "size"), [(0, 64), (1, 63), (1, 9019), (1_000_001, 64)])
def test_a_round_trip_of_no_frame_is_refused(device: VethDevice, count: int, size: int) -> None:
    with pytest.raises(InvalidArgument, match="expected at most 1,000,000, of 64 to 9018"):
        device.round_trip_s(count, size=size)


def test_more_memory_than_a_trial_may_have_is_refused(device: VethDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_work, "available_bytes", lambda: 5.0 * 2**30)
    with pytest.raises(DeviceOutOfMemory, match="a trial may allocate 2 GiB"):
        device.round_trip_s(1_000_000, size=9018)
    monkeypatch.setattr(host_work, "available_bytes", lambda: 2.5 * 2**20)
    with pytest.raises(DeviceOutOfMemory, match="frames of 1,514 bytes") as raised:
        device.trial("packets", {"count": 1, "bytes": 1518})
    assert raised.value.code.name == "ENOMEM"


def test_there_is_one_device() -> None:
    with pytest.raises(DeviceNotPresentError, match="packets:0"):
        packets.operations(1)


# --- the child


def test_the_hosts_own_network_is_never_touched(device: VethDevice) -> None:
    interfaces = socket.if_nameindex()
    ours = Path("/proc/self/ns/net").stat()
    own = packets.operations(0)
    theirs = Path(f"/proc/{pid_of(own)}/ns/net").stat()
    assert (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino)
    assert socket.if_nameindex() == interfaces
    own.trial("packets", SMALL).run()
    assert socket.if_nameindex() == interfaces
    own.close()
    assert socket.if_nameindex() == interfaces


def test_closing_ends_the_child_and_its_trials(own: VethDevice) -> None:
    trial = own.trial("packets", SMALL)
    process = own._child._process
    assert process.poll() is None
    own.close()
    own.close()
    trial.close()
    assert process.poll() is not None
    with pytest.raises(InvalidArgument, match="the trial is closed"):
        trial.run()
    with pytest.raises(InvalidArgument, match="the device is closed"):
        own.trial("packets", SMALL)
    with pytest.raises(InvalidArgument, match="the device is closed"):
        own.round_trip_s(1)


def test_a_closed_trial_gives_its_frames_back(own: VethDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = own._child.ask
    monkeypatch.setattr(own._child, "ask", lambda device, do, *a, **k: (asked.append(do), ask(device, do, *a, **k))[1])
    trial = own.trial("packets", SMALL)
    trial.close()
    trial.close()
    assert asked == ["prepare", "release"]


def test_a_child_that_hangs_is_ended_and_the_error_is_a_hang(own: VethDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = own.trial("packets", SMALL)
    monkeypatch.setattr(trials, "ANSWER_S", 0.01)
    os.kill(pid_of(own), signal.SIGSTOP)
    with pytest.raises(DeviceHang, match="no answer in 0.3") as raised:
        trial.run()
    assert raised.value.code.name == "ETIME"
    assert own._child._process.poll() is not None
    with pytest.raises(InvalidArgument, match="the device is closed"):
        trial.run()


def test_a_child_that_is_gone_is_a_lost_device(own: VethDevice) -> None:
    trial = own.trial("packets", SMALL)
    os.kill(pid_of(own), signal.SIGKILL)
    own._child._process.wait()
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as the command line has it
    try:
        with pytest.raises(DeviceLost, match="its process has ended"):
            trial.run()
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_what_the_kernel_refuses_is_an_error_and_the_child_goes_on(own: VethDevice) -> None:
    child, name = own._child, own.info.name
    # Longer than the port's greatest unit: a trial would have been refused.
    child.ask(name, "prepare", 10**6, 60.0, frame_bytes=20_000, rows=64)
    with pytest.raises(CopyError, match="sendmmsg: Message too long"):
        child.ask(name, "forward", 10**6, 60.0, count=1, runs=1)
    trial = own.trial("packets", SMALL)
    trial.run()
    assert trial.check() == 0.0


def test_the_child_does_not_outlive_who_started_it(device: VethDevice) -> None:
    program = (
        "import os, signal\n"
        "from windtunnel.backends.packets import backend as packets\n"
        "print(packets.operations(0)._child._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    child = Path(f"/proc/{int(done.stdout)}")
    for _ in range(600):
        if not child.exists() or "\nState:\tZ" in (child / "status").read_text():
            return
        time.sleep(0.1)
    pytest.fail("the child goes on without its parent")
