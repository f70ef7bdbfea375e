"""The process engine with checks of the memory of devices with continuous batching after every event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from windtunnel.core.recording import Recording
from windtunnel.engine.prepare.prepared import PreparedRun, with_capacity
from windtunnel.engine.process import engine as process
from windtunnel.engine.transitions import tables
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
        users: Counter[int] = Counter()
        held = moved = 0
        for slot, tokens in self.sequences(device):
            q, s = w.sequences[slot], w.slots[slot]
            if r.caching:
                chain = w.ints[w.ints[w.workloads[s.work].chains + s.rank] :][: q.using]
                users.update(chain)
                moved += sum(w.ints[r.run_tokens + run] for run in chain)
            held += tokens + c.state
        shared = sum(w.ints[r.run_tokens + run] for run in users) if r.caching else 0
        assert v.cached == held - moved + shared
        if r.disaggregated:
            self.hold_ports(device)
        if r.caching:
            self.hold_blocks(device, users)
        spare = w.caches[device].spare if r.caching else 0
        if r.caching and r.caching != SHARED_MEMORY:
            assert spare <= w.caches[device].room and not users
            spare = 0
        several = v.reading_count + v.decoding_count + v.loading_count > 1
        if w.devices[device].slot >= 0 and (several or r.disaggregated):
            assert v.cached + v.decoding_count * c.queries + spare <= c.capacity

    def hold_blocks(self, device: int, users: Counter[int]) -> None:
        """The blocks that sequences use, and those that may be removed, agree with the caches of a device."""
        w: Any = self.world
        r = w.run[0]
        kept = self.kept(device)
        for level in range(1, r.levels):
            tier = level * r.devices + device
            assert sum(self.kept(tier).values()) <= w.caches[tier].room
        assert not set(kept) & set(users)
        for run in {*kept, *users}:
            assert w.nodes[_find(w, device, run)].users == users[run]

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

    def hold_ports(self, device: int) -> None:
        """The lists of requests that come to a device agree with their numbers and stages."""
        w: Any = self.world
        p = w.ports[device]
        slot, before, stages = p.incoming, -1, []
        while slot >= 0:
            assert w.sequences[slot].earlier == before and w.handovers[slot].receiver == device
            stages.append(w.handovers[slot].stage)
            if len(stages) == p.reserved + 1:
                assert p.awaiting == slot
            before, slot = slot, w.sequences[slot].later
        assert p.incoming_end == before
        sent = p.reserved - p.landed
        assert stages == [tables.LANDED] * p.landed + [tables.SENT] * sent + [tables.AWAITS] * p.waiting
        assert p.waiting or p.awaiting < 0

    def sequences(self, device: int) -> Iterator[tuple[int, int]]:
        """Each sequence that has memory of a device, and its tokens there."""
        w: Any = self.world
        v = w.servers[device]
        for first in (v.reading, v.loading, v.decoding):
            slot = first
            while slot >= 0:
                q = w.sequences[slot]
                yield slot, q.prompt + (made_since_read(w, device, slot) if first == v.decoding else 0)
                slot = w.slots[slot].next
        if w.run[0].disaggregated:
            slot = w.ports[device].holding
            while slot >= 0:
                assert w.handovers[slot].sender == device
                yield slot, w.sequences[slot].prompt
                slot = w.slots[slot].next
            slot = w.ports[device].incoming
            for _ in range(w.ports[device].reserved):
                yield slot, w.sequences[slot].prompt
                slot = w.sequences[slot].later
