import pytest
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from storage.tiered.errors import CorruptRemoteData
from storage.tiered.format.segment_cipher import OVERHEAD_BYTES, SegmentCipher
from storage.tiered.format.transforms import ChunkTransform

KEY, AAD = bytes(range(32)), bytes(range(32, 64))
CIPHER = SegmentCipher(KEY, AAD)
TRANSFORMS = st.sampled_from(
    [ChunkTransform(compresses, cipher) for compresses in (False, True) for cipher in (None, CIPHER)]
)


@given(TRANSFORMS, st.binary(max_size=2000), st.integers(1, 50))
def test_chunk_round_trips(transform: ChunkTransform, pattern: bytes, times: int) -> None:
    chunk = pattern * times
    stored = transform.store(memoryview(chunk))
    assert transform.stored_size(len(chunk)) in (None, len(stored))
    assert bytes(transform.restore(stored, len(chunk))) == chunk


def test_plain_chunk_is_not_copied() -> None:
    chunk = b"chunk"
    assert ChunkTransform().store(chunk) is chunk
    assert ChunkTransform().restore(chunk, 5) is chunk


@pytest.mark.parametrize("chunk", [b"", b"x", b"words " * 10_000, bytes(range(256)) * 17])
def test_compressed_chunk_is_one_frame_with_its_content_size(chunk: bytes) -> None:
    frame = bytes(ChunkTransform(compresses=True).store(chunk))
    assert zstandard.get_frame_parameters(frame).content_size == len(chunk)
    assert zstandard.ZstdDecompressor().decompress(frame) == chunk


def test_sealed_chunk_has_iv_ciphertext_and_tag() -> None:
    sealed = bytes(CIPHER.seal(b"chunk"))
    assert len(sealed) == 5 + OVERHEAD_BYTES
    assert AESGCM(KEY).decrypt(sealed[:12], sealed[12:], AAD) == b"chunk"


def test_each_sealed_chunk_has_its_own_iv() -> None:
    assert len({bytes(CIPHER.seal(b"chunk"))[:12] for _ in range(100)}) == 100


@given(st.integers(0, 4 + OVERHEAD_BYTES), st.integers(1, 255))
def test_changed_sealed_chunk_is_refused(position: int, difference: int) -> None:
    sealed = bytearray(CIPHER.seal(b"chunk"))
    sealed[position] ^= difference
    with pytest.raises(CorruptRemoteData):
        CIPHER.open(sealed)


@pytest.mark.parametrize("size", [0, 1, OVERHEAD_BYTES - 1, OVERHEAD_BYTES, OVERHEAD_BYTES + 4])
def test_truncated_sealed_chunk_is_refused(size: int) -> None:
    with pytest.raises(CorruptRemoteData):
        CIPHER.open(bytes(CIPHER.seal(b"chunk"))[:size])


@given(st.binary(max_size=100))
def test_invalid_zstd_frame_is_corrupt_data(stored: bytes) -> None:
    with pytest.raises(CorruptRemoteData):
        ChunkTransform(compresses=True).restore(stored, 300)


@pytest.mark.parametrize("size", [0, 99, 101, 10_000])
def test_chunk_of_another_size_is_corrupt_data(size: int) -> None:
    for transform in (ChunkTransform(), ChunkTransform(compresses=True), ChunkTransform(cipher=CIPHER)):
        with pytest.raises(CorruptRemoteData):
            transform.restore(transform.store(bytes(100)), size)


def test_decompression_is_bounded_by_chunk_size() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    with pytest.raises(CorruptRemoteData):
        ChunkTransform(compresses=True).restore(bomb, 1000)
