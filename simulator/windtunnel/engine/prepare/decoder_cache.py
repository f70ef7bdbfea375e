"""The tables of step costs of decoders on replicas, which are computed once for equal ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from weakref import WeakKeyDictionary

from windtunnel.core import kept
from windtunnel.core.decoder_memory import LargestStep
from windtunnel.core.device import ModelAccuracy
from windtunnel.core.errors import InputError
from windtunnel.core.forks import shared
from windtunnel.core.policy import Batch
from windtunnel.core.shipped import description
from windtunnel.core.speculation import Speculation
from windtunnel.engine.prepare.decoder_tables import StepTables, mean_context
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.replica import Replica
from windtunnel.engine.prepare.step_inputs import step_accuracy
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
            self._costs[model] = _costs(self.wanted(model))
        return self._costs[model]

    def wanted(self, model: str) -> Wanted:
        """Return which costs are those of ``model``."""
        served = self._models[model]
        step = verifying(self._step, served.speculation)
        return Wanted(self.replica, served, step, self._memory_share, self._longest[model], self._coarseness)


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


@dataclass(frozen=True)
class Wanted:
    """The arguments of ``DecoderCosts``."""

    replica: Replica
    model: ServedModel
    step: LargestStep
    memory_share: float
    longest: int
    coarseness: float

    @cached_property
    def key(self) -> _Key:
        """What the costs depend on."""
        device = self.replica.device
        # `costs.device` keeps the kind and the residuals alive, and so their identities unique.
        objects = id(device.kind), id(device.residuals)
        return _Key((*device.inputs, *self.served), objects, self.step, self.memory_share)

    @property
    def served(self) -> tuple[object, ...]:
        """What the costs depend on besides the device and the largest step."""
        replica = self.replica
        return replica.group, replica.engine, replica.devices_per_node, self.model, self.longest


_Place = tuple[tuple[object, ...], LargestStep]
Known = Mapping[_Place, StepTables | str]
"""Tables of an accurate run by replica and largest step, or the name of the file in which they are kept."""
_cache: dict[float, dict[_Key, DecoderCosts]] = {}
"""The tables of each coarseness, so that those of first looks do not displace the others."""
_files: WeakKeyDictionary[DecoderCosts, str] = WeakKeyDictionary()
"""The names of the files in which tables are kept."""
_received: dict[_Place, StepTables | str] = {}
"""The tables of another process with the same catalogue."""


def known_tables() -> Known:
    """Return the tables that this process has computed, for processes that simulate the same devices."""
    known = {(key.replica, key.step): costs for key, costs in _cache.get(0.0, {}).items()}
    return {place: _files.get(costs) or _tables(costs) for place, costs in known.items()}


def _tables(costs: DecoderCosts) -> StepTables:
    return StepTables(**{f.name: getattr(costs, f.name) for f in fields(StepTables)})


def receive_tables(tables: Known) -> None:
    """Use tables of another process, which must have the same catalogue."""
    _received.clear()
    _received.update(tables)


def price_together(wanted: Sequence[Wanted], processes: int, *, accuracies: bool) -> None:
    """Compute tables that will be asked for, and their sources, in this process and copies of it.

    ``accuracies``: the accuracies will be asked for too. What an earlier process has kept is read from its file. What
    cannot be computed is left out: whoever asks for it gets the error.
    """
    missing = list({w.key: w for w in wanted if w.key not in _cache.get(w.coarseness, {})}.values())
    if processes < 2 or not missing:
        return
    names = [_name(of) for of in missing]
    tables = [_stored(name) for name in names]
    computed = _compute(missing, tables, processes, accuracies)
    for number, (of, name, known) in enumerate(zip(missing, names, tables, strict=True)):
        if known is None:
            continue
        with suppress(InputError):
            costs = _costs(of, known)
            if name is not None and (number not in computed or kept.write(name, known)):
                _files[costs] = name


def _compute(
    wanted: Sequence[Wanted], tables: list[StepTables | None], processes: int, accuracies: bool
) -> AbstractSet[int]:
    """Compute the tables and the accuracies that ``tables`` lack, and put them there; return the numbers of these."""
    unknown = [(number, False) for number, known in enumerate(tables) if known is None]
    if accuracies:
        unknown += [(number, True) for number, t in enumerate(tables) if t is None or t.described.accuracy is None]

    def compute(place: int) -> StepTables | ModelAccuracy | None:
        number, accuracy = unknown[place]
        of = wanted[number]
        with suppress(InputError):
            if accuracy:
                return step_accuracy(of.replica, of.model, of.step, mean_context(of.longest))
            costs = _costs(of)
            costs.described.sources = costs.sources
            return _tables(costs)
        return None

    for (number, _), found in zip(unknown, shared(compute, range(len(unknown)), processes), strict=True):
        known = tables[number]
        if isinstance(found, StepTables):
            tables[number] = found
        elif isinstance(found, ModelAccuracy) and known is not None:
            known.described.accuracy = found
    return {number for number, _ in unknown}


_SOURCES = (kept.CORE, kept.PACKAGE / "scenario", kept.PACKAGE / "engine" / "prepare")
"""The sources from which the tables are computed, besides those of the device models."""


def _name(of: Wanted) -> str | None:
    """Return the name by which tables are kept; None if they depend on more than files of the package."""
    device = description(of.replica.device) if kept.is_on() and not of.coarseness else None
    if device is None:
        return None
    sources = (kept.contents_digest(part) for part in _SOURCES)
    return kept.name_of("decoder", device, *sources, repr((of.served, of.key.step)))


def _stored(name: str | None) -> StepTables | None:
    """Return tables that an earlier process has kept, if there are any."""
    found = None if name is None else kept.read(name)
    return found if isinstance(found, StepTables) else None


def _costs(wanted: Wanted, known: StepTables | None = None) -> DecoderCosts:
    """Return the costs from a cache, because a plan simulates many fleets of a few SKUs; ``known``: their tables.

    Coarse tables are longer than needed, so that runs of other jobs of the scenario find them too.
    """
    if wanted.coarseness:
        supported, longest = wanted.model.architecture.max_context, wanted.longest
        rounded = math.ceil(_LENGTHS ** math.ceil(math.log(longest, _LENGTHS)))
        longest = rounded if supported is None or longest > supported else min(rounded, supported)
        wanted = replace(wanted, longest=longest)
    key, cache = wanted.key, _cache.setdefault(wanted.coarseness, {})
    costs = cache.pop(key, None)
    if costs is None:
        alike: StepTables | DecoderCosts | None = known
        if alike is None and not wanted.coarseness:
            received = _received.get((key.replica, key.step))
            alike = _stored(received) if isinstance(received, str) else received
        if alike is None:
            alike = next((c for other, c in cache.items() if key.is_like(other)), None)
        costs = DecoderCosts(
            wanted.replica,
            wanted.model,
            wanted.step,
            wanted.longest,
            wanted.memory_share,
            wanted.coarseness,
            alike,
        )
        size = costs.table_bytes + sum(other.table_bytes for other in cache.values())
        while cache and (len(cache) >= _CACHE_SIZE or size > _CACHE_BYTES):
            size -= cache.pop(next(iter(cache))).table_bytes
    cache[key] = costs
    return costs
