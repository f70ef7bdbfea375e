"""What each fleet entry serves, as it was simulated and without the words of any engine."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from windtunnel.core.adapters import Adapters
from windtunnel.core.architecture import FORMAT_BITS, Architecture
from windtunnel.core.decoder_memory import LargestStep
from windtunnel.core.group import Group
from windtunnel.core.serving_engine import NODE_DEVICES
from windtunnel.core.speculation import Speculation
from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun
from windtunnel.scenario.decoder import DecoderModel
from windtunnel.scenario.policy import ContinuousBatch
from windtunnel.scenario.prefix_cache import StatedPrefixCache
from windtunnel.scenario.program import Generate, flattened
from windtunnel.scenario.scenario import Scenario
from windtunnel_models.models import known_architecture, read_architecture

PLACEHOLDER = "REPLACE-ME"
"""The owner of a model id that the user has to replace."""
_PUBLISHED = re.compile(r"^config\.json of (\S+/\S+) as its maker published it")


@dataclass(frozen=True)
class Checkpoint:
    """The decoder that an entry serves.

    Args:
        name: Its name in the scenario.
        model: The decoder as it was simulated.
        own: The same as its source describes it; None where the scenario states the architecture.
        published: The Hugging Face id from which the catalogue has it; None where it states none.
    """

    name: str
    model: Architecture
    own: Architecture | None
    published: str | None

    @property
    def has_experts(self) -> bool:
        """Whether it is a mixture of experts."""
        return any(layers.experts is not None for layers in self.model.layers)

    def formats(self, of: Architecture) -> tuple[str, ...]:
        """Return the formats of linear layers, and of experts where there are any."""
        return (of.weights.linear, of.weights.experts) if self.has_experts else (of.weights.linear,)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The formats with which it was simulated."""
        return self.formats(self.model)

    @property
    def stored(self) -> tuple[str, ...] | None:
        """The formats of its published checkpoint; None without one."""
        return None if self.own is None else self.formats(self.own)

    @property
    def stated_kv_dtype(self) -> str | None:
        """The format of the cache, where an engine has to be told it; None where it is that of a checkpoint's own type.

        FP8 is always stated, as engines differ in what they take from a checkpoint.
        """
        wanted = self.model.kv_dtype
        own = wanted if self.own is None and FORMAT_BITS[wanted] == 16.0 else self.own and self.own.kv_dtype
        return None if wanted == own and wanted != "fp8" else wanted

    def placeholder(self, what: str = "") -> str:
        """Return a model id that the user has to replace."""
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name if self.own is None else self.own.name)
        return f"{PLACEHOLDER}/{plain}{what and '-'}{what}"


@dataclass(frozen=True)
class Replicas:
    """The replicas of one fleet entry that serve one decoder.

    Args:
        name: The name of the entry, and that of the decoder where the entry serves several.
        fleet_class: The entry's devices.
        count: The number of replicas; for a scaled entry the largest.
        least: The smallest number of replicas of a scaled entry; else None.
        checkpoint: The decoder.
        step: The largest step: tokens and sequences of the whole replica; None without continuous batching.
        memory_share: The engine's share of memory; None likewise.
        cache_tokens: The tokens for which one copy of the attention has cache; None where it is not known.
        longest: The longest request of the workloads (tokens).
        longest_prompt: The longest prompt of the workloads (tokens).
        prefix_cache: The prefix cache and its tiers; None without one.
        order: The name of the order in which waiting requests are admitted.
    """

    name: str
    fleet_class: FleetClass
    count: int
    least: int | None
    checkpoint: Checkpoint
    step: LargestStep | None
    memory_share: float | None
    cache_tokens: int | None
    longest: int
    longest_prompt: int
    prefix_cache: StatedPrefixCache | None
    speculation: Speculation | None
    adapters: Adapters | None
    order: str
    engine: str

    @property
    def group(self) -> Group:
        """How the devices of a replica divide the decoder."""
        return self.fleet_class.replica.group

    @property
    def role(self) -> str:
        """What the replicas do for a request."""
        return self.fleet_class.role

    @property
    def chunked_prefill(self) -> bool:
        """Whether a prompt may be read in several steps."""
        engine = self.fleet_class.replica.engine
        return engine is None or engine.chunked_prefill

    @property
    def nodes(self) -> int:
        """The nodes of one replica."""
        replica = self.fleet_class.replica
        stated = replica.devices_per_node or int(replica.device.number("devices_per_node") or NODE_DEVICES)
        return math.ceil(self.group.devices / stated)

    @property
    def equal_nodes(self) -> bool:
        """Whether a replica takes several nodes, with equal numbers of devices on each."""
        return self.nodes > 1 and self.group.devices % self.nodes == 0

    def a_copy(self, number: int) -> int:
        """Return the part of a replica's limit that one copy of the attention has, at least 1."""
        return max(number // self.group.attention_data, 1)

    @property
    def context_limit(self) -> int | None:
        """The longest context that the engine has to be told, because the cache has no room for the model's own.

        It is that of the longest request, in whole thousands of tokens (1024) where they fit.
        """
        own, room = self.checkpoint.model.max_context, self.cache_tokens
        if own is None or room is None or own <= 0.9 * room:
            return None
        return max(min(math.ceil(self.longest / 1024) * 1024, room, own), self.longest)

    def stated_keys(self) -> Iterator[str]:
        """Yield the keys of the scenario that the configuration of an engine has to express or to name."""
        group = self.group
        for key in ("tensor", "pipeline", "attention_data"):
            if getattr(group, key) > 1:
                yield f"group.{key}"
        if self.checkpoint.has_experts and group.stage_devices > 1:
            yield "group.expert"
        yield from ("batch.size", "batch.tokens", "batch.memory", "chunked_prefill", "prefix_cache")
        if self.checkpoint.stored != self.checkpoint.wanted:
            yield "weights"
        if self.checkpoint.stated_kv_dtype is not None:
            yield "kv_dtype"
        cache = self.prefix_cache
        if cache is not None:
            yield from (f"prefix_cache.{key}" for key in ("block", "blocks", "host", "disk") if getattr(cache, key))
        for key, stated in (
            ("speculation", self.speculation is not None),
            ("adapters", self.adapters is not None),
            ("role", self.role != "both"),
            ("order", self.order != "arrival"),
            ("max_context", self.context_limit is not None),
        ):
            if stated:
                yield key


def served_replicas(run: PreparedRun, counts: Mapping[int, int] | None = None) -> list[Replicas]:
    """Return the replicas that serve decoders, by fleet entry and decoder.

    ``counts`` has the replicas of each entry by its number, and none of the others; by default those of the scenario.
    """
    found = []
    scaled = {fleet_class.number: rule for fleet_class, rule in run.scaled}
    for fleet_class in run.classes:
        number = fleet_class.number
        count = fleet_class.count if counts is None else counts.get(number, 0)
        models = _models(run, number)
        if not count or not models:
            continue
        rule = scaled.get(number)
        least = None if rule is None else min(rule.min, count)
        for model in models:
            name = fleet_class.name if len(models) == 1 else f"{fleet_class.name} {model}"
            found.append(_replicas(run, fleet_class, name, model, count, least))
    return found


def _models(run: PreparedRun, number: int) -> list[str]:
    """Return the decoders that an entry serves, in the order of the workloads."""
    models = {
        stage.model: None
        for (cls, work) in run.compiled
        if cls == number
        for stage in flattened(run.workloads[work].program)
        if isinstance(stage, Generate)
    }
    return list(models)


def _replicas(
    run: PreparedRun, fleet_class: FleetClass, name: str, model: str, count: int, least: int | None
) -> Replicas:
    scenario, batch = run.scenario, run.policy.batch
    served = scenario.served_models[model]
    compiled = [c for (cls, _), c in run.compiled.items() if cls == fleet_class.number and c.decoder is not None]
    # Equal decoders of several scenarios share their tables.
    mine = [c for c in compiled if c.decoder is not None and c.decoder.served == served]
    longest = max((int((c.prompts + c.outputs).max()) for c in mine if c.prompts is not None), default=0)
    prompts = max((int(c.prompts.max()) for c in mine if c.prompts is not None), default=0)
    capacity = next((c.decoder.capacity_tokens for c in mine if c.decoder is not None), None)
    continuous = batch.kind == "continuous"
    replica = fleet_class.replica
    return Replicas(
        name=name,
        fleet_class=fleet_class,
        count=count,
        least=least,
        checkpoint=checkpoint(scenario, model),
        step=replica.largest_step(batch) if continuous else None,
        memory_share=replica.memory_share(batch) if continuous else None,
        cache_tokens=None if capacity is None or not continuous else capacity // replica.group.attention_data,
        longest=longest,
        longest_prompt=prompts,
        prefix_cache=_prefix_cache(scenario),
        speculation=served.speculation,
        adapters=served.adapters,
        order=run.policy.order.name,
        engine=scenario.fleet[fleet_class.number].engine,
    )


def _prefix_cache(scenario: Scenario) -> StatedPrefixCache | None:
    policy = scenario.policy
    batch = None if isinstance(policy, str) else policy.batch
    return batch.prefix_cache if isinstance(batch, ContinuousBatch) else None


def checkpoint(scenario: Scenario, name: str) -> Checkpoint:
    """Return the decoder ``name`` of a scenario with where its checkpoint comes from."""
    stated: DecoderModel = scenario.models[name]
    own: Architecture | None = None
    if stated.catalogue is not None:
        # A name with -fp8 is the same checkpoint with other weights.
        own = known_architecture(stated.catalogue.lower().removesuffix("-fp8"))
    elif stated.config is not None:
        own = read_architecture(scenario.folder / stated.config)
    return Checkpoint(name, scenario.served_models[name].architecture, own, published_id(own))


def published_id(model: Architecture | None) -> str | None:
    """Return the Hugging Face id from whose config.json the catalogue has a model; None where it states none."""
    found = None if model is None else _PUBLISHED.match(model.source)
    return None if found is None else found[1]
