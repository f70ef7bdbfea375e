"""The tables of step costs of decoders on replicas, which are computed once for equal ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from windtunnel.core.decoder_memory import LargestStep
from windtunnel.core.policy import Batch
from windtunnel.core.speculation import Speculation
from windtunnel.engine.prepare.decoder_tables import StepTables
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.replica import Replica
from windtunnel.scenario.decoder import ServedModel


class DecoderCostCache:
    """The step costs of every model on one replica, computed at their first use.

    ``longest`` has the longest context of each model over all workloads.
    """

    def __init__(
        self,
        replica: Replica,
        models: Mapping[str, ServedModel],
        longest: Mapping[str, int],
        batch: Batch,
    ) -> None:
        self.replica = replica
        self._models = models
        self._longest = longest
        self._step, self._memory_share = replica.largest_step(batch), replica.memory_share(batch)
        self._coarseness = batch.coarseness
        self._costs: dict[str, DecoderCosts] = {}

    def __getitem__(self, model: str) -> DecoderCosts:
        if model not in self._costs:
            served, longest = self._models[model], self._longest[model]
            step = verifying(self._step, served.speculation)
            self._costs[model] = _costs(self.replica, served, step, self._memory_share, longest, self._coarseness)
        return self._costs[model]


def verifying(step: LargestStep, speculation: Speculation | None) -> LargestStep:
    """Return the largest step where sequences have drafted tokens: no more sequences than it has room for."""
    queries = 1 if speculation is None else speculation.query_tokens
    if queries == 1:
        return step
    return LargestStep(step.tokens, max(min(step.sequences, step.tokens // queries), 1), queries)


_CACHE_SIZE = 96
"""The number of tables that are kept: those of some SKUs, groups and limits of steps among which a plan chooses."""
_CACHE_BYTES = 256e6
"""The size of the tables above which fewer are kept: those of long contexts are large."""
_LENGTHS = 1.3
"""The ratio of the lengths of coarse tables."""


@dataclass(frozen=True)
class _Key:
    """What step costs depend on. ``replica`` is equal in every process, and ``objects`` has identities."""

    replica: tuple[object, ...]
    objects: tuple[object, ...]
    step: LargestStep
    memory_share: float

    def is_like(self, other: _Key) -> bool:
        """Return whether the costs differ in the tokens of a step, or in memory, at most."""
        sequences = self.step.sequences, self.step.query_tokens
        alike = self.objects == other.objects and self.replica == other.replica
        return alike and sequences == (other.step.sequences, other.step.query_tokens)


Known = Mapping[tuple[tuple[object, ...], LargestStep], StepTables]
"""Tables of an accurate run by replica and largest step."""
_cache: dict[float, dict[_Key, DecoderCosts]] = {}
"""The tables of each coarseness, so that those of first looks do not displace the others."""
_received: dict[tuple[tuple[object, ...], LargestStep], StepTables] = {}


def known_tables() -> Known:
    """Return the tables that this process has computed, for processes that simulate the same devices."""
    return {
        (key.replica, key.step): StepTables(**{f.name: getattr(costs, f.name) for f in fields(StepTables)})
        for key, costs in _cache.get(0.0, {}).items()
    }


def receive_tables(tables: Known) -> None:
    """Use tables of another process, which must have the same catalogue."""
    _received.clear()
    _received.update(tables)


def _costs(
    replica: Replica, model: ServedModel, step: LargestStep, memory_share: float, longest: int, coarseness: float
) -> DecoderCosts:
    """Return the tables from a cache, because a plan simulates many fleets of a few SKUs.

    Coarse tables are longer than needed, so that runs of other jobs of the scenario find them too.
    """
    device = replica.device
    if coarseness:
        supported = model.architecture.max_context
        rounded = math.ceil(_LENGTHS ** math.ceil(math.log(longest, _LENGTHS)))
        longest = rounded if supported is None or longest > supported else min(rounded, supported)
    values = ((name, sourced.value) for some in (device.values, device.api.values) for name, sourced in some.items())
    key = _Key(
        (
            *(device.spec.sku, device.spec.vendor, device.spec.lineage, device.api.name, device.speed, device.cap_w),
            *values,
            *(replica.group, replica.engine, replica.devices_per_node, model, longest),
        ),
        # `costs.device` keeps the residuals alive, and so their identities unique.
        (id(device.kind), *((op, id(residual)) for op, residual in device.residuals.items())),
        step,
        memory_share,
    )
    cache = _cache.setdefault(coarseness, {})
    costs = cache.pop(key, None)
    if costs is None:
        alike: StepTables | DecoderCosts | None = None if coarseness else _received.get((key.replica, step))
        if alike is None:
            alike = next((c for other, c in cache.items() if key.is_like(other)), None)
        costs = DecoderCosts(replica, model, step, longest, memory_share, coarseness, alike)
        size = costs.table_bytes + sum(other.table_bytes for other in cache.values())
        while cache and (len(cache) >= _CACHE_SIZE or size > _CACHE_BYTES):
            size -= cache.pop(next(iter(cache))).table_bytes
    cache[key] = costs
    return costs
