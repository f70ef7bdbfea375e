"""Graphs in compressed rows: levels of a breadth-first search, components, page rank, degrees."""

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from tests.corpus.registry import Case, Empty, Program, Step, blocks

import windtunnel
from windtunnel import atomic, f64, grid, i32

NODES = 150


@windtunnel.kernel
def bfs_level(
    starts: i32[:], edges: i32[:], distance: i32[:], frontier: i32[:], following: i32[:], sizes: i32[:], level: i32
):
    # sizes[level] nodes are in the frontier; whoever sets a distance first puts the node into the next one.
    i = grid(1)
    if i < sizes[level]:
        node = frontier[i]
        for e in range(starts[node], starts[node + 1]):
            target = edges[e]
            if atomic.cas(distance, target, -1, level + 1) == -1:
                place = atomic.add(sizes, level + 1, 1)
                following[place] = target


@windtunnel.kernel
def hook(sources: i32[:], targets: i32[:], parent: i32[:], n: i32):
    i = grid(1)
    if i < n:
        a = atomic.add(parent, sources[i], 0)
        b = atomic.add(parent, targets[i], 0)
        if a < b:
            atomic.min(parent, b, a)
        elif b < a:
            atomic.min(parent, a, b)


@windtunnel.kernel
def jump(parent: i32[:], new: i32[:], n: i32):
    i = grid(1)
    if i < n:
        root = parent[i]
        while parent[root] != root:
            root = parent[root]
        new[i] = root


@windtunnel.kernel
def in_degree(edges: i32[:], degree: i32[:], n: i32):
    i = grid(1)
    if i < n:
        atomic.add(degree, edges[i], 1)


@windtunnel.kernel
def page_rank_pull(starts: i32[:], edges: i32[:], out_degree: i32[:], rank: f64[:], new: f64[:], damping: f64, n: i32):
    v = grid(1)
    if v < n:
        total = f64(0.0)
        for e in range(starts[v], starts[v + 1]):
            u = edges[e]
            total += rank[u] / f64(out_degree[u])
        new[v] = (1.0 - damping) / f64(n) + damping * total


@windtunnel.kernel
def relax_edges(sources: i32[:], targets: i32[:], weights: i32[:], distance: i32[:], n: i32):
    # Bellman and Ford's; run once a node, every order of the relaxations ends the same.
    i = grid(1)
    if i < n:
        far = atomic.add(distance, sources[i], 0)
        if far < 1000000000:
            atomic.min(distance, targets[i], far + weights[i])


@windtunnel.kernel
def count_triangles(starts: i32[:], edges: i32[:], sources: i32[:], targets: i32[:], triangles: i32[:], n: i32):
    # Edges point to higher nodes and rows are sorted: two rows are merged for each edge.
    e = grid(1)
    if e >= n:
        return
    i = starts[sources[e]]
    j = starts[targets[e]]
    found = 0
    while i < starts[sources[e] + 1] and j < starts[targets[e] + 1]:
        if edges[i] == edges[j]:
            found += 1
            i += 1
            j += 1
        elif edges[i] < edges[j]:
            i += 1
        else:
            j += 1
    if found > 0:
        atomic.add(triangles, 0, found)


def _two_trees(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return parents that lead every even node to 0 and every odd one to 1."""
    odd = np.arange(n) % 2
    return (2 * ((np.arange(n) - odd) * rng.random(n) / 2).astype(np.int32) + odd).astype(np.int32)


def _graph(rng: np.random.Generator, n: int, density: float) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((rng.random((n, n)) < density).astype(np.int32))


def _bfs_arguments(rng: np.random.Generator):
    g = _graph(rng, NODES, 0.015)
    distance = np.full(NODES, -1, np.int32)
    distance[0] = 0
    frontier = np.zeros(NODES, np.int32)
    sizes = np.zeros(NODES + 1, np.int32)
    sizes[0] = 1
    return {
        "starts": g.indptr.astype(np.int32), "edges": g.indices.astype(np.int32), "distance": distance, "frontier": frontier,
        "following": np.zeros(NODES, np.int32), "sizes": sizes,
    }  # fmt: skip


def _bfs(starts, edges, distance, frontier, following, sizes):
    for level in range(40):
        yield Step(bfs_level, blocks(NODES, 64), 64, (starts, edges, distance, frontier, following, sizes, level))
        frontier, following = following, frontier


def _csr(starts, edges):
    return scipy.sparse.csr_array((np.ones(edges.size), edges, starts), shape=(starts.size - 1,) * 2)


def _levels(starts, edges, distance, sizes, **_):
    far = scipy.sparse.csgraph.shortest_path(_csr(starts, edges), unweighted=True, indices=0)
    reached = np.isfinite(far)
    distance[reached] = far[reached]
    sizes[:] = np.bincount(far[reached].astype(np.int64), minlength=sizes.size)
    return {"distance": distance, "sizes": sizes}


def _component_arguments(rng: np.random.Generator):
    return {
        "sources": rng.integers(0, 200, 150, dtype=np.int32), "targets": rng.integers(0, 200, 150, dtype=np.int32),
        "parent": np.arange(200, dtype=np.int32), "new": Empty((200,), np.int32), "n": 150, "nodes": 200,
    }  # fmt: skip


def _components(sources, targets, parent, new, n, nodes):
    for _ in range(12):
        yield Step(hook, 3, 64, (sources, targets, parent, n))
        yield Step(jump, 4, 64, (parent, new, nodes))
        yield Step(hook, 3, 64, (sources, targets, new, n))
        yield Step(jump, 4, 64, (new, parent, nodes))


def _labelled(sources, targets, parent, nodes, **_):
    g = scipy.sparse.coo_array((np.ones(sources.size), (sources, targets)), shape=(nodes, nodes))
    _, label = scipy.sparse.csgraph.connected_components(g, directed=False)
    return {"parent": np.array([np.flatnonzero(label == label[i])[0] for i in range(nodes)], np.int32)}


def _rank_arguments(rng: np.random.Generator):
    g = _graph(rng, 80, 0.08)
    pulled = scipy.sparse.csr_array(g.T)
    return {
        "starts": pulled.indptr.astype(np.int32), "edges": pulled.indices.astype(np.int32),
        "out_degree": np.diff(g.indptr).astype(np.int32), "rank": rng.dirichlet(np.ones(80)), "new": Empty((80,), np.float64),
        "damping": 0.85, "n": 80,
    }  # fmt: skip


def _ranked(starts, edges, out_degree, rank, damping, n, **_):
    share = np.divide(rank, out_degree, out=np.zeros(n), where=out_degree > 0)
    return {"new": (1 - damping) / n + damping * (_csr(starts, edges) @ share)}


def _road_arguments(rng: np.random.Generator):
    sources, targets = rng.integers(0, 40, (2, 120), dtype=np.int32)
    distance = np.full(40, 1_000_000_000, np.int32)
    distance[0] = 0
    return {
        "sources": sources, "targets": targets, "weights": rng.integers(1, 50, 120, dtype=np.int32), "distance": distance, "n": 120,
    }  # fmt: skip


def _relax(sources, targets, weights, distance, n):
    for _ in range(40):
        yield Step(relax_edges, 2, 64, (sources, targets, weights, distance, n))


def _shortest(sources, targets, weights, distance, n):
    direct = np.full((40, 40), np.inf)
    np.minimum.at(direct, (sources, targets), weights)
    for k in range(40):
        direct = np.minimum(direct, direct[:, k, None] + direct[k])
    reached = np.isfinite(direct[0])
    distance[reached] = direct[0][reached]
    distance[0] = 0
    return {"distance": distance}


def _triangle_arguments(rng: np.random.Generator):
    upper = scipy.sparse.csr_array(np.triu(rng.random((60, 60)) < 0.2, 1).astype(np.int32))
    return {
        "starts": upper.indptr.astype(np.int32), "edges": upper.indices.astype(np.int32),
        "sources": np.repeat(np.arange(60), np.diff(upper.indptr)).astype(np.int32), "targets": upper.indices.astype(np.int32),
        "triangles": np.zeros(1, np.int32), "n": int(upper.nnz),
    }  # fmt: skip


def _triangles(starts, edges, triangles, **_):
    a = _csr(starts, edges).todense()
    a = a + a.T
    return {"triangles": np.array([np.trace(a @ a @ a) // 6], np.int32)}


CASES = (
    Case(
        "in_degree", in_degree, 4, 64,
        lambda rng: {"edges": rng.integers(0, 30, 220, dtype=np.int32), "degree": np.zeros(30, np.int32), "n": 220},
        lambda edges, degree, n: {"degree": np.bincount(edges, minlength=30).astype(np.int32)},
    ),
    Case(
        "pointer_jumping", jump, 2, 64,
        lambda rng: {"parent": _two_trees(rng, 100), "new": Empty((100,), np.int32), "n": 100},
        lambda parent, new, n: {"new": np.arange(100, dtype=np.int32) % 2}, notes="two trees; chains of many lengths",
    ),
    Case(
        "page_rank_pull", page_rank_pull, 2, 64, _rank_arguments, _ranked, exact=False, rtol=1e-12, atol=1e-15,
        reason="the reference sums in another order",
    ),
    Case(
        "count_triangles", count_triangles, blocks(420, 64), 64, _triangle_arguments, _triangles, notes="two rows merged, divergent",
    ),
)  # fmt: skip

PROGRAMS = (
    Program(
        "breadth_first_search", _bfs_arguments, _bfs, _levels, scratch=("frontier", "following"),
        notes="the order within a frontier is anybody's; the distances are not",
    ),
    Program("connected_components", _component_arguments, _components, _labelled, scratch=("new",), notes="hooking and jumping"),
    Program("shortest_paths", _road_arguments, _relax, _shortest, notes="atomic minima until nothing changes"),
)  # fmt: skip
