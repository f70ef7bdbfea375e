"""Bytes: packets parsed and filtered, matches found as LZ77 does, strings searched, base64, UTF-8, edit distance."""

import base64

import numpy as np
from tests.corpus.registry import Case, Empty, blocks

import windtunnel
from windtunnel import atomic, blockDim, blockIdx, grid, i32, shared, syncthreads, threadIdx, u8, u16, u32

WINDOW = 64
SHORTEST = 3
LONGEST = 18
PACKET = 40


def two_bytes(packets, i, at):
    return (u32(packets[i, at]) << 8) | u32(packets[i, at + 1])


def four_bytes(packets, i, at):
    return (two_bytes(packets, i, at) << 16) | two_bytes(packets, i, at + 2)


@windtunnel.kernel
def packet_filter(
    packets: u8[:, :],
    prefixes: u32[:],
    lengths: i32[:],
    actions: i32[:],
    default: i32,
    verdicts: i32[:],
    counts: i32[:],
    n: i32,
    rules: i32,
):
    # IPv4 only; a wrong checksum is dropped (-1), then the longest prefix of the destination decides.
    i = grid(1)
    if i >= n:
        return
    if packets[i, 0] != 0x45:
        verdicts[i] = -2
        return
    total = u32(0)
    for at in range(0, 20, 2):
        total += two_bytes(packets, i, at)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    if total != 0xFFFF:
        verdicts[i] = -1
        return
    destination = four_bytes(packets, i, 16)
    best = -1
    verdict = default
    for rule in range(rules):
        length = lengths[rule]
        mask = u32(0)
        if length > 0:
            mask = u32(0xFFFFFFFF) << u32(32 - length)
        if destination & mask == prefixes[rule] and length > best:
            best = length
            verdict = actions[rule]
    verdicts[i] = verdict
    atomic.add(counts, verdict, 1)


@windtunnel.kernel
def longest_matches(text: u8[:], lengths: i32[:], distances: i32[:], n: i32):
    # For each place the longest match in the window before it, the nearest of equals.
    i = grid(1)
    if i >= n:
        return
    best = 0
    where = 0
    for distance in range(1, min(i, WINDOW) + 1):
        length = 0
        while length < LONGEST and i + length < n and text[i + length] == text[i - distance + length]:
            length += 1
        if length > best:
            best = length
            where = distance
    if best >= SHORTEST:
        lengths[i] = best
        distances[i] = where
    else:
        lengths[i] = 0
        distances[i] = 0


@windtunnel.kernel
def find_all(text: u8[:], pattern: u8[:], found: u8[:], count: i32[:], n: i32, m: i32):
    # Each block stages its piece of the text, and as much of the next as a match may reach into.
    piece = shared.array(128 + 16, u8)
    base = blockIdx.x * blockDim.x
    for k in range(threadIdx.x, blockDim.x + m - 1, blockDim.x):
        if base + k < n:
            piece[k] = text[base + k]
    syncthreads()
    i = base + threadIdx.x
    if i >= n:
        return
    found[i] = 0
    if i + m > n:
        return
    for j in range(m):
        if piece[threadIdx.x + j] != pattern[j]:
            return
    found[i] = 1
    atomic.add(count, 0, 1)


@windtunnel.kernel
def base64_encode(data: u8[:], alphabet: u8[:], out: u8[:], n: i32):
    i = grid(1)
    if i * 3 >= n:
        return
    word = u32(data[3 * i]) << 16
    if 3 * i + 1 < n:
        word |= u32(data[3 * i + 1]) << 8
    if 3 * i + 2 < n:
        word |= u32(data[3 * i + 2])
    out[4 * i] = alphabet[i32(word >> 18)]
    out[4 * i + 1] = alphabet[i32((word >> 12) & 63)]
    out[4 * i + 2] = alphabet[i32((word >> 6) & 63)] if 3 * i + 1 < n else u8(61)
    out[4 * i + 3] = alphabet[i32(word & 63)] if 3 * i + 2 < n else u8(61)


@windtunnel.kernel
def code_points(text: u8[:], count: i32[:], n: i32):
    i = grid(1)
    if i < n and text[i] & 0xC0 != 0x80:
        atomic.add(count, 0, 1)


@windtunnel.kernel
def upper_case(text: u8[:], n: i32):
    i = grid(1)
    if i < n:
        c = text[i]
        if 97 <= c <= 122:
            text[i] = c - 32


@windtunnel.kernel
def edit_distance(a: u8[:], b: u8[:], out: i32[:], na: i32, nb: i32):
    # One block goes over the antidiagonals; three of them in shared memory, by turns.
    diagonals = shared.array((3, 128), i32)
    t = threadIdx.x
    for d in range(na + nb + 1):
        now = d % 3
        last = (d + 2) % 3
        before = (d + 1) % 3
        j = d - t
        if t <= na and 0 <= j <= nb:
            if t == 0:
                cost = j
            elif j == 0:
                cost = t
            else:
                change = 0 if a[t - 1] == b[j - 1] else 1
                cost = min(diagonals[before, t - 1] + change, min(diagonals[last, t - 1], diagonals[last, t]) + 1)
            diagonals[now, t] = cost
            if t == na and j == nb:
                out[0] = cost
        syncthreads()


@windtunnel.kernel
def pack_16(pixels: u8[:, :], out: u16[:], n: i32):
    # RGB of eight bits each to 5, 6 and 5.
    i = grid(1)
    if i < n:
        r = u32(pixels[i, 0]) >> 3
        g = u32(pixels[i, 1]) >> 2
        b = u32(pixels[i, 2]) >> 3
        out[i] = u16((r << 11) | (g << 5) | b)


def _packet_arguments(rng: np.random.Generator):
    packets = rng.integers(0, 256, (200, PACKET), dtype=np.uint8)
    packets[:, 0] = 0x45
    packets[:10, 0] = rng.integers(0x46, 0x70, 10)
    packets[:, 16] = rng.choice([10, 192], 200)
    packets[:, 17] = rng.choice([0, 1, 168], 200)
    packets[:, 10:12] = 0
    header = packets[:, :20].reshape(200, 10, 2).astype(np.int64) @ [256, 1]
    total = header.sum(1)
    total = (total & 0xFFFF) + (total >> 16)
    total = 0xFFFF - ((total & 0xFFFF) + (total >> 16))
    packets[:, 10], packets[:, 11] = total >> 8, total & 255
    packets[10:25, 12] ^= 1
    return {
        "packets": packets, "prefixes": np.array([0x0A000000, 0x0A010000, 0xC0A80000, 0x0A018000], np.uint32),
        "lengths": np.array([8, 16, 16, 17], np.int32), "actions": np.array([1, 2, 3, 4], np.int32), "default": 0,
        "verdicts": Empty((200,), np.int32), "counts": np.zeros(5, np.int32), "n": 200, "rules": 4,
    }  # fmt: skip


def _filtered(packets, prefixes, lengths, actions, default, verdicts, counts, n, rules):
    for i, packet in enumerate(packets):
        header = packet[:20].tobytes()
        if header[0] != 0x45:
            verdicts[i] = -2
        elif sum(int.from_bytes(header[k : k + 2], "big") for k in range(0, 20, 2)) % 0xFFFF:
            verdicts[i] = -1
        else:
            bits = f"{int.from_bytes(header[16:20], 'big'):032b}"
            hits = [
                (length, action)
                for p, length, action in zip(prefixes.tolist(), lengths.tolist(), actions.tolist(), strict=True)
                if bits.startswith(f"{p:032b}"[:length])
            ]
            verdicts[i] = max(hits)[1] if hits else default
            counts[verdicts[i]] += 1
    return {"verdicts": verdicts, "counts": counts}


def _text(rng: np.random.Generator, n: int) -> np.ndarray:
    words = [b"tunnel", b"wind", b"kernel", b" ", b"the", b"a", b"an", b"ran"]
    return np.frombuffer(b"".join(words[i] for i in rng.integers(0, 8, n))[:n], np.uint8).copy()


def _matched(text, lengths, distances, n):
    data = text.tobytes()
    for i in range(n):
        # From the longest down: the last place before i that begins so, which may overlap i.
        for length in range(min(LONGEST, n - i), SHORTEST - 1, -1):
            at = data.rfind(data[i : i + length], max(0, i - WINDOW), i - 1 + length)
            if at >= 0:
                lengths[i], distances[i] = length, i - at
                break
    return {"lengths": lengths, "distances": distances}


def _searched(text, pattern, found, count, n, m):
    for i in range(n - m + 1):
        found[i] = text[i : i + m].tobytes() == pattern.tobytes()
    return {"found": found, "count": np.array([found.sum()], np.int32)}


def _distance(a, b, out, na, nb):
    row = list(range(nb + 1))
    for i in range(na):
        new = [i + 1]
        for j in range(nb):
            new.append(min(row[j] + (a[i] != b[j]), row[j + 1] + 1, new[j] + 1))
        row = new
    return {"out": np.array([row[nb]], np.int32)}


def _upper(text, n):
    return {"text": np.frombuffer(text.tobytes().upper(), np.uint8)}


def _encoded(data, alphabet, out, n):
    return {"out": np.frombuffer(base64.b64encode(data.tobytes()), np.uint8)}


LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
SPEECH = "Windkanäle – σοφία, 風洞, 🚀 and plain letters; " * 4

CASES = (
    Case("packet_filter", packet_filter, 4, 64, _packet_arguments, _filtered, notes="early returns that differ by thread; helpers on helpers"),
    Case(
        "lz77_longest_matches", longest_matches, 5, 96,
        lambda rng: {"text": _text(rng, 450), "lengths": Empty((450,), np.int32), "distances": Empty((450,), np.int32), "n": 450}, _matched,
        notes="and short-circuits before the text's end; matches may overlap themselves",
    ),
    Case(
        "find_all", find_all, 5, 128,
        lambda rng: {
            "text": _text(rng, 600), "pattern": np.frombuffer(b"anan", np.uint8).copy(), "found": Empty((600,), np.uint8), "count": np.zeros(1, np.int32),
            "n": 600, "m": 4,
        },
        _searched, notes="matches across blocks; returns from within a loop, after the barrier",
    ),
    Case(
        "base64_encode", base64_encode, 2, 32,
        lambda rng: {"data": rng.integers(0, 256, 148, dtype=np.uint8), "alphabet": LETTERS.copy(), "out": Empty((200,), np.uint8), "n": 148}, _encoded,
        notes="one byte is left over: two signs of padding",
    ),
    Case(
        "utf8_code_points", code_points, 4, 64,
        lambda rng: {"text": np.frombuffer(SPEECH.encode(), np.uint8).copy(), "count": np.zeros(1, np.int32), "n": len(SPEECH.encode())},
        lambda text, count, n: {"count": np.array([len(text.tobytes().decode())], np.int32)},
    ),
    Case("upper_case", upper_case, 2, 128, lambda rng: {"text": np.arange(256).astype(np.uint8), "n": 256}, _upper, notes="a chained comparison of bytes"),
    Case(
        "edit_distance", edit_distance, 1, 64,
        lambda rng: {"a": _text(rng, 45), "b": _text(rng, 60), "out": Empty((1,), np.int32), "na": 45, "nb": 60}, _distance,
        notes="a wavefront; each diagonal is written while the two before it are read",
    ),
    Case(
        "pack_rgb565", pack_16, 2, 64,
        lambda rng: {"pixels": rng.integers(0, 256, (100, 3), dtype=np.uint8), "out": Empty((100,), np.uint16), "n": 100},
        lambda pixels, out, n: {
            "out": sum((pixels[:, c].astype(np.uint16) >> (8 - w)) << at for c, w, at in ((0, 5, 11), (1, 6, 5), (2, 5, 0)))
        },
    ),
)  # fmt: skip
assert blocks(450, 96) == 5
