"""The tables of prefix caches: the chains of the jobs, the nodes of the caches and their index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.tables import Records, records

_NODES = 1024
"""The initial number of nodes."""


def write_prefixes(
    prepared: PreparedRun, add: Callable[[np.ndarray], int], r: Records, workloads: Records
) -> tuple[Records, Records]:
    """Write the chains of all jobs with ``add``, which returns the offset of an array in ``ints``.

    The runs of the workloads are numbered one after the other, so workloads share no blocks. Returns the nodes and the
    caches.
    """
    cache = prepared.policy.batch.prefix_cache
    if cache is None:
        return records(0, tables.NODE_OF_PREFIX), records(0, tables.CACHE)
    r.caching = tables.SHARED_MEMORY if cache.blocks is None else tables.OWN_BLOCKS
    r.block_tokens, r.levels = prepared.block_tokens, 1 + len(cache.tiers)
    # The host memory of a serving engine is lost with its process, and disks are not.
    r.lost_levels = 1 + sum(tier.name == "host" for tier in cache.tiers)
    blocks, tokens = [], []
    first_run = 0
    for row, chains in zip(workloads, prepared.chains, strict=True):
        # The places of the chains are offsets in `ints`.
        at = add(chains.runs + first_run)
        row.chains = add(chains.at + at)
        row.homes = add(chains.home)
        row.answers = -1
        if chains.answers is not None:
            row.answers = add(np.where(chains.answers < 0, -1, chains.answers + first_run))
        # One node more for what is generated.
        r.longest_chain = max(r.longest_chain, int(r.levels) * (1 + int(np.diff(chains.at).max(initial=0))))
        blocks.append(chains.blocks)
        tokens.append(chains.tokens)
        first_run += len(chains.blocks)
    r.run_blocks, r.run_tokens = add(np.concatenate(blocks)), add(np.concatenate(tokens))
    nodes = records(_NODES, tables.NODE_OF_PREFIX)
    nodes.next = np.append(np.arange(1, _NODES), -1)
    return nodes, _caches(prepared, r)


def _caches(prepared: PreparedRun, r: Records) -> Records:
    """Return the caches of all devices, level by level."""
    cache = prepared.policy.batch.prefix_cache
    assert cache is not None  # noqa: S101  the caller looked
    devices, shared = prepared.device_count, cache.blocks is None
    rows = records(int(r.levels) * devices, tables.CACHE)
    rows.oldest = rows.newest = -1
    rows.block, rows.weights, rows.room = 1, r.run_blocks, 0 if cache.blocks is None else cache.blocks
    if shared:
        rows.block[:devices], rows.weights[:devices] = prepared.block_tokens, r.run_tokens
    for c in prepared.classes:
        for level, tier in enumerate(prepared.tiers.get(c.number, ()), 1):
            own = slice(level * devices + c.first, level * devices + c.first + c.count)
            rows.room[own] = tier.blocks
            rows.ticks_per_token[own] = tier.bytes_per_token / tier.bytes_per_s * TICKS_PER_SECOND
    return rows


def index_of(nodes: int) -> np.ndarray:
    """Return an empty index for so many nodes, at most half of whose places they take."""
    return np.zeros(1 << (2 * nodes - 1).bit_length() if nodes else 1, dtype=np.int64)


def more_nodes(r: Records, count: int) -> Records:
    """Return as many blank nodes again as there are, for the end of the table. The next step indexes all nodes."""
    rows: Records = records(count, tables.NODE_OF_PREFIX)
    rows.next = np.append(np.arange(count + 1, 2 * count), r.free_node)
    r.free_node, r.reindexing = count, 1
    return rows
