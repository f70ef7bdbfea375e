"""Encryption, compression and signatures by libraries on the host's processor, as the software path of a QAT card.

``aes`` and ``sign`` use OpenSSL through `cryptography`; ``deflate`` uses ISA-L at its levels (1 to 3) and zlib above;
``lz4`` and ``zstd`` use their own libraries. A request is one call of the library.

**In flight.** ``in_flight`` threads each keep one request outstanding. The libraries release the interpreter's lock
while they work, so that requests run in parallel on as many processors as there are. A run of ``count`` executes
``count`` times ``in_flight`` requests; each is taken by the next free thread. The result is the total time over the
number of requests: the reciprocal of the rate, like the models' ``duration_s`` of a QAT card and of a processor. For
``sign`` and ``launch`` one operation is ``count`` signatures or calls.

**Cold.** Operands rotate through twice the last-level cache. ``cache: warm`` uses one operand per thread.

**Context.** A call has no device-side part that could be timed alone. The interpreter's own time per request (about
0.2 us) is included, and the measurement is called ``device``, as in the back end ``cpu``. ``eager`` and a sustained
``clock`` would be the same number under another name, and are refused.

**Copies.** Host and device share one memory, whatever the direction and the kind of memory: a copy is one thread's
copy from one buffer to another, as in the model of a processor. **Launch** is a library call with no bytes, because no
driver is involved. There is no command list (``graph``). Nothing polls for commands (``persistent``), because a polling
thread would hold the lock that the others need.

**Check.** Results must be exact. GCM is decrypted through the library's other interface, CTR and CBC are computed from
single blocks, deflate is decompressed by the other library, lz4 and zstd by their streaming readers, RSA signatures are
raised to the public exponent in Python integers, and ECDSA signatures are verified. One wrong request makes
`Trial.check` return 2.
"""

from __future__ import annotations

import io
import threading
import time
import zlib
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import Any, Generic, TypeVar

import numpy as np

from windtunnel.backends.common.host_work import (
    HostDevice,
    HostTrial,
    Refusal,
    TrialFactory,
    cold_operands,
    exact_error,
)
from windtunnel.backends.offload.libraries import openssl, versions
from windtunnel.backends.offload.sample_data import MAX_POOL_BYTES, SEED, cut, sample_pool
from windtunnel.core.columns import Columns
from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.core.rng import stream

MAX_IN_FLIGHT = 256
_NOISE_BYTES = 4 * 2**20
_OVERHEAD_BYTES = 512
"""Interpreter objects per operand, counted so that there are not millions of small operands."""
_TAG_BYTES = 16
_BLOCK_BYTES = 16
_ISAL_LEVELS = 3
_RAW_DEFLATE = -15
"""wbits: RFC 1951 without zlib's or gzip's header and checksum, as a card's compression engine writes it."""
_LEVELS = {"deflate": 9, "lz4": 12, "zstd": 22}
Slot = TypeVar("Slot")


class InFlight(Generic[Slot]):
    """Keeps as many requests outstanding as there are ``workers``: one thread each, or the caller's thread for one.

    A worker executes the request of a slot. There are at least as many slots as workers. Slots are used in turn, and
    never by two workers at once.
    """

    def __init__(self, workers: Sequence[Callable[[Slot], None]], slots: Sequence[Slot]) -> None:
        assert len(slots) >= len(workers) >= 1  # noqa: S101  every worker needs a slot
        self._workers = list(workers)
        self._free = deque(slots)
        self._threads = ThreadPoolExecutor(len(workers)) if len(workers) > 1 else None
        self._last = 0

    def run(self, requests: int) -> float:
        """Execute ``requests`` requests; return the seconds from the start of the first to the end of the last."""
        # The interpreter's lock protects both the deque and the iterator, so no other lock is needed.
        tickets, free = repeat(None, requests), self._free
        start = threading.Barrier(len(self._workers))

        def serve(do: Callable[[Slot], None]) -> tuple[float, float]:
            start.wait()
            begin = time.perf_counter()
            for _ in tickets:
                slot = free.popleft()
                do(slot)
                free.append(slot)
            return begin, time.perf_counter()

        if self._threads is None:
            spans = [serve(self._workers[0])]
        else:
            spans = [future.result() for future in [self._threads.submit(serve, do) for do in self._workers]]
        self._last = min(requests, len(free))
        return max(end for _, end in spans) - min(begin for begin, _ in spans)

    @property
    def last(self) -> list[Slot]:
        """The slots that the last run used, each once."""
        return list(self._free)[len(self._free) - self._last :]

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown()
        self._free.clear()


class _Requests(HostTrial, Generic[Slot]):
    """A trial of requests in flight. ``per_call`` is the number of requests per operation (signatures, launches)."""

    def __init__(self, device: HostDevice, note: str, flight: InFlight[Slot], *, width: int, per_call: int = 1) -> None:
        super().__init__(device, note)
        self._flight, self._width, self._per_call = flight, width, per_call

    def _run(self, count: int) -> float:
        # The requests of an operation are in flight together. If they are fewer than ``width``, operations overlap.
        requests = count * max(self._per_call, self._width)
        return self._flight.run(requests) * self._per_call / requests

    def _check(self) -> float:
        return exact_error(sum(not self._right(slot) for slot in self._flight.last))

    @abstractmethod
    def _right(self, slot: Slot) -> bool:
        """Return whether the slot's result is right, and erase it, so that the next run cannot be judged by it."""

    def _close(self) -> None:
        self._flight.close()


class Buffers:
    """An operand, the memory for its result, and its own nonce or initial block."""

    __slots__ = ("data", "nonce", "out")

    def __init__(self, data: memoryview, out: memoryview, nonce: bytes) -> None:
        self.data, self.out, self.nonce = data, out, nonce

    def wipe(self) -> None:
        """Erase the result."""
        np.frombuffer(self.out, np.uint8)[:] = 0


def _buffers(device: HostDevice, size: int, room: int, least: int, cache: str, nonce: int = 0) -> list[Buffers]:
    """Return noise operands and memory for results, each aligned to cache lines."""
    stride, out_stride = (-(-n // 64) * 64 for n in (size, room))
    count = cold_operands(stride + out_stride + _OVERHEAD_BYTES, least, cache)
    device.require_memory(count * (stride + out_stride + _OVERHEAD_BYTES), f"{count:,} operands of {size:,} bytes")
    rng = stream(SEED, "backends", "operands")
    # Ciphers and copies are no faster for repeated operands, so a few megabytes of noise are enough.
    data = np.resize(np.frombuffer(rng.bytes(min(count * stride, _NOISE_BYTES)), np.uint8), count * stride)
    out = np.zeros(count * out_stride, np.uint8)
    nonces = rng.bytes(nonce * count)
    data_view, out_view = data.data, out.data
    return [
        Buffers(
            data_view[i * stride : i * stride + size],
            out_view[i * out_stride : i * out_stride + room],
            nonces[nonce * i : nonce * (i + 1)],
        )
        for i in range(count)
    ]


def encryptor(mode: str, key: bytes) -> Callable[[Buffers], None]:
    """Return a function that encrypts a slot's ``data`` into ``out`` under ``key``; with gcm, the tag follows.

    The slot's nonce has 12 bytes with gcm. With ctr and cbc it is the first counter or initial vector, 16 bytes.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if mode == "gcm":
        seal = AESGCM(key).encrypt_into

        def gcm(slot: Buffers) -> None:
            seal(slot.nonce, slot.data, None, slot.out)

        return gcm

    algorithm = algorithms.AES(key)
    make: type[modes.CTR | modes.CBC] = modes.CTR if mode == "ctr" else modes.CBC

    def chained(slot: Buffers) -> None:
        Cipher(algorithm, make(slot.nonce)).encryptor().update_into(slot.data, slot.out)

    return chained


def decrypts(mode: str, key: bytes, slot: Buffers) -> bool:
    """Return whether the result of `encryptor` is right, computed by another method."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    size = len(slot.data)
    if mode == "gcm":
        reader = Cipher(algorithms.AES(key), modes.GCM(slot.nonce, bytes(slot.out[size:]))).decryptor()
        try:
            return reader.update(slot.out[:size]) + reader.finalize() == slot.data
        except InvalidTag:
            return False
    blocks = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305  single blocks, from which both modes are computed
    data, out = np.frombuffer(slot.data, np.uint8), np.frombuffer(slot.out, np.uint8)[:size]
    if mode == "ctr":
        # SP 800-38A: the counter is the whole block, so the upper half takes the carry of the lower half.
        upper, lower = np.frombuffer(slot.nonce, ">u8").astype(np.uint64)
        counters = np.empty((-(-size // _BLOCK_BYTES), 2), ">u8")
        counters[:, 1] = lower + np.arange(len(counters), dtype=np.uint64)
        counters[:, 0] = upper + (counters[:, 1] < lower)
        key_stream = np.frombuffer(blocks.encryptor().update(counters.tobytes()), np.uint8)
        return bool(np.array_equal(data ^ key_stream[:size], out))
    before = np.frombuffer(slot.nonce + out[: size - _BLOCK_BYTES].tobytes(), np.uint8)
    return bool(np.array_equal(np.frombuffer(blocks.decryptor().update(out.tobytes()), np.uint8) ^ before, data))


class _AesTrial(_Requests[Buffers]):
    def __init__(self, device: HostDevice, columns: Columns) -> None:
        self._mode, width = str(columns["mode"]), int(columns["in_flight"])
        self._key = stream(SEED, "backends", "key").bytes(int(columns["key_bits"]) // 8)
        size = int(columns["bytes"])
        if self._mode == "cbc":
            size = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        nonce = 12 if self._mode == "gcm" else _BLOCK_BYTES
        slots = _buffers(device, size, size + _TAG_BYTES, width, str(columns["cache"]), nonce)
        workers = [encryptor(self._mode, self._key) for _ in range(width)]
        padded = ", in whole blocks of 16 bytes" if self._mode == "cbc" else ""
        note = f"AES-{columns['key_bits']}-{self._mode.upper()}{padded}, {openssl()}, one nonce per request"
        super().__init__(device, note, InFlight(workers, slots), width=width)

    def _right(self, slot: Buffers) -> bool:
        right = decrypts(self._mode, self._key, slot)
        slot.wipe()
        return right


class Piece:
    """The input of a codec (``data``), its output, and the uncompressed bytes (``plain``) in either direction."""

    __slots__ = ("data", "out", "plain")

    def __init__(self, data: memoryview, plain: bytes) -> None:
        self.data, self.plain = data, plain
        self.out: bytes = b""


def compressor(codec: str, level: int) -> Callable[[Any], bytes]:
    """Return a function that compresses. Each thread needs its own, because zstd keeps its tables in it."""
    if codec == "lz4":
        import lz4.frame

        return lambda data: bytes(lz4.frame.compress(data, compression_level=level))
    if codec == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress
    if level <= _ISAL_LEVELS:
        from isal import isal_zlib

        return lambda data: isal_zlib.compress(data, level, _RAW_DEFLATE)
    return lambda data: zlib.compress(data, level, wbits=_RAW_DEFLATE)


def decompressor(codec: str, size: int) -> Callable[[Any], bytes]:
    """Return a function that decompresses to ``size`` bytes; deflate always uses ISA-L."""
    if codec == "lz4":
        import lz4.frame

        return lambda data: bytes(lz4.frame.decompress(data))
    if codec == "zstd":
        import zstandard

        return zstandard.ZstdDecompressor().decompress
    from isal import isal_zlib

    return lambda data: isal_zlib.decompress(data, _RAW_DEFLATE, max(size, 1))


def read_back(codec: str, level: int, packed: bytes) -> bytes:
    """Decompress ``packed`` by another method than `compressor` and `decompressor` use."""
    if codec == "lz4":
        import lz4.frame

        with lz4.frame.open(io.BytesIO(packed)) as frames:
            return bytes(frames.read())
    if codec == "zstd":
        import zstandard

        with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            return reader.read()
    if level <= _ISAL_LEVELS:
        return zlib.decompress(packed, _RAW_DEFLATE)
    from isal import isal_zlib

    return isal_zlib.decompress(packed, _RAW_DEFLATE)


def _context_bytes(codec: str, level: int, size: int) -> int:
    """Return the memory of one thread's codec beside its operands: zstd's tables; the others need less than 1 MiB."""
    if codec != "zstd":
        return 2**20
    import zstandard

    return zstandard.ZstdCompressionParameters.from_level(level, source_size=size).estimated_compression_context_size()


class _CodecTrial(_Requests[Piece]):
    def __init__(self, op: str, device: HostDevice, columns: Columns) -> None:
        self._codec, self._level = str(columns["codec"]), int(columns["level"])
        self._compresses = op == "compress"
        size, width = int(columns["bytes"]), int(columns["in_flight"])
        # The sample data compresses to about half; the rest is for data that does not shrink.
        count = cold_operands(1.5 * size + _OVERHEAD_BYTES, width, str(columns["cache"]))
        needed = count * (2.01 * size + _OVERHEAD_BYTES) + width * _context_bytes(self._codec, self._level, size)
        device.require_memory(needed + 2 * MAX_POOL_BYTES, f"{count:,} pieces of {size:,} bytes and {width} codecs")
        mixed = sample_pool(size)
        cuts = [cut(mixed, size, number) for number in range(min(count, max(1, len(mixed) // size)))]
        pack = compressor(self._codec, self._level)
        inputs = cuts if self._compresses else [pack(plain) for plain in cuts]
        # Each is a copy: operands with equal bytes must still have different addresses.
        slots = [Piece(memoryview(bytearray(inputs[i % len(cuts)])), cuts[i % len(cuts)]) for i in range(count)]
        workers = [self._worker(size) for _ in range(width)]
        super().__init__(device, "", InFlight(workers, slots), width=width)
        if self._compresses:
            self._set_note(op, "unknown before a run")
        else:
            self._set_note(op, _ratio(slots, [len(slot.data) for slot in slots]))

    def _worker(self, size: int) -> Callable[[Piece], None]:
        do = compressor(self._codec, self._level) if self._compresses else decompressor(self._codec, size)

        def work(slot: Piece) -> None:
            slot.out = do(slot.data)

        return work

    def _set_note(self, op: str, ratio: str) -> None:
        library = _codec_library(op, self._codec, self._level)
        self.note = (
            f"{self._codec} level {self._level}, {library}; seeded mixture of text, records, log and noise, "
            f"ratio {ratio}"
        )

    def _run(self, count: int) -> float:
        seconds = super()._run(count)
        if self._compresses:
            last = self._flight.last
            self._set_note("compress", _ratio(last, [len(slot.out) for slot in last]))
        return seconds

    def _right(self, slot: Piece) -> bool:
        out, slot.out = slot.out, b""
        if not self._compresses:
            return out == slot.plain
        try:
            return read_back(self._codec, self._level, out) == slot.plain
        except Exception:  # every library raises its own error for unreadable data, and each means a wrong result
            return False


def _ratio(slots: Sequence[Piece], packed: Sequence[int]) -> str:
    """Return the uncompressed size over the compressed size."""
    return f"{sum(len(slot.plain) for slot in slots) / max(sum(packed), 1):.2f}"


class Digest:
    """A SHA-256 digest to sign, and its signature."""

    __slots__ = ("digest", "signature")

    def __init__(self, digest: bytes) -> None:
        self.digest, self.signature = digest, b""


_SHA256_INFO = bytes.fromhex("3031300d060960864801650304020105000420")
"""DigestInfo of a SHA-256 digest (RFC 8017, section 9.2, note 1)."""


def rsa_holds(modulus: int, exponent: int, digest: bytes, signature: bytes) -> bool:
    """Return whether an RSASSA-PKCS1-v1_5 signature is right (RFC 8017, section 8.2.2), in Python integers."""
    size = -(-modulus.bit_length() // 8)
    info = _SHA256_INFO + digest
    encoded = b"\x00\x01" + b"\xff" * (size - len(info) - 3) + b"\x00" + info
    return len(signature) == size and pow(int.from_bytes(signature), exponent, modulus) == int.from_bytes(encoded)


def signer(scheme: str) -> tuple[Callable[[Digest], None], Callable[[Digest], bool]]:
    """Create a key; return a function that signs a digest, and one that returns whether the signature is right."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

    prehashed = utils.Prehashed(hashes.SHA256())
    if scheme == "rsa2048":
        rsa_key = rsa.generate_private_key(65537, 2048)
        numbers, pkcs1 = rsa_key.public_key().public_numbers(), padding.PKCS1v15()

        def rsa_sign(slot: Digest) -> None:
            slot.signature = rsa_key.sign(slot.digest, pkcs1, prehashed)

        return rsa_sign, lambda slot: rsa_holds(numbers.n, numbers.e, slot.digest, slot.signature)

    ec_key, ecdsa = ec.generate_private_key(ec.SECP256R1()), ec.ECDSA(prehashed)
    public = ec_key.public_key()

    def ecdsa_sign(slot: Digest) -> None:
        slot.signature = ec_key.sign(slot.digest, ecdsa)

    def ecdsa_holds(slot: Digest) -> bool:
        try:
            public.verify(slot.signature, slot.digest, ecdsa)
        except InvalidSignature:
            return False
        return True

    return ecdsa_sign, ecdsa_holds


class _SignTrial(_Requests[Digest]):
    def __init__(self, device: HostDevice, columns: Columns) -> None:
        width, scheme = int(columns["in_flight"]), str(columns["scheme"])
        work, self._holds = signer(scheme)
        rng = stream(SEED, "backends", "digests")
        slots = [Digest(rng.bytes(32)) for _ in range(max(64, width))]
        label = {"rsa2048": "RSA-2048 PKCS #1 v1.5", "ecdsa_p256": "ECDSA P-256"}[scheme]
        note = f"{label} of SHA-256 digests, {openssl()}, one new key"
        super().__init__(device, note, InFlight([work] * width, slots), width=width, per_call=int(columns["count"]))

    def _right(self, slot: Digest) -> bool:
        right = self._holds(slot)
        slot.signature = b""
        return right


def _copy(slot: Buffers) -> None:
    slot.out[:] = slot.data


class _CopyTrial(_Requests[Buffers]):
    def __init__(self, device: HostDevice, columns: Columns) -> None:
        size = int(columns["bytes"])
        slots = _buffers(device, size, size, 1, str(columns["cache"]))
        note = "one thread's memmove; host and device share one memory, so direction and memory kind change nothing"
        super().__init__(device, note, InFlight([_copy], slots), width=1)

    def _right(self, slot: Buffers) -> bool:
        right = slot.out == slot.data
        slot.wipe()
        return right


class _LaunchTrial(_Requests[list[int]]):
    """Slots are lists of one number: how many bytes the call reports as encrypted."""

    def __init__(self, device: HostDevice, columns: Columns) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        cipher = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(_BLOCK_BYTES))).encryptor()
        call, nothing, room = cipher.update_into, b"", bytearray(_BLOCK_BYTES)

        def work(slot: list[int]) -> None:
            slot[0] = call(nothing, room)

        note = f"an AES-256-CTR call with no bytes, {openssl()}"
        super().__init__(device, note, InFlight([work], [[-1], [-1]]), width=1, per_call=int(columns["count"]))

    def _right(self, slot: list[int]) -> bool:
        (done,), slot[0] = slot, -1
        return done == 0


def _in_flight_refusal(columns: Columns) -> Refusal:
    if float(columns["in_flight"]) <= MAX_IN_FLIGHT:
        return None
    return UnsupportedOperationError(
        f"in_flight={columns['in_flight']:g} is too many: there is one thread for each request",
        expected=f"in_flight of at most {MAX_IN_FLIGHT}",
    )


def _level_refusal(columns: Columns) -> Refusal:
    codec, level = str(columns["codec"]), float(columns["level"])
    if level <= _LEVELS[codec]:
        return _in_flight_refusal(columns)
    return UnsupportedOperationError(f"{codec} has no level {level:g}", expected=f"a level from 1 to {_LEVELS[codec]}")


def _launch_refusal(columns: Columns) -> Refusal:
    if columns["mode"] == "stream":
        return None
    why = "there are no command lists"
    if columns["mode"] == "persistent":
        why = "nothing polls for commands, because threads share the interpreter's lock"
    return UnsupportedOperationError(f"a launch is a call of the library: {why}", expected="mode=stream")


TRIALS = {
    "aes": TrialFactory(_AesTrial, _in_flight_refusal),
    **{op: TrialFactory(partial(_CodecTrial, op), _level_refusal) for op in ("compress", "decompress")},
    "sign": TrialFactory(_SignTrial, _in_flight_refusal),
    "copy": TrialFactory(_CopyTrial),
    "launch": TrialFactory(_LaunchTrial, _launch_refusal),
}


def _codec_library(op: str, codec: str, level: int) -> str:
    if codec != "deflate":
        name = {"lz4": "liblz4", "zstd": "libzstd"}[codec]
    elif op == "decompress" or level <= _ISAL_LEVELS:
        name = "ISA-L"
    else:
        name = "zlib"
    return f"{name} {versions()[name]}"
