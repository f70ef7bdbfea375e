"""Real devices in fleets: what is measured is charged, nobody sees which is which, and nothing is lost when one fails."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import FLEET_POLICIES, info

import windtunnel
from windtunnel.app import plan as planner
from windtunnel.app import run as run_command
from windtunnel.app import sweep as sweep_command
from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.discovery import executor as real_executor
from windtunnel.backends.discovery import real_devices as discovery
from windtunnel.backends.discovery.probe import ProbeResult
from windtunnel.backends.discovery.registry import backend
from windtunnel.core import errors
from windtunnel.core.executor import Executed
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.results.run import RealWork
from windtunnel.engine.prepare import real_devices
from windtunnel.report.summary import summary
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation import compare as comparing
from windtunnel.simulation.fleet import fleet_devices
from windtunnel.simulation.run import Run
from windtunnel_models.catalogue import Catalogue

pytestmark = pytest.mark.usefixtures("stated_host")
KNOWN = Catalogue()


class Fake:
    """An executor whose operations take ``factor`` times what the model of ``device`` says."""

    def __init__(
        self, name: str, device: str = "host", factor: float = 1.0, *, says: Sequence[Executed] = (), kind: str = "cpu",
        refuses: str = "",
    ) -> None:  # fmt: skip
        self.name, self.factor, self.says, self.refuses = name, factor, list(says), refuses
        self.info, self.model = info(kind, "opencl" if name.startswith("opencl") else "native"), KNOWN.device(device)
        self.done: list[tuple[str, Mapping[str, Any]]] = []
        self.counted: Counter[tuple[str, tuple[tuple[str, Any], ...]]] = Counter()

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        return f"no {op} here" if op in (self.refuses, "service") else None

    def execute(self, op: str, columns: Mapping[str, Any]) -> Executed:
        self.done.append((op, columns))
        if self.says and (found := self.says.pop(0)).problem:
            return found
        self.counted[op, tuple(columns.items())] += 1
        return Executed(self.factor * float(self.model.cost(one_row(OPERATIONS.find(op), columns)).duration_s[0]))

    def executed(self) -> Mapping[tuple[str, tuple[tuple[str, Any], ...]], int]:
        return self.counted

    def begun(self) -> Fake:
        self.counted = Counter()
        return self

    def report(self) -> RealWork:
        return RealWork(
            real=self.name, label="a fake", api="fake", software=True, driver="fake 1", versions={},
            operations=self.counted.total(), measured_s=0.0, timer=[], checked=0, worst_error_share=None, failures=[],
        )  # fmt: skip


def use(monkeypatch: pytest.MonkeyPatch, *fakes: Fake) -> None:
    named = {fake.name: fake for fake in fakes}
    monkeypatch.setattr(real_executor, "open_executor", lambda name: named[name].begun())


def scenario(fleet: Sequence[Mapping[str, Any]], jobs: int = 40, policy: Any = "fifo", **more: Any) -> Any:
    return scenario_from_data(
        {
            "schema": 1,
            "name": "mixed",
            "seed": 3,
            "fleet": list(fleet),
            "workload": [
                {
                    "name": "w",
                    "arrivals": {"process": "poisson", "rate": "2000 /s"},
                    "ops": [{"vector_add": {"n": 1_000_000}}, {"stencil": {"nx": 512, "ny": 512, "dtype": "float32"}}],
                    "deadline": "1 s",
                    "use_case": "general compute",
                }
                | more.pop("workload", {})
            ],
            "policy": policy,
            "stop": {"jobs": jobs},
        }
        | more
    )


def run(made: Any, engine: str = "process") -> Run:
    return windtunnel.run(made, engine=engine)


REAL = [{"real": "cpu:0", "name": "one"}, {"device": "host", "name": "two"}, {"device": "epyc-9654", "name": "three"}]
BROKEN = Executed(1e-4, "it broke")


@pytest.mark.parametrize("policy", [*FLEET_POLICIES, "recommendation-matrix"])
def test_no_policy_can_tell_a_real_device_from_a_model(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """A real device that takes what its model says: every job starts and ends as on models alone, wherever."""
    others = [{"device": "rtx-4090@opencl", "price": "1 USD/h"}, {"device": "host@vulkan", "price": "1 USD/h"}]
    prices = (
        [{"price": "1 USD/h", "name": "one", **way}, *others]
        for way in ({"real": "opencl:0"}, {"device": "host@opencl"})
    )
    real_fleet, modelled_fleet = prices
    fake = Fake("opencl:0", "host@opencl")
    use(monkeypatch, fake)
    modelled = run(scenario(modelled_fleet, policy=policy)).recording.jobs
    real = run(scenario(real_fleet, policy=policy)).recording.jobs
    assert [real.device.tolist(), real.start.tolist(), real.finish.tolist()] == [
        modelled.device.tolist(),
        modelled.start.tolist(),
        modelled.finish.tolist(),
    ]
    assert len(fake.done) == 2 * int((real.device == 0).sum())


@given(st.floats(0.2, 5.0), st.integers(0, 2**31), st.integers(1, 60))
@settings(max_examples=30)
def test_what_was_measured_is_what_the_clock_is_charged(factor: float, seed: int, jobs: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        use(patch, Fake("cpu:0", factor=factor))
        made = scenario(REAL[:1], jobs, seed=seed)
        done = run(made)
    found, model = done.recording.jobs, KNOWN.device("host")
    each = sum(
        round(factor * float(model.cost(one_row(OPERATIONS.find(op), values)).duration_s[0]) * 1e12)
        for op, values in (("vector_add", {"n": 1_000_000}), ("stencil", {"nx": 512, "ny": 512, "dtype": "float32"}))
    )
    assert np.abs(found.finish - found.start - each).max() <= 2
    assert (found.start[1:] >= found.finish[:-1]).all()
    assert done.result.jobs.completed == jobs


def test_the_choice_is_by_the_model_also_where_the_device_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times slower than its model says: it is chosen by its estimate, and its queue tells the rest."""
    use(monkeypatch, Fake("cpu:0", factor=10.0))
    apart = scenario(
        REAL[:2], 2, "shortest-expected-completion", workload={"arrivals": {"process": "deterministic", "rate": "1 /s"}}
    )
    assert run(apart).recording.jobs.device.tolist() == [0, 0]


# Failures.


@pytest.mark.parametrize("policy", ["fifo", "shortest-expected-completion"])
def test_a_job_at_which_a_real_device_fails_is_tried_again_and_its_time_is_charged(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    use(monkeypatch, Fake("cpu:0", says=[BROKEN]))
    done = run(scenario(REAL[:1], 5, policy))
    assert done.result.jobs.arrived == done.result.jobs.completed == 5
    jobs = done.recording.jobs
    assert jobs.starts[0] == 2 and jobs.start[0] - jobs.arrival[0] == round(1e-4 * 1e12)


@pytest.mark.parametrize("policy", ["fifo", "shortest-expected-completion", "round-robin"])
def test_what_a_device_that_disappears_had_and_would_get_is_done_elsewhere(
    monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    fine = Executed(0.0)
    use(monkeypatch, Fake("cpu:0", says=[fine] * 7 + [Executed(0.5, "no answer", gone=True)]))
    done = run(scenario(REAL[:2], 60, policy))
    jobs = done.recording.jobs
    assert done.result.jobs.completed == 60 and done.result.jobs.failed == 0
    on_it = jobs.device == 0
    assert 1 <= on_it.sum() <= 4 and (jobs.starts == 2).sum() == 1
    # Whatever waited for it went to the other, and nothing began on it after it was gone.
    assert jobs.start[on_it].max() < jobs.start[~on_it].max()


def test_a_device_that_comes_back_is_used_again_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake("cpu:0", says=[Executed(0.01, "hung", gone=True, back_s=0.25)]))
    done = run(scenario(REAL[:1], 5))
    jobs = done.recording.jobs
    assert done.result.jobs.completed == 5
    assert jobs.start.min() - jobs.arrival.min() == pytest.approx(0.26e12, abs=2)


def test_where_no_device_is_left_jobs_wait_for_ever_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake("cpu:0", says=[Executed(0.01, "gone", gone=True)]))
    counts = run(scenario(REAL[:1], 5)).result.jobs
    assert counts.queued == counts.arrived == 5


def test_a_job_at_which_a_device_always_fails_is_given_up_after_three_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake("cpu:0", says=[BROKEN] * 1000)
    use(monkeypatch, fake)
    counts = run(scenario(REAL[:1], 4)).result.jobs
    assert counts.failed == counts.arrived == 4 and len(fake.done) == 12


@given(
    st.lists(st.sampled_from(["fine", "broken", "back", "gone"]), max_size=60),
    st.sampled_from(["fifo", "round-robin", "shortest-expected-completion"]),
)
@settings(max_examples=40)
def test_whatever_fails_every_job_is_accounted_for(what: list[str], policy: str) -> None:
    says = {"fine": Executed(0.0), "broken": BROKEN, "back": Executed(1e-3, "hung", gone=True, back_s=1e-3),
            "gone": Executed(1e-3, "lost", gone=True)}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        use(patch, Fake("cpu:0", says=[says[one] for one in what]))
        counts = run(scenario(REAL[:2], 30, policy)).result.jobs
    assert counts.arrived == 30 == sum(vars(counts).values()) - 30
    assert counts.completed + counts.failed == 30


# What is refused, before anything runs.


def test_what_a_real_device_does_not_do_is_done_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake("cpu:0", refuses="stencil")
    use(monkeypatch, fake)
    assert set(run(scenario(REAL[:2])).recording.jobs.device.tolist()) == {1} and not fake.done
    with pytest.raises(errors.InputError, match="cpu:0 does not support it: no stencil here"):
        run(scenario(REAL[:1]))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"real": "cpu:0", "count": 2}, "a real device with count 2"),
        ({"real": "cpu:0", "speed": 1.5}, "a real device with speed 1.5"),
        ({"real": "cpu:0", "streams": 2}, "a real device with streams 2"),
        ({"real": "cpu"}, "'cpu' is not the name of a device; expected a back end and a number: opencl:0"),
        ({"real": "cpu:x"}, "is not the name of a device"),
        ({"count": 2}, "a fleet entry without a device"),
    ],
)
def test_an_entry_that_is_none_is_refused_at_its_place(entry: Mapping[str, Any], says: str) -> None:
    with pytest.raises(errors.InputError, match=says):
        scenario([entry])


def test_a_real_device_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake("cpu:0"))
    with pytest.raises(errors.InputError, match=r"fleet\[1\].real: cpu:0 is in the fleet twice"):
        run(scenario([{"real": "cpu:0", "name": "one"}, {"real": "cpu:0", "name": "two"}]))


def test_a_back_end_that_is_none_is_an_error_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.InputError, match=r"unknown back end 'opencel'.*opencl"):
        run(scenario([{"real": "opencel:0", "device": "host"}]))


def test_a_card_without_a_stated_model_is_what_it_is_or_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3 where the device is absent; where it is there, its label tells the model."""

    def probed(label: str) -> None:
        card = DetectedDevice("cuda", 0, label, "gpu", False, "driver", "cuda", "NVIDIA", 24e9)

        def probe(names: Sequence[str]) -> list[ProbeResult]:
            backend(names[0])
            return [ProbeResult(names[0], (card,) if label else (), "" if label else "no driver")]

        monkeypatch.setattr(discovery, "probe", probe)

    probed("")
    with pytest.raises(errors.DeviceNotPresentError, match="'cuda:0' not found on this host: no driver") as caught:
        run(scenario([{"real": "cuda:0"}]))
    assert caught.value.exit_code == 3
    with pytest.raises(errors.InputError, match=r"fleet\[0\].real: unknown back end 'cudda'.*did you mean 'cuda'"):
        run(scenario([{"real": "cudda:0"}]))
    probed("Unheard of 9000")
    with pytest.raises(errors.InputError, match=r"fleet\[0\].real: no model is known for cuda:0 \(Unheard of 9000\)"):
        run(scenario([{"real": "cuda:0"}]))
    probed("NVIDIA L4")
    asked = scenario([{"real": "cuda:0"}])
    assert fleet_devices(asked, KNOWN)[0].spec.sku == "l4" and asked.fleet[0].device == "l4@cuda"


def test_a_device_that_is_not_here_is_never_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.DeviceNotPresentError, match="'cpu:7' not found on this host: cpu detects 1 device"):
        run(scenario([{"real": "cpu:7"}]))


def test_a_gpu_is_not_taken_for_the_host_s_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake("opencl:0", kind="gpu"))
    with pytest.raises(errors.InputError, match=r"is a fake, a gpu, and its model host@opencl is a cpu"):
        run(scenario([{"real": "opencl:0"}]))


def test_a_processor_behind_a_driver_is_not_taken_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake("opencl:0"))
    with pytest.raises(errors.InputError, match=r"is a fake, a cpu, and its model l4 is a gpu"):
        run(scenario([{"real": "opencl:0", "device": "l4"}]))


def test_a_gpu_without_its_driver_is_absent_and_what_to_install_is_said() -> None:
    absent = [(name, sku) for name, sku in (("cuda", "l4"), ("hip", "mi300x")) if not backend(name).present()]
    assert absent, "no host has the drivers of both vendors"
    for name, sku in absent:
        with pytest.raises(
            errors.DeviceNotPresentError, match=f"'{name}:0' not found on this host: .*to install: pip install"
        ):
            run(scenario([{"real": f"{name}:0", "device": sku}]))


def test_a_device_is_not_modelled_through_another_api_than_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake("opencl:0"))
    with pytest.raises(
        errors.InputError, match="reached through opencl, and its model is host; expected device: host@opencl"
    ):
        run(scenario([{"real": "opencl:0", "device": "host@native"}]))


@pytest.mark.parametrize("spelt", ["opencl:00", "opencl:٠", "opencl:-1", "opencl:"])
def test_a_device_has_one_spelling_so_that_none_is_in_a_fleet_twice(spelt: str) -> None:
    with pytest.raises(errors.InputError, match="is not the name of a device"):
        scenario([{"real": "opencl:0"}, {"real": spelt}])


def test_what_the_model_says_is_of_the_operations_that_were_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job that failed at its second operation the first was measured; what was not measured is not modelled."""
    fake = Fake("cpu:0", says=[Executed(0.0), BROKEN])
    use(monkeypatch, fake)
    (told,) = run(scenario(REAL[:1], 1)).result.real
    columns = [OPERATIONS.find(op).complete(dict(given)) for op, given in fake.done]
    each = [float(KNOWN.device("host").cost(one_row(OPERATIONS.find(op), values)).duration_s[0])
            for (op, _), values in zip(fake.done, columns, strict=True)]  # fmt: skip
    # Sum, stencil (which broke), and both again.
    assert told.operations == 3
    assert told.modelled_s == pytest.approx(each[0] + each[2] + each[3])


def test_a_misspelt_back_end_without_a_model_has_the_nearest() -> None:
    with pytest.raises(errors.InputError, match="did you mean 'opencl'"):
        run(scenario([{"real": "opncl:0"}]))


def test_a_real_device_that_got_no_job_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake("cpu:0"))
    fleet = [{"device": "epyc-9654"}, {"real": "cpu:0", "name": "idle"}]
    done = run(scenario(fleet, 1, policy="shortest-expected-completion"))
    reason = "'w': it can run them, and the policy gave every job to other devices"
    assert f"'idle' is cpu:0 (a fake, fake 1): no job ran on it, so nothing was measured ({reason})" in (
        done.result.notes
    )
    assert [device.why_unused for device in done.result.real or ()] == [reason]


def test_a_real_device_without_a_job_says_why_in_the_result_the_summary_and_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def why(fake: Fake, **changes: Any) -> str:
        use(monkeypatch, fake)
        other = {"device": changes.pop("other", "epyc-9654")}
        fleet = [other, {"real": "cpu:0", "name": "unused", **changes.pop("entry", {})}]
        done = run(scenario(fleet, 3, **changes))
        (device,) = done.result.real or ()
        assert device.why_unused is not None
        assert device.why_unused in " ".join(done.result.notes)
        assert device.why_unused.split(": ")[-1] in " ".join(summary(done.result).split())
        run_command.save(done, tmp_path)
        page = html.unescape((tmp_path / "report.html").read_text())
        assert (
            device.why_unused in page.partition("Real devices (their times are measured)")[2].partition("</table>")[0]
        )
        return device.why_unused

    assert why(Fake("cpu:0", refuses="stencil")) == "'w': cpu:0 does not support it: no stencil here"
    assert why(Fake("cpu:0"), workload={"devices": ["epyc-9654"]}) == "'w': the workload names other devices"
    assert why(Fake("cpu:0"), entry={"memory": "1 MB"}) == "'w': its memory is too small for the jobs"
    training = {"use_case": "ml training"}
    assert why(Fake("cpu:0"), other="l4", workload=training, policy="recommendation-matrix") == (
        "'w': it is not recommended for the use case 'ml training'"
    )


def test_a_device_that_measures_no_launch_is_modelled_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutLaunch(Fake):
        def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
            return "nothing launches here" if columns["dispatch"] != "device" else super().refusal(op, columns)

    for make, dispatch in ((WithoutLaunch, "device"), (Fake, "eager")):
        fake = make("opencl:0", "host@opencl")
        use(monkeypatch, fake)
        done = run(scenario([{"real": "opencl:0"}], 3))
        assert {columns["dispatch"] for _, columns in fake.done} == {dispatch}
        assert {row.dispatch for row in done.result.contexts} == {dispatch}
        (device,) = done.result.real or ()
        one_s = sum(
            windtunnel.predict(op, "host@opencl", {**columns, "dispatch": dispatch}).duration_s
            for op, columns in (("vector_add", {"n": 1_000_000}), ("stencil", {"nx": 512, "ny": 512}))
        )
        assert device.modelled_s == pytest.approx(3 * one_s)
    assert {row.reason for row in done.result.contexts} == {"a program launches one operation after another"}
    stated = {"ops": [{"vector_add": {"n": 1_000_000, "dispatch": "eager"}}]}
    use(monkeypatch, WithoutLaunch("opencl:0", "host@opencl"))
    with pytest.raises(errors.UnsupportedOperationError, match="nothing launches here"):
        run(scenario([{"real": "opencl:0"}], 3, workload=stated))


def test_the_processor_behind_several_real_devices_draws_its_idle_power_once(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake("cpu:0"), Fake("opencl:0", "epyc-9654@opencl"), Fake("offload:0"))
    fleet = [{"real": "cpu:0"}, {"real": "opencl:0", "device": "epyc-9654@opencl"}, {"real": "offload:0"}]
    slowly = {"arrivals": {"process": "deterministic", "rate": "0.01 /s"}}
    done = run(scenario(fleet, 3, workload=slowly)).result
    assert [chip.devices for chip in done.chips or ()] == [["cpu:0", "opencl:0", "offload:0"]]
    assert done.average_power_w == pytest.approx(windtunnel.catalogue().device("host").idle_power_w, rel=1e-3)


def test_batches_streams_and_stated_times_are_no_work_for_a_real_device(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake("cpu:0"))
    with pytest.raises(errors.InputError, match="executes one job at a time and does not support batches"):
        run(scenario(REAL[:1], policy={"route": "central", "batch": {"kind": "request", "size": 4, "wait": "1 ms"}}))
    with pytest.raises(errors.InputError, match="does not support streams of a job"):
        run(
            scenario(
                REAL[:1], workload={"ops": [{"streams": [[{"vector_add": {"n": 10}}], [{"vector_add": {"n": 10}}]]}]}
            )
        )
    with pytest.raises(errors.InputError, match="no service here"):
        run(scenario(REAL[:1], workload={"ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}]}))


def test_more_real_time_than_anybody_waits_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake("cpu:0")
    use(monkeypatch, fake)
    fleet = [{"real": "cpu:0", "device": "epyc-9654"}]
    modelled = run(scenario([{"device": "epyc-9654"}], 1)).recording.jobs
    job_s = float(modelled.finish[0] - modelled.start[0]) * 1e-12
    monkeypatch.setattr(real_devices, "MOST_REAL_S", 3.5 * job_s)
    with pytest.raises(errors.InputError, match="4 jobs would take about .* s of real time on cpu:0"):
        run(scenario(fleet, 4))
    assert not fake.done
    assert run(scenario(fleet, 3)).result.jobs.completed == 3
    assert fake.done


def test_replications_measure_anew_also_where_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake("cpu:0")
    use(monkeypatch, fake)
    made = scenario(REAL[:1], 5, workload={"arrivals": {"process": "deterministic", "rate": "100 /s"}})
    result = windtunnel.run(made, replications=3).result
    assert result.replications == 3
    assert len(fake.done) == 3 * 5 * 2
    (told,) = result.real
    assert told.jobs == 15
    assert told.modelled_s == pytest.approx(3 * windtunnel.run(made).result.real[0].modelled_s)
    fake.done.clear()
    found = comparing.compare(made, made.changed(name="other"), 4, "auto", KNOWN, names=("one", "other"))
    assert (found.replications, len(fake.done)) == (4, 2 * 4 * 5 * 2)
    assert [note.partition(":")[0] for note in found.notes] == ["baseline", "candidate"]
    assert "the times of 40 operations on 'one' (cpu:0) were measured" in found.notes[0]


def test_a_plan_buys_no_device_of_this_host() -> None:
    made = scenario([{"real": "cpu:0", "price": "1 USD/h"}], targets=["latency p99 <= 1 s"])
    with pytest.raises(
        errors.InputError, match=r"fleet\[0\].real: cpu:0 is a single device of this host.*device: host"
    ):
        planner.plan(made)


SWEPT = """
schema: 1
name: swept
fleet: [{real: cpu:0}]
workload: [{name: w, arrivals: {process: poisson, rate: 100 /s}, ops: [{vector_add: {n: 1000}}]}]
stop: {jobs: 5}
"""


def test_points_of_a_sweep_measure_a_real_device_one_at_a_time_and_on_this_host(tmp_path: Path) -> None:
    (tmp_path / "swept.yaml").write_text(SWEPT)
    swept = str(tmp_path / "swept.yaml")
    for asked, says in (
        ({"workers": 2}, "--workers: every point measures cpu:0"),
        ({"cluster": "tcp://a:1"}, "--cluster"),
    ):
        with pytest.raises(errors.InputError, match=says):
            sweep_command.sweep(swept, ["seed=1,2"], **asked)
    found = sweep_command.sweep(swept, ["seed=1,2"], out=tmp_path / "out")
    assert [row.status for row in found.rows] == ["done", "done"]
    stated = json.loads((tmp_path / "out" / "manifest.json").read_text())["real devices"]
    assert list(stated) == ["cpu:0"]
    assert "NumPy" in stated["cpu:0"]


def test_the_compiled_engine_does_not_run_what_takes_the_time_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake("cpu:0"))
    with pytest.raises(errors.InputError, match="the compiled engine does not support devices of this host"):
        run(scenario(REAL), engine="compiled")


def test_the_host_itself_in_a_fleet_is_measured_and_said_to_be() -> None:
    """cpu:0 in a process of its own, beside a model: all that the result says of it."""
    done = run(scenario(REAL[:2], 20, "round-robin"))
    (real,) = done.result.real
    assert (real.name, real.real, real.model, real.jobs, real.operations) == (
        "one",
        "cpu:0",
        "host",
        10,
        20,
    )
    assert real.measured_s > 0.0 < real.modelled_s and real.worst_error_share <= 1.0 and not real.failures
    assert real.versions["numpy"] == np.__version__
    jobs = done.recording.jobs
    mine = jobs.device == 0
    assert (jobs.finish - jobs.start)[mine].sum() == pytest.approx(real.measured_s * 1e12, rel=1e-6)
    assert any("'one' is cpu:0" in note and "were measured" in note for note in done.result.notes)
    real_executor.close_all()


def test_the_report_tells_measured_devices_from_modelled_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def page(made: Any) -> str:
        run_command.save(run(made), tmp_path)
        return (tmp_path / "report.html").read_text()

    use(monkeypatch, Fake("cpu:0", factor=2.0))
    measured = page(scenario(REAL[:1]))
    assert "Real devices (their times are measured)" in measured
    assert "<td>cpu:0, a fake</td>" in measured
    assert "another run of the scenario gives another result" in measured
    modelled = page(scenario(REAL[1:]))
    assert 'id="real"' not in modelled
    assert "the same scenario, seed and engine give the same result" in modelled
