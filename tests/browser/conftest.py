"""A browser, and a synthetic run to look at: two workloads (one makes tokens), six devices of three SKUs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from windtunnel.core.recording import (
    COMPLETED,
    DROPPED,
    QUEUED,
    RUNNING,
    STATUS,
    DeviceRecord,
    Devices,
    Jobs,
    Recording,
    Slice,
    Steps,
    TokenGaps,
)
from windtunnel.core.results.run import (
    DeviceResult,
    Estimate,
    JobCounts,
    ModelInput,
    PartStatistics,
    RunResult,
    RunStatistics,
    Serving,
    TimeDistribution,
    WorkloadResult,
)
from windtunnel.core.results.target import TargetVerdict
from windtunnel.core.ticks import to_tick_array

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_LIMIT_MS = 600_000
"""Playwright stops waiting after ten minutes: this only limits a test that hangs."""


@dataclass
class Opened:
    """A page, and all that it reported and requested."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def assert_silent(self) -> None:
        """Fail if the page reported anything, or requested anything but itself and data within it."""
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []


_running: list[tuple[Playwright, Browser]] = []


@pytest.fixture
def browser() -> Browser:
    """Chromium, one for all tests of this folder: of this host, else Playwright's own.

    A host without one fails, because a report is there to be read.
    """
    if not _running:
        names = ("chromium", "chromium-browser", "google-chrome")
        path = next((path for name in names if (path := shutil.which(name)) is not None), None)
        playwright = sync_playwright().start()
        _running.append((playwright, playwright.chromium.launch(executable_path=path, args=_FLAGS, timeout=_LIMIT_MS)))
    return _running[0][1]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """End the browser after the last test of this folder: Playwright keeps an event loop in this thread till then."""
    yield
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        for playwright, chromium in _running:
            chromium.close()
            playwright.stop()
        _running.clear()


@pytest.fixture
def open_file(browser: Browser) -> Iterator[Callable[..., Opened]]:
    """Open a file in a window of a width, in a light or dark scheme; return it once its charts are drawn."""
    contexts = []

    def opener(file: Path, width: int = 1280, scheme: Any = "light") -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(_LIMIT_MS)
        contexts.append(context)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda message: opened.complaints.append(f"{message.type}: {message.text}"))
        opened.page.on("pageerror", lambda error: opened.complaints.append(f"error: {error}"))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(file.as_uri())
        # uPlot draws in a microtask after the script; two frames later every canvas is on screen.
        opened.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return opened

    yield opener
    for context in contexts:
        context.close()


Run = tuple[RunResult, Recording]

HOSTILE = '</script><script>window.__owned = 1</script><img src=x onerror="window.__owned = 1">{{ 7 * 7 }}\'"&'

NO_CURVE = (
    "No vendor publishes how power follows load between idle and the limit; "
    "0.6 to 1.0 spans the published curves of similar parts."
)

SKUS = {
    "h100-sxm-80gb": ("gpu", 700.0, 75.0, 2.49),
    "l40s": ("gpu", 350.0, 35.0, 0.79),
    "tpu-v5e": ("tpu", 220.0, 60.0, 1.20),
}
FLEET = ("h100-sxm-80gb", "h100-sxm-80gb", "l40s", "l40s", "l40s", "tpu-v5e")


def timed(seconds: np.ndarray, weights: np.ndarray | None = None) -> TimeDistribution:
    """Mean and percentiles, with an interval where there are enough values."""
    if weights is not None:
        seconds = np.repeat(seconds, weights)
    if not len(seconds):
        return TimeDistribution(*[Estimate(None)] * 4)
    values = {"mean": seconds.mean()} | {f"p{p}": np.quantile(seconds, p / 100) for p in (50, 95, 99)}
    widths = {"mean": 0.01, "p50": 0.012, "p95": 0.03, "p99": 0.06}
    enough = len(seconds) >= 100
    return TimeDistribution(
        **{
            name: Estimate(
                float(value),
                float(value * (1 - widths[name])) if enough else None,
                float(value * (1 + 1.3 * widths[name])) if enough else None,
            )
            for name, value in values.items()
        }
    )


def counts(status: np.ndarray) -> JobCounts:
    return JobCounts(arrived=len(status), **{word: int((status == code).sum()) for code, word in enumerate(STATUS)})


NO_STATISTICS = RunStatistics(
    method="",
    stationary=False,
    warmup_jobs=0,
    warmup_reason="",
    steady_state=None,
    steady_state_reason=None,
    offered_load=None,
    missing_interval_reasons={},
)


def verdict(
    text: str, metric: str, statistic: str | None, workload: str | None, unit: str, limit: float, value: float | None
) -> TargetVerdict:
    comparison = ">=" if ">=" in text else "<="
    return TargetVerdict(
        text=text,
        met=value is not None and (value >= limit if comparison == ">=" else value <= limit),
        confidence="conclusive",
        value=value,
        low=None,
        high=None,
        reason=None,
        metric=metric,
        statistic=statistic,
        workload=workload,
        comparison=comparison,
        limit=limit,
        unit=unit,
    )


def make_run(
    *,
    jobs: int = 9_000,
    fleet: tuple[str, ...] = FLEET,
    name: str = "chat-and-search",
    workloads: tuple[str, str] = ("chat", "embedding search"),
    hostile: bool = False,
    seed: int = 1,
) -> Run:
    """A result and the recording it would have come from: plausible, not simulated."""
    rng = np.random.default_rng(seed)
    if hostile:
        name, workloads = HOSTILE, (HOSTILE, "=cmd()|'\u2028<b>bold</b>")
    span = 120.0
    arrival = np.sort(rng.uniform(0, span * 0.97, jobs))
    arrival[0] = 0.0
    workload = (rng.random(jobs) < 0.35).astype(np.int64)
    busy_hour = 1 + 3.0 * np.exp(-(((arrival - 70) / 9) ** 2))
    waiting = rng.exponential(0.09, jobs) * (busy_hour - 0.9) * (rng.random(jobs) < 0.7)
    tokens = np.where(workload == 0, rng.lognormal(5.1, 0.6, jobs).astype(np.int64) + 1, 0)
    gap = rng.lognormal(np.log(0.021), 0.12, jobs) * (1 + 0.15 * busy_hour)
    prefill = rng.lognormal(np.log(0.11), 0.45, jobs)
    service = np.where(workload == 0, prefill + tokens * gap, rng.lognormal(np.log(0.018), 0.3, jobs))
    start, finish = arrival + waiting, arrival + waiting + service
    status = np.full(jobs, COMPLETED, dtype=np.int64)
    status[finish > span] = RUNNING
    status[start > span] = QUEUED
    status[rng.choice(jobs, jobs // 700, replace=False)] = DROPPED
    ran, done = (status == COMPLETED) | (status == RUNNING), status == COMPLETED
    device = np.where(ran, rng.integers(0, len(fleet), jobs), -1)
    never = np.int64(-1)
    ticks = {key: to_tick_array(value) for key, value in (("a", arrival), ("s", start), ("f", finish))}
    first = to_tick_array(start + prefill)
    energy = np.where(ran, service * 180.0, 0.0)
    table = Jobs(
        workload=workload,
        arrival=ticks["a"],
        start=np.where(ran, ticks["s"], never),
        finish=np.where(done, ticks["f"], never),
        first=np.where(done & (workload == 0), first, never),
        tokens=np.where(done, tokens, 0),
        device=device,
        status=status,
        energy_j=energy,
        starts=ran.astype(np.int64),
    )
    chat = done & (workload == 0)
    gaps = TokenGaps(
        ticks=to_tick_array(gap[chat]),
        weights=tokens[chat],
        end=ticks["f"][chat],
        workload=np.zeros(int(chat.sum()), np.int64),
        of=np.full(int(chat.sum()), -1, dtype=np.int64),
    )
    end = int(span * 1e12)
    at = np.unique(to_tick_array(np.concatenate([[0.0], np.sort(rng.uniform(0.01, span, 40_000))])))
    seconds = at / 1e12
    swell = 0.45 + 0.45 * np.exp(-(((seconds - 70) / 12) ** 2)) + 0.05 * np.sin(seconds / 3)
    limit = sum(SKUS[sku][1] for sku in fleet)
    idle = sum(SKUS[sku][2] for sku in fleet)
    watts = np.minimum(idle + (limit - idle) * np.clip(swell + rng.normal(0, 0.06, len(at)), 0, 1), limit)
    power = Steps(at, watts, end)
    queue = np.maximum(0, np.rint(40 * np.exp(-(((seconds - 72) / 9) ** 2)) + rng.normal(0, 1.5, len(at))))
    waiting_steps = Steps(at, queue, end)
    records, devices = [], []
    for i, sku in enumerate(fleet):
        kind, most, least, _price = SKUS[sku]
        used = float(
            np.clip(0.62 + 0.3 * (sku == "h100-sxm-80gb") - 0.2 * (sku == "tpu-v5e") + rng.normal(0, 0.04), 0, 1)
        )
        joules = span * (least + used * (most - least) * 0.8)
        label = f"{sku}-{i}" if not hostile or i else HOSTILE
        records.append(DeviceRecord(label, sku, kind, int(used * end), joules, int((device == i).sum()), most, least))
        devices.append(
            {"name": label, "sku": sku, "kind": kind, "utilisation": used, "energy_j": joules}
            | {"jobs": int((device == i).sum()), "power_limit_w": most, "idle_power_w": least}
        )
    slices = [
        Slice(i, "compute", f"decode {k}", int(end * k / 50), int(end * (k + 0.7) / 50))
        for i in range(min(len(fleet), 6))
        for k in range(50)
    ]
    recording = Recording(
        end=end,
        jobs=table,
        devices=Devices.of(records),
        workloads=workloads,
        power=power,
        waiting=waiting_steps,
        slices=slices,
        token_gaps=gaps,
        sampled_slices=len(fleet) > 24,
    )
    return result_of(recording, name, seed, hostile), recording


def result_of(recording: Recording, name: str, seed: int, hostile: bool) -> RunResult:
    jobs, span = recording.jobs, recording.end / 1e12
    done = jobs.status == COMPLETED
    latency, waited = (jobs.finish - jobs.arrival) / 1e12, (jobs.start - jobs.arrival) / 1e12
    firsts = (jobs.first - jobs.arrival) / 1e12
    gaps = recording.token_gaps
    following = timed(gaps.ticks / 1e12, gaps.weights)
    workloads = []
    for i, label in enumerate(recording.workloads):
        mine = jobs.workload == i
        workloads.append(
            WorkloadResult(
                name=label,
                use_case="interactive" if i == 0 else None,
                jobs=counts(jobs.status[mine]),
                latency_s=timed(latency[mine & done]),
                waiting_s=timed(waited[mine & done]),
                serving=Serving(ttft_s=timed(firsts[mine & (jobs.first >= 0)]), itl_s=following) if i == 0 else None,
                statistics=PartStatistics(missing_interval_reasons={}),
            )
        )
    energy = recording.power.integral()
    price = sum(SKUS[device.label][3] for device in recording.devices)
    all_latency, all_first = timed(latency[done]), timed(firsts[jobs.first >= 0])
    chat_p95 = workloads[0].latency_s.p95.value
    limits = [
        ("latency p99 <= 15 s", "latency", "p99", None, "s", 15.0, all_latency.p99.value),
        ("latency p95 of chat <= 20 s", "latency", "p95", recording.workloads[0], "s", 20.0, chat_p95),
        ("ttft p95 <= 500 ms", "ttft", "p95", None, "s", 0.5, all_first.p95.value),
        ("itl p99 <= 50 ms", "itl", "p99", None, "s", 0.05, following.p99.value),
        ("throughput >= 60 /s", "throughput", None, None, "/s", 60.0, int(done.sum()) / span),
        ("utilisation <= 90 %", "utilisation", None, None, "1", 0.9, 0.71),
    ]
    described = "Two H100s, three L40S and a TPU v5e behind one queue, at the evening peak."
    return RunResult(
        name=name,
        description=HOSTILE if hostile else described,
        engine="process",
        engine_reason="",
        seed=seed,
        replications=1,
        policy="fifo",
        simulated_s=span,
        jobs=counts(jobs.status),
        latency_s=all_latency,
        waiting_s=timed(waited[done]),
        serving=Serving(ttft_s=all_first, itl_s=following, output_tokens_per_s=float(jobs.tokens.sum()) / span),
        statistics=NO_STATISTICS,
        throughput_per_s=int(done.sum()) / span,
        workloads=workloads,
        devices=[
            DeviceResult(
                name=d.name,
                sku=d.label,
                entry=d.label,
                kind=d.kind,
                utilisation=d.busy_ticks / recording.end,
                rented_s=span,
                energy_j=d.energy_j,
                jobs=d.jobs,
                power_limit_w=d.power_limit_w,
                idle_power_w=d.idle_power_w,
                availability=1.0,
            )
            for d in recording.devices
        ],
        faults=None,
        autoscale=[],
        utilisation=0.71,
        availability=1.0,
        energy_j=energy,
        average_power_w=energy / span,
        peak_power_w=float(recording.power.values.max()),
        power_limit_w=sum(d.power_limit_w for d in recording.devices),
        power_budget=None,
        cost_usd=price * span / 3600,
        cost_usd_per_h=price,
        total_cost_usd=None,
        site=None,
        targets=[verdict(*limit) for limit in limits],
        provenance=provenance(hostile),
        contexts=[],
        model_accuracy=[],
        notes=[
            "chat: the batch of h100-sxm-80gb was limited to 48 jobs by memory",
            "Percentile intervals come from batch means over 20 batches.",
            *([HOSTILE] if hostile else []),
        ],
        scenario=scenario(name, recording),
        versions={"windtunnel": "0.1.0", "python": "3.11.9", "numpy": "2.4.6", "simpy": "4.1.2"},
    )


def provenance(hostile: bool) -> list[ModelInput]:
    """Values and ranges in the row's own unit, as result.json holds them."""
    rows: list[tuple[Any, ...]] = []
    for sku, scale in (("h100-sxm-80gb", 1.0), ("l40s", 0.37), ("tpu-v5e", 0.2)):
        sheet = f"https://example.com/datasheets/{sku}-datasheet-nvidia-us-2287922-web.pdf"
        rows += [
            (sku, "matrix_flops.bfloat16", 989.4e12 * scale, "FLOP/s", "datasheet", sheet),
            (sku, "memory_bandwidth", 3.35e12 * scale, "B/s", "datasheet", sheet),
            (sku, "memory_bytes", 80e9 * scale, "B", "datasheet", sheet),
            (sku, "max_power_w", 700 * scale, "W", "datasheet", sheet),
            (sku, "idle_power_w", 75 * scale, "W", "published", "Patel et al. 2024, table 3"),
            (sku, "efficiency.gemm", 0.71, "1", "measured", "calibration/h100-sxm-80gb.yaml", 0.66, 0.75),
            (sku, "api.launch_s", 4.1e-6, "s", "published", "https://example.org/launch-latency", 3.2e-6, 6e-6),
            (sku, "clock.burst", 1980.0, "MHz", "datasheet", sheet),
            (sku, "power_exponent", 0.8, "1", "assumed", "assumed", 0.6, 1.0, NO_CURVE),
            (sku, "price", 2.5, "USD/h", "assumed", "assumed", 1.5, 4.0, "Median of public on-demand prices."),
        ]
    if hostile:
        rows.append((HOSTILE, HOSTILE, 1.0, "1", "assumed", HOSTILE, 0.5, 2.0, HOSTILE))
        rows.append(("javascript", "link", 1.0, "1", "datasheet", "javascript:window.__owned=1"))
    return [ModelInput(*row, *[None] * (9 - len(row))) for row in rows]


def scenario(name: str, recording: Recording) -> dict[str, Any]:
    fleet = [{"device": sku, "count": 1, "price": "2.5 USD/h"} for sku in {d.label: None for d in recording.devices}]
    return {
        "schema": 1,
        "name": name,
        "seed": 1,
        "fleet": fleet,
        "workload": [
            {"name": w, "arrivals": {"process": "poisson", "rate": "48.75 /s"}, "model": "llama-3-8b"}
            for w in recording.workloads
        ],
        "policy": "fifo",
        "stop": {"time": "120 s"},
        "targets": ["latency p99 <= 15 s", "ttft p95 <= 500 ms"],
    }


def make_empty_run() -> Run:
    """A run in which nothing completed, nothing was priced and nothing was asked."""
    result, recording = make_run(jobs=10, fleet=("l40s",))
    never = np.full(3, -1, dtype=np.int64)
    jobs = Jobs(
        workload=np.zeros(3, np.int64),
        arrival=np.arange(3, dtype=np.int64) * 10**12,
        start=never,
        finish=never,
        first=never,
        tokens=np.zeros(3, np.int64),
        device=never,
        status=np.full(3, QUEUED, dtype=np.int64),
        energy_j=np.zeros(3),
        starts=np.zeros(3, np.int64),
    )
    none = np.zeros(0, np.int64)
    at, end = np.zeros(1, np.int64), recording.end
    recording = Recording(
        end,
        jobs,
        recording.devices,
        ("chat",),
        Steps(at, np.array([35.0]), end),
        Steps(at, np.array([3.0]), end),
        (),
        TokenGaps(none, none, none, none, none),
    )
    nothing = timed(np.zeros(0))
    empty = counts(jobs.status)
    part = {"jobs": empty, "latency_s": nothing, "waiting_s": nothing, "serving": None}
    workload = WorkloadResult(
        name="chat", use_case=None, statistics=PartStatistics(missing_interval_reasons={}), **part
    )
    return replace(
        result,
        description=None,
        **part,
        throughput_per_s=0.0,
        workloads=[workload],
        cost_usd=None,
        cost_usd_per_h=None,
        power_limit_w=350.0,
        targets=[verdict("latency p99 <= 1 s", "latency", "p99", None, "s", 1.0, None)],
        provenance=[],
        notes=[],
    ), recording


@pytest.fixture(scope="session")
def make() -> Callable[..., Run]:
    return make_run


@pytest.fixture(scope="session")
def make_empty() -> Callable[..., Run]:
    return make_empty_run


@pytest.fixture(scope="session")
def hostile_text() -> str:
    return HOSTILE
