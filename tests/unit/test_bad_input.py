"""Whatever is wrong with the input: exit 2, the place, what was expected, the nearest right name; nothing half-written."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import windtunnel
from windtunnel.app import run as run_command
from windtunnel.cli.main import cli
from windtunnel.core.errors import InputError, nearest_file
from windtunnel.core.yamlfile import parse
from windtunnel.scenario.read import read_scenario
from windtunnel.scenario.target import parse_figure, parse_target

GOOD = """\
schema: 1
name: small
fleet:
  - device: h100-sxm-80gb
    count: 2
    price: 2.5 USD/h
workload:
  - name: calls
    arrivals: {process: poisson, rate: 100 /s}
    ops:
      - gemm: {m: 64, n: 64, k: 64, dtype: bfloat16}
policy: fifo
stop: {jobs: 50}
targets:
  - latency p99 <= 20 ms
"""

TRACE = "time,tokens\n0.0,5\n0.5,7\n"
TRACED = GOOD.replace(
    "arrivals: {process: poisson, rate: 100 /s}", "arrivals: {process: trace, file: t.csv, time: time}"
).replace("m: 64", "m: $tokens")


def message(folder: Path, text: str, *changes: str) -> str:
    path = folder / "s.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        windtunnel.run(path, changes=changes)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("count: 2", "coutn: 2", "s.yaml:5:5: fleet[0].coutn: unknown key 'coutn'; expected one of real, device, count, name"),
        ("count: 2", "coutn: 2", "did you mean 'count'?"),
        ("100 /s", "100", "s.yaml:9:40: workload[0].arrivals.rate: '100' has no unit; expected a number and a unit"),
        ("100 /s", "100 W", "is measured in 'W'"),
        ("100 /s", "-100 /s", "is negative"),
        ("100 /s", ".inf /s", "is not a quantity"),
        ("name: small", "name: small\nname: other", "s.yaml:3:1: name: the key 'name' is given twice"),
        ("h100-sxm-80gb", "h100-smx-80gb", "did you mean 'h100-sxm-80gb'?"),
        ("h100-sxm-80gb", "h100-sxm-80gb@cuba", "did you mean 'cuda'?"),
        ("h100-sxm-80gb", "h100-sxm-80gb@metal", "is not reached through metal"),
        ("policy: fifo", "policy: fifp", "s.yaml:12:9: policy: unknown policy 'fifp'"),
        ("gemm:", "gem:", "s.yaml:11:9: workload[0].ops[0].gem: unknown operation 'gem'"),
        ("gemm:", "gem:", "did you mean 'gemm'?"),
        ("m: 64,", "mm: 64,", "'mm' is not a column of gemm"),
        ("m: 64,", "", "gemm needs 'm'"),
        ("m: 64,", "m: 6.5,", "expected a whole number"),
        ("m: 64,", "m: 0,", "expected at least 1"),
        ("m: 64,", "m: $tokens,", "requires a trace"),
        ("bfloat16", "bfloat61", "did you mean 'bfloat16'?"),
        ("stop: {jobs: 50}\n", "", "s.yaml:9:15: workload[0].arrivals: the poisson arrivals of 'calls' do not end"),
        ("jobs: 50", "jobs: 50, time: 1 s", "a stop is a number of jobs, a time or a precision"),
        ("jobs: 50", "time: 1", "has no unit"),
        ("count: 2", "count: 0", "this is 0; expected at least 1"),
        ("count: 2", "count: two", "expected a whole number"),
        ("schema: 1", "schema: 2", "s.yaml:1:9: schema"),
        ("p99", "p999", "latency has no 'p999'; expected one of mean, p50, p95, p99"),
        ("latency", "latancy", "did you mean 'latency'?"),
        ("latency p99", "latency p99 of callz", "did you mean 'calls'?"),
        ("20 ms", "20", "'20' has no unit"),
        ("{m: 64, n: 64, k: 64, dtype: bfloat16}", "{m: 1000000, n: 1000000, k: 64, dtype: bfloat16}", "needs 2.00 TB of memory"),
        ("gemm: {m: 64, n: 64, k: 64, dtype: bfloat16}", "sign: {}", "which does not run sign"),
        ("policy: fifo", "policy: earliest-deadline-first", "requires `deadline` in every workload; 'calls' has none"),
        ("policy: fifo", "policy: recommendation-matrix", "requires `use_case` in every workload; 'calls' has none"),
        ("    price: 2.5 USD/h\n", "    power: {max: 10 W}\n", "W idle and 10 W at most"),
        ("policy: fifo", "policy: {name: fifo, batch: {kind: continuous}}", "continuous batching requires one `generate`"),
        ("policy: fifo", "policy: {name: fifo, order: arrival}", "a policy is a name, or a route and an order"),
        ("  - name: calls", "  - name: calls\n    devices: [h100]", "s.yaml:9:15: workload[0].devices[0]: the fleet has no 'h100'"),
        ("policy: fifo", "policy: {route: centrall}", "did you mean 'central'?"),
        ("  - latency", "  latency", "s.yaml:15:3: targets: this is 'latency p99 <= 20 ms'; expected a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_scenario_is_named(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert old in GOOD
    assert says in message(tmp_path, GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- 1\n- 2\n", "a scenario is a mapping"),
        ("", "this scenario is empty"),
        ("schema: 1\nname: [unclosed\n", "s.yaml:3:1: this is not YAML"),
        ("a: &x [*x]\n", "contains itself"),
        ("a: !!python/object:os.system {}\n", "unknown key 'a'"),
        ("a: !evil x\n", "the tag '!evil' is not supported"),
        ("? [1]\n: 2\n", "a key is not plain text"),
        ("\x00", "this is not YAML"),
        (
            "fleet:\n\t- {device: l4}\n",
            "s.yaml:2:1: this is not YAML: there is a tab here; expected spaces: YAML does not indent with tabs",
        ),
        (
            "workload:\n  - name: c\n\tuse: x\n",
            "s.yaml:3:1: this is not YAML: there is a tab here; expected spaces: YAML does not indent with tabs",
        ),
        (
            "fleet:\n  - {device: l4}\n   x: 3\n",
            "s.yaml:3:4: this is not YAML: this line is part neither of the list above nor of its last item; expected '- '",
        ),
        (
            "fleet:\n  - device: l4\n - device: a10\n",
            "s.yaml:3:2: this is not YAML: this line is not indented like the keys",
        ),
        (
            "name: a: b\n",
            "s.yaml:1:8: this is not YAML: there is a ':' where no key can be; expected keys exactly below",
        ),
        (
            "schema: 1\nname a\nseed: 1\n",
            "s.yaml:3:1: this is not YAML: a key above this has no ':'; expected 'key: value'",
        ),
        (
            "fleet:\n  - {device: l4\nseed: 1\n",
            "s.yaml:3:5: this is not YAML: a '{' is not closed, or a ',' is missing (opened in line 2); expected {key: value",
        ),
        ('name: "a\n', "this is not YAML: a quotation mark is not closed (opened in line 1); expected the same mark"),
        ("name: %a\n", "s.yaml:1:7: this is not YAML: a value cannot begin with '%'; expected quotes around it"),
        (
            "name: *a\n",
            "s.yaml:1:7: this is not YAML: '*' begins a reference to a name that is not defined; expected quotes",
        ),
        (
            "fleet: - device: l4\n",
            "s.yaml:1:8: this is not YAML: a list begins on the line of its key; expected '- ' on",
        ),
        ('name: "\\q"\n', "this is not YAML: a backslash in double quotes begins an escape; expected single quotes"),
        (
            "name: |x\n",
            "this is not YAML: there is text after the '|' or '>' that begins a block of lines; expected the text",
        ),
    ],
)
def test_what_is_no_scenario_at_all_is_said(text: str, says: str, tmp_path: Path) -> None:
    assert says in message(tmp_path, text)


@pytest.mark.parametrize(
    ("trace", "scenario", "says"),
    [
        (None, TRACED, "there is no trace"),
        ("", TRACED, "is empty; expected a header and rows"),
        ("time,tokens\n", TRACED, "has no rows"),
        ("when,tokens\n0,5\n", TRACED, "has no column 'time'"),
        (
            "time,tokens\n0.0,5\nsoon,7\n",
            TRACED,
            "t.csv:3: time: 'soon' is not a time; expected seconds, or a time such as",
        ),
        (
            "time,tokens\n0.0,5\n0.5,many\n",
            TRACED,
            "t.csv:3: tokens: 'many' is not a count; expected a whole number, at least 1",
        ),
        ("time,tokens\n0.0,5\n0.5\n", TRACED, "t.csv:3: this row has 1 cells; expected 2"),
        (TRACE, TRACED.replace("$tokens", "$tokns"), "did you mean 'tokens'?"),
        ('time,tokens\n0.0,"5\n', TRACED, "this is not CSV"),
        ("time,tokens\n1e999,5\n", TRACED, "'1e999' is not a time"),
    ],
)
def test_what_is_wrong_in_a_trace_is_named(trace: str | None, scenario: str, says: str, tmp_path: Path) -> None:
    if trace is not None:
        (tmp_path / "t.csv").write_text(trace)
    assert says in message(tmp_path, scenario)


def test_a_trace_that_is_not_gzip_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_text("time,tokens\n0,1\n")
    assert "cannot be read" in message(tmp_path, TRACED.replace("t.csv", "t.csv.gz"))


def test_traces_may_be_gzip_and_their_times_iso_with_100_ns(tmp_path: Path) -> None:
    rows = "time,tokens\n2023-11-16 18:17:03.9799600,3\n2023-11-16 18:17:04.0319601,4\n"
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(rows.encode()))
    (tmp_path / "s.yaml").write_text(TRACED.replace("t.csv", "t.csv.gz").replace("stop: {jobs: 50}\n", ""))
    assert windtunnel.run(tmp_path / "s.yaml").recording.jobs.arrival.tolist() == [0, 52_000_100_000]


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(GOOD)
    with pytest.raises(InputError, match=r"did you mean 'scenario\.yaml'"):
        windtunnel.run(tmp_path / "scenaro.yaml")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("m: 64,", f"m: {10**399},", "m is too large"),
        ("rate: 100 /s", "rate: 1e-7 /s", "take longer than the 106 days"),
        ("jobs: 50", "jobs: 1000000000", "stop.jobs: 1,000,000,000 jobs take longer than the 106 days"),
        ("policy: fifo", "policy: {name: fifo, batch: {kind: request, size: 4}}", None),
        ("100 /s", "1e8 /s", None),
        ("    price: 2.5 USD/h\n", "    power: {idle: 1e300 W, max: 1e305 W}\n", "is too large"),
        (
            "      - gemm:",
            "      - service: {distribution: deterministic, mean: 50 d}\n      - gemm:",
            "the work takes longer than the 106 days",
        ),
    ],
)
def test_extremes_are_run_or_refused_and_nothing_else(old: str, new: str, says: str | None, tmp_path: Path) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    if says is None:
        (tmp_path / "s.yaml").write_text(text)
        assert windtunnel.run(tmp_path / "s.yaml").result.jobs.completed == 50
    else:
        assert says in message(tmp_path, text)


def test_batching_a_program_with_streams_is_refused_not_ignored(tmp_path: Path) -> None:
    text = GOOD.replace("policy: fifo", "policy: {name: fifo, batch: {kind: request, size: 4}}")
    text = text.replace("      - gemm:", "      - streams: [[{launch: {}}], [{launch: {}}]]\n      - gemm:")
    assert "request-level batching does not support the program of 'calls'" in message(tmp_path, text)


BRANCHED = TRACED.replace("stop: {jobs: 50}\n", "").replace(
    "      - gemm: {m: $tokens, n: 64, k: 64, dtype: bfloat16}\n",
    "      - branch:\n"
    "          on: $kind\n"
    "          cases: {a: [{launch: {}}]}\n"
    "          default: [{branch: {on: $size, cases: {big: [{launch: {count: 9}}], small: [{launch: {}}]}}}]\n",
)


def test_a_word_that_no_branch_on_a_jobs_way_knows_is_refused_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("time,kind,size\n0,a,whatever\n1,b,big\n2,c,small\n")
    (tmp_path / "s.yaml").write_text(BRANCHED)
    # The first job never comes to the second branch, so its word there does not matter.
    jobs = windtunnel.run(tmp_path / "s.yaml").recording.jobs
    lengths = (jobs.finish - jobs.start).tolist()
    assert lengths[0] == lengths[2] < lengths[1]
    (tmp_path / "t.csv").write_text("time,kind,size\n0,a,big\n1,b,middling\n")
    assert "t.csv:3: size: 'middling' is not a case of this branch; expected one of big, small" in message(
        tmp_path, BRANCHED
    )


def test_a_broken_gzip_body_is_said(tmp_path: Path) -> None:
    body = bytearray(gzip.compress(TRACE.encode() * 50))
    body[20] ^= 0xFF
    (tmp_path / "t.csv.gz").write_bytes(bytes(body))
    assert "cannot be read" in message(tmp_path, TRACED.replace("t.csv", "t.csv.gz"))


def test_times_of_day_and_of_the_epoch_are_times(tmp_path: Path) -> None:
    for rows, gap in (
        ("1700158623.97,3\n1700158624.0,4\n", 30_000_000_000),
        ("2023-11-16T18:17:03.97+00:00,3\n2023-11-16T20:17:04.00+02:00,4\n", 30_000_000_000),
    ):
        (tmp_path / "t.csv").write_text("time,tokens\n" + rows)
        (tmp_path / "s.yaml").write_text(TRACED.replace("stop: {jobs: 50}\n", ""))
        assert windtunnel.run(tmp_path / "s.yaml").recording.jobs.arrival.tolist() == [0, gap]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("fleet[0].coutn=3", "unknown key 'coutn'"),
        ("fleet[5].count=3", "there is no 'fleet[5]' in the scenario; expected fleet[0]"),
        ("workload[0].ops[7]=3", "there is no 'workload[0].ops[7]' in the scenario; expected workload[0].ops[0]"),
        (
            "plan={maks: 3}",
            "unknown key 'maks'; expected one of max, max_entries, fleets, confidence, objective, search, "
            "spare, simulations, replications, loads; did you mean 'max'?",
        ),
        ("flet[0].count=3", "did you mean 'fleet'?"),
        ("count", "expected PATH=VALUE"),
        ("fleet[0].count=[", "this is not YAML"),
    ],
)
def test_a_wrong_change_is_named(change: str, says: str, tmp_path: Path) -> None:
    assert says in message(tmp_path, GOOD, change)


def test_a_wrong_value_from_the_command_line_is_placed_there_and_not_in_the_file(tmp_path: Path) -> None:
    assert message(tmp_path, GOOD, "fleet[0].count=0").startswith("--set fleet[0].count=0: fleet[0].count: this is 0")


def test_the_command_line_exits_2_with_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(GOOD.replace("count: 2", "coutn: 2"))
    out = tmp_path / "out"
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "windtunnel", "run", str(tmp_path / "s.yaml"), "--out", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "did you mean 'count'" in done.stderr
    assert not out.exists()


def test_an_output_folder_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "s.yaml").write_text(GOOD)
    result = CliRunner().invoke(cli, ["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "file" / "out")])
    assert isinstance(result.exception, InputError)
    assert "is not a folder" in str(result.exception)


def test_a_failure_while_writing_leaves_no_half_written_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.yaml").write_text(GOOD)
    finished = windtunnel.run(tmp_path / "s.yaml")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("windtunnel.report.perfetto.write_trace", full)
    with pytest.raises(InputError, match="No space left"):
        run_command.save(finished, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no", "no"),
        ("a: 12:30", "12:30"),
        ("a: 1e12", 1e12),
        ("a: 0o7", "0o7"),
        ("a: true", True),
        ("a: '1'", "1"),
        ("a: ~", None),
    ],
)
def test_yaml_says_what_it_looks_like(text: str, value: object) -> None:
    assert parse(text, "f").data == {"a": value}


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=12),
    st.sampled_from(["1 s", "0 /s", "1e400 s", "$x", "h100-sxm-80gb", "server", "fifo", "trace", "nan"]),
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["device", "count", "process", "rate", "ops", "gemm", "name", "times", "kind"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300)
@given(path=st.sampled_from([
    ("schema",), ("name",), ("seed",), ("fleet",), ("fleet", 0), ("fleet", 0, "device"), ("fleet", 0, "count"), ("fleet", 0, "power"),
    ("workload",), ("workload", 0), ("workload", 0, "arrivals"), ("workload", 0, "arrivals", "rate"), ("workload", 0, "ops"),
    ("workload", 0, "ops", 0), ("policy",), ("stop",), ("stop", "jobs"), ("targets",), ("targets", 0), ("models",), ("extra",),
]), value=TREES)  # fmt: skip
def test_any_value_anywhere_is_read_or_refused_and_nothing_else(path: tuple[str | int, ...], value: object) -> None:
    import yaml

    from windtunnel.scenario.read import check_scenario

    document = parse(GOOD, "s.yaml")
    data = document.data
    for part in path[:-1]:
        data = data[part]
    data[path[-1]] = value
    try:
        check_scenario(document)
    except InputError as error:
        assert str(error)
    # And the same through text, as a file would hold it.
    try:
        text = yaml.safe_dump(document.data, allow_unicode=True)
    except yaml.YAMLError:
        return
    try:
        check_scenario(parse(text, "s.yaml"))
    except InputError as error:
        assert str(error)


@settings(max_examples=300)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    from windtunnel.scenario.read import check_scenario

    try:
        check_scenario(parse(text, "s.yaml"))
    except InputError as error:
        assert str(error)


def test_the_good_scenario_is_good(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(GOOD)
    assert read_scenario(tmp_path / "s.yaml").name == "small"
    assert windtunnel.run(tmp_path / "s.yaml").met


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("stop: {jobs: 50}", "stop: 2000", "stop: this is 2000; expected a mapping, such as stop: {jobs: 2000}"),
        ("count: 2", "count: 2\n    power: 300 W", "expected a mapping, such as power: {idle: 60 W, max: 300 W}"),
        ("count: 2", "count: 2\n    speed: 0", "fleet[0].speed: this is 0; expected more than 0"),
        ("policy: fifo", "policy: {batch: 3}", "policy.batch: "),
        (
            "targets:\n  - latency p99 <= 20 ms",
            "targets: {latency: 20 ms}",
            "targets: this is a mapping; expected a list",
        ),
    ],
)
def test_what_was_expected_is_shown_as_it_is_written(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert old in GOOD
    assert says in message(tmp_path, GOOD.replace(old, new, 1))


def test_a_missing_key_is_shown_as_it_is_written(tmp_path: Path) -> None:
    without = GOOD.replace("arrivals: {process: poisson, rate: 100 /s}", "use_case: ml inference")
    assert "'arrivals' is missing; expected arrivals: {process: poisson, rate: 100 /s}" in message(tmp_path, without)


@pytest.mark.parametrize(
    ("asked", "present", "answer"),
    [
        ("nofile.yaml", ["pol.yaml", "small.yaml"], None),
        ("azure-cod.yaml", ["azure-code.yaml", "azure-conv.yaml"], "azure-code.yaml"),
        ("burst.yml", ["burst.yaml", "failures.yaml"], "burst.yaml"),
        ("mm64", ["mm64.yaml", "mm65.yaml"], "mm64.yaml"),
    ],
)
def test_files_are_near_by_their_names_and_not_by_their_endings(
    asked: str, present: list[str], answer: str | None
) -> None:
    assert nearest_file(asked, present) == answer


def test_the_files_that_are_present_are_named_where_none_is_near(tmp_path: Path) -> None:
    (tmp_path / "main.yaml").write_text(GOOD)
    for name, says in (
        ("nosuch.yaml", "there is no such scenario; expected one of main.yaml"),
        ("mian.yaml", "there is no such scenario; did you mean 'main.yaml'?"),
        ("other/main.yaml", f"there is no such scenario, and no folder '{tmp_path / 'other'}'"),
    ):
        with pytest.raises(InputError) as caught:
            read_scenario(tmp_path / name)
        assert str(caught.value).endswith(says)


def test_a_limit_of_zero_is_accepted_where_a_run_can_have_it() -> None:
    assert parse_target("waiting p50 <= 0 s").limit == parse_target("cost <= 0 USD/h").limit == 0.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("utilisation <= 80", "utilisation is a share, and '80' is more than 100%; expected a number from 0 to 1"),
        ("completed >= 99", "did you mean '99 %'?"),
        ("availability >= 101 %", "a share"),
        ("latency p99 <= -1 s", "latency is never negative, but the limit is '-1 s'; expected a limit above zero"),
        ("latency p99 <= 0 ms", "latency is never zero, but the limit is '0 ms'; expected a limit above zero"),
        ("waiting mean <= -1 s", "expected a limit of zero or more"),
        ("latency p98 <= 1 s", "latency has no 'p98'"),
    ],
)
def test_a_limit_that_nothing_can_reach_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_target(text)
    assert says in str(caught.value)


def test_a_figure_that_is_wrong_is_quoted_as_it_was_written() -> None:
    with pytest.raises(InputError) as caught:
        parse_figure("latency p98")
    assert str(caught.value).startswith("latency has no 'p98'")
