"""The prefix cache of a device with continuous batching: blocks of prompts that it has read, for later requests.

A prompt is a chain of blocks, each of which stands for all tokens up to its end. Blocks that occur only together, one
after the other, form a run (`engine/prepare/prefixes.py`); a chain is a list of runs. A run in a cache is a node, found
by a hash of run and device with linear probing, and in a list of its device in the order of its last use. Blocks are
used from the first to the last, and the least recently used goes, so what is missing of a run is its beginning: a run
either hits whole or not at all.

There are two kinds of caches. Where the scenario states a number of ``blocks``, the cache is a store of that size
beside the KV memory of the sequences. Else it shares that memory: the blocks of running sequences stay and count once,
however many sequences use them, and the other ones have what the sequences leave, as in vLLM. Weights of blocks are
counted in blocks in the former, and in tokens in the latter.

A prompt is looked up when its request is admitted, and its blocks are in the cache from then on: prompts are read in
the order of admission, so a later one is read when they are there.

Below the cache of a device there may be tiers, which are stores of blocks too: every block that is used on the device
is used in each of them, so they are inclusive. Blocks that only a tier has are loaded over its link, one request after
the other, while the device continues with other sequences (docs/decisions/0036-tiers-of-prefix-caches.md). Cache number
``level * devices + device`` is that of a device on a level; level 0 is the device itself.

The blocks that a request generates are used when it ends, if a later prompt may hold them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.engine.transitions.features import TIERS, cold, hot
from windtunnel.engine.transitions.tables import OWN_BLOCKS, SHARED_MEMORY, TOO_MANY, World

# The hash table.

_FACTOR, _LOW, _SHIFT = 2_654_435_769, 2**31 - 1, 16


@hot
def hashed(number: int) -> int:
    """Return a hash of the lowest 31 bits of a number.

    It is multiplicative (Knuth, The Art of Computer Programming 3, section 6.4) with 2^32 over the golden ratio. The
    product fits into 64 bits, so that Python and machine code agree.
    """
    return ((number & _LOW) * _FACTOR) >> _SHIFT


@hot
def _home(w: World, run: int, cache: int) -> int:
    """Return the place of the index where the search for a run of a cache begins."""
    # A field of four bytes would overflow in Python.
    place: int = hashed(int(run) * len(w.caches) + int(cache)) & (len(w.node_index) - 1)
    return place


@hot
def _find(w: World, cache: int, run: int) -> int:
    """Return the node of a run in a cache; -1 if there is none."""
    place = _home(w, run, cache)
    while True:
        node: int = w.node_index[place] - 1
        if node < 0 or (w.nodes[node].run == run and w.nodes[node].on == cache):
            return node
        place = (place + 1) & (len(w.node_index) - 1)


@hot
def _enter(w: World, node: int) -> None:
    """Write a node into the index."""
    place = _home(w, w.nodes[node].run, w.nodes[node].on)
    while w.node_index[place]:
        place = (place + 1) & (len(w.node_index) - 1)
    w.node_index[place] = node + 1


@hot
def _add(w: World, cache: int, run: int) -> int:
    """Return a new node without blocks, which is in no list."""
    r = w.run[0]
    node: int = r.free_node
    n = w.nodes[node]
    r.free_node = n.next
    r.nodes += 1
    n.run, n.on, n.before, n.next, n.users, n.left, n.ready = run, cache, -1, -1, 0, 0, 0
    _enter(w, node)
    return node


@hot
def _remove(w: World, node: int) -> None:
    """Remove a node that is in no list. Later entries move up, so that no search stops too early."""
    r, n = w.run[0], w.nodes[node]
    mask = len(w.node_index) - 1
    hole = _home(w, n.run, n.on)
    while w.node_index[hole] != node + 1:
        hole = (hole + 1) & mask
    place = hole
    while True:
        place = (place + 1) & mask
        other = w.node_index[place] - 1
        if other < 0:
            break
        home = _home(w, w.nodes[other].run, w.nodes[other].on)
        if ((place - home) & mask) >= ((place - hole) & mask):
            w.node_index[hole] = other + 1
            hole = place
    w.node_index[hole] = 0
    n.next = r.free_node
    r.free_node = node
    r.nodes -= 1


@cold
def index_nodes(w: World) -> None:
    """Write all nodes into an empty index, after the tables were enlarged."""
    w.run[0].reindexing = 0
    for cache in range(len(w.caches)):
        node = w.caches[cache].oldest
        while node >= 0:
            _enter(w, node)
            node = w.nodes[node].next
    for node in range(len(w.nodes)):
        if w.nodes[node].users > 0:
            _enter(w, node)


# The list of a cache.


@hot
def _append(w: World, node: int) -> None:
    """Append a node to the list of its cache, as the one that was used last."""
    n = w.nodes[node]
    v = w.caches[n.on]
    n.before, n.next = v.newest, -1
    if v.newest < 0:
        v.oldest = node
    else:
        w.nodes[v.newest].next = node
    v.newest = node
    v.spare += n.left


@hot
def _unlink(w: World, node: int) -> None:
    """Remove a node from the list of its cache."""
    n = w.nodes[node]
    v = w.caches[n.on]
    if n.before < 0:
        v.oldest = n.next
    else:
        w.nodes[n.before].next = n.next
    if n.next < 0:
        v.newest = n.before
    else:
        w.nodes[n.next].before = n.before
    v.spare -= n.left


@hot
def _evict(w: World, cache: int, room: int, using: int) -> None:
    """Remove the least recently used blocks until the others weigh at most ``room``.

    The run of node ``using`` is about to be used from its first block on. If its last blocks are the least recently
    used ones, each new block takes the place of one of them, so all of them go.
    """
    v = w.caches[cache]
    while v.spare > room and v.oldest >= 0:
        node = v.oldest
        n = w.nodes[node]
        over = v.spare - room
        gone = -(-over // v.block) * v.block
        if node == using or gone >= n.left:
            _unlink(w, node)
            n.left = 0
            if node == using:
                return
            _remove(w, node)
        else:
            n.left -= gone
            v.spare -= gone


# What sequences do.


@hot
def _weight(w: World, cache: int, run: int) -> int:
    """Return the weight of all blocks of a run in a cache."""
    weight: int = w.ints[w.caches[cache].weights + run]
    return weight


@hot
def _has(w: World, cache: int, run: int) -> bool:
    """Return whether a cache has all blocks of a run."""
    node = _find(w, cache, run)
    return bool(node >= 0 and w.nodes[node].left >= _weight(w, cache, run))


@hot
def _level(w: World, device: int, run: int) -> int:
    """Return the highest level that has all blocks of a run; -1 if none has."""
    r = w.run[0]
    if _has(w, device, run):
        return 0
    if TIERS:
        for level in range(1, r.levels):
            if _has(w, level * r.devices + device, run):
                return level
    return -1


@hot
def _chain(w: World, slot: int) -> tuple[int, int]:
    """Return the offsets in ``ints`` of the first run of a request, and after the last one."""
    s = w.slots[slot]
    at = w.workloads[s.work].chains + s.rank
    return w.ints[at], w.ints[at + 1]


@cold
def cached_tokens(w: World, device: int, slot: int) -> int:
    """Return the tokens of a request's prompt that the device, or a tier below it, has in its cache."""
    first, last = _chain(w, slot)
    tokens = 0
    for place in range(first, last):
        run = w.ints[place]
        if _level(w, device, run) < 0:
            break
        tokens += w.ints[w.run[0].run_tokens + run]
    return tokens


@cold
def look_up(w: World, device: int, slot: int) -> int:
    """Look up a request's prompt: note what is found, and return the tokens for which it needs memory."""
    r, q = w.run[0], w.sequences[slot]
    first, last = _chain(w, slot)
    tokens = fresh = blocks = found = level = 0
    if TIERS and r.levels > 1:
        load = w.loads[slot]
        load.blocks_1 = load.tokens_1 = load.read_1 = load.blocks_2 = load.tokens_2 = load.read_2 = 0
    for place in range(first, last):
        run = w.ints[place]
        level = _level(w, device, run)
        if level < 0:
            break
        more = w.ints[r.run_tokens + run]
        tokens += more
        blocks += w.ints[r.run_blocks + run]
        if TIERS and level > 0:
            load = w.loads[slot]
            if level == 1:
                load.tokens_1 += more
                load.blocks_1 += w.ints[r.run_blocks + run]
            else:
                load.tokens_2 += more
                load.blocks_2 += w.ints[r.run_blocks + run]
            fresh += more
        elif w.nodes[_find(w, device, run)].users == 0:
            fresh += more
        found += 1
    if TIERS and tokens == q.prompt and r.levels > 1:  # its last token is read even so
        load = w.loads[slot]
        load.read_1, load.read_2 = level == 1, level == 2
    q.found, q.hits = found, blocks
    q.read = min(tokens, q.prompt - 1)  # the last token is read even so, because the first output token follows it
    need: int = q.prompt - tokens + fresh if r.caching == SHARED_MEMORY else q.prompt
    return need


@hot
def _occupy(w: World, cache: int, tokens: int) -> int:
    """Let the link of a tier load so many tokens after what it loads now; return the tick at which it has."""
    r, c = w.run[0], w.caches[cache]
    scaled: Any = np.rint(float(tokens) * c.ticks_per_token)
    if scaled > TOO_MANY - float(max(c.free_at, r.now)):
        r.too_long = 1
        return int(r.now)
    ticks: Any = np.int64(scaled)
    c.free_at = max(c.free_at, r.now) + ticks
    c.busy += ticks
    end: int = c.free_at
    return end


@cold
def load_blocks(w: World, device: int, slot: int) -> None:
    """Load the blocks of an admitted request that only tiers have, and note when all that it found are there.

    What a lower tier has passes the tiers above it, at the pace of the slower link. Blocks that another request loads
    are waited for.
    """
    r, load = w.run[0], w.loads[slot]
    load.ready = r.now
    if load.tokens_1 + load.tokens_2:
        load.ready = max(load.ready, _occupy(w, r.devices + device, load.tokens_1 + load.tokens_2))
    if load.tokens_2:
        load.ready = max(load.ready, _occupy(w, 2 * r.devices + device, load.tokens_2))
    first, _ = _chain(w, slot)
    for place in range(first, first + w.sequences[slot].found):
        node = _find(w, device, w.ints[place])
        if node >= 0 and w.nodes[node].left >= _weight(w, device, w.ints[place]):
            load.ready = max(load.ready, w.nodes[node].ready)


@cold
def use_prompt(w: World, device: int, slot: int, room: int) -> None:
    """Put the blocks of an admitted request into the cache, from the first to the last.

    In shared memory they stay for it, and blocks of others go that have no ``room`` beside it.
    """
    r, q = w.run[0], w.sequences[slot]
    first, last = _chain(w, slot)
    ready = 0
    if TIERS and r.levels > 1:
        load_blocks(w, device, slot)
        ready = w.loads[slot].ready
        for level in range(1, r.levels):
            for place in range(first, last):
                _store(w, level * r.devices + device, w.ints[place], 0)
    if r.caching != SHARED_MEMORY:
        for place in range(first, last):
            _store(w, device, w.ints[place], ready)
        return
    for place in range(first, last):
        run = w.ints[place]
        node = _find(w, device, run)
        if node < 0:
            node = _add(w, device, run)
        elif w.nodes[node].users == 0:
            _unlink(w, node)
        w.nodes[node].users += 1
        if w.nodes[node].left < _weight(w, device, run):
            w.nodes[node].left = _weight(w, device, run)
            w.nodes[node].ready = ready
    q.using = last - first
    _evict(w, device, room, -1)


@cold
def make_room(w: World, device: int, room: int) -> None:
    """Remove blocks that no sequence uses until they have at most ``room`` tokens."""
    _evict(w, device, max(room, 0), -1)


@hot
def _store(w: World, cache: int, run: int, ready: int) -> None:
    """Use the blocks of a run from the first to the last, in a cache of a stated number of blocks.

    Blocks that are new are there from the tick ``ready`` on.
    """
    c = w.caches[cache]
    weight = _weight(w, cache, run)
    node = _find(w, cache, run)
    if node < 0:
        node = _add(w, cache, run)
    elif w.nodes[node].left < weight:
        _evict(w, cache, max(c.room - (weight - w.nodes[node].left), 0), node)
        if w.nodes[node].left:
            _unlink(w, node)
    else:
        ready = w.nodes[node].ready
        _unlink(w, node)
    if w.nodes[node].left == 0:
        _evict(w, cache, max(c.room - weight, 0), -1)
    # Of a run longer than the cache the last blocks remain.
    w.nodes[node].left = min(weight, c.room)
    w.nodes[node].ready = ready
    _append(w, node)


@cold
def release_prompt(w: World, device: int, slot: int, is_read: bool) -> int:
    """Let a sequence use its blocks no more; return the tokens of those that other sequences still use.

    What it has not read goes: later sequences, which would have found it, are preempted before.
    """
    q = w.sequences[slot]
    first, _ = _chain(w, slot)
    kept = 0
    for place in range(first, first + q.using):
        run = w.ints[place]
        node = _find(w, device, run)
        w.nodes[node].users -= 1
        if w.nodes[node].users:
            kept += w.ints[w.run[0].run_tokens + run]
        elif is_read or place < first + q.found:
            _append(w, node)
        else:
            _remove(w, node)
            if TIERS:
                for level in range(1, w.run[0].levels):
                    _discard(w, level * w.run[0].devices + device, run)
    q.using = 0
    return kept


@cold
def _discard(w: World, cache: int, run: int) -> None:
    """Remove the blocks of a run that no sequence uses from a cache, if it has any."""
    node = _find(w, cache, run)
    if node >= 0 and w.nodes[node].users == 0:
        _unlink(w, node)
        _remove(w, node)


@cold
def keep_answer(w: World, device: int, slot: int) -> None:
    """Put the full blocks that a request has generated into the caches, for the next prompt of its session.

    The first of them completes the last block of the prompt, if that was partial, and takes its place.
    """
    r, s = w.run[0], w.slots[slot]
    answer = w.ints[w.workloads[s.work].answers + s.rank]
    if answer < 0:
        return
    _, last = _chain(w, slot)
    partial = w.ints[last - 1]
    if w.ints[r.run_tokens + partial] == w.ints[r.run_blocks + partial] * r.block_tokens:
        partial = -1
    for level in range(r.levels):
        cache = level * r.devices + device
        if partial >= 0:
            _discard(w, cache, partial)
        if level > 0 or r.caching == OWN_BLOCKS:
            _store(w, cache, answer, 0)
            continue
        node = _find(w, cache, answer)
        if node < 0:
            node = _add(w, cache, answer)
        elif w.nodes[node].users > 0:
            continue
        else:
            _unlink(w, node)
        w.nodes[node].left = _weight(w, cache, answer)
        _append(w, node)


@cold
def forget_prefixes(w: World, device: int, levels: int) -> None:
    """Empty the caches of a device without sequences on the first ``levels`` levels, and stop their loads."""
    r = w.run[0]
    for level in range(min(levels, r.levels)):
        c = w.caches[level * r.devices + device]
        c.free_at = 0
        while c.oldest >= 0:
            node = c.oldest
            _unlink(w, node)
            _remove(w, node)
