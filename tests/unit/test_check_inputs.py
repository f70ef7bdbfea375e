"""What `windtunnel check` says of arguments of another type, and of lists and folders of a list of launches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.cli.main import main

FILL = "__global__ void fill(int *a, char *text) { a[threadIdx.x] = text[threadIdx.x]; }\n"


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Return the exit code of `windtunnel check`, and what it prints."""
    with pytest.raises(SystemExit) as ended:
        main(["check", *words])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("a=ones:32:float64", "--arg a: float64 for 'a', which holds int32; expected int32, or uint8 for bytes"),
        ("a=ones:32:float32", "float32 for 'a', which holds int32"),
        ("a=ones:32:int16", "int16 for 'a', which holds int32"),
        ("a=ones:32:uint32", ""),
        ("a=ones:128:uint8", ""),
        ("text=ones:32:float64", ""),
    ],
)
def test_an_argument_of_another_type_is_an_error_that_names_the_parameters_type(
    capsys: pytest.CaptureFixture[str], spec: str, message: str
) -> None:
    Path("fill.cu").write_text(FILL)
    code, _, err = checked(capsys, "fill.cu", "--grid", "1", "--block", "32", "--arg", spec)
    assert code == (2 if message else 0), err
    assert message in err


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("include: headers", "include that is no list; expected [FOLDER, ...]"),
        ("include: [headers, nowhere]", "no folder 'nowhere'; expected a folder of headers"),
        ("defines: N=3", "defines that is no list; expected [NAME=VALUE, ...]"),
        ("include: [headers]", ""),
    ],
)
def test_lists_and_folders_of_a_list_of_launches_are_checked(
    capsys: pytest.CaptureFixture[str], entry: str, message: str
) -> None:
    Path("fill.cu").write_text(FILL)
    Path("headers").mkdir()
    Path("launches.yaml").write_text(f"- {{file: fill.cu, grid: 1, block: 32, {entry}}}\n")
    code, _, err = checked(capsys, "launches.yaml")
    assert code == (2 if message else 0), err
    assert message in err
    assert not message or err.startswith("windtunnel: launches.yaml:1:")


def related(capsys: pytest.CaptureFixture[str], file: str) -> list[tuple[str, int, int]]:
    """Return the places of the only finding in SARIF: that of its first access, and of the others."""
    out = checked(capsys, file, "--grid", "1", "--block", "64", "--format", "sarif")[1]
    (result,) = json.loads(out)["runs"][0]["results"]
    places = [one["physicalLocation"] for one in [*result["locations"], *result.get("relatedLocations", [])]]
    return [
        (one["artifactLocation"]["uri"], one["region"]["startLine"], one["region"]["startColumn"]) for one in places
    ]


def test_sarif_names_both_accesses_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    body = "if (threadIdx.x) a[0] = 1; else a[0] = 2;"
    Path("line.cu").write_text(f"__global__ void k(int *a) {{\n{body}\n}}\n")
    columns = [body.index("a[0] = 1") + 1, body.index("a[0] = 2") + 1]
    assert related(capsys, "line.cu") == [("line.cu", 2, column) for column in columns]


def test_sarif_names_the_access_in_an_included_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("set.h").write_text("__device__ void set(int *a) { a[0] = 1; }\n")
    Path("pair.cu").write_text(
        '#include "set.h"\n__global__ void k(int *a) {\nif (threadIdx.x) set(a); else a[0] = 2;\n}\n'
    )
    places = related(capsys, "pair.cu")
    assert sorted(Path(file).name for file, _, _ in places) == ["pair.cu", "set.h"]
    assert sorted(line for _, line, _ in places) == [1, 3]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("#define HEADER <size.h>\n#include HEADER", ""),
        ('#define FILE "size.h"\n#define HEADER FILE\n#include HEADER', ""),
        ("#define TEXT(x) #x\n#define OF(x) TEXT(x.h)\n#include OF(size)", ""),
        ("#define TEXT(x) #x\n#define OF(x) TEXT(../x.h)\n#include OF(outside)", "outside of the source's folder"),
        ("#define TEXT(x) #x\n#define OF(x) TEXT(x.h)\n#include OF(absent)", "'absent.h' file not found"),
    ],
)
def test_an_include_whose_name_the_preprocessor_makes_is_read_from_the_folders_only(
    capsys: pytest.CaptureFixture[str], folder: Path, head: str, message: str
) -> None:
    source = folder / "source"
    source.mkdir()
    (source / "size.h").write_text("#define N 3\n")
    (folder / "outside.h").write_text("#define N 4\nnot C at all\n")
    Path("source/k.cu").write_text(f"{head}\n__global__ void k(int *a) {{ a[threadIdx.x] = N; }}\n")
    code, _, err = checked(capsys, "source/k.cu", "--grid", "1", "--block", "4", "-I", "source")
    assert code == (2 if message else 0), err
    assert message in err
    assert "not C at all" not in err


TWO = """__global__ void scale(float *a, float f, int n) { a[threadIdx.x] *= f; }
template <class T> __global__ void fill(T *a) { a[threadIdx.x] = 0; }
template <class T, int N> __global__ void part(T *a) { a[threadIdx.x] = N; }
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--kernel scale --arg a", "'a' is not NAME=SPEC; expected NAME one of a, f, n, and SPEC such as 64 or zeros:64"),
        ("--kernel scale --arg =3", "'=3' is not NAME=SPEC; expected NAME one of a, f, n"),
        ("--kernel scale --arg n=4 --arg n=5", "'n' is given twice; expected each name once"),
        ("--kernel fill", "'fill' is a template with no instance in the file; expected --kernel with its arguments, such "
         "as 'fill<float>'"),
        ("--kernel part", "such as 'part<float, 32>'"),
        ("--kernel fill<nothing>", "the template 'fill' has no instance 'fill<nothing>'; expected --kernel"),
        ("--kernel fil", "no kernel 'fil'"),
    ],
)  # fmt: skip
def test_wrong_arguments_and_kernels_are_named_in_the_words_of_the_command(
    capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    Path("two.cu").write_text(TWO)
    code, _, err = checked(capsys, "two.cu", "--grid", "1", "--block", "8", *words.split(" "))
    assert code == 2
    assert message in err


ROWS = """struct Csr { int n; const int *off; };
__global__ void degrees(Csr g, int *deg) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v < g.n) deg[v] = %s;
}
"""


def test_a_member_of_a_struct_is_named_as_in_the_source_with_the_option_that_states_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("rows.cu").write_text(ROWS % "g.off[v + 1] + g.off[v]")
    code, out, _ = checked(capsys, "rows.cu", "--grid", "1", "--block", "8")
    assert code == 1
    assert "index 8 is out of bounds for 'g.off' of 8 elements" in out
    assert "'g.off' is not given, so it is made up: --arg g.off=random:N states its size" in out


def test_a_member_that_holds_the_rows_of_a_matrix_is_made_up_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.cu").write_text(ROWS % "0; for (int i = g.off[v]; i < g.off[v + 1]; ++i) deg[v] += i")
    assert checked(capsys, "rows.cu", "--grid", "1", "--block", "8")[0] == 0


def test_the_rules_of_sarif_are_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    Path("fill.cu").write_text(FILL)
    out = checked(capsys, "fill.cu", "--grid", "1", "--block", "8", "--arg", "a=zeros:4", "--format", "sarif")[1]
    (rule,) = json.loads(out)["runs"][0]["tool"]["driver"]["rules"]
    assert rule["shortDescription"]["text"] == "A thread accesses an index outside an array."
