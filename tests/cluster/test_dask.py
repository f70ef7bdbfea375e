"""A sweep on a real Dask scheduler with two workers in processes of their own, one of them killed half-way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from windtunnel.app import sweep as sweep_command
from windtunnel.core.errors import InputError
from windtunnel.simulation.versions import made_with
from windtunnel.sweep import workers

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = """\
schema: 1
name: small
fleet:
  - {device: l40s, count: 2, calibration: parts/l40s.yaml}
workload:
  - name: products
    arrivals: {process: trace, file: ../traces/requests.csv, time: at}
    ops: [{gemm: {m: $Rows, n: 1024, k: 1024, dtype: bfloat16}}]
targets: [latency p99 <= 200 us]
"""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy host may take long to connect."""
    monkeypatch.setattr(workers, "_START_TIMEOUT_S", 1800)


def wait_for(read: Callable[[], str | None]) -> str:
    """Poll for a text for ten minutes at most, which only limits a test that hangs."""
    end = time.monotonic() + 600.0
    while not (text := read()):
        assert time.monotonic() < end, "there was no text for ten minutes"
        time.sleep(0.02)
    return text


class Cluster:
    """A scheduler and workers that share no folder with the sweep but its code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        paths = [str(ROOT / "simulator"), str(ROOT / "device_models")]
        self.environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}

    def start_all(self) -> None:
        self.start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                   "--scheduler-file", str(self.folder / "scheduler.json"))  # fmt: skip
        self.address: str = wait_for(self._address)
        self.workers = [self.worker(str(i)) for i in range(2)]

    def _address(self) -> str | None:
        try:
            return str(json.loads((self.folder / "scheduler.json").read_text())["address"])
        except (FileNotFoundError, ValueError):  # not there, or not all of it
            return None

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        return self.start("dask_worker", self.address, "--nthreads", "1", "--no-dashboard", "--no-nanny",
                          "--name", name, "--local-directory", str(self.folder / name))  # fmt: skip

    def start(self, module: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"log-{len(self.processes)}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *words],
                stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, env=self.environment,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        started.start_all()
        yield started
    finally:
        started.stop()


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario that names a trace and an overlay, in folders of their own."""
    from windtunnel_models.catalogue import HERE

    (tmp_path / "traces").mkdir()
    rows = [f"{i * 0.0002:.4f},{64 + i % 32}" for i in range(800)]
    (tmp_path / "traces" / "requests.csv").write_text("at,Rows\n" + "\n".join(rows) + "\n")
    (tmp_path / "mine" / "parts").mkdir(parents=True)
    for name in ("l40s.yaml", "l40s.npz"):  # the overlay names the arrays
        (tmp_path / "mine" / "parts" / name).write_bytes((HERE / "calibration" / name).read_bytes())
    (tmp_path / "mine" / "small.yaml").write_text(SCENARIO)
    return tmp_path / "mine" / "small.yaml"


OVER = ["fleet[0].count=1..3", "policy=fifo,least-loaded", "workload[0].arrivals.time=at"]


def test_a_killed_worker_costs_nothing_but_time(cluster: Cluster, scenario: Path, tmp_path: Path) -> None:
    here = sweep_command.sweep(scenario, OVER, out=tmp_path / "here", workers=2)
    killed: list[tuple[int, int]] = []

    def kill_half_way(done: int, total: int) -> None:
        if done == total // 2 and not killed:
            cluster.workers[0].kill()
            killed.append((done, cluster.workers[0].wait()))

    there = sweep_command.sweep(scenario, OVER, out=tmp_path / "there", cluster=cluster.address, progress=kill_half_way)
    assert killed == [(3, -signal.SIGKILL)]
    assert there.failed == 0 and there == here
    for name in ("sweep.csv", "sweep.json", "manifest.json"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    # Each counted once, and each result the very bytes of the local one.
    runs = sorted(path.name for path in (tmp_path / "there" / "runs").iterdir())
    assert runs == [row.key for row in here.rows]
    for run in runs:
        ends = [tmp_path / side / "runs" / run / "result.json" for side in ("here", "there")]
        assert ends[0].read_bytes() == ends[1].read_bytes()


def test_what_a_sweep_sent_is_taken_away_when_it_ends(cluster: Cluster, scenario: Path) -> None:
    sweep_command.sweep(scenario, ["seed=1,2"], cluster=cluster.address)
    # A killed worker's folder is taken away by Dask when another starts there.
    assert (cluster.folder / "1").exists() and list((cluster.folder / "1").rglob("requests.csv")) == []


def test_what_is_wrong_on_the_cluster_is_said_of_the_users_own_files(cluster: Cluster, scenario: Path) -> None:
    trace = scenario.parent.parent / "traces" / "requests.csv"
    trace.write_text("at,Rows\n0.0,64\n0.1,none\n")
    with pytest.raises(InputError, match=r"point 1 of 1 .*traces/requests.csv:3") as caught:
        sweep_command.sweep(scenario, ["seed=1"], cluster=cluster.address)
    assert "windtunnel-" not in str(caught.value)


def test_a_worker_with_another_installation_is_refused(cluster: Cluster, scenario: Path, monkeypatch: Any) -> None:
    real = made_with()
    expected = {**real, "windtunnel": "0.0.9"}
    bundle_of = workers._Bundle
    monkeypatch.setattr(
        workers, "_Bundle", lambda name, work, inputs, facts, _: bundle_of(name, work, inputs, facts, expected)
    )
    with pytest.raises(InputError, match=r"has windtunnel .*, and this machine has 0\.0\.9"):
        sweep_command.sweep(scenario, ["seed=1"], cluster=cluster.address)


@pytest.mark.parametrize(
    ("address", "said"),
    [("10.0.0.1", "no scheduler's address"), ("tcp://127.0.0.1:9", "no Dask scheduler answers")],
)
def test_an_address_where_nobody_answers_is_refused(scenario: Path, address: str, said: str, monkeypatch: Any) -> None:
    # Nobody will ever answer, so that a short wait changes nothing.
    monkeypatch.setattr(workers, "_CONNECT_TIMEOUT_S", 0.02)
    with pytest.raises(InputError, match=said):
        sweep_command.sweep(scenario, ["seed=1"], cluster=address)


def test_without_dask_it_says_what_to_install(scenario: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"expected pip install 'windtunnel\[cluster\]'"):
        sweep_command.sweep(scenario, ["seed=1"], cluster="tcp://127.0.0.1:9")


def test_a_lost_scheduler_ends_the_sweep_and_keeps_what_was_finished(
    scenario: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    lost = Cluster(tmp_path_factory.mktemp("lost"))
    out = tmp_path / "out"

    def lose(done: int, _: int) -> None:
        if done == 1:
            lost.processes[0].kill()
            lost.processes[0].wait()

    try:
        lost.start_all()
        with pytest.raises(InputError, match="the cluster was lost"):
            sweep_command.sweep(scenario, ["seed=1..8"], out=out, cluster=lost.address, progress=lose)
    finally:
        lost.stop()
    (kept,) = out.glob("runs/*/result.json")
    os.utime(kept, ns=(0, 0))  # a file that is written later has another time
    assert sweep_command.sweep(scenario, ["seed=1..8"], out=out, workers=2).failed == 0
    results = list(out.glob("runs/*/result.json"))
    assert len(results) == 8 and [path for path in results if path.stat().st_mtime_ns == 0] == [kept]
