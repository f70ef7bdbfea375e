"""`windtunnel check`: its formats and exit codes, its lists of launches, and what it says of wrong arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.checking import NEIGHBOUR, SAXPY, Command

TWO = """
__global__ void fill(int *data, int value) { data[threadIdx.x] = value; }
__global__ void sum(const int *data, int *total) { atomicAdd(total, data[threadIdx.x]); }
"""


def test_a_clean_kernel_ends_with_0_and_a_finding_with_1(check: Command) -> None:
    assert check(SAXPY, "--grid", "2", "--block", "64")[0] == 0
    code, out, _ = check(NEIGHBOUR, "--grid", "1", "--block", "64", "--arg", "data=arange:65")
    assert code == 1
    assert out.startswith("kernel.cu:4:5: DataRace: ")


def test_json_lists_the_class_the_kernel_the_place_and_the_message(check: Command) -> None:
    code, out, _ = check(NEIGHBOUR, "--grid", "1", "--block", "64", "--format", "json")
    found, further = json.loads(out)
    assert further["finding"] == "DataRace"  # with an element more
    assert (code, found["finding"], found["file"], found["lines"]) == (1, "OutOfBounds", "kernel.cu", [4])
    assert "data" in found["message"]
    assert (found["kernel"], len(found["columns"])) == ("neighbour", 1)
    assert json.loads(check(SAXPY, "--grid", "1", "--block", "64", "--format", "json")[1]) == []


def test_sarif_names_the_rule_and_the_place_with_its_column(check: Command) -> None:
    out = check(NEIGHBOUR, "--grid", "1", "--block", "64", "--arg", "data=arange:65", "--format", "sarif")[1]
    log: dict[str, Any] = json.loads(out)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert result["ruleId"] == run["tool"]["driver"]["rules"][0]["id"] == "DataRace"
    assert place["artifactLocation"]["uri"] == "kernel.cu"
    assert place["region"] == {"startLine": 4, "startColumn": 5}
    source = "__global__ void k(int *out) {\n  out[0] = 1;\n  out[threadIdx.x / 2] = threadIdx.x;\n}\n"
    (run,) = json.loads(check(source, "--grid", "1", "--block", "64", "--format", "sarif")[1])["runs"]
    (result,) = run["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 2
    assert [one["physicalLocation"]["region"]["startLine"] for one in result["relatedLocations"]] == [3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arg", "m=5"], "no parameter 'm'; expected one of n, a, x, y"),
        (["--arg", "x=zeroes:5"], "did you mean 'zeros'?"),
        (["--arg", "x=zeros:5:int23"], "'int23' is no type of numbers"),
        (["--arg", "n=zeros:5"], "'n' is a number, not an array"),
        (["--arg", "n=0.5"], "0.5 for 'n', an integer"),
        (["--arg", "x=7"], "'x' is a pointer, not a number"),
        (["--arg", "x=local:7"], "'x' is no local memory"),
        (["--kernel", "saxpi"], "no kernel 'saxpi'; expected one of saxpy; did you mean 'saxpy'?"),
        (["--block", "2048"], "2,048"),
        (["-D", "1R=0"], "-D: '1R' is no name of a macro"),
        (["-I", "nowhere"], "-I: no folder 'nowhere'"),
    ],
)  # fmt: skip
def test_a_wrong_argument_ends_with_2_and_says_what_was_expected(
    check: Command, words: list[str], message: str
) -> None:
    given = ["--grid", "1", *([] if "--block" in words else ["--block", "32"]), *words]
    code, _, err = check(SAXPY, *given)
    assert code == 2
    assert message in err


def test_a_missing_size_and_a_missing_file_end_with_2(check: Command) -> None:
    assert check(SAXPY, "--block", "32")[0] == 2
    assert check(SAXPY, "--grid", "0", "--block", "32")[0] == 2
    code, _, err = check(None, "--grid", "1", "--block", "1", file="absent.cu")
    assert (code, "absent.cu" in err) == (2, True)


def test_what_clang_rejects_ends_with_2_its_message_and_its_line(check: Command) -> None:
    code, _, err = check("__global__ void k(int *a) {\n    a[0] = b;\n}\n", "--grid", "1", "--block", "1")
    assert code == 2
    assert err == "windtunnel: kernel.cu:2:12: use of undeclared identifier 'b'\n"


def test_a_finding_in_a_header_bears_the_header_and_its_line(check: Command, tmp_path: Path) -> None:
    (tmp_path / "part.cuh").write_text("\n__device__ void put(int *a) {\n    a[threadIdx.x + 1] = 1;\n}\n")
    source = '#include "part.cuh"\n__global__ void k(int *a) { put(a); }\n'
    found = json.loads(check(source, "--grid", "1", "--block", "4", "--format", "json")[1])[0]
    assert (Path(found["file"]).name, found["lines"]) == ("part.cuh", [3])


def test_an_assertion_that_fails_is_a_finding(check: Command) -> None:
    source = "#include <cassert>\n__global__ void k(int n) {\n    assert(n < 3);\n}\n"
    code, out, _ = check(source, "--grid", "1", "--block", "2", "--arg", "n=3", "--format", "json")
    assert (code, json.loads(out)[0]["finding"], json.loads(out)[0]["lines"]) == (1, "AssertionFailed", [3])
    assert check(source, "--grid", "1", "--block", "2", "--arg", "n=2")[0] == 0


def test_a_list_of_launches_shares_buffers_by_name(check: Command, tmp_path: Path) -> None:
    (tmp_path / "two.cu").write_text(TWO)
    fill = "- {file: two.cu, kernel: fill, grid: 1, block: 8, args: {data: 'empty:8', value: 3}}\n"
    add = "- {file: two.cu, kernel: sum, grid: 1, block: 8, args: {data: %s, total: 'zeros:1'}}\n"
    assert check(fill + add % "data", file="launches.yaml")[0] == 0
    assert check(fill.replace("block: 8", "block: 4") + add % "data", file="launches.yaml")[0] == 1
    code, _, err = check(fill + add % "dato", file="launches.yaml")
    assert (code, "no buffer 'dato'" in err) == (2, True)
    code, _, err = check(fill.replace("kernel:", "kernal:"), file="launches.yaml")
    assert (code, "no key 'kernal'" in err, "launches.yaml:1" in err) == (2, True, True)


def test_schedules_are_further_orders_of_the_threads(check: Command) -> None:
    source = """
    __global__ void crossed(int *locks, int *total) {
        int first = blockIdx.x;
        while (atomicCAS(&locks[first], 0, 1) != 0) {}
        while (atomicCAS(&locks[1 - first], 0, 1) != 0) {}
        atomicAdd(total, 1);
        atomicExch(&locks[1 - first], 0);
        atomicExch(&locks[first], 0);
    }
    """
    words = ("--grid", "2", "--block", "1", "--arg", "locks=zeros:2", "--arg", "total=zeros:1")
    code, out, _ = check(source, *words, "--schedules", "40", "--format", "json")
    assert (code, {found["finding"] for found in json.loads(out)}) == (1, {"Deadlock"})


def test_what_a_kernel_prints_is_no_part_of_the_json(check: Command) -> None:
    source = '#include <cstdio>\n__global__ void k() { printf("thread %d\\n", threadIdx.x); }\n'
    code, out, err = check(source, "--grid", "1", "--block", "2", "--format", "json")
    assert (code, json.loads(out), err) == (0, [], "thread 0\nthread 1\n")


def test_python_kernels_are_checked_too(check: Command) -> None:
    source = (
        "import windtunnel\nfrom windtunnel import grid, i32\n\n\n@windtunnel.kernel\ndef shifted(data: i32[:]):\n"
        "    data[grid(1)] = data[grid(1) + 1]\n"
    )
    words = ("--grid", "1", "--block", "8", "--arg", "data=arange:9", "--format", "json")
    code, out, _ = check(source, *words, file="kernels.py")
    assert (code, json.loads(out)[0]["finding"], json.loads(out)[0]["lines"]) == (1, "DataRace", [7])


def test_the_time_on_the_device_stands_beside_the_findings_but_not_in_json(check: Command) -> None:
    words = ("--grid", "1", "--block", "64", "--device", "l4")
    clean, found = check(SAXPY, *words)[1], check(NEIGHBOUR, *words, "--arg", "data=arange:65")[1]
    for out, kernel in ((clean, "saxpy"), (found, "neighbour")):
        assert out.splitlines()[-1].startswith(f"{kernel}: ") and " on l4, predicted (" in out
    assert "predicted" not in check(SAXPY, *words, "--format", "json")[1]
    (run,) = json.loads(check(SAXPY, *words, "--format", "sarif")[1])["runs"]
    (time,) = run["properties"]["predictedTimes"]
    assert time["kernel"] == "saxpy" and time["launches"] == 1 and time["device"] == "l4"
    assert 0 < time["duration_low_s"] < time["duration_s"] < time["duration_high_s"]


def test_a_finding_in_a_function_of_our_headers_is_at_the_line_that_calls_it(check: Command) -> None:
    out = check(
        "__global__ void get(const int *in, int *out) {\n  out[0] = __ldg(in + 9);\n}\n",
        "--grid", "1", "--block", "1", "--arg", "in=zeros:9",
    )[1]  # fmt: skip
    assert out.startswith("kernel.cu:2:12: OutOfBounds: ")


def test_a_launch_that_never_ends_has_no_time(check: Command) -> None:
    source = "__global__ void wait(int *flag) { while (atomicAdd(flag, 0) == 0) {} }"
    code, out, _ = check(source, "--grid", "1", "--block", "1", "--arg", "flag=zeros:1")
    assert code == 1 and "Deadlock" in out and "predicted" not in out


def test_sarif_of_a_source_that_does_not_compile_says_that_the_check_was_not_done(check: Command) -> None:
    code, out, err = check(
        "__global__ void k(int *a) {\n    a[0] = b;\n}", "--grid", "1", "--block", "1", "--format", "sarif"
    )
    (run,) = json.loads(out)["runs"]
    (invocation,) = run["invocations"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert (code, invocation["executionSuccessful"], invocation["exitCode"], run["results"]) == (2, False, 2, [])
    assert "use of undeclared identifier 'b'" in notification["message"]["text"] and "undeclared" in err
    place = notification["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("kernel.cu", 2)
    out = check(SAXPY, "--grid", "1", "--block", "32", "--format", "sarif")[1]
    assert json.loads(out)["runs"][0]["invocations"] == [{"executionSuccessful": True, "exitCode": 0}]


def test_a_kernel_of_numba_is_referred_to_emulate(check: Command) -> None:
    source = "from numba import cuda\n\n@cuda.jit\ndef double(a):\n    a[0] *= 2\n"
    for words in ((), ("--kernel", "double")):
        code, _, err = check(source, "--grid", "1", "--block", "1", *words, file="k.py")
        assert code == 2 and "k.py:4: 'double' is a kernel of Numba CUDA" in err and "windtunnel emulate k.py" in err
