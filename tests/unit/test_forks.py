"""Work on other processors: the same results and errors as alone, and nothing of a copy is left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from jinja2 import Environment

import windtunnel
from windtunnel.app.run import Output
from windtunnel.cli.main import cli
from windtunnel.core import forks, kept
from windtunnel.core.device import Device
from windtunnel.core.errors import InputError
from windtunnel.core.forks import Copy, shared, usable_processors
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.prepare import decoder_cache
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.scenario import prepare
from windtunnel.report import page
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.fleet import fleet_devices, policy_of
from windtunnel.simulation.model_error import ErrorRuns
from windtunnel.simulation.run import Run, prepare_run
from windtunnel_models.catalogue import Catalogue

SCENARIO = """
schema: 1
name: served
fleet: [{device: l4, count: 2}]
models: {small: {catalogue: llama-3.1-8b}}
workload:
  - name: chat
    arrivals: {process: mmpp, states: [{rate: 1 /s, sojourn: 5 s}, {rate: 4 /s, sojourn: 5 s}]}
    ops: [{generate: {model: small, prompt: 200, output: 4}}]
policy: {name: least-loaded, batch: {kind: continuous, size: 8, tokens: 512}}
stop: {jobs: 250}
targets: [ttft p99 <= 10 s]
"""


def test_numbers_are_in_order_whoever_computes_them() -> None:
    for count in (1, 2, 5):
        assert shared(lambda number: number * number, range(7), count) == [0, 1, 4, 9, 16, 25, 36]
    assert shared(str, [], 3) == []


@pytest.mark.parametrize("how", ["raises", "is killed", "exits", "returns what cannot be sent"])
def test_what_a_copy_does_not_deliver_is_done_here(how: str) -> None:
    here = os.getpid()

    def work(number: int) -> object:
        if os.getpid() == here:
            time.sleep(0.01)  # so that the copy takes a number too; without one the test proves less, and passes
            return number
        if how == "raises":
            raise ValueError(how)
        if how == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exits":
            raise SystemExit(0)
        return lambda: None

    assert shared(work, range(6), 2) == list(range(6))
    with Copy(lambda: work(1)) as copy:
        assert copy.result() is None


def test_an_error_is_that_of_the_function_and_ends_the_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Copy[object]] = []

    class Seen(Copy[object]):
        def __enter__(self) -> Self:
            copies.append(self)
            return self

    monkeypatch.setattr(forks, "Copy", Seen)

    def work(number: int) -> int:
        raise ValueError(f"number {number}")

    with pytest.raises(ValueError, match="number"):
        shared(work, range(4), 3)
    assert len(copies) == 2
    assert all(copy._pid is None for copy in copies)


def test_an_interrupt_during_the_fork_leaves_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    forked: list[int] = []
    fork = os.fork

    def interrupted() -> int:
        forked.append(fork())
        if forked[0]:
            # To this thread: pytest-xdist has others, which do not block the signal.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return forked[0]

    monkeypatch.setattr(os, "fork", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Copy(lambda: time.sleep(600))
    with pytest.raises(ChildProcessError):
        os.waitpid(forked[0], 0)


def test_a_process_with_another_thread_is_not_forked() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert usable_processors() == 1
    finally:
        done.set()
        thread.join()


def test_a_run_writes_the_same_files_on_any_number_of_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    written: list[dict[str, bytes]] = []
    printed = []
    for processors in (1, 3):
        monkeypatch.setattr(forks, "usable_processors", lambda processors=processors: processors)
        out = tmp_path / str(processors)
        done = CliRunner().invoke(cli, ["run", str(tmp_path / "s.yaml"), "--engine", "process", "--out", str(out)])
        assert done.exit_code == 0, done.output
        printed.append(done.output.replace(str(out), "OUT"))
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert written[0] == written[1]
    assert set(written[0]) == {"result.json", "jobs.csv", "report.html", "trace.json.gz"}
    assert printed[0] == printed[1]
    assert "8 more runs" in printed[0]
    assert "two more runs" in printed[0]


def test_a_copy_makes_the_runs_for_the_error_of_the_models_during_the_run_itself() -> None:
    prepared = prepare_run(scenario_from_data(yaml.safe_load(SCENARIO)), Catalogue(), "process")
    with ErrorRuns(2) as early, ErrorRuns(1) as alone:
        for runs in (early, alone):
            runs.begin(prepared)
        assert early._begun is not None
        assert alone._begun is None
        assert early.of(prepared, 250) == alone.of(prepared, 250)


def test_the_templates_of_reports_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDTUNNEL_KEEP_TABLES", "1")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(page, "_environment", cache(page._environment.__wrapped__))
    first = page.hint("kept")
    (file,) = tmp_path.iterdir()
    page._environment.cache_clear()
    with monkeypatch.context() as without_compiler:
        without_compiler.setattr(Environment, "compile", None)
        assert page.hint("kept") == first
        with pytest.raises(TypeError):
            page._environment().get_template("explore.html.j2")
    file.write_bytes(file.read_bytes()[:-1])  # damaged
    page._environment.cache_clear()
    assert page.hint("kept") == first


def test_files_that_a_copy_cannot_write_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = short_run(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("windtunnel.report.perfetto.write_trace", full)
    with pytest.raises(InputError, match="No space left"), Output(tmp_path / "out") as output:
        output.begin("served", finished.recording, None)
        output.save(finished)
    assert list((tmp_path / "out").iterdir()) == []


def test_an_interrupted_run_leaves_neither_files_nor_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = short_run(tmp_path)
    monkeypatch.setattr("windtunnel.report.tables.write_jobs_csv", lambda *_, **__: time.sleep(600))
    with pytest.raises(KeyboardInterrupt), Output(tmp_path / "out") as output:
        output.begin("served", finished.recording, None)
        raise KeyboardInterrupt
    assert not (tmp_path / "out").exists()
    assert output._copies
    assert all(copy._pid is None for copy in output._copies)


def short_run(folder: Path) -> Run:
    (folder / "s.yaml").write_text(SCENARIO.replace("jobs: 250", "jobs: 3"))
    finished = windtunnel.run(folder / "s.yaml", engine="process")
    assert isinstance(finished, Run)
    return finished


def in_a_copy(function: Callable[[int], object], numbers: Sequence[int], count: int) -> list[object]:
    """Do the work of ``shared`` in a copy alone."""
    assert count == 2
    with Copy(lambda: [function(number) for number in numbers]) as copy:
        found = copy.result()
    assert found is not None
    return found


def test_step_costs_that_a_copy_computes_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def costs(processes: int) -> DecoderCosts:
        monkeypatch.setattr(decoder_cache, "_cache", {})
        monkeypatch.setattr(decoder_cache, "_received", {})
        ready = prepare_run(scenario_from_data(yaml.safe_load(SCENARIO)), catalogue, processes=processes)
        found = ready.compiled[0, 0].decoder
        assert found is not None
        return found

    catalogue = Catalogue()
    here = costs(1)
    monkeypatch.setattr(decoder_cache, "shared", in_a_copy)
    with monkeypatch.context() as patched:
        for name in ("_cost", "_adapted"):
            patched.setattr(DecoderCosts, name, elsewhere(getattr(DecoderCosts, name)))
        patched.setattr(decoder_cache, "step_accuracy", elsewhere(decoder_cache.step_accuracy))
        there = costs(2)
        accuracy, sources = there.accuracy, there.sources
    for name in ("linear", "copy", "head", "decode", "prefill", "adapted", "windows"):
        assert np.array_equal(getattr(here, name), getattr(there, name)), name
    assert (accuracy, sources) == (here.accuracy, here.sources)


def test_step_costs_that_a_copy_computes_are_not_used_for_a_device_with_other_measurements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoder_cache, "_cache", {})
    monkeypatch.setattr(decoder_cache, "_received", {})
    monkeypatch.setattr(decoder_cache, "shared", in_a_copy)
    ready = scenario_from_data(yaml.safe_load(SCENARIO.replace("l4", "h100-sxm-80gb")))
    (measured,) = fleet_devices(ready, Catalogue())
    other = replace(measured, residuals={})
    assert measured.residuals and other.inputs == measured.inputs

    def linear(device: Device, processes: int) -> FloatArray:
        prepared = prepare(ready, [device], policy_of(ready), lambda *_: 0.0, processes=processes)
        found = prepared.compiled[0, 0].decoder
        assert found is not None
        return found.linear

    together, alone = linear(measured, 2), linear(other, 1)
    decoder_cache._cache.clear()
    assert np.array_equal(alone, linear(other, 1)) and not np.array_equal(alone, together)


def test_kept_tables_are_those_that_were_computed_and_damaged_or_other_ones_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    computed: list[int] = []

    def counted(function: Callable[[int], object], numbers: Sequence[int], _: int) -> list[object]:
        computed.append(len(numbers))
        return [function(number) for number in numbers]

    def costs(count: int, catalogue: Catalogue, accuracies: bool = True) -> DecoderCosts:
        """Return the tables as a new process would find them; ``count``: how many things it has to compute."""
        monkeypatch.setattr(decoder_cache, "_cache", {})
        monkeypatch.setattr(decoder_cache, "_received", {})
        computed.clear()
        ready = scenario_from_data(yaml.safe_load(SCENARIO))
        devices = fleet_devices(ready, catalogue)
        prepared = prepare(ready, devices, policy_of(ready), lambda *_: 0.0, processes=2, accuracies=accuracies)
        found = prepared.compiled[0, 0].decoder
        assert found is not None
        assert computed == [count]
        return found

    def files() -> list[Path]:
        return sorted(tmp_path.glob("decoder.*"))

    monkeypatch.setattr(decoder_cache, "shared", counted)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    shipped = Catalogue()
    here = costs(2, shipped)
    assert not files()  # the suite keeps nothing
    monkeypatch.setenv("WINDTUNNEL_KEEP_TABLES", "1")
    costs(1, shipped, accuracies=False)
    costs(1, shipped)  # the accuracy, which was not asked for before
    found = costs(0, shipped)
    (file,) = files()
    # A worker is told where they are, and prices them itself if they are gone.
    sent = decoder_cache.known_tables()
    assert list(sent.values()) == [file.name]
    monkeypatch.setattr(decoder_cache, "_cache", {})
    decoder_cache.receive_tables(sent)
    received = prepare_run(scenario_from_data(yaml.safe_load(SCENARIO)), shipped).compiled[0, 0].decoder
    for there in (found, received):
        for name in ("linear", "copy", "head", "decode", "prefill", "adapted", "windows"):
            assert np.array_equal(getattr(here, name), getattr(there, name)), name
        assert there is not None
        assert (there.accuracy, there.sources) == (here.accuracy, here.sources)

    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], whole[:100] + b"!" + whole[101:]):
        file.write_bytes(damaged)
        costs(2, shipped)
        assert file.read_bytes() == whole
    costs(2, shipped.replaced({"l4": {"memory_bandwidth_bytes_per_s": 200e9}}))
    assert len(files()) == 2
    costs(2, Catalogue([tmp_path]))  # a folder that may describe devices otherwise
    monkeypatch.setattr(decoder_cache, "_SOURCES", (tmp_path / "other sources",))
    costs(2, shipped)
    assert len(files()) == 3
    monkeypatch.setattr(kept, "_MOST_BYTES", 5 * len(whole) // 2)
    os.utime(file, (time.time() + 1, time.time() + 1))
    kept.write(kept.name_of("decoder", "more"), whole[16:])
    assert len(files()) == 2
    assert file in files()  # those that were not used for the longest time are deleted


def test_a_kept_device_is_what_its_files_describe_and_its_residuals_are_read_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = {"m": np.arange(1.0, 101.0), "n": np.array([4096.0]), "k": np.array([4096.0]), "batch": np.ones(1)}
    choices = {"dtype": "bfloat16", "dispatch": "device", "clock": "sustained", "cache": "cold"}
    rows = Rows(OPERATIONS["gemm"], choices, step)
    described = Catalogue().device("h100-sxm-80gb")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("WINDTUNNEL_KEEP_TABLES", "1")
    Catalogue().device("h100-sxm-80gb")
    assert len(list(tmp_path.glob("device.*"))) == 1
    made = Catalogue._made
    read: list[str] = []

    def counted(self: Catalogue, name: str) -> Device:
        read.append(name)
        return made(self, name)

    monkeypatch.setattr(Catalogue, "_made", counted)
    known = Catalogue().device("h100-sxm-80gb")
    assert not read
    assert (known.spec, known.api, known.accuracies) == (described.spec, described.api, described.accuracies)
    assert list(known.values.items()) == list(described.values.items())
    assert np.array_equal(known.cost(rows).duration_high_s, described.cost(rows).duration_high_s)
    assert set(known.residuals) == set(described.residuals)
    assert read == [known.label]


def elsewhere(function: Callable[..., object]) -> Callable[..., object]:
    """Return ``function`` that fails in this process."""
    this = os.getpid()

    def called(*arguments: object, **more: object) -> object:
        assert os.getpid() != this
        return function(*arguments, **more)

    return called
