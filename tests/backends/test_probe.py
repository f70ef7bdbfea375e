"""Probing drivers: whatever one does, the others are answered, the reason is kept, and no process is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from windtunnel.backends.discovery import probe as _probe
from windtunnel.backends.discovery import registry
from windtunnel.backends.discovery.probe import ProbeResult, forget, probe
from windtunnel.core.errors import InputError

Fake = Callable[..., str]


def none_is_left(folder: Path) -> bool:
    """Every process that left its number here has ended; one that nobody waits for yet counts as ended."""
    deadline = time.monotonic() + 120
    pids = [int(path.stem) for path in folder.glob("*.pid")]
    assert pids, "nobody left a number"
    while time.monotonic() < deadline:
        if not any(runs(pid) for pid in pids):
            return True
        time.sleep(0.01)
    return False


def runs(pid: int) -> bool:
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def one(name: str) -> ProbeResult:
    (found,) = probe([name])
    return found


@pytest.fixture
def limit_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    """``limit_reached(n)``: every time limit is exceeded once ``n`` processes have left their number, and not before."""

    def after(processes: int) -> None:
        def monotonic() -> float:
            return 0.0 if len(list(tmp_path.glob("*.pid"))) < processes else 1e9

        monkeypatch.setattr(_probe, "time", SimpleNamespace(monotonic=monotonic))

    return after


def test_a_driver_that_is_right_tells_its_devices(fake: Fake, tmp_path: Path) -> None:
    fake("right", "return [device(0, memory_bytes=1e9), device(1, label='another', software=True)]")
    found = one("right")
    assert found.present and found.why == "" and found.failure is None
    assert [(d.name, d.label, d.software, d.memory_bytes) for d in found.devices] == [
        ("right:0", "a card", False, 1e9),
        ("right:1", "another", True, 0.0),
    ]
    assert none_is_left(tmp_path)


@pytest.mark.parametrize(
    ("body", "failure", "said"),
    [
        ("time.sleep(1000)", "hung", "its driver did not answer in 600 s"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(1000)", "hung", "did not answer in 600 s"),
        ("os.kill(os.getpid(), signal.SIGSEGV)\ntime.sleep(9)", "crashed", "ended with SIGSEGV, without an answer"),
        ("os.abort()", "crashed", "SIGABRT"),
        ("os._exit(7)", "crashed", "ended with exit code 7"),
        ("os._exit(0)", "crashed", "ended with exit code 0, without an answer"),
        ("raise RuntimeError('no\\n  such luck')", "failed", "RuntimeError: no such luck"),
        ("raise ValueError", "failed", "ValueError"),
        ("sys.exit(3)", "failed", "SystemExit: 3"),
        ("import a_driver_nobody_has", "missing package", "the package 'a_driver_nobody_has' is not installed"),
        ("raise ImportError('libcard.so.1 is not here')", "missing package", "libcard.so.1 is not here"),
        ("return []", "absent", "its driver reports no device"),
        ("return [42]", "failed", "TypeError"),
        ("return [device(memory_bytes=float('nan'))]", "failed", "ValueError"),
        ("return [device(label=object())]", "failed", "TypeError"),
        ("return [device(label=7)]", "failed", "invalid answer from its driver"),
        ("return [device(backend='other')]", "failed", "invalid answer from its driver"),
    ],
)
def test_a_driver_that_is_not_right_is_not_present_for_a_reason(
    fake: Fake, tmp_path: Path, limit_reached: Callable[[int], None], body: str, failure: str, said: str
) -> None:
    fake("wrong", body, "timeout_s=20.0")
    if failure == "hung":
        limit_reached(1)
    found = one("wrong")
    assert not found.present and found.devices == ()
    assert (found.failure, said in found.why) == (failure, True), found.why
    assert none_is_left(tmp_path)


@pytest.mark.parametrize(
    "written",
    ["b'what is this\\n'", "b'\\xff\\x00\\n'", "b'42\\n'", "b'[]\\n'", "b'\"devices\"\\n'", "b'{}\\n'",
     "b'{\"devices\": 1}\\n'", "b'{\"devices\": [{}]}\\n'", "b'{\"failure\": \"odd\", \"why\": \"\"}\\n'",
     "b'[' * 100_000 + b'\\n'", "b'x' * 3_000_000"],
)  # fmt: skip
def test_garbage_on_the_descriptor_is_no_answer(fake: Fake, tmp_path: Path, written: str) -> None:
    fake(
        "garbage",
        f"""
        text = {written}
        while text:
            text = text[os.write(json.loads(sys.argv[1])["descriptor"], text):]
        return [device()]
        """,
    )
    found = one("garbage")
    assert not found.present and found.failure == "failed" and "invalid answer from its driver" in found.why
    assert len(found.why) < 400
    assert none_is_left(tmp_path)


def test_garbage_without_end_is_not_read_to_its_end(fake: Fake, tmp_path: Path) -> None:
    fake(
        "endless",
        """
        while True:
            os.write(json.loads(sys.argv[1])["descriptor"], b"x" * 1000)
        """,
        "timeout_s=20.0",
    )
    assert one("endless").failure == "failed"  # and not hung
    assert none_is_left(tmp_path)


def test_megabytes_of_chatter_go_nowhere_and_do_not_hold_up_the_answer(
    fake: Fake, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake(
        "chatters",
        """
        for _ in range(64):
            os.write(1, b"warning: " * 10_000)
            os.write(2, b"error: " * 10_000)
        print("and so on", flush=True)
        assert sys.stdin.read() == ""
        return [device()]
        """,
    )
    assert one("chatters").present
    assert capfd.readouterr() == ("", "")
    assert none_is_left(tmp_path)


STAYS = """
if os.fork() == 0:
    leave_pid()
    time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("then", "failure"),
    [("return [device()]", None), ("os._exit(5)", "crashed"), ("time.sleep(1000)", "hung"), ("1 / 0", "failed")],
)
def test_a_process_that_the_driver_leaves_with_the_descriptor_is_not_waited_for_and_ends_too(
    fake: Fake, tmp_path: Path, limit_reached: Callable[[int], None], then: str, failure: str | None
) -> None:
    fake("stays", f"{STAYS}\nwhile len(list(HERE.glob('*.pid'))) < 2: time.sleep(0.01)\n{then}", "timeout_s=20.0")
    if failure == "hung":
        limit_reached(2)
    found = one("stays")
    assert found.failure == failure and found.present == (failure is None)
    assert len(list(tmp_path.glob("*.pid"))) == 2
    assert none_is_left(tmp_path)


def test_drivers_are_asked_at_once_and_one_that_fails_takes_none_with_it(fake: Fake, tmp_path: Path) -> None:
    meet = "while len(list(HERE.glob('*.pid'))) < 4: time.sleep(0.01)\n"
    names = ["meets_a", "meets_b", "meets_c"]
    for name in names:
        fake(name, f"{meet}return [device()]", "timeout_s=60.0")
    fake("dies", f"{meet}os.abort()", "timeout_s=60.0")
    found = probe(["dies", *names])
    assert [(p.name, p.present) for p in found] == [("dies", False), *((name, True) for name in names)]
    assert [p.name for p in probe()] == ["dies", *names]


def test_a_back_end_whose_files_are_not_here_is_not_asked(fake: Fake, tmp_path: Path) -> None:
    fake("nowhere", "return [device()]", "present=lambda: False")
    fake("unsure", "return [device()]", "present=lambda: Path('/nobody/has/this').read_text()")
    nowhere, unsure = probe(["nowhere", "unsure"])
    assert (nowhere.failure, unsure.failure) == ("absent", "failed")
    assert "no package, driver or device file was found" in nowhere.why and "FileNotFoundError" in unsure.why
    assert not list(tmp_path.glob("*.pid"))


def test_a_back_end_whose_package_is_not_installed_is_not_asked_either(fake: Fake, tmp_path: Path) -> None:
    fake("lacks", "return [device()]", "packages=('json', 'a_driver_nobody_has')")
    fake("has", "return [device()]", "packages=('json',)")
    lacks, has = probe(["lacks", "has"])
    assert (lacks.failure, lacks.why) == (
        "missing package",
        "the package 'a_driver_nobody_has' is not installed",
    )
    assert has.present and len(list(tmp_path.glob("*.pid"))) == 1


def test_a_driver_is_asked_once_until_that_is_forgotten(fake: Fake, tmp_path: Path) -> None:
    fake("counted", "return [device()]")
    assert one("counted") is one("counted")
    assert len(list(tmp_path.glob("*.pid"))) == 1
    forget()
    assert one("counted").present
    assert len(list(tmp_path.glob("*.pid"))) == 2


def test_an_unknown_name_is_an_input_error_and_nobody_is_asked(fake: Fake, tmp_path: Path) -> None:
    fake("opencl", "return [device()]")
    with pytest.raises(InputError, match="unknown back end 'opencll'.*did you mean 'opencl'"):
        probe(["opencl", "opencll"])
    assert not list(tmp_path.glob("*.pid"))


TELLS = "return [device(label=json.dumps(dict(os.environ)), vendor=str(Path(os.environ['XDG_RUNTIME_DIR']).is_dir()))]"


def test_only_a_missing_runtime_folder_is_added_to_the_environment(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("tells", TELLS)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (device,) = one("tells").devices
    told = json.loads(device.label)
    made = told.pop("XDG_RUNTIME_DIR")
    told.pop("LC_CTYPE", None)  # Python's own, where no locale is set
    expected = dict(os.environ)
    expected.pop("LC_CTYPE", None)
    assert told == expected
    assert device.vendor == "True" and not Path(made).exists() and "XDG_RUNTIME_DIR" not in os.environ


def test_a_runtime_folder_that_is_set_stays(fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake("tells", TELLS)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (device,) = one("tells").devices
    assert json.loads(device.label)["XDG_RUNTIME_DIR"] == str(tmp_path) and tmp_path.is_dir()


def test_a_driver_that_crashes_leaves_no_core_file(fake: Fake) -> None:
    fake("limited", "import resource\nreturn [device(label=str(resource.getrlimit(resource.RLIMIT_CORE)))]")
    assert one("limited").devices[0].label == "(0, 0)"


def test_folders_of_modules_that_are_no_text_are_left_out(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("right", "return [device()]")
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nobody/has/this")])
    assert one("right").present


def test_the_page_on_real_devices_has_every_back_end(root: Path) -> None:
    page = (root / "docs" / "real-devices.md").read_text()
    assert [name for name in registry.names() if f"| `{name}` |" not in page] == []


def test_files_of_the_working_directory_are_not_taken_for_modules(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake("looks", "import a_driver_nobody_has\nreturn [device()]")
    (tmp_path / "a_driver_nobody_has.py").touch()
    (tmp_path / "json.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(tmp_path)
    assert one("looks").failure == "missing package"
    monkeypatch.syspath_prepend(tmp_path)  # what the asking process can import, it can
    (tmp_path / "json.py").unlink()
    forget()
    assert one("looks").present


def test_an_interrupt_while_waiting_leaves_no_process(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("sleeps_a", "sleeps_b"):
        fake(name, "time.sleep(1000)", "timeout_s=60.0")
    update = _probe._Child.update

    def interrupted(child: _probe._Child) -> None:
        update(child)
        if len(list(tmp_path.glob("*.pid"))) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(_probe._Child, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        probe()
    assert none_is_left(tmp_path)


def test_no_interpreter_to_start_is_a_failure_in_words(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("right", "return [device()]")
    monkeypatch.setattr(sys, "executable", "/nobody/has/python")
    found = one("right")
    assert found.failure == "failed" and "could not be started" in found.why


def test_no_descriptor_stays_open(fake: Fake, limit_reached: Callable[[int], None]) -> None:
    for name, body in (("fine", "return [device()]"), ("dies", "os.abort()"), ("hangs", "time.sleep(1000)")):
        fake(name, body, "timeout_s=20.0")
    before = {path.name for path in Path("/dev/fd").iterdir()}
    assert (one("fine").failure, one("dies").failure) == (None, "crashed")
    limit_reached(3)
    assert one("hangs").failure == "hung"
    assert {path.name for path in Path("/dev/fd").iterdir()} == before


ALWAYS = ("cpu", "fpga", "offload", "opencl", "vulkan", "wgpu")
"""What the machines that run these tests have to have."""
DRIVERS = ["cupy", "pyopencl", "wgpu", "vulkan", "jax", "torch", "pynvml", "cuda"]


HEAVY = ["numpy", "numba", "scipy", "ml_dtypes", "windtunnel.core.ops", "windtunnel.language", "windtunnel.codegen"]
"""What operations and programs are made with: finding a device does not wait for it."""
IN_NUMPY = ("cuda", "hip", "opencl", "tpu")
"""Back ends whose driver's package imports NumPy itself."""


def test_asking_imports_no_driver_and_what_probes_waits_for_no_numpy() -> None:
    code = (
        "import sys, windtunnel.backends.discovery.probe, windtunnel.backends.discovery.probe_child, windtunnel.backends.common.system\n"
        "from windtunnel.backends.discovery.registry import backends\n"
        "assert backends(), 'there are back ends'\n"
        f"print([name for name in {DRIVERS + HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("name", registry.names())
def test_a_process_that_asks_a_driver_imports_nothing_that_finding_a_device_does_not_need(name: str) -> None:
    heavy = [one for one in HEAVY if not (name in IN_NUMPY and one in ("numpy", "ml_dtypes", "scipy"))]
    code = (
        "import json, sys\n"
        "from windtunnel.backends.discovery.probe_child import _result\n"
        f"result = _result({name!r})\n"
        f"print(json.dumps([[one for one in {heavy} if one in sys.modules], 'devices' in result]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported, found = json.loads(done.stdout)
    assert imported == [] and (found or name not in ALWAYS)


def test_the_command_that_lists_real_devices_imports_nothing_that_is_for_more() -> None:
    code = (
        "import sys\nfrom windtunnel.cli.main import cli\n"
        "cli(['devices', '--real', '--format', 'json'], standalone_mode=False)\n"
        f"print([name for name in {DRIVERS + HEAVY + ['windtunnel.app.run', 'windtunnel.simulation.run']} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert {row["backend"] for row in json.loads(done.stdout)} >= set(ALWAYS)


def test_every_back_end_says_what_a_person_needs_and_is_asked_without_noise(capfd: pytest.CaptureFixture[str]) -> None:
    for backend in registry.backends():
        assert backend.description and backend.install and backend.timeout_s > 0
    for found in probe():
        assert found.present or (found.why and found.failure), found
        assert [device.index for device in found.devices] == list(range(len(found.devices)))
    assert capfd.readouterr() == ("", "")
