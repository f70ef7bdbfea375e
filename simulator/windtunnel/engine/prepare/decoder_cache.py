"""The tables of step costs of decoders on replicas, which are computed once for equal ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

from windtunnel.core.decoder_memory import LargestStep
from windtunnel.core.policy import Batch
from windtunnel.core.speculation import Speculation
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
_cache: dict[float, dict[tuple[tuple[object, ...], LargestStep, float], DecoderCosts]] = {}
"""The tables of each coarseness, so that those of first looks do not displace the others."""


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
    replicas = (
        *(device.spec.sku, device.spec.vendor, device.spec.lineage, device.api.name, device.speed, device.cap_w),
        # Everything that a cost depends on. `costs.device` keeps the residuals alive, and so their identities unique.
        *((name, sourced.value) for values in (device.values, device.api.values) for name, sourced in values.items()),
        *((op, id(residual)) for op, residual in device.residuals.items()),
        *(replica.group, replica.engine, replica.devices_per_node),
        *(id(device.kind), model, longest),
    )
    key = (replicas, step, memory_share)
    cache = _cache.setdefault(coarseness, {})
    costs = cache.pop(key, None)
    if costs is None:
        sequences = (step.sequences, step.query_tokens)
        alike = (c for (of, s, _), c in cache.items() if of == replicas and (s.sequences, s.query_tokens) == sequences)
        costs = DecoderCosts(replica, model, step, longest, memory_share, coarseness, next(alike, None))
        size = costs.table_bytes + sum(other.table_bytes for other in cache.values())
        while cache and (len(cache) >= _CACHE_SIZE or size > _CACHE_BYTES):
            size -= cache.pop(next(iter(cache))).table_bytes
    cache[key] = costs
    return costs
