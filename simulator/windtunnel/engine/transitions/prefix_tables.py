"""The tables of prefix caches: the chains of the jobs, the nodes of the caches and their index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.tables import Records, records

_NODES = 1024
"""The initial number of nodes."""


def write_prefixes(prepared: PreparedRun, add: Callable[[np.ndarray], int], r: Records, workloads: Records) -> Records:
    """Write the chains of all jobs with ``add``, which returns the offset of an array in ``ints``; return the nodes.

    The runs of the workloads are numbered one after the other, so workloads share no blocks.
    """
    cache = prepared.policy.batch.prefix_cache
    if cache is None:
        return records(0, tables.NODE_OF_PREFIX)
    block = prepared.block_tokens
    r.caching, r.block_weight = tables.SHARED_MEMORY, block
    if cache.blocks is not None:
        r.caching, r.block_weight, r.cache_blocks = tables.OWN_BLOCKS, 1, cache.blocks
    blocks, tokens = [], []
    first_run = 0
    for row, chains in zip(workloads, prepared.chains, strict=True):
        # The places of the chains are offsets in `ints`.
        at = add(chains.runs + first_run)
        row.chains = add(chains.at + at)
        row.homes = add(chains.home)
        r.longest_chain = max(r.longest_chain, int(np.diff(chains.at).max(initial=0)))
        blocks.append(chains.blocks)
        tokens.append(chains.tokens)
        first_run += len(chains.blocks)
    all_blocks, all_tokens = np.concatenate(blocks), np.concatenate(tokens)
    r.run_blocks, r.run_tokens = add(all_blocks), add(all_tokens)
    r.run_weights = r.run_blocks if r.caching == tables.OWN_BLOCKS else r.run_tokens
    nodes = records(_NODES, tables.NODE_OF_PREFIX)
    nodes.next = np.append(np.arange(1, _NODES), -1)
    return nodes


def index_of(nodes: int) -> np.ndarray:
    """Return an empty index for so many nodes, at most half of whose places they take."""
    return np.zeros(1 << (2 * nodes - 1).bit_length() if nodes else 1, dtype=np.int64)


def more_nodes(r: Records, count: int) -> Records:
    """Return as many blank nodes again as there are, for the end of the table. The next step indexes all nodes."""
    rows: Records = records(count, tables.NODE_OF_PREFIX)
    rows.next = np.append(np.arange(count + 1, 2 * count), r.free_node)
    r.free_node, r.reindexing = count, 1
    return rows
