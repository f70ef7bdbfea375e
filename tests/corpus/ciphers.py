"""Ciphers, hashes, checksums and generators: AES in counter mode, ChaCha20, SHA-256, CRC-32, FNV, Murmur, Philox, xorshift."""

import hashlib
import zlib

import numpy as np
from tests.corpus.registry import Case, Empty, blocks

import windtunnel
from windtunnel import blockDim, grid, i32, local, shared, syncthreads, threadIdx, u8, u32, u64


def doubled(a):
    # Times x in GF(2**8), without a table.
    return u8((u32(a) << 1) ^ (u32(a) >> 7) * 0x1B)


@windtunnel.kernel
def aes128_ctr(text: u8[:], out: u8[:], round_keys: u8[:], box: u8[:], nonce: u8[:], first: u32, n: i32):
    # A block of 16 bytes a thread: the counter is enciphered and the text added. The S-box is staged in shared memory.
    sbox = shared.array(256, u8)
    state = local.array(16, u8)
    moved = local.array(16, u8)
    for i in range(threadIdx.x, 256, blockDim.x):
        sbox[i] = box[i]
    syncthreads()
    block = grid(1)
    if block * 16 >= n:
        return
    for i in range(12):
        state[i] = nonce[i] ^ round_keys[i]
    counter = first + u32(block)
    for i in range(4):
        state[12 + i] = u8((counter >> (24 - 8 * i)) & 255) ^ round_keys[12 + i]
    for turn in range(1, 11):
        for c in range(4):
            for r in range(4):
                moved[4 * c + r] = sbox[i32(state[4 * ((c + r) % 4) + r])]
        for c in range(4):
            a0 = moved[4 * c]
            a1 = moved[4 * c + 1]
            a2 = moved[4 * c + 2]
            a3 = moved[4 * c + 3]
            if turn < 10:
                every = a0 ^ a1 ^ a2 ^ a3
                moved[4 * c] = a0 ^ every ^ doubled(a0 ^ a1)
                moved[4 * c + 1] = a1 ^ every ^ doubled(a1 ^ a2)
                moved[4 * c + 2] = a2 ^ every ^ doubled(a2 ^ a3)
                moved[4 * c + 3] = a3 ^ every ^ doubled(a3 ^ a0)
        for i in range(16):
            state[i] = moved[i] ^ round_keys[16 * turn + i]
    for i in range(16):
        if block * 16 + i < n:
            out[block * 16 + i] = text[block * 16 + i] ^ state[i]


def rotated(x, by):
    return (x << by) | (x >> (32 - by))


def quarter_round(s, a, b, c, d):
    s[a] += s[b]
    s[d] = rotated(s[d] ^ s[a], 16)
    s[c] += s[d]
    s[b] = rotated(s[b] ^ s[c], 12)
    s[a] += s[b]
    s[d] = rotated(s[d] ^ s[a], 8)
    s[c] += s[d]
    s[b] = rotated(s[b] ^ s[c], 7)


@windtunnel.kernel
def chacha20_blocks(key: u32[:], nonce: u32[:], out: u32[:, :], first: u32, n: i32):
    state = local.array(16, u32)
    start = local.array(16, u32)
    i = grid(1)
    if i >= n:
        return
    start[0] = 0x61707865
    start[1] = 0x3320646E
    start[2] = 0x79622D32
    start[3] = 0x6B206574
    for w in range(8):
        start[4 + w] = key[w]
    start[12] = first + u32(i)
    for w in range(3):
        start[13 + w] = nonce[w]
    for w in range(16):
        state[w] = start[w]
    for _ in range(10):
        quarter_round(state, 0, 4, 8, 12)
        quarter_round(state, 1, 5, 9, 13)
        quarter_round(state, 2, 6, 10, 14)
        quarter_round(state, 3, 7, 11, 15)
        quarter_round(state, 0, 5, 10, 15)
        quarter_round(state, 1, 6, 11, 12)
        quarter_round(state, 2, 7, 8, 13)
        quarter_round(state, 3, 4, 9, 14)
    for w in range(16):
        out[i, w] = state[w] + start[w]


def right(x, by):
    return (x >> by) | (x << (32 - by))


@windtunnel.kernel
def sha256_short(messages: u8[:, :], lengths: i32[:], constants: u32[:], initial: u32[:], digests: u32[:, :], n: i32):
    # One block of 64 bytes a message: up to 55 bytes.
    w = local.array(64, u32)
    m = grid(1)
    if m >= n:
        return
    length = lengths[m]
    for i in range(16):
        word = u32(0)
        for j in range(4):
            at = 4 * i + j
            byte = u32(0)
            if at < length:
                byte = u32(messages[m, at])
            elif at == length:
                byte = u32(0x80)
            word = (word << 8) | byte
        w[i] = word
    w[15] = u32(length * 8)
    for i in range(16, 64):
        s0 = right(w[i - 15], 7) ^ right(w[i - 15], 18) ^ (w[i - 15] >> 3)
        s1 = right(w[i - 2], 17) ^ right(w[i - 2], 19) ^ (w[i - 2] >> 10)
        w[i] = w[i - 16] + s0 + w[i - 7] + s1
    a, b, c, d = initial[0], initial[1], initial[2], initial[3]
    e, f, g, h = initial[4], initial[5], initial[6], initial[7]
    for i in range(64):
        t1 = h + (right(e, 6) ^ right(e, 11) ^ right(e, 25)) + ((e & f) ^ (~e & g)) + constants[i] + w[i]
        t2 = (right(a, 2) ^ right(a, 13) ^ right(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        h = g
        g = f
        f = e
        e = d + t1
        d = c
        c = b
        b = a
        a = t1 + t2
    digests[m, 0] = initial[0] + a
    digests[m, 1] = initial[1] + b
    digests[m, 2] = initial[2] + c
    digests[m, 3] = initial[3] + d
    digests[m, 4] = initial[4] + e
    digests[m, 5] = initial[5] + f
    digests[m, 6] = initial[6] + g
    digests[m, 7] = initial[7] + h


@windtunnel.kernel
def crc32_records(data: u8[:], starts: i32[:], out: u32[:], n: i32):
    # Bit by bit, a record a thread; the table of a block is made in shared memory first.
    table = shared.array(256, u32)
    for entry in range(threadIdx.x, 256, blockDim.x):
        value = u32(entry)
        for _ in range(8):
            if value & 1 == 1:
                value = (value >> 1) ^ 0xEDB88320
            else:
                value >>= 1
        table[entry] = value
    syncthreads()
    record = grid(1)
    if record < n:
        crc = u32(0xFFFFFFFF)
        for i in range(starts[record], starts[record + 1]):
            crc = table[i32((crc ^ u32(data[i])) & 255)] ^ (crc >> 8)
        out[record] = ~crc


@windtunnel.kernel
def fnv1a(text: u8[:, :], lengths: i32[:], out: u32[:], n: i32):
    i = grid(1)
    if i < n:
        h = u32(2166136261)
        for j in range(lengths[i]):
            h = (h ^ u32(text[i, j])) * 16777619
        out[i] = h


@windtunnel.kernel
def fnv1a_64(text: u8[:, :], lengths: i32[:], out: u64[:], n: i32):
    i = grid(1)
    if i < n:
        h = u64(0xCBF29CE484222325)
        for j in range(lengths[i]):
            h ^= u64(text[i, j])
            h *= u64(0x100000001B3)
        out[i] = h


@windtunnel.kernel
def murmur_finalise(keys: u32[:], n: i32):
    i = grid(1)
    if i < n:
        h = keys[i]
        h ^= h >> 16
        h *= 0x85EBCA6B
        h ^= h >> 13
        h *= 0xC2B2AE35
        h ^= h >> 16
        keys[i] = h


@windtunnel.kernel
def signed_hash(x: i32[:], out: i32[:], n: i32):
    # Java's: 31 * h + c in 32 bits with sign.
    i = grid(1)
    if i < n:
        h = 17
        for k in range(20):
            h = 31 * h + (x[i] ^ k)
        out[i] = h


@windtunnel.kernel
def adler32(data: u8[:, :], out: u32[:], length: i32, n: i32):
    i = grid(1)
    if i < n:
        a = u32(1)
        b = u32(0)
        for j in range(length):
            a = (a + u32(data[i, j])) % 65521
            b = (b + a) % 65521
        out[i] = (b << 16) | a


@windtunnel.kernel
def philox4x32(out: u32[:, :], key0: u32, key1: u32, n: i32):
    i = grid(1)
    if i >= n:
        return
    c0 = u32(i)
    c1 = u32(0)
    c2 = u32(0)
    c3 = u32(0)
    k0 = key0
    k1 = key1
    for _ in range(10):
        p0 = u64(c0) * u64(0xD2511F53)
        p1 = u64(c2) * u64(0xCD9E8D57)
        n0 = u32(p1 >> 32) ^ c1 ^ k0
        n2 = u32(p0 >> 32) ^ c3 ^ k1
        c1 = u32(p1 & 0xFFFFFFFF)
        c3 = u32(p0 & 0xFFFFFFFF)
        c0 = n0
        c2 = n2
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    out[i, 0] = c0
    out[i, 1] = c1
    out[i, 2] = c2
    out[i, 3] = c3


@windtunnel.kernel
def xorshift32(seeds: u32[:], rounds: i32, n: i32):
    i = grid(1)
    if i < n:
        s = seeds[i]
        for _ in range(rounds):
            s ^= s << 13
            s ^= s >> 17
            s ^= s << 5
        seeds[i] = s


def sbox() -> np.ndarray:
    """FIPS-197's: the inverse in GF(2**8), then an affine map; by powers of the generator 3."""
    powers = [1]
    for _ in range(254):
        x = powers[-1]
        powers.append((x ^ (x << 1) ^ (0x11B if x & 0x80 else 0)) & 0xFF)
    logs = {value: exponent for exponent, value in enumerate(powers)}
    out = []
    for byte in range(256):
        inverse = powers[-logs[byte] % 255] if byte else 0
        mixed = 0
        for turn in range(5):
            mixed ^= ((inverse << turn) | (inverse >> (8 - turn))) & 0xFF
        out.append(mixed ^ 0x63)
    return np.array(out, np.uint8)


def expanded(key: bytes) -> np.ndarray:
    """The 11 round keys of AES-128, 176 bytes (FIPS-197, 5.2)."""
    box = sbox()
    words = [list(key[i : i + 4]) for i in range(0, 16, 4)]
    constant = 1
    for i in range(4, 44):
        word = words[-1]
        if i % 4 == 0:
            word = [int(box[b]) for b in word[1:] + word[:1]]
            word[0] ^= constant
            constant = (constant << 1) ^ (0x11B if constant & 0x80 else 0)
        words.append([a ^ b for a, b in zip(words[-4], word, strict=True)])
    return np.array(words, np.uint8).reshape(-1)


def aes128(block: bytes, round_keys: np.ndarray) -> bytes:
    """One block, as FIPS-197 writes it: a matrix of four columns."""
    box = sbox()

    def times(a: int, b: int) -> int:
        product = 0
        while b:
            product ^= a if b & 1 else 0
            a = (a << 1) ^ (0x11B if a & 0x80 else 0)
            b >>= 1
        return product

    doubles, triples = (np.array([times(a, by) for a in range(256)], np.uint8) for by in (2, 3))
    keys = round_keys.reshape(11, 4, 4).transpose(0, 2, 1)
    state = np.frombuffer(block, np.uint8).reshape(4, 4).T ^ keys[0]
    for turn in range(1, 11):
        state = box[state]
        state = np.stack([np.roll(row, -r) for r, row in enumerate(state)])
        if turn < 10:
            below = [np.roll(state, -r, axis=0) for r in range(4)]
            state = doubles[below[0]] ^ triples[below[1]] ^ below[2] ^ below[3]
        state = state ^ keys[turn]
    return state.T.tobytes()


def chacha20_block(key: np.ndarray, counter: int, nonce: np.ndarray) -> np.ndarray:
    """RFC 8439, 2.3, on whole rows of the state at once."""
    words = np.array([*np.frombuffer(b"expand 32-byte k", "<u4"), *key, counter, *nonce], np.uint32)
    a, b, c, d = words.reshape(4, 4).copy()
    for turn in range(20):
        if turn % 2:
            b, c, d = np.roll(b, -1), np.roll(c, -2), np.roll(d, -3)
        for left, into in ((16, "d"), (12, "b"), (8, "d"), (7, "b")):
            if into == "d":
                a = a + b
                d = d ^ a
                d = d << np.uint32(left) | d >> np.uint32(32 - left)
            else:
                c = c + d
                b = b ^ c
                b = b << np.uint32(left) | b >> np.uint32(32 - left)
        if turn % 2:
            b, c, d = np.roll(b, 1), np.roll(c, 2), np.roll(d, 3)
    return np.concatenate([a, b, c, d]) + words


def primes(count: int) -> list[int]:
    found: list[int] = []
    n = 2
    while len(found) < count:
        if all(n % p for p in found):
            found.append(n)
        n += 1
    return found


def root_bits(n: int, root: int) -> int:
    """The first 32 bits of the fraction of a square or cube root."""
    low, high = 0, 1 << 48
    scaled = n << (32 * root)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**root <= scaled else (low, middle - 1)
    return low & 0xFFFFFFFF


SHA_CONSTANTS = np.array([root_bits(p, 3) for p in primes(64)], np.uint32)
SHA_INITIAL = np.array([root_bits(p, 2) for p in primes(8)], np.uint32)
# NIST SP 800-38A, F.5.1; the key is also that of FIPS-197's appendices A and B.
NIST_TEXT = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
NIST_CIPHER = bytes.fromhex(
    "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee"
)
NIST_KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")


def _aes_arguments(rng: np.random.Generator):
    return {
        "text": rng.integers(0, 256, 1003, dtype=np.uint8), "out": Empty((1003,), np.uint8), "round_keys": expanded(NIST_KEY), "box": sbox(),
        "nonce": rng.integers(0, 256, 12, dtype=np.uint8), "first": 2**32 - 20, "n": 1003,
    }  # fmt: skip


def _aes_ctr(text, out, round_keys, box, nonce, first, n):
    stream = b"".join(
        aes128(nonce.tobytes() + ((first + i) % 2**32).to_bytes(4, "big"), round_keys) for i in range(blocks(n, 16))
    )
    return {"out": text ^ np.frombuffer(stream, np.uint8)[:n]}


def _aes_known(rng: np.random.Generator):
    return {
        "text": np.frombuffer(NIST_TEXT, np.uint8).copy(), "out": Empty((64,), np.uint8), "round_keys": expanded(NIST_KEY), "box": sbox(),
        "nonce": np.arange(0xF0, 0xFC).astype(np.uint8), "first": 0xFCFDFEFF, "n": 64,
    }  # fmt: skip


def _texts(rng: np.random.Generator, n: int, width: int):
    return {
        "text": rng.integers(0, 256, (n, width), dtype=np.uint8),
        "lengths": rng.integers(0, width + 1, n, dtype=np.int32),
    }


def _sha_arguments(rng: np.random.Generator):
    messages = np.zeros((60, 55), np.uint8)
    messages[0, :3] = np.frombuffer(b"abc", np.uint8)
    messages[2:] = rng.integers(0, 256, (58, 55), dtype=np.uint8)
    lengths = np.concatenate([[3, 0, 55], rng.integers(0, 56, 57)]).astype(np.int32)
    return {
        "messages": messages, "lengths": lengths, "constants": SHA_CONSTANTS, "initial": SHA_INITIAL, "digests": Empty((60, 8), np.uint32), "n": 60,
    }  # fmt: skip


def _sha(messages, lengths, digests, **_):
    found = [hashlib.sha256(m[:length].tobytes()).digest() for m, length in zip(messages, lengths, strict=True)]
    return {"digests": np.array([np.frombuffer(d, ">u4") for d in found], np.uint32)}


def _crc_arguments(rng: np.random.Generator):
    sizes = rng.integers(0, 40, 50)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return {
        "data": rng.integers(0, 256, int(starts[-1]), dtype=np.uint8),
        "starts": starts,
        "out": Empty((50,), np.uint32),
        "n": 50,
    }


def _hashed(text, lengths, bits):
    prime, basis = {32: (0x01000193, 0x811C9DC5), 64: (0x100000001B3, 0xCBF29CE484222325)}[bits]
    found = []
    for row, length in zip(text, lengths, strict=True):
        h = basis
        for byte in row[:length].tolist():
            h = (h ^ byte) * prime % 2**bits
        found.append(h)
    return {"out": np.array(found, f"u{bits // 8}")}


def _murmur(keys, n):
    found = []
    for key in keys.tolist():
        h = key ^ key >> 16
        h = h * 0x85EBCA6B % 2**32
        h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
        found.append(h ^ h >> 16)
    return {"keys": np.array(found, np.uint32)}


def _java(x, out, n):
    h = np.full(n, 17, np.int64)
    for k in range(20):
        h = (31 * h + (x ^ k) + 2**31) % 2**32 - 2**31
    return {"out": h.astype(np.int32)}


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), ten rounds on Python's integers."""
    c, k = list(counter), list(key)
    for turn in range(10):
        h0, l0 = divmod(0xD2511F53 * c[0], 2**32)
        h1, l1 = divmod(0xCD9E8D57 * c[2], 2**32)
        round_key = [(k[0] + turn * 0x9E3779B9) % 2**32, (k[1] + turn * 0xBB67AE85) % 2**32]
        c = [h1 ^ c[1] ^ round_key[0], l1, h0 ^ c[3] ^ round_key[1], l0]
    return c


def _shifted(seeds, rounds, n):
    s = seeds.astype(np.uint64)
    for _ in range(rounds):
        s ^= (s << np.uint64(13)) & np.uint64(0xFFFFFFFF)
        s ^= s >> np.uint64(17)
        s ^= (s << np.uint64(5)) & np.uint64(0xFFFFFFFF)
    return {"seeds": s.astype(np.uint32)}


CASES = (
    Case("aes128_ctr", aes128_ctr, blocks(63, 32), 32, _aes_arguments, _aes_ctr, notes="the last block is cut; the counter wraps; threads return after the only barrier"),
    Case("aes128_ctr_of_sp_800_38a", aes128_ctr, 1, 4, _aes_known, lambda out, **_: {"out": np.frombuffer(NIST_CIPHER, np.uint8)}, notes="fewer threads than the S-box has entries"),
    Case(
        "chacha20_blocks", chacha20_blocks, 2, 24,
        lambda rng: {
            "key": rng.integers(0, 2**32, 8, dtype=np.uint32), "nonce": rng.integers(0, 2**32, 3, dtype=np.uint32),
            "out": Empty((40, 16), np.uint32), "first": 1, "n": 40,
        },
        lambda key, nonce, out, first, n: {"out": np.array([chacha20_block(key, first + i, nonce) for i in range(n)])},
        notes="helpers that write to a local array of the caller's",
    ),
    Case("sha256_short_messages", sha256_short, 2, 32, _sha_arguments, _sha, notes="the first message is 'abc', the second empty, the third of 55 bytes"),
    Case(
        "crc32_records", crc32_records, 1, 64, _crc_arguments,
        lambda data, starts, out, n: {"out": np.array([zlib.crc32(data[starts[i] : starts[i + 1]].tobytes()) for i in range(n)], np.uint32)},
    ),
    Case(
        "fnv1a", fnv1a, 2, 32, lambda rng: {**_texts(rng, 45, 20), "out": Empty((45,), np.uint32), "n": 45},
        lambda text, lengths, out, n: _hashed(text, lengths, 32), notes="products of u32 wrap",
    ),
    Case(
        "fnv1a_64", fnv1a_64, 2, 32, lambda rng: {**_texts(rng, 45, 20), "out": Empty((45,), np.uint64), "n": 45},
        lambda text, lengths, out, n: _hashed(text, lengths, 64), notes="products of u64 wrap",
    ),
    Case("murmur_finalise", murmur_finalise, 3, 64, lambda rng: {"keys": rng.integers(0, 2**32, 170, dtype=np.uint32), "n": 170}, _murmur),
    Case(
        "signed_hash_wraps", signed_hash, 2, 64,
        lambda rng: {"x": rng.integers(-(2**31), 2**31, 100, dtype=np.int32), "out": Empty((100,), np.int32), "n": 100}, _java,
    ),
    Case(
        "adler32", adler32, 1, 32,
        lambda rng: {"data": rng.integers(0, 256, (30, 90), dtype=np.uint8), "out": Empty((30,), np.uint32), "length": 90, "n": 30},
        lambda data, out, length, n: {"out": np.array([zlib.adler32(row.tobytes()) for row in data], np.uint32)},
    ),
    Case(
        "philox4x32_10", philox4x32, 2, 32,
        lambda rng: {"out": Empty((50, 4), np.uint32), "key0": int(rng.integers(2**32)), "key1": int(rng.integers(2**32)), "n": 50},
        lambda out, key0, key1, n: {"out": np.array([philox((i, 0, 0, 0), (key0, key1)) for i in range(n)], np.uint32)},
        notes="high halves by way of u64",
    ),
    Case(
        "xorshift32", xorshift32, 3, 32, lambda rng: {"seeds": rng.integers(1, 2**32, 90, dtype=np.uint32), "rounds": 25, "n": 90}, _shifted,
    ),
)  # fmt: skip
