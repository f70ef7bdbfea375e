"""`windtunnel emulate` and `pytest --emulate numba`: exit codes, devices, budgets, findings, and examples.

``numba.cuda`` is replaced in a whole process, so each test runs processes of its own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from windtunnel import pytest_plugin

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "numba"
KERNEL = """
import sys
import numpy as np
from numba import cuda
from numba.core import config

@cuda.jit
def double(a):
    i = cuda.grid(1)
    a[i] *= 2
"""


def emulate(*arguments: str | Path, cwd: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "windtunnel", "emulate", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
    return done


def test_a_program_keeps_its_output_its_arguments_and_its_status(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        KERNEL + "a = np.ones(32)\ndouble[1, 32](a)\nprint(sys.argv[1:], a.sum(), config.ENABLE_CUDASIM, __name__)\n"
        "print(cuda.get_current_device().name.decode(), cuda.implementation)\nsys.exit(3)\n"
    )
    done = emulate("--device", "l4", program, "--device", "x", cwd=tmp_path, expect=3)
    assert done.stdout.splitlines() == ["['--device', 'x'] 64.0 0 __main__", "l4 Windtunnel"]
    warned = re.findall(r"^(\S+): NumbaPerformanceWarning", done.stderr, re.M)
    assert warned == [f"{program}:12"] * 2, done.stderr  # of the grid, and of the host's array


def test_signals_do_to_a_program_and_its_forks_what_they_do_without_windtunnel(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal\n\n\ndef ended(number):\n    child = os.fork()\n    if child == 0:\n        try:\n"
        "            signal.raise_signal(number)\n        finally:\n            os._exit(7)\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n\n\n"
        "print(ended(signal.SIGTERM), ended(signal.SIGALRM), ended(signal.SIGPIPE), flush=True)\n"
        "signal.raise_signal(signal.SIGALRM)\n"
    )
    done = emulate(program, cwd=tmp_path, expect=-signal.SIGALRM)
    assert done.stdout == f"{-signal.SIGTERM} {-signal.SIGALRM} 7\n"  # Python ignores the signal of a closed pipe


FORKS = """
import os


def in_a_fork(call):
    child = os.fork()
    if child == 0:
        try:
            call()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refused():
    for call in (array.copy_to_host, cuda.synchronize, lambda: cuda.device_array(3), lambda: double[1, 4](array)):
        try:
            call()
        except cuda.cudadrv.error.CudaDriverError as error:
            assert str(error) == "CUDA initialized before forking"
        else:
            os._exit(7)


if __name__ == "__main__":
    print(in_a_fork(lambda: double[1, 4](np.ones(4))), in_a_fork(lambda: double[1, 5](np.ones(4))))
    array = cuda.to_device(np.ones(4))
    print(in_a_fork(refused), in_a_fork(lambda: None), sys.argv[1:], __spec__.name, flush=True)
    try:
        double[1, 6](array)
    finally:
        os._exit(0)
"""


def test_forks_that_use_cuda_first_are_emulated_and_leaving_at_once_hides_no_finding(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__main__.py").write_text(KERNEL + FORKS)
    done = emulate("-m", "package", "-x", cwd=tmp_path, expect=1)
    assert done.stdout.splitlines() == ["0 1", "0 0 ['-x'] package.__main__"]
    said = [line.partition(" is out of bounds")[0] for line in done.stderr.splitlines() if "OutOfBounds" in line]
    found = "OutOfBounds: double on h100-sxm-80gb: index"
    wanted = [f"windtunnel: {found} 4", f"windtunnel: {found} 4", f"windtunnel: in a child process: {found} 4"]
    assert said == wanted, done.stderr
    assert "there is no module 'absent.part'" in emulate("-m", "absent.part", cwd=tmp_path, expect=2).stderr


EXECUTES = """
import os

try:
    double[1, 4 + len(sys.argv)](np.ones(4))
except Exception:
    pass
if sys.argv[1:] == ["interrupted"]:
    raise KeyboardInterrupt
if sys.argv[1:] != ["again"]:
    print("first", flush=True)
    os.execl(sys.executable, sys.executable, *sys.argv, "again")
print("second")
sys.exit(5)
"""


def test_a_program_that_replaces_or_interrupts_itself_hides_no_finding(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + EXECUTES)
    done = emulate(program, cwd=tmp_path, expect=1)
    assert done.stdout.splitlines() == ["first", "second"]
    said = [line.partition("index")[0] for line in done.stderr.splitlines() if "OutOfBounds" in line]
    found = "OutOfBounds: double on h100-sxm-80gb: "
    assert said == [f"windtunnel: {found}", f"windtunnel: in a child process: {found}"], done.stderr
    assert "OutOfBounds" in emulate(program, "interrupted", cwd=tmp_path, expect=130).stderr


def test_a_module_that_only_a_finder_of_an_editable_installation_knows_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "elsewhere.py"
    source.write_text("print(__name__, __spec__.name)\n")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfrom importlib.util import spec_from_file_location\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        return spec_from_file_location(name, {str(source)!r}) if name == 'mylib' else None\n"
        "sys.meta_path.append(Finder)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert emulate("-m", "mylib", cwd=tmp_path).stdout == "__main__ mylib\n"


def test_a_worker_of_xdist_that_takes_warnings_as_errors_runs_tests(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--emulate", "cupy", "-n", "1", "-W"]
    done = subprocess.run([*command, "error"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("double[1, 40](np.ones(32))\n", 1, "OutOfBounds: double on h100-sxm-80gb: index 32 is out of bounds"),
        ("try:\n    double[1, 40](np.ones(32))\nexcept Exception:\n    pass\nsys.exit(0)\n", 1, "OutOfBounds"),
        ("raise ValueError('of the program')\n", 1, "ValueError: of the program"),
        ("import numba.cuda.codegen\n", 1, "numba.cuda.codegen is not part of Windtunnel's numba.cuda"),
    ],
)
def test_findings_and_errors_give_exit_code_1(tmp_path: Path, ending: str, status: int, said: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + ending)
    done = emulate(program, cwd=tmp_path, expect=status)
    assert done.stderr.count(said) == 1 and "windtunnel/emulator" not in done.stderr


def test_a_wrong_device_or_file_gives_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(KERNEL)
    assert "did you mean 'l4'?" in emulate("--device", "l44", "program.py", cwd=tmp_path, expect=2).stderr
    assert "there is no file 'absent.py'" in emulate("absent.py", cwd=tmp_path, expect=2).stderr


def test_the_examples_are_as_their_texts_say(tmp_path: Path) -> None:
    assert emulate(EXAMPLES / "heat.py", cwd=tmp_path).stdout.startswith("the middle of the second row is at 75.52\n")
    assert emulate(EXAMPLES / "histogram.py", cwd=tmp_path).stdout.count("\n") == 16
    race = emulate(EXAMPLES / "forgotten_barrier.py", cwd=tmp_path, expect=1).stderr
    assert "DataRace: total on h100-sxm-80gb: data race on element 32 of 'held'" in race
    assert emulate(EXAMPLES / "forgotten_barrier.py", "mended", cwd=tmp_path).stdout == "the sum is 130816\n"


TESTS = (
    KERNEL
    + """
import pytest

def test_numbers():
    a = np.arange(8.0)
    double[1, 8](a)
    assert (a == 2 * np.arange(8)).all()

@pytest.mark.accelerator("l4", "t4", time_s=1, launches=1)
def test_within_budget():
    double[1, 8](np.ones(8))
    assert cuda.get_current_device().name.decode() in ("l4", "t4")

@pytest.mark.accelerator(launches=1, time_s=1)
def test_over_budget():
    double[1, 8](np.ones(8))
    double[1, 8](np.ones(8))

def test_finding():
    double[1, 9](np.ones(8))


@pytest.mark.accelerator(launchs=3)
def test_unknown_option():
    pass


import pickle
from windtunnel import errors
from numba.cuda.cudadrv.driver import CudaAPIError


def test_fixture(accelerator):
    with accelerator.expect(launches=1), accelerator.profile() as profile:
        double[1, 8](np.ones(8))
    assert [launch.name for launch in profile.launches] == ["double"]
    with accelerator.faults({"kind": "out_of_memory", "call": 1}), pytest.raises(CudaAPIError):
        cuda.to_device(np.ones(3))
    for fault, kind, code, name in (
        ("launch_failure", errors.LaunchError, 701, "cuLaunchKernel results in CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        ("copy_failure", errors.CopyError, 999, "cuMemcpyHtoD results in CUDA_ERROR_UNKNOWN"),
        ({"kind": "ecc", "on": "copy_out"}, errors.EccError, 214, "cuMemcpyDtoH results in CUDA_ERROR_ECC_UNCORRECTABLE"),
        ("device_lost", errors.DeviceLost, 46, "cuMemAlloc results in CUDA_ERROR_DEVICE_UNAVAILABLE"),
        ("hang", errors.DeviceHang, 702, "cuCtxSynchronize results in CUDA_ERROR_LAUNCH_TIMEOUT"),
    ):
        with accelerator.faults(fault), pytest.raises(CudaAPIError) as raised:
            double[1, 8](np.ones(8))
            cuda.synchronize()
        assert isinstance(raised.value, kind) and raised.value.code == code and name in raised.value.msg
        accelerator.reset()
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_fault_that_is_left_armed(accelerator):
    accelerator.faults({"kind": "out_of_memory", "call": 2}).__enter__()


def test_after_it():
    cuda.to_device(np.ones(3)), cuda.to_device(np.ones(3))


@pytest.mark.accelerator(faults={"kind": "slow_copy", "factor": 2, "call": 1}, schedules=2, strict=True)
def test_orders(request):
    kernels = request.getfixturevalue("accelerator").context.kernels
    assert kernels.strict and kernels.schedule == request.node.callspec.params["emulated_program"].schedule
    double[1, 8](np.ones(8))


@pytest.mark.accelerator("l4", faults="hang")
def test_fault_that_does_not_occur(accelerator):
    assert cuda.get_current_device().name.decode() == accelerator.name == "l4"


def test_caught_finding():
    try:
        double[1, 10](np.ones(8))
    except Exception:
        pass


@pytest.mark.accelerator(findings="ignore")
def test_accepted_finding(accelerator):
    assert accelerator.context.kernels.schedule is None and not accelerator.context.kernels.strict
    with pytest.raises(errors.OutOfBounds):
        double[1, 10](np.ones(8))
    test_caught_finding()


def test_expected_finding(accelerator):
    with pytest.raises(Exception):
        double[1, 10](np.ones(8))
    with pytest.raises(errors.UninitializedRead):
        cuda.device_array(8).copy_to_host()


@cuda.jit
def number(records):
    records[cuda.grid(1)].place = cuda.grid(1)


def test_what_is_written_in_part_is_read_back():
    array = cuda.device_array((2, 4))
    array[1, 2:] = 3
    assert np.isnan(array.copy_to_host()).sum() == 6 and array[1, 2] == 3
    with pytest.raises(errors.UninitializedRead):
        array[0].copy_to_host()
    records = cuda.device_array(4, np.dtype([("place", np.int32), ("other", np.float32)]))
    number[1, 4](records)
    assert (records.copy_to_host()["place"] == range(4)).all()
    result = np.zeros(4)
    with pytest.raises(errors.UninitializedRead):
        double[1, 4](cuda.Out(result))


@pytest.mark.xfail(raises=errors.OutOfBounds, strict=True)
def test_known_finding():
    double[1, 9](np.ones(8))


@pytest.fixture
def broken():
    double[1, 9](np.ones(8))


def test_broken_fixture(broken):
    pass


@pytest.fixture(scope="module")
def prepared():
    test_caught_finding()


def test_hiding_fixture(prepared):
    pass


def test_hiding_child_process():
    import subprocess
    subprocess.run([sys.executable, "-c", "import test_kernels as t; t.test_caught_finding()"], check=True)


from multiprocessing import get_context
from concurrent.futures import ProcessPoolExecutor


def test_expected_finding_of_a_child():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(errors.OutOfBounds, match="index 8"):
        pool.submit(test_finding).result()


@pytest.mark.xfail(strict=True)
def test_known_finding_of_a_child():
    child = get_context("spawn").Process(target=test_caught_finding)
    child.start()
    child.join()
"""
)


def test_pytest_emulates_and_checks_budgets_and_reports_findings(tmp_path: Path) -> None:
    (tmp_path / "test_kernels.py").write_text(TESTS)
    page = (EXAMPLES.parents[1] / "testing.md").read_text()
    for kind, name in (("python", "test_memory.py"), ("python", "test_bounds.py"), ("toml", "pyproject.toml")):
        (tmp_path / name).write_text(page.partition(f"```{kind} {name}\n")[2].partition("```")[0])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert re.search(r"^5 failed, 15 passed, 2 xfailed.* 3 errors", done.stdout, re.M), done.stdout
    assert "launches 2 (limit 1)" in done.stdout and "index 8 is out of bounds for 'a' of 8 elements" in done.stdout
    assert "windtunnel/emulator" not in done.stdout
    assert "NumbaPerformanceWarning" not in done.stdout.partition("warnings summary")[2]
    assert "does not take 'launchs'" in done.stdout and "did you mean 'launches'?" in done.stdout
    for name in ("test_orders[h100-sxm-80gb-schedule1]", "test_fixture[h100-sxm-80gb]", "test_accepted_finding"):
        assert f"PASSED test_kernels.py::{name}" in done.stdout
    assert "the test catches a finding" in done.stdout and "OutOfBounds: double on h100-sxm-80gb" in done.stdout
    assert "never occurred: hang" in done.stdout
    assert "test_fault_that_is_left_armed[h100-sxm-80gb] ends with faults armed (out_of_memory call=2" in done.stdout
    assert (
        "\nin a child process: OutOfBounds: double on h100-sxm-80gb" in done.stdout
        and "ERROR at teardown of test_broken" not in done.stdout
    )
    listed = subprocess.run(
        [*command, "--accelerator-schedules", "3", "--collect-only"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "test_numbers[h100-sxm-80gb-schedule2]" in listed.stdout
    wrong = subprocess.run([*command, "--emulate", "numbba"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert wrong.returncode == 4 and "did you mean 'numba'?" in wrong.stderr


def test_a_budget_and_a_device_of_a_marker_are_told_once_with_the_marker_s_line(tmp_path: Path) -> None:
    text = (
        KERNEL
        + """
import pytest

@pytest.mark.parametrize("n", [8])
@pytest.mark.accelerator("l4", launches=0)
def test_over(n):
    double[1, n](np.ones(n))

@pytest.mark.accelerator("l4", time_s="fast")
def test_wrong():
    pass

@pytest.mark.accelerator("h1000")
def test_device():
    pass
"""
    )
    (tmp_path / "test_kernels.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--emulate", "numba"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = text.splitlines()
    for marker, said in (("launches=0", "l4 exceeded its budget: launches 1"), ('"fast"', "a budget of time_s 'fast'")):
        at = next(number for number, line in enumerate(lines, 1) if marker in line)
        assert f"test_kernels.py:{at}: {said}" in done.stdout, done.stdout
    told = done.stdout.partition("short test summary")[0]
    assert told.count("unknown device 'h1000'") == 1 and "did you mean 'h100-" in told and "contextlib" not in told


def test_programs_are_not_emulated_beside_real_devices() -> None:
    options = SimpleNamespace(emulate="numba", accelerator="both")
    with pytest.raises(pytest.UsageError, match="--accelerator both beside --emulate numba"):
        pytest_plugin.pytest_load_initial_conftests(SimpleNamespace(known_args_namespace=options))  # type: ignore[arg-type]


CUPY = """
import sys
import cupy as cp

double = cp.RawKernel(
    r'''
extern "C" __global__ void twice(float* a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] *= 2;  // no check
}
''', "twice")
"""


def test_a_program_for_cupy_runs_without_it_and_its_findings_name_its_lines(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        CUPY
        + "a = cp.ones(32, cp.float32)\ndouble((1,), (int(sys.argv[1]),), (a,))\nprint(cp.get_array_module(a).__name__, cp.__version__, a.sum())\n"
        "print(cp.cuda.runtime.getDeviceProperties(0)['name'].decode())\nsys.exit(5)\n"
    )
    done = emulate("--device", "l4", program, "32", cwd=tmp_path, expect=5)
    assert done.stdout.splitlines() == ["cupy 14.2.0 64.0", "l4"]
    found = emulate(program, "40", cwd=tmp_path, expect=1).stderr
    line = program.read_text().splitlines().index("    a[i] *= 2;  // no check") + 1
    assert (
        f"OutOfBounds: twice on h100-sxm-80gb: index 32 is out of bounds for 'a' of 32 elements, at line {line}"
        in found
    )
    program.write_text("from cupyx.scipy import sparse\n")
    assert "cupyx.scipy is not part of Windtunnel's cupyx" in emulate(program, cwd=tmp_path, expect=1).stderr


def test_arrays_of_cupy_are_arguments_of_kernels_of_numba(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL + "import cupy as cp\na = cp.arange(32.0)\ndouble[1, 32](a)\nprint(float(a.sum()))\n")
    assert emulate(program, cwd=tmp_path).stdout == "992.0\n"


def test_the_examples_for_cupy_are_as_their_texts_say(tmp_path: Path) -> None:
    folder = EXAMPLES.parent / "cupy"
    documented = (EXAMPLES.parents[1] / "cupy.md").read_text()
    said = emulate(folder / "diffusion.py", cwd=tmp_path).stdout
    assert all(f"    {line}\n" in documented for line in said.splitlines())
    race = emulate(folder / "two_streams.py", cwd=tmp_path, expect=1).stderr
    assert "which kernel 'square' on stream 1 (line 20) writes, and nothing orders the two" in race
    assert emulate(folder / "two_streams.py", "mended", cwd=tmp_path).stdout == "the sum is 332833504\n"
