"""A device in a process of its own: what hangs is killed, what dies is told, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windtunnel import backends
from windtunnel.backends.discovery import registry, remote
from windtunnel.backends.discovery.remote import RemoteOperations
from windtunnel.core import errors
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.results.validation import Conditions
from windtunnel.report.validation import text
from windtunnel.runtime.codes import code_of
from windtunnel.validation import campaign as measuring
from windtunnel.validation.budget import Budget

FAKE = '''
"""A back end that does what its operations are called, wrongly."""
import os, subprocess, sys, time
from windtunnel.backends.common.backend import DetectedDevice, RealBackend
from windtunnel.core.errors import DeviceLost
from windtunnel.core.results.validation import Conditions
from windtunnel.runtime.codes import code_of
from windtunnel.runtime.interface import DeviceInfo
from windtunnel.runtime.limits import limits_of

def hang():
    open(HANGS, "w").close()
    time.sleep(6000)

class Trial:
    timer, note = "host", "a fake"
    def __init__(self, n): self.n = n
    def run(self, count=1):
        if self.n in (1, 1_000_000): hang()
        if self.n == 2: os.kill(os.getpid(), 11)
        if self.n == 3: print("x" * 1000000, flush=True); os.write(2, b"y" * 1000000)
        if self.n == 4: os._exit(3)
        if self.n == 5: raise ZeroDivisionError("as a driver would not")
        if self.n == 6: raise DeviceLost("gone", operation="run", device="fake", code=code_of("cuda", DeviceLost))
        if self.n == 7:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(6000)"], pass_fds=FDS)
            hang()
        return 1e-6 * count
    def check(self): return 0.5
    def close(self): pass

FDS = ()
HANGS = {hangs!r}
TELLS = True

class Operations:
    info = DeviceInfo("fake", "gpu", "cuda", 1e9, limits_of("cuda"), frozenset({"pinned"}), False, True)
    versions = {"fake": "1"}
    def __init__(self, index): self.index = index
    def refusal(self, op, columns):
        return None if op == "vector_add" and columns["dispatch"] == "device" else "only that"
    def trial(self, op, columns): return Trial(int(columns["n"]))
    def energy_j(self): return None
    def close(self): pass
    if TELLS:
        def conditions(self): return Conditions(sm_clock_hz=1.98e9, held_back=["idle"])

BACKEND = RealBackend("fakery", "nothing", "nothing", lambda: [DetectedDevice("fakery", 0, "fake", "gpu", False, "1", "cuda")], Operations)
'''


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteOperations]:
    """A back end that is found because its file lies beside the others, here and in the child."""
    (tmp_path / "fakery").mkdir()
    (tmp_path / "fakery" / "__init__.py").touch()
    (tmp_path / "fakery" / "backend.py").write_text(source(tmp_path))
    (tmp_path / "sitecustomize.py").write_text(
        f"import windtunnel.backends as b; b.__path__.append({str(tmp_path)!r})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    registry.names.cache_clear()
    monkeypatch.setattr(remote, "select", SimpleNamespace(select=until_answer_or_hang(tmp_path / "hangs")))
    found = RemoteOperations("fakery", 0)
    yield found
    found.close()
    registry.names.cache_clear()


def source(folder: Path) -> str:
    return FAKE.replace("{hangs!r}", repr(str(folder / "hangs")))


def until_answer_or_hang(hangs: Path) -> Callable[..., tuple[list[int], list[int], list[int]]]:
    """A ``select`` whose time limit is reached as soon as the child has said in a file that it hangs, and never before.

    So no test waits for a time limit, and none fails because the child is slow.
    """

    def wait(readable: list[int], *_: object) -> tuple[list[int], list[int], list[int]]:
        while not (ready := select.select(readable, [], [], 0.01)[0]):
            if hangs.exists():
                hangs.unlink()
                break
        return ready, [], []

    return wait


def budget(seconds: float, patience_s: float) -> Budget:
    """A budget of which each reading of the clock takes a millisecond, however slow the machine is."""
    readings = count()
    return Budget(seconds, lambda: next(readings) * 1e-3, patience_s)


def columns(n: int) -> Mapping[str, Any]:
    return {c.name: c.parse(n if c.name == "n" else c.default) for c in OPERATIONS.find("vector_add").all_columns()}


def test_clocks_come_from_the_child_where_its_back_end_tells_them(fake: RemoteOperations, tmp_path: Path) -> None:
    assert fake.conditions() == Conditions(sm_clock_hz=1.98e9, held_back=["idle"])
    (tmp_path / "fakery" / "backend.py").write_text(source(tmp_path).replace("TELLS = True", "TELLS = False # not"))
    silent = RemoteOperations("fakery", 0)
    assert silent.conditions() == Conditions()
    silent.close()


def gone(process: int) -> bool:
    """Whether no such process runs (one that has ended and was not waited for is none)."""
    try:
        return "Z" in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2][:3]
    except FileNotFoundError:
        return True


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until ``condition`` holds: a killed process may end later. The limit only guards against hanging for ever."""
    until = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_what_the_child_knows_and_answers_comes_as_it_is(fake: RemoteOperations) -> None:
    assert (fake.info.name, fake.info.features, fake.info.limits.block) == ("fake", {"pinned"}, (1024, 1024, 64))
    assert fake.versions == {"fake": "1"} and fake.energy_j() is None
    assert fake.refusal("gemm", {}) == "only that" and fake.refusal("vector_add", columns(1)) is None
    trial = fake.trial("vector_add", columns(100))
    assert (trial.run(3), trial.check(), trial.timer, trial.note) == (3e-6, 0.5, "host", "a fake")


def test_a_call_that_hangs_is_abandoned_with_its_process_and_says_so_ever_after(fake: RemoteOperations) -> None:
    other, process = fake.trial("vector_add", columns(100)), fake.process
    with pytest.raises(errors.DeviceHang, match="no answer within 600 s"):
        fake.trial("vector_add", columns(1)).run(1, limit_s=20.0)
    assert gone(process) and not fake.alive
    with pytest.raises(errors.DeviceHang):
        other.run()


def test_no_call_is_waited_for_longer_than_the_patience_with_its_device(fake: RemoteOperations) -> None:
    trial = fake.trial("vector_add", columns(1))
    fake.max_wait_s = 20.0
    with pytest.raises(errors.DeviceHang, match="no answer within 600 s"):
        trial.run()


def test_what_hangs_in_a_validation_is_said_and_what_does_not_is_measured(
    fake: RemoteOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the suite's vector additions those of a million elements hang, for ten minutes each."""
    monkeypatch.setattr(measuring, "choose", lambda *_: [("fakery:0", "l4@cuda")])
    found = measuring.measured(budget=budget(6.0, 100.0))
    assert {(row.columns["n"], row.columns["dtype"]) for row in found.rows} >= {(1e3, "float32"), (1e5, "float32")}
    assert not any(row.columns["n"] == 1e6 for row in found.rows)
    hung = [one.why for one in found.omitted() if one.hung]
    assert hung and all("vector_add n=1e+06" in why and "no answer within 1.8e+03 s" in why for why in hung)
    assert any(
        line.startswith("hung on fakery:0: vector_add n=1e+06") for line in text([], found.omitted()).splitlines()
    )


def test_a_device_that_does_not_open_is_said_and_the_others_are_measured(
    fake: RemoteOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "choose", lambda *_: [("broken:0", "l4@cuda"), ("fakery:0", "l4@cuda")])
    opened = RemoteOperations

    def opening(way: str, *given: Any, **named: Any) -> RemoteOperations:
        if way == "broken":
            raise errors.DeviceHang("no answer", operation="open", device=way, code=code_of("cuda", errors.DeviceHang))
        return opened(way, *given, **named)

    monkeypatch.setattr(measuring, "RemoteOperations", opening)
    monkeypatch.setattr(measuring, "backend", lambda _: registry.backend("fakery"))
    found = measuring.measured(budget=budget(4.0, 100.0))
    assert [one.name for one in found.devices] == ["fakery:0"] and found.rows
    (said,) = [one for one in found.omitted() if one.source == "broken:0"]
    assert said.op == "all" and "no answer" in said.why and said.points > 100
    monkeypatch.setattr(measuring, "choose", lambda *_: [("broken:0", "l4@cuda")])
    with pytest.raises(errors.DeviceNotPresentError, match="'broken:0' was found but does not open: .*no answer"):
        measuring.measured(budget=budget(2.0, 100.0))


def test_no_file_of_the_working_folder_is_run_by_the_process_of_a_device(
    fake: RemoteOperations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scenario may come in a folder with files that are called as modules are."""
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "json.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    (folder / "numpy.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    monkeypatch.chdir(folder)
    with contextlib.closing(RemoteOperations("fakery", 0)) as device:
        assert device.refusal("vector_add", columns(8)) is None
    assert not (tmp_path / "owned").exists()


def test_what_a_hung_driver_has_started_goes_with_it(fake: RemoteOperations) -> None:
    process = fake.process
    with pytest.raises(errors.DeviceHang):
        fake.trial("vector_add", columns(7)).run(1)
    wait_until(lambda: not _running(process))


def _running(group: int) -> list[str]:
    every = [p for p in Path("/proc").iterdir() if p.name.isdecimal()]
    return [p.name for p in every if _group(p) == group and not gone(int(p.name))]


def _group(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[2])
    except OSError:
        return -1


@pytest.mark.parametrize(("n", "how"), [(2, "SIGSEGV"), (4, "exit 3")])
def test_a_process_that_dies_is_a_device_that_is_lost_and_how_is_said(fake: RemoteOperations, n: int, how: str) -> None:
    trial = fake.trial("vector_add", columns(n))
    with pytest.raises(errors.DeviceLost, match=how):
        trial.run()
    with pytest.raises(errors.DeviceLost, match=how):
        trial.run()


def test_a_device_that_died_meanwhile_is_an_error_and_no_signal_to_who_asks(fake: RemoteOperations) -> None:
    """The command line leaves SIGPIPE as the system has it, so that `| head` ends it."""
    trial = fake.trial("vector_add", columns(100))
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.kill(fake.process, signal.SIGKILL)
        for _ in range(3):
            with pytest.raises(errors.DeviceLost, match="SIGKILL"):
                trial.run()
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_a_driver_that_chatters_is_understood_all_the_same(fake: RemoteOperations, capfd: Any) -> None:
    assert fake.trial("vector_add", columns(3)).run() == 1e-6
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_device_comes_with_its_api_and_code(fake: RemoteOperations) -> None:
    with pytest.raises(errors.DeviceLost) as caught:
        fake.trial("vector_add", columns(6)).run()
    assert (caught.value.api, caught.value.device, caught.value.problem) == ("cuda", "fake", "gone")
    assert fake.alive


def test_an_exception_that_nobody_expects_comes_with_its_trace(fake: RemoteOperations) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ZeroDivisionError.*as a driver would not.*fakery.backend\.py"):
        fake.trial("vector_add", columns(5)).run()


def test_a_device_that_is_not_there_is_no_child_that_stays() -> None:
    before = set(_children())
    with pytest.raises(errors.DeviceNotPresentError, match="cpu:9 not found"):
        RemoteOperations("cpu", 9)
    assert set(_children()) == before


def _children() -> list[str]:
    mine = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [child for child in mine if not gone(int(child))]


def test_closing_ends_the_process_and_closing_again_does_nothing(fake: RemoteOperations) -> None:
    process = fake.process
    fake.close()
    fake.close()
    assert gone(process)
    with pytest.raises(errors.InvalidArgument, match="was closed"):
        fake.trial("vector_add", columns(1))


def test_a_child_whose_parent_is_killed_goes_too(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom windtunnel.backends.discovery.remote import RemoteOperations\n"
        "r = RemoteOperations('cpu', 0)\nprint(r.process, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    child = int(done.stdout)
    wait_until(lambda: gone(child))


def test_every_limit_is_multiplied_by_the_factor_of_the_environment(
    fake: RemoteOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def wait(readable: list[int], _writable: object, _errors: object, left_s: float) -> object:
        waits.append(left_s)
        return [], [], []

    trial = fake.trial("vector_add", columns(1))
    monkeypatch.setattr(remote, "select", SimpleNamespace(select=wait))
    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: 5.0))
    monkeypatch.setenv("WINDTUNNEL_TIMEOUT_FACTOR", "7")
    with pytest.raises(errors.DeviceHang, match="no answer within 21 s"):
        trial.run(1, limit_s=3.0)
    assert waits == [21.0]
