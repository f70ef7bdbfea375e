"""Kernels from a file: reloaded completely or not at all, all versions kept, running work keeps its version."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windtunnel
from windtunnel.core import errors
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.reload import KernelFile, ReloadError, _difference

KNOWN = windtunnel.catalogue()
FILE = """\
import windtunnel

FACTOR = {factor}

@windtunnel.kernel(work=lambda a, b: {{"op": "kernel", "threads": a.size, "bytes": {bytes} * a.size}})
def scale(a, b):
    b[...] = FACTOR * a
"""
A = np.arange(1000, dtype=np.float32)


def device(name: str = "l4") -> Accelerator:
    return windtunnel.device(name, catalogue=KNOWN)


def scaled(accelerator: Accelerator, kernel: Kernel) -> np.ndarray:
    return accelerator.compute(kernel, A)


def text(factor: float = 2, size: int = 8) -> str:
    return FILE.format(factor=factor, bytes=size)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "kernels.py"
    found.write_text(text(2))
    return found


def test_a_changed_file_is_compiled_and_swapped_and_every_version_is_kept(path: Path) -> None:
    accelerator = device()
    kernels = KernelFile(path, accelerator)
    assert kernels.check() is None and accelerator.clock_s == 0.0
    assert (scaled(accelerator, kernels["scale"]) == 2 * A).all()
    before_s = accelerator.clock_s
    path.write_text(text(3))
    version = kernels.check()
    assert version is kernels.current and version.number == 2 and version.source == text(3)
    compile_s = accelerator.clock_s - before_s
    assert compile_s == pytest.approx(KNOWN.device("l4").api.values["compile_s"].value)
    assert version.loaded_s == accelerator.clock_s
    before_s = accelerator.clock_s
    assert (scaled(accelerator, kernels["scale"]) == 3 * A).all()
    assert accelerator.clock_s - before_s < compile_s / 10  # compiled once, at the check
    assert (scaled(accelerator, kernels.kernel("scale", 1)) == 2 * A).all()
    assert [v.number for v in kernels.versions] == [1, 2] and kernels.versions[0].source == text(2)
    assert kernels.check() is None


def test_a_change_is_seen_by_content_and_not_by_the_files_time(path: Path) -> None:
    kernels = KernelFile(path)
    before = path.stat()
    path.write_text(text(7))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert kernels.check() is not None
    os.utime(path)
    assert kernels.check() is None and len(kernels.versions) == 2
    path.write_text(text(2))  # back again: a version of its own, since the one before was in service meanwhile
    version = kernels.check()
    assert version is not None and version.number == 3 and version.digest == kernels.versions[0].digest


def test_what_is_under_way_keeps_its_version(path: Path) -> None:
    accelerator = device()
    kernels = KernelFile(path, accelerator)
    a, b = accelerator.to_device(A), accelerator.empty(A.shape)
    sizes = accelerator.configuration(A.size)
    with accelerator.capture() as graph:
        accelerator.launch(kernels["scale"], *sizes, a, b)
    compiled, held = graph.compile(), kernels["scale"]
    path.write_text(text(3))
    kernels.check()
    compiled.replay()
    assert (accelerator.to_host(b) == 2 * A).all()
    accelerator.launch(held, *sizes, a, b)
    assert (accelerator.to_host(b) == 2 * A).all()
    accelerator.launch(kernels["scale"], *sizes, a, b)
    assert (accelerator.to_host(b) == 3 * A).all()


WRONG = {
    "syntax": (text(2) + "def broken(:\n", 8, r"cannot be run: SyntaxError"),
    "raises": (text(2) + "\n\nprint(missing)\n", 10, "cannot be run: NameError: name 'missing'"),
    "exits": (text(2) + "raise SystemExit(3)\n", 8, "cannot be run: SystemExit: 3"),
    "deep": (text(2) + "def f():\n    return 1 / 0\nf()\n", 9, "ZeroDivisionError"),
    "empty": ("", None, "the file has no kernel; expected a function under @windtunnel.kernel"),
    "renamed": (
        text(2).replace("def scale", "def scales"),
        None,
        "the kernel 'scale' was removed; .*did you mean 'scales'",
    ),
    "imported": ("from windtunnel.runtime.kernels import kernel\nscale = 3\n", None, "the file has no kernel"),
    "signature": (text(2).replace("(a, b):", "(a, b, c):"), 5, r"'scale' takes \(a, b, c\) instead of \(a, b\)"),
    "default": (text(2).replace("(a, b):", "(a, b=None):"), 5, r"takes \(a, b=Ellipsis\) instead of"),
    "null": ("\0", None, "cannot be run"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_cannot_be_used_changes_nothing_and_says_where(path: Path, wrong: str) -> None:
    content, line, said = WRONG[wrong]
    accelerator = device()
    kernels = KernelFile(path, accelerator)
    held = kernels["scale"]
    path.write_text(content)
    for _ in range(2):  # each time, until it is mended
        with pytest.raises(ReloadError, match=said) as raised:
            kernels.check()
        where = raised.value.where
        assert where.file == str(path) and (line is None or where.line == line), str(raised.value)
    assert kernels["scale"] is held and len(kernels.versions) == 1 and accelerator.clock_s == 0.0
    path.write_text(text(5))
    assert kernels.check() is not None and (scaled(accelerator, kernels["scale"]) == 5 * A).all()


def test_kernels_that_a_file_imports_are_not_its_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent / "elsewhere_of_reload.py").write_text(text(9))
    monkeypatch.syspath_prepend(path.parent)
    path.write_text("from elsewhere_of_reload import scale\n\n" + text(2).replace("def scale", "def own"))
    assert list(KernelFile(path).current.kernels) == ["own"]


def test_a_wrong_file_is_run_once_and_not_at_every_check(path: Path, tmp_path: Path) -> None:
    kernels = KernelFile(path)
    marks = tmp_path / "marks"
    path.write_text(f"with open({str(marks)!r}, 'a') as f:\n    f.write('x')\nraise ValueError\n")
    for _ in range(3):
        with pytest.raises(ReloadError):
            kernels.check()
    assert marks.read_text() == "x"


def test_a_file_that_vanished_is_an_error_until_it_is_back(path: Path) -> None:
    kernels = KernelFile(path)
    path.unlink()
    for _ in range(2):
        with pytest.raises(ReloadError, match=r"kernels.py: there is no such kernel file; expected the file there"):
            kernels.check()
    assert (scaled(device(), kernels["scale"]) == 2 * A).all()
    path.write_text(text(2))
    assert kernels.check() is None
    with pytest.raises(ReloadError, match="there is no such kernel file"):
        KernelFile(path.parent / "none.py")


def test_where_it_does_not_compile_for_one_device_the_old_version_stays_for_all(path: Path) -> None:
    one, other = device(), device("h100-sxm-80gb")
    kernels = KernelFile(path, one, other)
    held = kernels["scale"]
    with other.faults("device_lost"), pytest.raises(errors.DeviceLost):
        other.empty(3)
    path.write_text(text(3))
    with pytest.raises(errors.DeviceLost):
        kernels.check()
    assert kernels["scale"] is held and len(kernels.versions) == 1
    other.reset()
    version = kernels.check()
    assert version is not None and version.number == 2


def test_new_kernels_and_new_defaults_and_annotations_are_no_change_to_what_was_there(path: Path) -> None:
    path.write_text(text(2).replace("(a, b):", "(a, b, by=1):"))
    kernels = KernelFile(path)
    more = "\n@windtunnel.kernel\ndef more(a):\n    a += 1\n"
    path.write_text(text(2).replace("(a, b):", "(a: 'array', b, by=2) -> None:") + more)
    version = kernels.check()
    assert version is not None and sorted(version.kernels) == ["more", "scale"]
    with pytest.raises(errors.InputError, match="no kernel 'mor'; expected one of scale, more; did you mean 'more'"):
        kernels["mor"]
    with pytest.raises(errors.InputError, match="no kernel 'more'"):
        kernels.kernel("more", 1)
    for number in (0, 3):
        with pytest.raises(errors.InputError, match=f"no version {number}; expected 1 to 2"):
            kernels.kernel("scale", number)


@pytest.mark.parametrize("name", ["l4", "apple-m1", "epyc-9654"])
def test_the_time_to_the_first_result_is_to_notice_to_compile_and_to_run(path: Path, name: str) -> None:
    kernels = KernelFile(path)
    path.write_text(text(3))
    kernels.check()
    found = kernels.first_result("scale", lambda: device(name), scaled, poll_s=0.25)
    fresh = device(name)
    scaled(fresh, kernels["scale"])
    fresh.synchronize()
    assert found.compile_s == pytest.approx(KNOWN.device(name).api.values["compile_s"].value, abs=1e-12)
    assert found.run_s == pytest.approx(fresh.clock_s, rel=1e-9)
    assert found.total_s == pytest.approx(0.25 + found.compile_s + found.run_s)
    assert (found.output == 3 * A).all() and found.version.number == 2 and found.wall_s > 0
    with pytest.raises(errors.InputError, match="checks every -1"):
        kernels.first_result("scale", device, scaled, poll_s=-1)


def test_two_versions_are_run_side_by_side_each_on_a_device_of_its_own(path: Path) -> None:
    kernels = KernelFile(path)
    path.write_text(text(2.5, size=8_000_000))
    kernels.check()
    opened: list[Accelerator] = []

    def on() -> Accelerator:
        opened.append(device())
        return opened[-1]

    found = kernels.compare("scale", 1, 2, on, scaled)
    assert len(opened) == 2 and [run.version.number for run in (found.baseline, found.candidate)] == [1, 2]
    assert found.max_abs_difference == pytest.approx(0.5 * 999)
    more_s = [
        float(windtunnel.predict("kernel", "l4", {"threads": 1000, "bytes": b}).duration_s) for b in (8_000, 8 * 10**9)
    ]
    assert found.candidate.run_s - found.baseline.run_s == pytest.approx(more_s[1] - more_s[0], rel=1e-9)
    assert found.candidate.energy_j > found.baseline.energy_j > 0
    same = kernels.compare("scale", 2, 2, on, scaled)
    assert same.max_abs_difference == 0.0 and same.baseline.run_s == same.candidate.run_s
    with pytest.raises(errors.InputError, match=r"returns \(2,\) in version 1 and \(3,\) in version 2"):
        kernels.compare("scale", 1, 2, on, lambda d, k: np.zeros(2 if k is kernels.kernel("scale", 1) else 3))


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ([1.0, np.nan], [1.5, np.nan], 0.5),
        ([np.nan], [1.0], np.inf),
        ([np.inf, 1.0], [np.inf, 1.0], 0.0),
        ([np.inf], [-np.inf], np.inf),
        ([], [], 0.0),
        (np.array([0], np.uint8), np.array([255], np.uint8), 255.0),
        ([True], [False], 1.0),
        ([3 + 4j], [0j], 5.0),
    ],
)
def test_differences_are_told_whatever_the_numbers_are(one: Any, other: Any, apart: float) -> None:
    assert _difference(np.asarray(one), np.asarray(other)) == apart


@given(st.lists(st.sampled_from(["good", "same", "syntax", "renamed", "signature", "gone"]), max_size=8))
def test_whatever_happens_to_the_file_the_version_in_service_is_the_last_good_one(
    tmp_path_factory: pytest.TempPathFactory, changes: list[str]
) -> None:
    path = tmp_path_factory.mktemp("reload") / "kernels.py"
    path.write_text(text(1))
    kernels, factor, versions = KernelFile(path), 1, 1
    for change in changes:
        if change == "gone":
            path.unlink(missing_ok=True)
        elif change == "good":
            factor += 1
            versions += 1
            path.write_text(text(factor))
        elif change == "same":
            path.write_text(text(factor))
        else:
            path.write_text(WRONG[change][0])
        if change in ("good", "same"):
            assert (kernels.check() is not None) == (change == "good")
        else:
            with pytest.raises(ReloadError):
                kernels.check()
        out = np.empty(3)
        kernels["scale"](np.ones(3), out)
        assert (out == factor).all() and len(kernels.versions) == versions == kernels.current.number


def test_a_watcher_tells_of_versions_and_of_each_error_once(path: Path) -> None:
    kernels = KernelFile(path)

    async def program() -> list[str]:
        told = []
        path.write_text(text(3))
        async for event in kernels.watch(poll_s=0.001):
            told.append(type(event).__name__)
            if len(told) == 1:
                path.write_text("def (")
            elif len(told) == 2:
                await asyncio.sleep(0.01)
                asyncio.get_running_loop().call_later(0.02, path.write_text, text(4))
            else:
                return told
        return told

    assert asyncio.run(program()) == ["Version", "ReloadError", "Version"]
