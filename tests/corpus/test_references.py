"""The corpus itself, without any device: its registry is complete, and its references agree with libraries, standards,
textbooks and plain arithmetic."""

import base64
import collections
import inspect
import ipaddress
import itertools
from pathlib import Path

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.integrate
import scipy.signal
import scipy.sparse
import scipy.sparse.csgraph
import scipy.spatial
from tests.cases import check_all
from tests.corpus import bytes_and_text, ciphers, graphs, learning, linear, numerics, stencils
from tests.corpus.planted import CONTROLS, FINDINGS, PLANTED
from tests.corpus.registry import Case, Comparison, Empty, Program, cases, programs

from windtunnel.language.types import Array, Scalar

CASES, PROGRAMS = {c.name: c for c in cases()}, {p.name: p for p in programs()}
ALL = {**CASES, **PROGRAMS}


def parameters(kernel):
    return inspect.signature(kernel.function).parameters


def threads(size):
    return int(np.prod(np.atleast_1d(size)))


def checked(name, seed=0):
    """Arguments, and what the reference makes of them."""
    arguments = ALL[name].arguments(seed)
    return arguments, ALL[name].reference(arguments)


def test_names_are_unique():
    assert len(cases()) == len(CASES)
    assert len(programs()) == len(PROGRAMS)
    assert not CASES.keys() & PROGRAMS.keys()
    assert len(CASES) >= 45


def test_arguments_are_reproducible_and_references_leave_them():
    def check(name):
        one, other = ALL[name].arguments(3), ALL[name].arguments(3)
        expected = ALL[name].reference(one)
        assert list(one) == list(other)
        for key, value in one.items():
            if isinstance(value, np.ndarray):
                assert np.array_equal(value, other[key], equal_nan=value.dtype.kind == "f"), key
                assert value.flags.c_contiguous, key
            else:
                assert value == other[key], key
        again = ALL[name].reference(other)
        assert expected.keys() == again.keys()
        for key in expected:
            assert Comparison().wrong(expected[key], again[key]) is None

    check_all(ALL, check)


def test_references_say_what_is_written_and_change_something():
    def check(name):
        arguments, expected = checked(name)
        outputs = {k for k, a in arguments.items() if isinstance(a, Empty)} - set(getattr(ALL[name], "scratch", ()))
        assert outputs <= expected.keys()
        changed = False
        for key, after in expected.items():
            before = arguments[key]
            assert (after.shape, after.dtype) == (before.shape, np.dtype(before.dtype)), key
            blank = np.zeros(before.shape, before.dtype) if isinstance(before, Empty) else before
            changed |= not np.array_equal(after, blank)
        assert changed, "doing nothing would pass"

    check_all(ALL, check)


def test_a_result_that_need_not_be_exact_says_why():
    def check(name):
        case = ALL[name]
        assert case.exact == (case.rtol == case.atol == 0) == (not case.reason)
        assert case.rtol <= 1e-3
        assert case.atol <= 1e-3

    check_all(ALL, check)


def test_launches_fit_their_kernels():
    def check(case: Case):
        arguments = case.arguments()
        assert list(arguments) == list(parameters(case.kernel))
        assert threads(case.block) <= 1024
        assert threads(case.grid) * threads(case.block) <= 110_000
        for name, parameter in parameters(case.kernel).items():
            fits(parameter.annotation, arguments[name])

    check_all(CASES.values(), check, lambda case: case.name)


def fits(annotation, given):
    if isinstance(annotation, Array):
        assert (annotation.element.dtype, annotation.dimensions) == (np.dtype(given.dtype), len(given.shape))
    elif isinstance(annotation, Scalar):
        assert annotation.dtype.type(given) == pytest.approx(given, rel=1e-7)
        assert annotation.kind == "float" or isinstance(given, int)
    else:
        assert annotation is inspect.Parameter.empty


def test_programs_launch_what_fits_and_never_look_into_buffers():
    def check(program: Program):
        arguments = program.arguments()
        # A name and a type are all that there is of a buffer.
        buffers = {k: (k, v) if isinstance(v, np.ndarray | Empty) else v for k, v in arguments.items()}
        steps = list(program.steps(**buffers))
        assert len(steps) > 1
        for step in steps:
            assert len(step.arguments) == len(parameters(step.kernel))
            assert threads(step.block) <= 1024
            for parameter, given in zip(parameters(step.kernel).values(), step.arguments, strict=True):
                fits(parameter.annotation, given[1] if isinstance(given, tuple) else given)

    check_all(PROGRAMS.values(), check, lambda program: program.name)


def test_a_comparison_finds_a_wrong_element():
    one = np.arange(6, dtype=np.float32).reshape(2, 3)
    other = one.copy()
    other[1, 0] = 3.5
    assert Comparison().wrong(one, one) is None
    assert "first at [1, 0]: found 3.5, expected 3.0" in Comparison().wrong(other, one)
    assert Comparison(exact=False, rtol=0.2).wrong(other, one) is None
    assert Comparison(exact=False, rtol=0.1).wrong(other, one) is not None
    assert "float64" in Comparison().wrong(one.astype(np.float64), one)
    assert Comparison().wrong(np.array([np.nan]), np.array([np.nan])) is None
    assert Comparison().wrong(np.array([np.nan]), np.array([1.0])) is not None


# Planted bugs


def test_planted_bugs_are_unique_and_of_every_class():
    names = [p.name for p in PLANTED]
    assert len(set(names)) == len(names) >= 40
    assert {p.finding for p in PLANTED} == set(FINDINGS)
    assert {p.instead for p in PLANTED} <= {"", *FINDINGS}
    assert len({c.name for c in CONTROLS}) == len(CONTROLS) > 5


def test_planted_bugs_name_their_lines():
    def check(planted):
        assert 1 <= len(planted.lines) <= 2
        text = Path(planted.file).read_text().splitlines()
        for line in planted.lines:
            assert text[line - 1].endswith("# BUG")
        assert planted.accepts(planted.finding, planted.lines)
        assert not planted.accepts(planted.finding, {1})
        assert not planted.accepts("InputError", planted.lines)
        if planted.program is None:
            arguments = planted.arguments()
            assert list(arguments) == list(parameters(planted.kernel))
            for name, parameter in parameters(planted.kernel).items():
                fits(parameter.annotation, arguments[name])

    check_all(PLANTED, check, lambda planted: planted.name)


def test_every_marked_line_belongs_to_one_bug():
    claimed = collections.Counter((p.file, line) for p in PLANTED for line in p.lines)
    assert set(claimed.values()) == {1}
    marked = {
        (file, at)
        for file in {p.file for p in PLANTED}
        for at, line in enumerate(Path(file).read_text().splitlines(), 1)
        if line.endswith("# BUG")
    }
    assert marked == claimed.keys()


# References against libraries, standards and arithmetic


def test_aes_is_fips_197s():
    assert ciphers.sbox()[[0x00, 0x01, 0x53, 0xFF]].tolist() == [0x63, 0x7C, 0xED, 0x16]
    assert ciphers.expanded(ciphers.NIST_KEY)[-4:].tobytes().hex() == "b6630ca6"
    block = bytes.fromhex("3243f6a8885a308d313198a2e0370734")
    assert ciphers.aes128(block, ciphers.expanded(ciphers.NIST_KEY)).hex() == "3925841d02dc09fbdc118597196a0b32"
    block = bytes.fromhex("00112233445566778899aabbccddeeff")
    assert ciphers.aes128(block, ciphers.expanded(bytes(range(16)))).hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


def test_aes_in_counter_mode_is_sp_800_38as():
    arguments = CASES["aes128_ctr_of_sp_800_38a"].arguments()
    arguments["out"] = np.zeros(64, np.uint8)
    assert CASES["aes128_ctr"].expected(**arguments)["out"].tobytes() == ciphers.NIST_CIPHER


def test_chacha20_is_rfc_8439s():
    key = np.frombuffer(bytes(range(32)), "<u4")
    nonce = np.frombuffer(bytes.fromhex("000000090000004a00000000"), "<u4")
    assert [f"{w:08x}" for w in ciphers.chacha20_block(key, 1, nonce)] == [
        "e4e7f110",
        "15593bd1",
        "1fdd0f50",
        "c47120a3",
        "c7f4d1c7",
        "0368c033",
        "9aaa2204",
        "4e6cd4c3",
        "466482d2",
        "09aa9f07",
        "05d7c214",
        "a2028bd9",
        "d19c12b5",
        "b94e16de",
        "e883d0cb",
        "4e3c50a2",
    ]


def test_sha_256s_constants_are_fips_180s():
    assert [hex(v) for v in ciphers.SHA_CONSTANTS[[0, 1, 63]]] == ["0x428a2f98", "0x71374491", "0xc67178f2"]
    assert [hex(v) for v in ciphers.SHA_INITIAL[[0, 7]]] == ["0x6a09e667", "0x5be0cd19"]
    _, expected = checked("sha256_short_messages")
    assert hex(expected["digests"][0, 0]) == "0xba7816bf"


def test_philox_gives_its_authors_answers():
    assert [hex(v) for v in ciphers.philox((0,) * 4, (0,) * 2)] == [
        "0x6627e8d5",
        "0xe169c58d",
        "0xbc57ac4c",
        "0x9b00dbd8",
    ]
    pi = ciphers.philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0))
    assert [hex(v) for v in pi] == ["0xd16cfe09", "0x94fdcceb", "0x5001e420", "0x24126ea1"]


@pytest.mark.parametrize(
    ("name", "text", "digest"),
    [
        ("fnv1a", b"", 0x811C9DC5), ("fnv1a", b"a", 0xE40C292C), ("fnv1a", b"foobar", 0xBF9CF968),
        ("fnv1a_64", b"a", 0xAF63DC4C8601EC8C), ("fnv1a_64", b"foobar", 0x85944171F73967E8),
    ],
)  # fmt: skip
def test_fnv_gives_its_authors_answers(name, text, digest):
    row = np.zeros((1, 8), np.uint8)
    row[0, : len(text)] = list(text)
    assert CASES[name].expected(text=row, lengths=np.array([len(text)]), out=None, n=1)["out"].tolist() == [digest]


def test_generators_and_hashes_have_known_values():
    assert CASES["murmur_finalise"].expected(np.array([0, 1], np.uint32), 2)["keys"].tolist() == [0, 0x514E28B7]
    seed = np.array([1], np.uint32)
    assert [int(CASES["xorshift32"].expected(seed, k, 1)["seeds"][0]) for k in (1, 2, 3)] == [
        270369,
        67634689,
        2647435461,
    ]
    # 31 * h + c of twenty zeros xor k, by Java's rule on plain integers.
    h = 17
    for k in range(20):
        h = 31 * h + k
    assert CASES["signed_hash_wraps"].expected(np.zeros(1, np.int32), None, 1)["out"][0] == np.array(
        h % 2**32, np.uint32
    ).astype(np.int32)


def test_a_search_by_levels_is_a_queues():
    arguments, expected = checked("breadth_first_search")
    far = {0: 0}
    queue = collections.deque([0])
    while queue:
        node = queue.popleft()
        for target in arguments["edges"][arguments["starts"][node] : arguments["starts"][node + 1]].tolist():
            if target not in far:
                far[target] = far[node] + 1
                queue.append(target)
    assert expected["distance"].tolist() == [far.get(v, -1) for v in range(graphs.NODES)]
    # As many levels as the program launches, and more than a few.
    assert 4 < expected["distance"].max() < 40


def test_components_are_those_of_union_find():
    arguments, expected = checked("connected_components")
    parent = list(range(200))

    def root(v):
        while parent[v] != v:
            v = parent[v]
        return v

    for a, b in zip(arguments["sources"].tolist(), arguments["targets"].tolist(), strict=True):
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    assert expected["parent"].tolist() == [root(v) for v in range(200)]
    assert 20 < len(set(expected["parent"].tolist())) < 150


def test_shortest_paths_are_scipys():
    arguments, expected = checked("shortest_paths")
    weights = np.full((40, 40), np.inf)
    np.minimum.at(weights, (arguments["sources"], arguments["targets"]), arguments["weights"])
    np.fill_diagonal(weights, np.inf)
    far = scipy.sparse.csgraph.dijkstra(scipy.sparse.csgraph.csgraph_from_dense(weights, null_value=np.inf), indices=0)
    assert np.where(np.isinf(far), 1e9, far).tolist() == expected["distance"].tolist()


def test_triangles_are_those_that_one_finds_by_hand():
    arguments, expected = checked("count_triangles")
    edges = set(zip(arguments["sources"].tolist(), arguments["targets"].tolist(), strict=True))
    found = sum({(a, b), (a, c), (b, c)} <= edges for a, b, c in itertools.combinations(range(60), 3))
    assert expected["triangles"].tolist() == [found]
    assert arguments["n"] <= threads(CASES["count_triangles"].grid) * threads(CASES["count_triangles"].block)


def test_sparse_products_are_scipys():
    for name in ("spmv_csr_scalar", "spmv_csr_warp_a_row"):
        a, expected = checked(name)
        m = scipy.sparse.csr_array((a["values"], a["columns"], a["starts"]), shape=(a["rows"], a["x"].size))
        assert np.allclose(m @ a["x"], expected["y"], rtol=1e-13)


def test_the_factors_multiply_to_the_matrix():
    arguments, expected = checked("lu_in_shared_memory")
    for before, after in zip(arguments["a"], expected["a"].astype(np.float64), strict=True):
        assert np.allclose((np.tril(after, -1) + np.eye(13)) @ np.triu(after), before, atol=1e-4)


def test_jacobis_steps_lead_to_the_solution():
    arguments = PROGRAMS["jacobi_solves"].arguments()
    a, b, x = arguments["a"], arguments["b"], arguments["x"]
    for _ in range(40):
        x = linear._jacobi(a, b, x, None, 40)["new"]
    assert np.allclose(x, PROGRAMS["jacobi_solves"].reference(arguments)["x"], rtol=1e-10, atol=1e-12)


def test_stencils_of_polynomials_are_their_derivatives():
    z, y, x = np.mgrid[:6, :7, :8].astype(np.float64)
    flat = (x[0] ** 2 + 3 * y[0] ** 2).astype(np.float32)
    inner = CASES["laplacian"].expected(flat, np.zeros_like(flat), 7, 8)["target"][1:-1, 1:-1]
    assert (inner == 8).all()
    bowl = x**2 + y**2 + z**2
    warmed = stencils._heat(bowl, 0.5)
    assert np.allclose((warmed - bowl)[1:-1, 1:-1, 1:-1], 3)
    assert ((warmed == bowl).sum(), warmed.size) == (6 * 7 * 8 - 4 * 5 * 6, 6 * 7 * 8)


def test_a_glider_glides_and_a_blinker_blinks():
    cells = np.zeros((9, 9), np.uint8)
    cells[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1
    later = cells
    for _ in range(4):
        later = stencils._next_cells(later)
    assert (later == np.roll(cells, (1, 1), (0, 1))).all()
    blinker = np.zeros((5, 5), np.uint8)
    blinker[2, 1:4] = 1
    assert (stencils._next_cells(blinker) == blinker.T).all()


def test_convolutions_are_scipys_signals():
    arguments, expected = checked("conv2d")
    assert np.allclose(
        expected["out"], scipy.signal.correlate2d(arguments["image"], arguments["weights"], mode="same"), atol=1e-4
    )
    arguments, expected = checked("conv2d_channels_relu")
    for n, k in np.ndindex(2, 4):
        total = sum(
            scipy.signal.correlate2d(arguments["images"][n, c], arguments["weights"][k, c], mode="valid")
            for c in range(3)
        )
        assert np.allclose(expected["out"][n, k], np.maximum(total + arguments["bias"][k], 0), atol=1e-5)


def test_attention_is_a_weighted_mean():
    arguments, expected = checked("flash_attention_causal")
    q, k, v = (arguments[n].astype(np.float64) for n in "qkv")
    assert np.allclose(expected["out"][:, 0], v[:, 0], atol=1e-6)
    for head, row in itertools.product(range(2), (5, 47)):
        weights = [np.exp(arguments["scale"] * sum(q[head, row] * k[head, j])) for j in range(row + 1)]
        mean = sum(w * v[head, j] for j, w in enumerate(weights)) / sum(weights)
        assert np.allclose(expected["out"][head, row], mean, atol=1e-6)


def test_norms_have_mean_and_spread():
    _, expected = checked("softmax_row_a_block")
    assert np.allclose(expected["out"].sum(axis=1), 1, atol=1e-6)
    arguments, expected = checked("layer_norm")
    plain = (expected["out"].astype(np.float64) - arguments["bias"]) / arguments["gain"]
    assert np.allclose(plain.mean(axis=1), 0, atol=1e-3)
    assert np.allclose(plain.std(axis=1), 1, atol=1e-3)
    arguments, expected = checked("rotary_positions")
    assert np.allclose(np.linalg.norm(expected["x"], axis=1), np.linalg.norm(arguments["x"], axis=1), rtol=1e-6)
    assert (expected["x"][0] == arguments["x"][0]).all()


def test_neighbours_and_centres_are_scipys():
    arguments, expected = checked("nearest_neighbours")
    far, places = scipy.spatial.cKDTree(arguments["points"]).query(arguments["queries"], 6)
    assert (np.diff(far, axis=1) > 1e-3).all(), "a tie would be anybody's"
    assert (places[:, :5] == expected["found"]).all()
    arguments, expected = checked("k_means_assign")
    assert (scipy.cluster.vq.vq(arguments["points"], arguments["centres"])[0] == expected["labels"]).all()
    assert len(set(expected["labels"].tolist())) == 7


def test_a_step_of_adam_goes_down():
    arguments, expected = checked("adam_step")
    down = expected["w"] - arguments["w"]
    assert (np.sign(down) == -np.sign(expected["m"])).all()
    assert learning._adam(*(np.zeros(1) for _ in range(4)), 1e-3, 0.9, 0.999, 1e-8, 1, 1)["w"] == 0


def test_matches_decode_to_the_text():
    arguments, expected = checked("lz77_longest_matches")
    text, out, i = arguments["text"].tolist(), [], 0
    while i < len(text):
        length, distance = int(expected["lengths"][i]), int(expected["distances"][i])
        if length == 0:
            out.append(text[i])
            i += 1
            continue
        assert bytes_and_text.SHORTEST <= length <= bytes_and_text.LONGEST
        for _ in range(length):
            out.append(out[-distance])
        i += length
    assert out == text
    assert (expected["lengths"] > 0).mean() > 0.5


def test_packets_are_judged_as_by_the_address_library():
    arguments, expected = checked("packet_filter")
    rules = [
        (ipaddress.ip_network((int(p), int(n))), int(a))
        for p, n, a in zip(arguments["prefixes"], arguments["lengths"], arguments["actions"], strict=True)
    ]
    kept = np.flatnonzero(expected["verdicts"] >= 0)
    for i in kept:
        address = ipaddress.ip_address(arguments["packets"][i, 16:20].tobytes())
        hits = [(net.prefixlen, action) for net, action in rules if address in net]
        assert expected["verdicts"][i] == (max(hits)[1] if hits else 0)
    assert collections.Counter(expected["verdicts"].tolist()).keys() == {-2, -1, 0, 1, 2, 3, 4}
    assert ((expected["verdicts"] == -2).sum(), (expected["verdicts"] == -1).sum()) == (10, 15)


def test_distances_of_words_are_known():
    def distance(one, other):
        a, b = (np.frombuffer(w, np.uint8) for w in (one, other))
        return int(bytes_and_text._distance(a, b, None, len(one), len(other))["out"][0])

    assert [
        distance(b"kitten", b"sitting"),
        distance(b"", b"abc"),
        distance(b"flaw", b"lawn"),
        distance(b"same", b"same"),
    ] == [3, 3, 2, 0]


def test_text_is_found_and_encoded_as_python_does():
    arguments, expected = checked("find_all")
    text = arguments["text"].tobytes()
    assert [i for i in range(len(text)) if text.startswith(b"anan", i)] == np.flatnonzero(expected["found"]).tolist()
    assert expected["count"][0] > 3
    _, expected = checked("base64_encode")
    assert len(base64.b64decode(expected["out"].tobytes(), validate=True)) == 148


def test_numbers_have_their_known_properties():
    _, expected = checked("collatz")
    assert expected["steps"][[0, 1, 26, 96]].tolist() == [0, 1, 111, 118]
    _, expected = checked("primes")
    assert (expected["flags"].sum(), np.flatnonzero(expected["flags"])[-1]) == (62, 293)
    _, expected = checked("monte_carlo_darts")
    assert abs(4 * expected["hits"][0] / (96 * 25) - np.pi) < 0.2
    arguments, expected = checked("simpson_strips")
    exact = scipy.integrate.quad(lambda x: np.exp(-(x**2)), -2, 2)[0]
    assert expected["out"].sum() == pytest.approx(exact, abs=1e-12)
    for (row, column), turns in np.ndenumerate(checked("mandelbrot")[1]["out"]):
        c, z, count = complex(-1.5 + column / 16, -0.6875 + row / 16), 0j, 0
        while z.real**2 + z.imag**2 <= 4 and count < 20:
            z, count = z * z + c, count + 1
        assert turns == count


def test_forces_add_up_to_nothing():
    arguments, expected = checked("n_body")
    assert np.allclose(arguments["mass"] @ expected["force"].astype(np.float64), 0, atol=1e-3)


def test_an_option_has_its_textbook_price():
    one = [np.array([v], np.float32) for v in (100, 100, 1)]
    found = numerics._priced(*one, 0.05, 0.2)
    assert (found["call"][0], found["put"][0]) == (pytest.approx(10.4506, abs=1e-4), pytest.approx(5.5735, abs=1e-4))


def test_division_is_pythons():
    arguments, expected = checked("divide_and_remain")
    pairs = list(zip(arguments["a"].tolist(), arguments["b"].tolist(), strict=True))
    assert expected["quotients"].tolist() == [a // b for a, b in pairs]
    assert expected["remainders"].tolist() == [a % b for a, b in pairs]
    assert any(a < 0 < b and a % b for a, b in pairs)
    arguments, expected = checked("casts")
    assert expected["whole"].tolist() == [int(v) for v in arguments["x"]]
    assert (arguments["x"] < 0).any()


def test_waves_keep_their_energy_while_they_are_inside():
    arguments = PROGRAMS["wave_equation"].arguments()
    c2 = arguments["c2"]

    def energy(previous, now):
        steep = sum(
            (np.diff(a, axis=axis) * np.diff(b, axis=axis)).sum() for a, b in ((previous, now),) for axis in (0, 1)
        )
        return ((now - previous) ** 2).sum() + c2 * steep

    previous, now = (arguments[n].astype(np.float64) for n in ("previous", "now"))
    start = energy(previous, now)
    for _ in range(12):
        previous, now = now, stencils._wave(previous, now, c2)
    assert energy(previous, now) == pytest.approx(start, rel=1e-9)
    assert np.allclose(now, PROGRAMS["wave_equation"].reference(arguments)["now"], atol=1e-5)
