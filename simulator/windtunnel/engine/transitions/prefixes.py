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
"""

from __future__ import annotations

from windtunnel.engine.transitions.features import cold, hot
from windtunnel.engine.transitions.tables import SHARED_MEMORY, World

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
def _home(w: World, run: int, device: int) -> int:
    """Return the place of the index where the search for a run of a device begins."""
    place: int = hashed(run * w.run[0].devices + device) & (len(w.node_index) - 1)
    return place


@hot
def _find(w: World, device: int, run: int) -> int:
    """Return the node of a run in the cache of a device; -1 if there is none."""
    place = _home(w, run, device)
    while True:
        node: int = w.node_index[place] - 1
        if node < 0 or (w.nodes[node].run == run and w.nodes[node].on == device):
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
def _add(w: World, device: int, run: int) -> int:
    """Return a new node without blocks, which is in no list."""
    r = w.run[0]
    node: int = r.free_node
    n = w.nodes[node]
    r.free_node = n.next
    r.nodes += 1
    n.run, n.on, n.before, n.next, n.users, n.left = run, device, -1, -1, 0, 0
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
    for device in range(w.run[0].devices):
        v = w.servers[device]
        node = v.oldest
        while node >= 0:
            _enter(w, node)
            node = w.nodes[node].next
    for node in range(len(w.nodes)):
        if w.nodes[node].users > 0:
            _enter(w, node)


# The list of a device.


@hot
def _append(w: World, device: int, node: int) -> None:
    """Append a node to the list of its device, as the one that was used last."""
    v, n = w.servers[device], w.nodes[node]
    n.before, n.next = v.newest, -1
    if v.newest < 0:
        v.oldest = node
    else:
        w.nodes[v.newest].next = node
    v.newest = node
    v.spare += n.left


@hot
def _unlink(w: World, device: int, node: int) -> None:
    """Remove a node from the list of its device."""
    v, n = w.servers[device], w.nodes[node]
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
def _evict(w: World, device: int, room: int, using: int) -> None:
    """Remove the least recently used blocks until the others weigh at most ``room``.

    The run of node ``using`` is about to be used from its first block on. If its last blocks are the least recently
    used ones, each new block takes the place of one of them, so all of them go.
    """
    r, v = w.run[0], w.servers[device]
    while v.spare > room and v.oldest >= 0:
        node = v.oldest
        n = w.nodes[node]
        over = v.spare - room
        gone = -(-over // r.block_weight) * r.block_weight
        if node == using or gone >= n.left:
            _unlink(w, device, node)
            n.left = 0
            if node == using:
                return
            _remove(w, node)
        else:
            n.left -= gone
            v.spare -= gone


# What sequences do.


@hot
def _weight(w: World, run: int) -> int:
    """Return the weight of all blocks of a run."""
    weight: int = w.ints[w.run[0].run_weights + run]
    return weight


@hot
def _chain(w: World, slot: int) -> tuple[int, int]:
    """Return the offsets in ``ints`` of the first run of a request, and after the last one."""
    s = w.slots[slot]
    at = w.workloads[s.work].chains + s.rank
    return w.ints[at], w.ints[at + 1]


@cold
def cached_tokens(w: World, device: int, slot: int) -> int:
    """Return the tokens of a request's prompt that the device has in its cache."""
    first, last = _chain(w, slot)
    tokens = 0
    for place in range(first, last):
        run = w.ints[place]
        node = _find(w, device, run)
        if node < 0 or w.nodes[node].left < _weight(w, run):
            break
        tokens += w.ints[w.run[0].run_tokens + run]
    return tokens


@cold
def look_up(w: World, device: int, slot: int) -> int:
    """Look up a request's prompt: note what is found, and return the tokens for which it needs memory."""
    r, q = w.run[0], w.sequences[slot]
    first, last = _chain(w, slot)
    tokens = fresh = blocks = found = 0
    for place in range(first, last):
        run = w.ints[place]
        node = _find(w, device, run)
        if node < 0 or w.nodes[node].left < _weight(w, run):
            break
        more = w.ints[r.run_tokens + run]
        tokens += more
        blocks += w.ints[r.run_blocks + run]
        if w.nodes[node].users == 0:
            fresh += more
        found += 1
    q.found, q.hits = found, blocks
    q.read = min(tokens, q.prompt - 1)  # the last token is read even so, because the first output token follows it
    need: int = q.prompt - tokens + fresh if r.caching == SHARED_MEMORY else q.prompt
    return need


@cold
def use_prompt(w: World, device: int, slot: int, room: int) -> None:
    """Put the blocks of an admitted request into the cache, from the first to the last.

    In shared memory they stay for it, and blocks of others go that have no ``room`` beside it.
    """
    r, q = w.run[0], w.sequences[slot]
    first, last = _chain(w, slot)
    if r.caching != SHARED_MEMORY:
        for place in range(first, last):
            _store(w, device, w.ints[place])
        return
    for place in range(first, last):
        run = w.ints[place]
        node = _find(w, device, run)
        if node < 0:
            node = _add(w, device, run)
        elif w.nodes[node].users == 0:
            _unlink(w, device, node)
        w.nodes[node].users += 1
        w.nodes[node].left = _weight(w, run)
    q.using = last - first
    _evict(w, device, room, -1)


@cold
def make_room(w: World, device: int, room: int) -> None:
    """Remove blocks that no sequence uses until they have at most ``room`` tokens."""
    _evict(w, device, max(room, 0), -1)


@hot
def _store(w: World, device: int, run: int) -> None:
    """Use the blocks of a run from the first to the last, in a cache of a stated number of blocks."""
    r = w.run[0]
    weight = _weight(w, run)
    node = _find(w, device, run)
    if node < 0:
        node = _add(w, device, run)
    elif w.nodes[node].left < weight:
        _evict(w, device, max(r.cache_blocks - (weight - w.nodes[node].left), 0), node)
        if w.nodes[node].left:
            _unlink(w, device, node)
    else:
        _unlink(w, device, node)
    if w.nodes[node].left == 0:
        _evict(w, device, max(r.cache_blocks - weight, 0), -1)
    # Of a run longer than the cache the last blocks remain.
    w.nodes[node].left = min(weight, r.cache_blocks)
    _append(w, device, node)


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
            _append(w, device, node)
        else:
            _remove(w, node)
    q.using = 0
    return kept


@cold
def forget_prefixes(w: World, device: int) -> None:
    """Empty the cache of a device without sequences, which loses its memory."""
    v = w.servers[device]
    while v.oldest >= 0:
        node = v.oldest
        _unlink(w, device, node)
        _remove(w, node)
