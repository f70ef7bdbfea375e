"""`windtunnel explore`: controls, designs, looks, and the server that guards them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.exploring import QUEUE, SERVING, FakeLane, document, looker, offered

from windtunnel.app.explore import explore
from windtunnel.core.errors import InputError
from windtunnel.core.yamlfile import dump, dump_line, parse
from windtunnel.explorer import design, lanes, session
from windtunnel.explorer.controls import controls
from windtunnel.explorer.look import Look, Looker
from windtunnel.scenario.changes import apply_change, differences, read_document
from windtunnel.scenario.program import Generate
from windtunnel.scenario.read import check_scenario
from windtunnel.simulation.run import run
from windtunnel_models.catalogue import shipped_catalogue

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def test_controls_of_a_serving_scenario_are_those_of_load_model_device_group_tokens_and_targets(tmp_path: Path) -> None:
    found = offered(looker(SERVING, tmp_path))
    assert {
        "load", "prompt_length", "output_length", "models.chat.catalogue", "models.chat.weights", "fleet[0].device", "fleet[0].replicas",
        "fleet[0].group.tensor", "fleet[0].price", "policy.batch.tokens", "policy.name", "targets[0]", "targets[1]",
    } <= set(found)  # fmt: skip
    for control in found.values():  # what the scenario states is one of the values
        assert control.kind == "text" or control.value in [option.value for option in control.options], control.name
    assert found["fleet[0].replicas"].value == 2
    assert found["targets[1]"].value == "90%"


def test_a_queueing_scenario_has_no_controls_of_decoders(tmp_path: Path) -> None:
    found = offered(looker(QUEUE, tmp_path))
    assert "fleet[0].device" in found and "policy" in found
    assert not [name for name in found if "group" in name or "models" in name or "batch" in name]


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("**/*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_scenario_has_controls_or_says_why_not(path: Path) -> None:
    of = Looker(read_document(path), shipped_catalogue())
    try:
        scenario = of.scenario({})
    except InputError as error:
        assert "placement" in str(error) or "device of this host" in str(error)
        return
    changes = {control.name: control.value for control in controls(scenario, of.catalogue) if control.name != "load"}
    same = check_scenario(design.design(of.document, changes))
    # Stating what a scenario has already changes nothing.
    assert {**same.resolved(), "targets": None} == {**scenario.resolved(), "targets": None}
    limits = [[(t.metric, t.statistic, t.workload, t.limit) for t in s.parsed_targets()] for s in (same, scenario)]
    assert limits[0] == limits[1]


CHANGES: list[dict[str, Any]] = [
    {"load": 1.5},
    {"load": "150%", "fleet[0].replicas": 3},
    {"prompt_length": "50%", "output_length": 2},
    {"models.chat.catalogue": "qwen3-32b", "fleet[0].group.tensor": 2},
    {"models.chat.weights": "fp8", "policy.batch.tokens": None, "policy.batch.size": 128},
    {"fleet[0].device": "h200-sxm-141gb", "fleet[0].price": "3.79 USD/h", "fleet[0].engine": "sglang"},
    {"targets[0]": "500 ms", "policy.name": "shortest-expected-completion"},
]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: next(iter(changes)))
def test_a_design_its_settings_and_its_file_are_the_same_scenario(changes: dict[str, Any], tmp_path: Path) -> None:
    original = document(SERVING, tmp_path)
    varied = check_scenario(design.design(original, changes))
    assert varied.resolved() != check_scenario(original).resolved()
    again = document(SERVING, tmp_path)
    for text in differences(original, design.design(original, changes)):
        apply_change(again, text)
    assert check_scenario(again).resolved() == varied.resolved()
    path = design.write(original, changes)
    assert check_scenario(read_document(path)).resolved() == varied.resolved()
    assert original.data == SERVING  # the document itself is as it was


def test_load_multiplies_the_arrivals_of_every_process(tmp_path: Path) -> None:
    def arrivals(process: dict[str, Any]) -> Any:
        data = {**QUEUE, "workload": [{**QUEUE["workload"][0], "arrivals": process}], "stop": {"time": "10 s"}}
        return check_scenario(design.design(document(data, tmp_path), {"load": 0.5})).workload[0].arrivals

    assert arrivals({"process": "gamma", "rate": "300 /s", "cv": 2}).rate == 150
    closed = arrivals({"process": "closed", "users": 8, "think": {"mean": "1 s"}})
    assert closed.users == 4
    burst = {"process": "burst", "rate": "10 /s", "burst_rate": "40 /s", "every": "5 s", "duration": "1 s"}
    assert (arrivals(burst).rate, arrivals(burst).burst_rate) == (5, 20)
    mix = arrivals({"process": "mix", "processes": [burst, {"process": "poisson", "rate": "2 /s"}]})
    assert mix.mean_rate_per_s() == pytest.approx((16 + 2) / 2)


def test_lengths_multiply_the_prompts_and_outputs_of_every_request(tmp_path: Path) -> None:
    ops = [
        {"repeat": {"times": 2, "ops": [{"generate": {"model": "chat", "prompt": 300, "output": 40}}]}},
        {"generate": {"model": "chat", "prompt": 100, "output": 30, "prompt_factor": 2}},
    ]
    data = {**SERVING, "workload": [{**SERVING["workload"][0], "ops": ops}]}
    varied = design.design(document(data, tmp_path), {"prompt_length": 1.5, "output_length": "50%"})
    (first, _, last) = (stage for stage in check_scenario(varied).programs[0] if isinstance(stage, Generate))
    assert (first.prompt_factor, first.output_factor) == (1.5, 0.5)
    assert (last.prompt_factor, last.output_factor) == (3.0, 0.5)
    assert differences(document(data, tmp_path), varied)[0].endswith("generate.prompt_factor=1.5")


def test_a_group_keeps_the_number_of_devices_unless_replicas_are_chosen(tmp_path: Path) -> None:
    data = {**SERVING, "fleet": [{**SERVING["fleet"][0], "count": 8, "group": {"tensor": 4}}]}
    original = document(data, tmp_path)

    def entry(changes: dict[str, Any]) -> Any:
        return check_scenario(design.design(original, changes)).fleet[0]

    assert (entry({}).count, entry({}).replicas) == (8, 2)
    assert (entry({"fleet[0].group.tensor": 2}).count, entry({"fleet[0].group.tensor": 2}).replicas) == (8, 4)
    assert entry({"fleet[0].group.tensor": 16}).count == 16
    both = {"fleet[0].group.tensor": 2, "fleet[0].replicas": 3}
    assert (entry(both).count, entry(both).replicas) == (6, 3)
    varied = design.design(original, {"fleet[0].group.tensor": 2})
    assert design.effective(varied, {"fleet[0].group.tensor": 2})["fleet[0].replicas"] == 4


def test_another_device_has_its_own_price_or_none(tmp_path: Path) -> None:
    fleet = [SERVING["fleet"][0], {"device": "l40s", "price": "0.9 USD/h", "power": {"max": "300 W"}}]
    original = document({**SERVING, "fleet": fleet}, tmp_path)
    priced = design.design(original, {"fleet[0].device": "l40s"}).data["fleet"][0]
    assert (priced["device"], priced["price"]) == ("l40s", "0.9 USD/h")
    unknown = check_scenario(design.design(original, {"fleet[1].device": "l4"})).fleet[1]
    assert unknown.price is None and unknown.power.max is None


def test_an_entry_without_devices_leaves_the_fleet_and_one_has_to_stay(tmp_path: Path) -> None:
    original = document({**QUEUE, "fleet": [{"device": "server"}, {"device": "server", "name": "more"}]}, tmp_path)
    assert len(check_scenario(design.design(original, {"fleet[0].replicas": 0})).fleet) == 1
    with pytest.raises(InputError, match="no device is left"):
        design.design(original, {"fleet[0].replicas": 0, "fleet[1].replicas": 0})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([], "no changes"),
        ({"fleet[0].devise": "l4"}, "did you mean 'fleet\\[0\\].device'"),
        ({"load": True}, "no value of a control"),
        ({"load": {"a": 1}}, "no value of a control"),
        ({"load": "x" * 300}, "too long"),
        ({"load": "much"}, "load"),
        ({"load": 0}, "0.1% to 100,000%; 100% is"),
        ({"prompt_length": "0.1%"}, "1% to 10,000%"),
        ({"fleet[0].replicas": "two"}, "a number of replicas"),
    ],
)
def test_values_that_are_none_of_a_control_are_refused(changes: Any, message: str, tmp_path: Path) -> None:
    of = looker(SERVING, tmp_path)
    with pytest.raises(InputError, match=message):
        design.design(of.document, design.checked_changes(changes, list(offered(of))))


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    original = document(QUEUE, tmp_path)
    first, second = design.write(original, {"load": 0.5}), design.write(original, {"load": 0.5})
    assert [path.name for path in (first, second)] == ["mine-explored.yaml", "mine-explored-2.yaml"]
    assert "#   workload[0].arrivals.rate=150 /s" in first.read_text()
    (tmp_path / "mine.yaml").unlink()
    tmp_path.chmod(0o500)
    try:
        if not _may_write(tmp_path):  # root may, whatever the mode
            with pytest.raises(InputError, match="cannot be written"):
                design.write(original, {})
    finally:
        tmp_path.chmod(0o700)


def _may_write(folder: Path) -> bool:
    try:
        (folder / "probe").touch()
    except OSError:
        return False
    return True


def test_plain_data_is_written_as_it_is_read() -> None:
    texts = [
        "1e12",
        "12:30",
        "no",
        "true",
        "null",
        "~",
        "",
        "0x1f",
        "1_000",
        " x ",
        "a: b",
        "- a",
        "3",
        "#1",
        "2 s",
        "ü",
    ]
    data = {"texts": texts, "numbers": [1, 1.5, 1e-7, 1e20], "rest": [None, True, False], "nested": {"a": [{"b": {}}]}}
    assert parse(dump(data), "x").data == data
    for value in (*texts, *data["numbers"], None, True, {"a": [1, {"b": "c"}]}):
        assert parse(dump_line(value), "x").data == value and "\n" not in dump_line(value)


def test_a_first_look_is_of_the_first_jobs_and_says_so(tmp_path: Path) -> None:
    of = looker({**QUEUE, "stop": {"jobs": 300_000}}, tmp_path)
    first = of.see(Look({}))
    assert (first.jobs, first.whole, first.engine) == (100, False, "process")
    assert first.basis == "the first 100 jobs"
    assert first.values()["latency p99"] > 0
    assert first.rate_per_s == pytest.approx(300, rel=0.5)


def test_the_whole_scenario_has_the_figures_of_run(tmp_path: Path) -> None:
    of = looker(SERVING, tmp_path)
    changes = {"fleet[0].replicas": 1, "load": 2.0}
    seen = of.see(Look(changes, whole=True, intervals=True))
    path = design.write(of.document, changes)
    result: Any = run(path).result
    values = seen.values()
    assert seen.whole and seen.jobs == result.jobs.arrived == 40
    assert values["ttft p99"] == result.serving.ttft_s.p99.value
    assert values["power"] == result.average_power_w and values["cost"] == result.cost_usd_per_h
    assert values["million"] == result.serving.cost_per_million_usd.output
    assert [target.text for target in seen.targets] == ["ttft p99 ≤ 1 s", "slo_attainment ≥ 90%"]
    assert "assumed" in seen.inputs


def test_coarse_tables_change_a_look_by_little(tmp_path: Path) -> None:
    of = looker(SERVING, tmp_path)
    first, whole = of.see(Look({})).values(), of.see(Look({}, whole=True)).values()
    for name in ("ttft p50", "tpot p50", "e2e p50", "tokens", "power"):
        assert first[name] == pytest.approx(whole[name], rel=0.03), name


def test_a_target_has_the_state_that_the_error_of_the_models_gives_it_from_the_first_look_on(tmp_path: Path) -> None:
    """A limit between the value and the upper end for the error of the models: amber in both, and as in `run`."""
    limited = {**SERVING, "stop": {"jobs": 600}}
    result: Any = run(check_scenario(document(limited, tmp_path))).result
    told = result.serving.ttft_s.p50
    limit = (told.value + told.model_high) / 2
    of = looker({**limited, "targets": [f"ttft p50 <= {limit:.6f} s"]}, tmp_path)
    first, *looks = [of.see(Look({})), of.see(Look({}, whole=True)), of.see(Look({}, whole=True, intervals=True))]
    assert [seen.status for seen in looks] == ["may-be-missed"] * 2
    assert [seen.targets[0].label for seen in looks] == ["met (may be missed)"] * 2
    # The first look has too few jobs for an interval, which is stated before the error of the models.
    assert first.jobs < 600 and first.status == "inconclusive"
    for seen in (first, *looks):
        assert "within the error of the models it may be missed" in seen.verdict
        assert "model error " in seen.targets[0].margin


def test_values_that_do_not_fit_are_refused_with_the_reason(tmp_path: Path) -> None:
    of = looker({**SERVING, "models": {"chat": {"catalogue": "llama-3.1-70b"}}}, tmp_path)
    changes = {"fleet[0].group.tensor": 2}
    groups = of.refusals(changes, "fleet[0].group.tensor", [1, 2, 4, 3])
    assert set(groups) == {"1", "3"}
    assert "does not fit" in groups["1"]
    formats = of.refusals(changes, "models.chat.weights", ["fp8", "nvfp4", None])
    assert list(formats) == ["nvfp4"] and "no unit" in formats["nvfp4"]
    devices = of.refusals(changes, "fleet[0].device", ["h200-sxm-141gb", "l4", "qat-8970", "server"])
    assert set(devices) == {"l4", "qat-8970", "server"}
    policies = of.refusals(changes, "policy.name", ["least-loaded", "cheapest-that-meets-the-deadline"])
    assert list(policies) == ["cheapest-that-meets-the-deadline"]


def test_of_several_entries_each_is_judged_alone(tmp_path: Path) -> None:
    fleet = [SERVING["fleet"][0], {"device": "l40s", "price": "0.9 USD/h"}]
    of = looker({**SERVING, "fleet": fleet}, tmp_path)
    assert set(of.refusals({}, "fleet[1].device", ["l4", "qat-8970"])) == {"qat-8970"}


def test_a_design_that_cannot_run_has_the_message_of_the_command_line(tmp_path: Path) -> None:
    of = looker(SERVING, tmp_path)
    with pytest.raises(InputError) as found:
        of.see(Look({"fleet[0].group.tensor": 3}))
    again = document(SERVING, tmp_path)
    for text in differences(of.document, design.design(of.document, {"fleet[0].group.tensor": 3})):
        apply_change(again, text)
    with pytest.raises(InputError) as expected:
        run(check_scenario(again))
    assert (found.value.problem, found.value.expected) == (expected.value.problem, expected.value.expected)
    assert "fleet[0].group" in str(found.value)


def test_scenarios_on_devices_of_this_host_are_refused(tmp_path: Path) -> None:
    of = looker({**QUEUE, "fleet": [{"real": "cpu:0"}]}, tmp_path)
    with pytest.raises(InputError, match="a device of this host"):
        of.scenario({})


def test_without_tornado_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document(QUEUE, tmp_path)
    monkeypatch.delitem(sys.modules, "windtunnel.explorer.server", raising=False)
    # Tornado itself is always among them: no other test may have imported it.
    for name in ["tornado", *(name for name in sys.modules if name.startswith("tornado."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match="Tornado, which is not installed.*windtunnel\\[explore\\]"):
        explore(tmp_path / "mine.yaml", catalogue=shipped_catalogue(), announce=lambda _: None)


def test_a_connection_that_breaks_ends_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line leaves SIGPIPE as it is, so that a server that writes to a closed connection would be ended."""
    document(QUEUE, tmp_path)
    handlers: list[Any] = []

    async def served(**_: Any) -> None:
        handlers.append(signal.getsignal(signal.SIGPIPE))

    monkeypatch.setattr("windtunnel.explorer.server.serve", served)
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        explore(tmp_path / "mine.yaml", catalogue=shipped_catalogue(), announce=lambda _: None)
        assert handlers == [signal.SIG_IGN] and signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGPIPE, before)


# The worker processes and the server.


def test_the_newest_change_wins_and_what_was_seen_is_remembered(tmp_path: Path) -> None:
    of = looker(QUEUE, tmp_path)
    lane: Any = FakeLane(of)
    sent: list[dict[str, Any]] = []

    async def main() -> None:
        shop = session.Workshop(lane, lane, [])
        page = session.Session(shop, sent.append)
        for number, load in enumerate((0.5, 0.6, 0.7)):
            page.change("A", number, {"load": load})
        await _until(lambda: any(m["kind"] == "seen" and m["stage"] == "whole" for m in sent))
        assert {m["number"] for m in sent if m["kind"] == "seen"} == {2}
        page.close()
        before = len(lane.calls)
        await shop.see(lane, Look({"load": 0.7}, compiled=frozenset(shop.compiled)))
        assert len(lane.calls) == before

    asyncio.run(main())


def test_a_control_of_which_no_value_fits_is_not_the_one_at_fault(tmp_path: Path) -> None:
    of = looker(SERVING, tmp_path)
    lane: Any = FakeLane(of)
    shop = session.Workshop(lane, lane, list(offered(of).values()))
    formats = offered(of)["models.chat.weights"]
    assert set(asyncio.run(shop.refusals({}, formats))) == {"nvfp4"}
    assert asyncio.run(shop.refusals({"fleet[0].price": "3"}, formats)) == {}


async def _until(done: Callable[[], bool]) -> None:
    while not done():
        await asyncio.sleep(0.001)


def test_a_worker_gives_up_what_nobody_waits_for_and_answers_the_next_call(tmp_path: Path) -> None:
    of = looker({**QUEUE, "stop": {"jobs": 3_000_000}}, tmp_path)

    async def main() -> None:
        lane = lanes.Lane(of.document, of.catalogue)
        try:
            # Two million jobs in the process engine would take minutes. The first one is given up while the worker
            # starts, when the signal would end it.
            for wait_s in (0.0, 0.05):
                endless = asyncio.create_task(lane.call("see", Look({}, jobs=2_000_000)))
                await asyncio.sleep(wait_s)
                endless.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await endless
                assert await lane.call("refusals", {}, "fleet[0].device", ["server"]) == {}
            seen = await lane.call("see", Look({"load": 0.5}))
            assert seen.jobs == 100
            with pytest.raises(InputError, match="0.1% to 100,000%; 100% is"):
                await lane.call("see", Look({"load": 0}))
        finally:
            lane.close()

    asyncio.run(main())


def test_a_worker_that_died_is_replaced(tmp_path: Path) -> None:
    of = looker(QUEUE, tmp_path)

    async def main() -> None:
        lane = lanes.Lane(of.document, of.catalogue)
        try:
            await lane.call("see", Look({}))
            lane._process.kill()
            lane._process.join()
            with pytest.raises(lanes.LaneError, match="ended"):
                await lane.call("see", Look({}))
            assert (await lane.call("see", Look({}))).jobs == 100
        finally:
            lane.close()

    asyncio.run(main())
