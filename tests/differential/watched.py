"""The process engine with checks of the memory of devices with prefix caches after every event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from windtunnel.core.recording import Recording
from windtunnel.engine.prepare.prepared import PreparedRun, with_capacity
from windtunnel.engine.process import engine as process
from windtunnel.engine.transitions.prefixes import _find
from windtunnel.engine.transitions.tables import SHARED_MEMORY
from windtunnel.engine.transitions.victims import made_since_read


def run_watched(prepared: PreparedRun) -> Recording:
    """Return what the process engine records; AssertionError if the memory of a device does not add up."""
    return with_capacity(lambda run: Watched(run, None).execute(), prepared)


class Watched(process._Run):
    """A run of the process engine that checks the memory of every device after every event."""

    def _consequences(self) -> None:
        super()._consequences()
        for device in range(self.world.run[0].devices):
            self.hold_memory(device)

    def hold_memory(self, device: int) -> None:
        w: Any = self.world
        r, v, c = w.run[0], w.servers[device], w.classes[w.devices[device].cls]
        cache = w.caches[device]
        tokens = w.ints[r.run_tokens :]
        users: Counter[int] = Counter()
        held = 0
        for slot, is_decoding in self.sequences(device):
            q, s = w.sequences[slot], w.slots[slot]
            chain = w.ints[w.ints[w.workloads[s.work].chains + s.rank] :][: q.using]
            users.update(chain)
            made = made_since_read(w, device, slot) if is_decoding else 0
            held += q.prompt + made + c.state - sum(tokens[i] for i in chain)
        kept = self.kept(device)
        for level in range(1, r.levels):
            tier = level * r.devices + device
            assert sum(self.kept(tier).values()) <= w.caches[tier].room
        assert not set(kept) & set(users)
        for run in {*kept, *users}:
            assert w.nodes[_find(w, device, run)].users == users[run]
        assert v.cached == held + sum(tokens[run] for run in users)
        if r.caching != SHARED_MEMORY:
            assert cache.spare <= cache.room and not users
        elif w.devices[device].slot >= 0 and v.reading_count + v.decoding_count + v.loading_count > 1:
            assert v.cached + v.decoding_count * c.queries + cache.spare <= c.capacity

    def kept(self, cache: int) -> dict[int, int]:
        """Return the weight of the blocks that no sequence uses in a cache, by run."""
        w: Any = self.world
        kept = {}
        node, before = w.caches[cache].oldest, -1
        while node >= 0:
            assert w.nodes[node].before == before and w.nodes[node].users == 0 and w.nodes[node].on == cache
            kept[w.nodes[node].run] = w.nodes[node].left
            before, node = node, w.nodes[node].next
        assert w.caches[cache].newest == before
        assert sum(kept.values()) == w.caches[cache].spare and all(left > 0 for left in kept.values())
        return kept

    def sequences(self, device: int) -> Iterator[tuple[int, bool]]:
        w: Any = self.world
        v = w.servers[device]
        for first in (v.reading, v.loading, v.decoding):
            slot = first
            while slot >= 0:
                yield slot, first == v.decoding
                slot = w.slots[slot].next
