"""The configuration to deploy says what was simulated, with documented arguments alone, and names what they do not say."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.deployments import (
    CATALOGUE,
    FEATURES,
    ROOT,
    check_documented,
    check_manifest,
    deployed,
    flags,
    leaves,
    named,
    one,
    run_script,
    with_changes,
)

from windtunnel.core.errors import InputError
from windtunnel.core.results.deployment import Deployment, EngineCommand
from windtunnel.deployment import commands as deploying
from windtunnel.deployment.arguments import Arguments, UndocumentedArgumentError
from windtunnel.deployment.commands import deployment
from windtunnel.deployment.replicas import served_replicas
from windtunnel.report.deployment import files, text
from windtunnel.scenario.read import read_scenario, scenario_from_data
from windtunnel.simulation.run import prepare_run
from windtunnel_models.engines import serving_engine
from windtunnel_models.engines.arguments import ENGINES, engine_arguments

GOLDEN = ROOT / "tests" / "golden" / "deployment.txt"


@pytest.mark.parametrize("engine", ENGINES)
def test_every_argument_of_every_shipped_scenario_is_documented(engine: str) -> None:
    """The scenarios without their traces, of which only lengths of requests are used, and with small steps."""
    served = 0
    for path in sorted((ROOT / "scenarios").rglob("*.yaml")):
        data = yaml.safe_load(path.read_text())
        if not isinstance(data, dict) or not data.get("models"):
            continue
        makers = serving_engine(engine).makers
        for entry in data["fleet"]:
            entry["engine"] = engine
        data["fleet"] = [e for e in data["fleet"] if not makers or CATALOGUE.spec(e["device"]).vendor in makers]
        for workload in data["workload"]:
            workload.pop("session", None)
            workload.pop("tenant", None)
            workload["arrivals"] = {"process": "poisson", "rate": "1 /s"}
            for op in workload["ops"]:
                op.get("generate", {}).update({"prompt": 200, "output": 20})
                op.get("generate", {}).pop("shared_prefix", None)
        data["stop"] = {"jobs": 3}
        batch = data.get("policy", {}).get("batch", {}) if isinstance(data.get("policy"), dict) else {}
        if batch.get("kind") == "continuous":
            batch |= {"size": 8, "tokens": 64}
        found = deployment(prepare_run(scenario_from_data(data, str(path)), CATALOGUE))
        assert found is not None, path
        for command in found.commands:
            check_documented(command)
            assert command.engine == engine
        check_manifest(files(found, data["name"]), found)
        served += len(found.commands)
    assert served > 15


def test_an_undocumented_argument_value_key_or_variable_is_refused() -> None:
    for engine in ENGINES:
        arguments = Arguments(engine_arguments(engine))
        with pytest.raises(UndocumentedArgumentError, match="--fast"):
            arguments.flag("--fast", 1)
        with pytest.raises(UndocumentedArgumentError, match="make_it_fast"):
            arguments.option("make_it_fast", 1)
        with pytest.raises(UndocumentedArgumentError, match="FAST"):
            arguments.variable("FAST", "1")
        assert not arguments.flags and not arguments.options and not arguments.environment
    vllm = Arguments(engine_arguments("vllm"))
    with pytest.raises(UndocumentedArgumentError, match="int8"):
        vllm.flag("--kv-cache-dtype", "int8")
    with pytest.raises(UndocumentedArgumentError, match="magic"):
        vllm.json("--speculative-config", {"magic": 1})
    with pytest.raises(UndocumentedArgumentError, match="oracle"):
        vllm.json("--speculative-config", {"method": "oracle"})


def test_every_documented_argument_has_a_source_and_a_version() -> None:
    for engine in ENGINES:
        known = engine_arguments(engine)
        assert known.checked and {"NVIDIA"} <= set(known.images)
        assert all(image.source and image.tags for image in known.images.values())
        for documented in (*known.flags.values(), *known.options.values(), *known.environment.values()):
            assert documented.source
            # The sources name a version or a commit.
            assert any(mark in documented.source for mark in ("0.19", "0.5.9", "@"))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_was_simulated_is_what_the_arguments_say(engine: str) -> None:
    command = one(**{"fleet[0].engine": engine})
    said = flags(command) | {path: str(value) for path, value in leaves(command.options).items()}
    size, tokens, memory, tensor = {
        "vllm": ("--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization", "--tensor-parallel-size"),
        "sglang": ("--max-running-requests", "--chunked-prefill-size", "--mem-fraction-static", "--tp-size"),
        "trtllm": ("--max_batch_size", "--max_num_tokens", "kv_cache_config.free_gpu_memory_fraction", "--tp_size"),
    }[engine]
    assert (said[size], said[tokens], said[memory], said[tensor]) == ("64", "256", "0.85", "2")
    assert (command.replicas, command.devices_per_replica, command.resource) == (2, 2, "nvidia.com/gpu")
    assert "meta-llama/Llama-3.1-8B" in command.words


def test_limits_that_the_scenario_leaves_out_are_those_with_which_it_was_simulated() -> None:
    batch = {"kind": "continuous"}
    assert flags(one(**{"policy.batch": batch}))["--max-num-seqs"] == "1024"
    generic = one(**{"policy.batch": batch, "fleet[0].engine": "generic"})
    assert flags(generic)["--max-num-seqs"] == "256"
    assert "vLLM's arguments" in named(generic)["engine"]


def test_limits_of_a_replica_are_divided_among_its_copies_where_the_engine_counts_for_each() -> None:
    experts = {"models.chat": {"catalogue": "qwen3-30b-a3b"}, "fleet[0].group": {"attention_data": 4, "expert": 4}}
    vllm = one(**experts)
    assert flags(vllm)["--data-parallel-size"] == "4" and "--enable-expert-parallel" in flags(vllm)
    assert (flags(vllm)["--max-num-seqs"], flags(vllm)["--max-num-batched-tokens"]) == ("16", "64")
    sglang = flags(one(**experts, **{"fleet[0].engine": "sglang"}))
    assert (sglang["--tp-size"], sglang["--dp-size"], sglang["--ep-size"]) == ("4", "4", "4")
    assert (sglang["--max-running-requests"], sglang["--chunked-prefill-size"]) == ("64", "256")
    trtllm = one(**experts, **{"fleet[0].engine": "trtllm"})
    assert flags(trtllm)["--max_batch_size"] == "16"
    assert trtllm.options["enable_attention_dp"] is True and trtllm.options["moe_tensor_parallel_size"] == 1
    dense = flags(one(**{"fleet[0].group": {"attention_data": 4}, "fleet[0].engine": "sglang"}))
    assert "--tp-size" not in dense and "--enable-dp-attention" not in dense
    assert (dense["--dp-size"], dense["--chunked-prefill-size"]) == ("4", "64")


def test_a_division_that_an_engine_does_not_have_is_named() -> None:
    experts = {"models.chat": {"catalogue": "qwen3-30b-a3b"}, "fleet[0].group": {"tensor": 4, "expert": 2}}
    assert "2 parts of the experts on 4 devices" in named(one(**experts))["group.expert"]
    copies = {**experts, "fleet[0].group": {"tensor": 2, "attention_data": 2}, "fleet[0].engine": "trtllm"}
    assert "one copy on each device" in " ".join(n.text for n in one(**copies).unexpressed)


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_that_no_published_checkpoint_has_are_asked_of_the_user(engine: str) -> None:
    model = {"catalogue": "llama-3.1-8b", "weights": "nvfp4"}
    command = one(fleet=[{"device": "b200-sxm-180gb", "engine": engine}], **{"models.chat": model})
    assert "REPLACE-ME/llama-3.1-8b-nvfp4" in command.words
    assert "meta-llama/Llama-3.1-8B with nvfp4 weights" in named(command)["weights"]


def test_engines_that_convert_to_fp8_are_told_to_and_the_other_gets_a_checkpoint() -> None:
    fp8 = {"models.chat": {"catalogue": "llama-3.1-8b", "weights": "fp8"}}
    for engine in ("vllm", "sglang"):
        assert flags(one(**fp8, **{"fleet[0].engine": engine}))["--quantization"] == "fp8"
    assert flags(one(**{"models.chat": {"catalogue": "llama-3.1-8b-fp8"}}))["--quantization"] == "fp8"
    assert "REPLACE-ME/llama-3.1-8b-fp8" in one(**fp8, **{"fleet[0].engine": "trtllm"}).words
    own = one(**{"models.chat": {"catalogue": "gpt-oss-20b"}})
    assert "openai/gpt-oss-20b" in own.words and "weights" not in named(own)


@pytest.mark.parametrize("engine", ENGINES)
def test_sixteen_bits_of_another_kind_are_converted_when_the_checkpoint_is_loaded(engine: str) -> None:
    command = one(**{"models.chat": {"catalogue": "llama-3.1-8b", "weights": "float16"}, "fleet[0].engine": engine})
    assert (flags(command) | command.options)["dtype" if engine == "trtllm" else "--dtype"] == "float16"
    assert "meta-llama/Llama-3.1-8B" in command.words and "weights" not in named(command)


def test_a_model_that_the_catalogue_does_not_know_is_a_placeholder() -> None:
    stated = {"layers": 8, "width": 1024, "heads": 8, "feed_forward": 4096}
    command = one(**{"models.chat": stated})
    assert "REPLACE-ME/chat" in command.words
    assert "supply a checkpoint" in named(command)["weights"]


def test_a_context_for_which_the_cache_has_no_room_is_stated() -> None:
    small = {"fleet[0]": {"device": "l4", "count": 1, "engine": "vllm"}}
    command = one(**small, **{"policy.batch.memory": 0.9})
    assert flags(command)["--max-model-len"] == "1024"
    assert "supports 131,072" in named(command)["max_context"]
    assert one(**small, **{"policy.batch.memory": 0.9}) == command, "the tables of the first are used again"
    assert "--max-model-len" not in flags(one())


def test_roles_get_the_connector_and_both_servers() -> None:
    fleet = [
        {"device": "h100-sxm-80gb", "name": "reads", "count": 2, "role": "prefill", "engine": "vllm"},
        {"device": "h100-sxm-80gb", "name": "writes", "count": 1, "role": "decode", "engine": "vllm"},
    ]
    reads, writes = deployed(fleet=fleet).commands
    assert json.loads(flags(reads)["--kv-transfer-config"] or "")["kv_role"] == "kv_producer"
    assert json.loads(flags(writes)["--kv-transfer-config"] or "")["kv_role"] == "kv_consumer"
    assert "proxy" in named(reads)["role"]
    for entry in fleet:
        entry["engine"] = "sglang"
    assert [flags(c)["--disaggregation-mode"] for c in deployed(fleet=fleet).commands] == ["prefill", "decode"]
    for entry in fleet:
        entry["engine"] = "trtllm"
    found = deployed(fleet=fleet)
    joined = yaml.safe_load(files(found, "x")["disaggregated.yaml"])
    assert joined["context_servers"]["urls"] == ["reads:8000"]
    assert joined["generation_servers"] == {"num_instances": 1, "urls": ["writes:8000"]}
    assert found.commands[0].options["disable_overlap_scheduler"] is True
    tiers = {"fleet": [{**entry, "engine": "vllm"} for entry in fleet]}
    cache = {"policy.batch.prefix_cache": {"host": {"size": "8 GiB"}}}
    both = deployed(**tiers, **cache).commands[0]
    # One of the two flags would replace the connector of the other.
    assert "--kv-offloading-size" not in flags(both) and "MultiConnector" in named(both)["prefix_cache.host"]


TWO_NODES = {"fleet[0].group": {"tensor": 8, "pipeline": 2}, "fleet[0].count": 16}


@pytest.mark.parametrize(("engine", "other_nodes"), [("vllm", ["--headless"]), ("sglang", [])])
def test_a_replica_of_several_nodes_is_started_by_the_same_command_on_each(
    engine: str, other_nodes: list[str], tmp_path: Path
) -> None:
    found = deployed(**TWO_NODES, **{"fleet[0].engine": engine})
    (command,) = found.commands
    assert command.nodes_per_replica == 2 and "group" not in named(command)
    check_manifest(files(found, "x"), found)
    check_documented(command)
    text = files(found, "x")[f"{command.name}.sh"]
    ran = [run_script(text, tmp_path, LWS_LEADER_ADDRESS="10.0.0.1", LWS_WORKER_INDEX=str(node)) for node in (0, 1)]
    first, second = (done.stdout.splitlines()[1:] for done in ran)
    expanded = [
        word.replace("$(LWS_LEADER_ADDRESS)", "10.0.0.1").replace("$(LWS_WORKER_INDEX)", "0")
        for word in command.words[1:]
    ]
    assert first == expanded
    rank = first.index("--node-rank") + 1
    assert second == [*first[:rank], "1", *first[rank + 1 :], *other_nodes]
    missing = run_script(text, tmp_path)
    assert missing.returncode != 0 and "set it to the address of the first node" in missing.stderr


@pytest.mark.parametrize(
    ("engine", "changes"),
    [
        ("trtllm", TWO_NODES),
        ("vllm", {"fleet[0].group": {"tensor": 1, "pipeline": 11}, "fleet[0].count": 11}),
        ("sglang", {"fleet[0].group": {"tensor": 8, "attention_data": 2}, "fleet[0].count": 16}),
    ],
)
def test_a_replica_of_several_nodes_that_no_argument_starts_is_named(engine: str, changes: dict[str, Any]) -> None:
    found = deployed(**changes, **{"fleet[0].engine": engine})
    (command,) = found.commands
    assert command.nodes_per_replica == 2 and "multi-node" in named(command)["group"]
    check_manifest(files(found, "x"), found)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_safety_net_for_keys_without_a_mapping_is_never_needed(engine: str) -> None:
    command = one(**FEATURES, **{"fleet[0].engine": engine})
    assert [n for n in command.unexpressed if "has no argument for it" in n.text] == []
    check_documented(command)


def test_a_key_that_a_writer_forgets_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(deploying._WRITERS, "vllm", lambda replicas, arguments: ["vllm", "serve", "x"])  # type: ignore[arg-type]
    assert {"batch.size", "batch.tokens", "group.tensor"} <= set(named(one()))


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario with some of everything that a command may have to say."""
    model = draw(st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite"]))
    group = {"tensor": draw(st.sampled_from([1, 2, 4])), "attention_data": draw(st.sampled_from([1, 2]))}
    if model != "llama-3.1-8b":
        group["expert"] = draw(st.sampled_from([1, 2])) if group["tensor"] * group["attention_data"] > 1 else 1
    stated: dict[str, Any] = {"catalogue": model}
    if draw(st.booleans()):
        stated["weights"] = draw(st.sampled_from(["bfloat16", "fp8", "nvfp4", "int4", "float16"]))
    if draw(st.booleans()):
        stated["kv_dtype"] = draw(st.sampled_from(["bfloat16", "fp8", "int8"]))
    if draw(st.booleans()):
        stated["speculation"] = {
            "draft": draw(st.sampled_from(["eagle", "mtp", "medusa", "ngram", "llama-3.2-1b"])),
            "tokens": draw(st.integers(1, 5)),
            "acceptance": 0.6,
        }
    elif draw(st.booleans()):
        group["pipeline"] = 2
    if draw(st.booleans()):
        stated["adapters"] = {"count": 9, "rank": draw(st.sampled_from([8, 24, 1000])), "slots": 2}
    batch: dict[str, Any] = {
        "kind": "continuous",
        "size": draw(st.integers(4, 20)),
        "tokens": draw(st.integers(64, 99)),
    }
    if draw(st.booleans()):
        batch["memory"] = 0.8
    if draw(st.booleans()):
        cache: dict[str, Any] = {}
        if draw(st.booleans()):
            cache["block"] = draw(st.sampled_from([1, 16, 48, 512]))
        if draw(st.booleans()):
            cache["blocks"] = 1000
        if draw(st.booleans()):
            cache["host"] = {"size": "10 GB"}
        if draw(st.booleans()):
            cache["disk"] = {"size": "1 TB", "bandwidth": "2 GB/s"}
        batch["prefix_cache"] = cache
    policy = {"route": draw(st.sampled_from(["least-loaded", "round-robin"])), "batch": batch}
    policy["order"] = draw(st.sampled_from(["arrival", "priority", "shortest"]))
    engine = draw(st.sampled_from(["vllm", "sglang", "trtllm", "generic"]))
    entry = {"device": draw(st.sampled_from(["b200-sxm-180gb", "mi300x"])), "group": group, "engine": engine}
    return with_changes(models={"chat": stated}, fleet=[entry], policy=policy)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=configurations())
def test_any_configuration_is_expressed_or_named_key_by_key(data: dict[str, Any]) -> None:
    try:
        run = prepare_run(scenario_from_data(data), CATALOGUE)
    except InputError:
        return  # a combination that no device runs
    found = deployment(run)
    assert found is not None
    (command,), (replicas,) = found.commands, served_replicas(run)
    check_documented(command)
    said = {a.key for a in command.arguments} | set(command.option_keys) | set(named(command))
    assert set(replicas.stated_keys()) <= said
    assert [n for n in command.unexpressed if "has no argument for it" in n.text] == []
    texts = files(found, "any")
    check_manifest(texts, found)
    for name, content in texts.items():
        if name.endswith(".sh"):
            body = content[content.index("exec ") :].replace("\\\n", "")
            words = shlex.split(body, posix=True)[1:]
            assert len(words) == len(command.words)
    assert text(found)


def test_the_three_engines_say_what_they_said_when_last_looked_at() -> None:
    shown = []
    for engine in ENGINES:
        found = deployed(**FEATURES, **{"fleet[0].engine": engine})
        for name, content in files(found, "golden").items():
            shown.append(f"==== {engine}: {name}\n{content}")
    actual = "\n".join(shown)
    if os.environ.get("WINDTUNNEL_REGENERATE"):
        GOLDEN.write_text(actual)
    assert actual == GOLDEN.read_text()


def test_a_fleet_without_decoders_has_nothing_to_deploy() -> None:
    assert deployment(prepare_run(read_scenario(ROOT / "scenarios" / "plan-small.yaml"), CATALOGUE)) is None


def test_each_maker_has_the_image_that_its_engine_documents_and_tpus_the_nodes_of_their_slice() -> None:
    def image(device: str, engine: str, tensor: int = 1) -> tuple[str, EngineCommand]:
        entry = {"device": device, "count": tensor, "group": {"tensor": tensor}, "engine": engine}
        command = one(**{"fleet[0]": entry})
        return command.image, command

    assert image("mi300x", "vllm")[0] == "vllm/vllm-openai-rocm:v0.19.0"
    assert image("mi300x", "sglang")[0] == "lmsysorg/sglang:v0.5.9-rocm700-mi30x"
    assert image("mi355x-288gb", "sglang")[0] == "lmsysorg/sglang:v0.5.9-rocm700-mi35x"
    assert image("h100-sxm-80gb", "vllm")[0] == "vllm/vllm-openai:v0.19.0"
    for device, engine in (("mi210", "sglang"), ("mi100", "vllm"), ("epyc-9654", "vllm")):
        found, command = image(device, engine)
        assert found == f"REPLACE-ME/{engine}" and "no image of" in named(command)["device"]
    found, command = image("tpu-v6e", "generic", 4)
    assert found == "vllm/vllm-tpu:v0.19.0" and command.resource == "google.com/tpu"
    pod = yaml.safe_load_all(files(Deployment(commands=[command], unexpressed=[]), "x")["kubernetes.yaml"])
    (selector,) = [d["spec"]["template"]["spec"]["nodeSelector"] for d in pod if d and d["kind"] == "Deployment"]
    assert selector == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "2x2",
    }  # fmt: skip
    assert "node selector" in named(image("tpu-v5p", "vllm")[1])["device"]


def test_an_engine_of_one_maker_is_refused_on_the_devices_of_another() -> None:
    with pytest.raises(InputError, match="TensorRT-LLM runs on devices of NVIDIA only, and mi300x is one of AMD"):
        deployed(**{"fleet[0]": {"device": "mi300x", "engine": "trtllm"}})
