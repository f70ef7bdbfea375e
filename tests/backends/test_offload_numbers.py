"""The processor doing a QAT card's work: the numbers of ciphers, codecs and signatures, and the data that is compressed."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.backends.offload import sample_data, trials
from windtunnel.backends.offload.trials import (
    Buffers,
    Digest,
    compressor,
    decompressor,
    decrypts,
    encryptor,
    read_back,
)

# --- numbers


PLAIN = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
).hex()
KEY_128 = "2b7e151628aed2a6abf7158809cf4f3c"
KEY_192 = "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b"
KEY_256 = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
VECTOR = "000102030405060708090a0b0c0d0e0f"
COUNTER = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
GCM_PLAIN = (
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
)
FEFF = "feffe9928665731c6d6a8f9467308308"
CAFE = "cafebabefacedbaddecaf888"
# SP 800-38A appendix F.2 (CBC) and F.5 (CTR); for GCM (SP 800-38D) test cases 2, 3, 8, 14 and 15 of its specification.
KNOWN = {
    "cbc-128": ("cbc", KEY_128, VECTOR, PLAIN, "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b273bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7"),
    "cbc-192": ("cbc", KEY_192, VECTOR, PLAIN, "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a571b242012fb7ae07fa9baac3df102e008b0e27988598881d920a9e64f5615cd"),
    "cbc-256": ("cbc", KEY_256, VECTOR, PLAIN, "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b"),
    "ctr-128": ("ctr", KEY_128, COUNTER, PLAIN, "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee"),
    "ctr-192": ("ctr", KEY_192, COUNTER, PLAIN, "1abc932417521ca24f2b0459fe7e6e0b090339ec0aa6faefd5ccc2c6f4ce8e941e36b26bd1ebc670d1bd1d665620abf74f78a7f6d29809585a97daec58c6b050"),
    "ctr-256": ("ctr", KEY_256, COUNTER, PLAIN, "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c52b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"),
    "gcm-2": ("gcm", "00" * 16, "00" * 12, "00" * 16, "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"),
    "gcm-3": ("gcm", FEFF, CAFE, GCM_PLAIN, "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f59854d5c2af327cd64a62cf35abd2ba6fab4"),
    "gcm-8": ("gcm", "00" * 24, "00" * 12, "00" * 16, "98e7247c07f0fe411c267e4384b0f6002ff58d80033927ab8ef4d4587514f0fb"),
    "gcm-14": ("gcm", "00" * 32, "00" * 12, "00" * 16, "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"),
    "gcm-15": ("gcm", FEFF * 2, CAFE, GCM_PLAIN, "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015adb094dac5d93471bdec1a502270e3cc6c"),
}  # fmt: skip


def buffers(data: bytes, nonce: bytes) -> Buffers:
    return Buffers(memoryview(bytearray(data)), memoryview(bytearray(len(data) + 16)), nonce)


def encrypted(mode: str, key: bytes, data: bytes, nonce: bytes) -> Buffers:
    slot = buffers(data, nonce)
    encryptor(mode, key)(slot)
    return slot


@pytest.mark.parametrize("case", KNOWN)
def test_encryption_gives_the_published_answers_and_its_check_agrees(case: str) -> None:
    mode, key, nonce, plain, answer = KNOWN[case]
    slot = encrypted(mode, bytes.fromhex(key), bytes.fromhex(plain), bytes.fromhex(nonce))
    assert slot.out[: len(answer) // 2].hex() == answer
    assert decrypts(mode, bytes.fromhex(key), slot)


@given(st.sampled_from(["gcm", "ctr", "cbc"]), st.sampled_from([16, 24, 32]), st.data())
def test_the_check_takes_what_is_right_and_finds_any_bit_that_is_not(mode: str, key_bytes: int, data: Any) -> None:
    key = data.draw(st.binary(min_size=key_bytes, max_size=key_bytes))
    size = data.draw(st.integers(1, 200))
    size = -(-size // 16) * 16 if mode == "cbc" else size
    plain = data.draw(st.binary(min_size=size, max_size=size))
    nonce = data.draw(st.binary(min_size=12 if mode == "gcm" else 16, max_size=12 if mode == "gcm" else 16))
    slot = encrypted(mode, key, plain, nonce)
    assert decrypts(mode, key, slot)
    # Beyond the text, only gcm has something to say: its tag.
    slot.out[data.draw(st.integers(0, size + (15 if mode == "gcm" else -1)))] ^= 1 << data.draw(st.integers(0, 7))
    assert not decrypts(mode, key, slot)


@pytest.mark.parametrize("first", ["ff" * 16, "00" * 8 + "ff" * 8, "ff" * 15 + "fe"])
def test_a_counter_carries_into_its_upper_half(first: str) -> None:
    assert decrypts("ctr", bytes(16), encrypted("ctr", bytes(16), bytes(100), bytes.fromhex(first)))


LEVELS = [*(("deflate", n) for n in range(1, 10)), ("lz4", 1), ("lz4", 12), ("zstd", 1), ("zstd", 22)]


@given(st.binary(max_size=3000), st.sampled_from(LEVELS))
def test_what_is_compressed_comes_back_by_either_way(data: bytes, how: tuple[str, int]) -> None:
    codec, level = how
    packed = compressor(codec, level)(data)
    assert decompressor(codec, len(data))(packed) == data
    assert read_back(codec, level, packed) == data


def test_deflate_of_one_library_is_inflated_by_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from isal import isal_zlib

    data = sample_data.mixture(1 << 16)
    inflated: list[str] = []
    inflate, isal_inflate = zlib.decompress, isal_zlib.decompress
    monkeypatch.setattr(zlib, "decompress", lambda *a: (inflated.append("zlib"), inflate(*a))[1])
    monkeypatch.setattr(isal_zlib, "decompress", lambda *a: (inflated.append("isal"), isal_inflate(*a))[1])
    for level in (1, 3, 4, 9):
        assert read_back("deflate", level, compressor("deflate", level)(data)) == data
    assert inflated == ["zlib", "zlib", "isal", "isal"]


def test_levels_that_isal_lacks_are_zlibs() -> None:
    data = sample_data.mixture(1 << 16)
    assert compressor("deflate", 6)(data) == zlib.compress(data, 6, wbits=-15)
    assert compressor("deflate", 3)(data) != zlib.compress(data, 3, wbits=-15)


def test_rsa_signatures_are_told_from_wrong_ones_without_the_library_that_made_them() -> None:
    sign, holds = trials.signer("rsa2048")
    slot = Digest(bytes(range(32)))
    sign(slot)
    assert holds(slot)
    slot.signature = bytes([slot.signature[0] ^ 1]) + slot.signature[1:]
    assert not holds(slot)
    assert not trials.rsa_holds(3233, 17, bytes(32), b"")


def test_a_signature_of_another_digest_does_not_hold() -> None:
    sign, holds = trials.signer("ecdsa_p256")
    slot = Digest(bytes(32))
    sign(slot)
    assert holds(slot)
    slot.digest = bytes(31) + b"\1"
    assert not holds(slot)


# --- the data that is compressed


def test_the_mixture_is_the_same_every_time_and_halves() -> None:
    data = sample_data.mixture(1 << 20)
    sample_data.mixture.cache_clear()
    assert sample_data.mixture(1 << 20) == data
    assert len(data) == 1 << 20
    assert 1.9 < len(data) / len(compressor("deflate", 1)(data)) < 2.2
    # Any part of it is like the whole: no request is all noise or all text.
    parts = [len(zlib.compress(data[i : i + 65536], 1)) / 65536 for i in range(0, len(data), 65536)]
    assert min(parts) > 0.35
    assert max(parts) < 0.65


@settings(max_examples=15)
@given(st.integers(1, 5000))
def test_a_mixture_has_the_length_that_is_asked_for(size: int) -> None:
    assert len(sample_data.mixture(size)) == size


@given(st.integers(1, 70), st.integers(0, 200))
def test_operands_are_cut_from_the_pool_and_a_longer_one_repeats_it(size: int, number: int) -> None:
    pool = bytes(range(32))
    piece = sample_data.cut(pool, size, number)
    assert len(piece) == size
    assert piece in pool * 4
