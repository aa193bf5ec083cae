"""JSON examples in the form of Aiven's plugin 1.x, without and with Ottla's additions."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.tiered.errors import CorruptRemoteData, RemoteStorageError
from storage.tiered.format.chunk_index import FixedChunkIndex, VariableChunkIndex
from storage.tiered.format.manifest import (
    SegmentEncryption,
    SegmentManifest,
    StoredIndex,
    decode_manifest,
    encode_manifest,
)
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import SegmentState
from tests.storage.tiered.sample_segments import segment

INDEXES = {
    IndexKind.OFFSET: StoredIndex(0, 1),
    IndexKind.TIME: StoredIndex(1, 1),
    IndexKind.PRODUCER_SNAPSHOT: StoredIndex(2, 1),
    IndexKind.LEADER_EPOCH: StoredIndex(3, 1),
    IndexKind.TRANSACTION: StoredIndex(4, 1),
}
MANIFEST = SegmentManifest(
    chunks=FixedChunkIndex(100, 1000, 110, 110),
    indexes=INDEXES,
    compression=False,
    encryption=None,
    chunk_crcs=None,
    segment=replace(segment(1000), state=SegmentState.COPY_FINISHED),
)
METADATA_JSON = (
    '"remoteLogSegmentMetadata":{"remoteLogSegmentId":{"topicIdPartition":{"topicId":"lZ6vvmajTWKDBUTV6SQAtQ",'
    '"topicPartition":{"topic":"topic1","partition":42}},"id":"adh9f8BMS4anaUnD8KWfWg"},'
    '"startOffset":1000,"endOffset":1200,"maxTimestampMs":1700000000000,"brokerId":2,"eventTimestampMs":1700000100000,'
    '"segmentLeaderEpochs":{"0":1000,"3":1100}}'
)
INDEXES_JSON = (
    '"segmentIndexes":{"offset":{"position":0,"size":1},"timestamp":{"position":1,"size":1},'
    '"producerSnapshot":{"position":2,"size":1},"leaderEpoch":{"position":3,"size":1},'
    '"transaction":{"position":4,"size":1}}'
)
FIXED_JSON = (
    '"chunkIndex":{"type":"fixed","originalChunkSize":100,"originalFileSize":1000,'
    '"transformedChunkSize":110,"finalTransformedChunkSize":110}'
)
PLAIN_JSON = f'{{"version":"1",{FIXED_JSON},{INDEXES_JSON},"compression":false,{METADATA_JSON}}}'


def test_written_manifest_equals_the_plugins_apart_from_its_crc() -> None:
    content = encode_manifest(MANIFEST).decode()
    assert re.sub(r',"manifestCrc32c":"[0-9a-f]{8}"', "", content) == PLAIN_JSON
    assert decode_manifest(content.encode()) == MANIFEST


def test_plugin_manifest_is_read() -> None:
    assert decode_manifest(PLAIN_JSON.encode()) == MANIFEST


def test_segment_without_aborted_transactions_has_a_null_index_and_a_flag() -> None:
    without: dict[IndexKind, StoredIndex] = {
        kind: index for kind, index in INDEXES.items() if kind is not IndexKind.TRANSACTION
    }
    encoded = encode_manifest(replace(MANIFEST, indexes=without))
    assert b'"transaction":null' in encoded
    decoded = decode_manifest(encoded)
    assert decoded.index(IndexKind.TRANSACTION) is None
    assert decoded.segment == replace(segment(1000), state=SegmentState.COPY_FINISHED, txn_index_empty=True)


def test_empty_producer_snapshot_means_no_snapshot() -> None:
    indexes = INDEXES | {IndexKind.PRODUCER_SNAPSHOT: StoredIndex(2, 0)}
    decoded = decode_manifest(encode_manifest(replace(MANIFEST, indexes=indexes)))
    assert decoded.index(IndexKind.PRODUCER_SNAPSHOT) is None
    assert decoded.index(IndexKind.OFFSET) == StoredIndex(0, 1)


def test_manifest_of_an_encrypted_segment_has_its_sealed_key_and_aad() -> None:
    encrypted = replace(MANIFEST, encryption=SegmentEncryption("key1:c2VhbGVk", bytes([10, 11, 12, 13])))
    encoded = encode_manifest(encrypted)
    assert b'"compression":false,"encryption":{"dataKey":"key1:c2VhbGVk","aad":"CgsMDQ=="},"remoteLog' in encoded
    assert decode_manifest(encoded) == encrypted


def test_chunk_sizes_compressed_by_another_zstd_are_read() -> None:
    variable = (
        '"chunkIndex":{"type":"variable","originalChunkSize":100,"originalFileSize":250,'
        '"transformedChunks":"KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe"}'
    )
    content = PLAIN_JSON.replace(FIXED_JSON, variable).replace('"compression":false', '"compression":true')
    manifest = decode_manifest(content.encode())
    assert manifest.chunks == VariableChunkIndex(100, 250, (10, 20, 30))
    assert manifest.compression


def test_additional_fields_are_in_objects_whose_unknown_fields_the_plugin_ignores() -> None:
    checked = {kind: index._replace(crc=number + 7) for number, (kind, index) in enumerate(INDEXES.items())}
    known = segment(1000, custom_metadata=b"\x01\x00\x01\x02")
    known = replace(known, state=SegmentState.COPY_FINISHED, compacted_to=4711)
    manifest = replace(MANIFEST, indexes=checked, chunk_crcs=tuple(range(10)), segment=known)
    encoded = encode_manifest(manifest)
    assert decode_manifest(encoded) == manifest
    document, plain = json.loads(encoded), json.loads(PLAIN_JSON)
    assert document.pop("remoteLogSegmentMetadata").keys() - plain.pop("remoteLogSegmentMetadata").keys() == {
        "manifestCrc32c",
        "customMetadata",
        "compactedTo",
        "chunkCrc32cs",
        "indexCrc32cs",
    }
    assert document == plain


def test_unknown_fields_are_ignored() -> None:
    content = PLAIN_JSON.replace('"compression"', '"later":{"x":[1]},"compression"').replace(
        '"offset":{', '"bloom":null,"offset":{"crc":3,'
    )
    assert decode_manifest(content.encode()) == MANIFEST


def test_manifest_without_segment_id_is_readable() -> None:
    manifest = decode_manifest(PLAIN_JSON.replace(f",{METADATA_JSON}", "").encode())
    assert manifest.segment is None
    assert manifest.chunks == MANIFEST.chunks


def test_unknown_version_is_not_reported_as_corruption() -> None:
    with pytest.raises(RemoteStorageError, match="version 2") as caught:
        decode_manifest(PLAIN_JSON.replace('"version":"1"', '"version":"2"').encode())
    assert not isinstance(caught.value, CorruptRemoteData)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('{"version"', '"version"', "not the manifest"),
        (PLAIN_JSON, "[]", "the document is not a JSON object"),
        (PLAIN_JSON, '{"version":1}', "version is not a string"),
        (PLAIN_JSON, "[" * 100_000, "not the manifest"),
        ('"type":"fixed"', '"type":"other"', "chunkIndex.type is 'other'"),
        ('"originalChunkSize":100', '"originalChunkSize":0', "chunk size 0 is not positive"),
        ('"originalChunkSize":100', '"originalChunkSize":true', "chunkIndex.originalChunkSize is not an integer"),
        ('"compression":false', '"compression":"no"', "compression is not a boolean"),
        ('"timestamp":{"position":1', '"timestamp":{"position":-1', "segmentIndexes.timestamp is at -1"),
        ('"timestamp":{"position":1,"size":1}', '"timestamp":null', "segmentIndexes.timestamp is not a JSON object"),
        ('"startOffset":1000', '"startOffset":9000', "has invalid offsets: 9000 to 1200"),
        ('{"0":1000,"3":1100}', "{}", "has no leader epochs"),
        ('{"0":1000,"3":1100}', '{"x":1000}', "not the manifest"),
        ("adh9f8BMS4anaUnD8KWfWg", "adh9", "not a UUID"),
        ('"brokerId":2', '"brokerId":2,"chunkCrc32cs":"AAAA"', "3 bytes of CRCs for 10 chunks"),
        ('"compression":false', '"compression":false,"encryption":{"dataKey":"x","aad":"!"}', "aad is not base64"),
    ],
)
def test_corruption_error_names_the_invalid_field(before: str, after: str, message: str) -> None:
    assert before in PLAIN_JSON
    with pytest.raises(CorruptRemoteData, match=message):
        decode_manifest(PLAIN_JSON.replace(before, after).encode())


@pytest.mark.parametrize("sizes", ["!", "AAAA", "KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAA="])
def test_invalid_chunk_sizes_are_corrupt_data(sizes: str) -> None:
    variable = (
        f'"chunkIndex":{{"type":"variable","originalChunkSize":1,"originalFileSize":3,"transformedChunks":"{sizes}"}}'
    )
    with pytest.raises(CorruptRemoteData):
        decode_manifest(PLAIN_JSON.replace(FIXED_JSON, variable).encode())


@given(st.integers(0, len(encode_manifest(MANIFEST)) - 1), st.integers(0, 7))
def test_flipped_bit_never_changes_the_decoded_manifest(position: int, bit: int) -> None:
    content = bytearray(encode_manifest(MANIFEST))
    content[position] ^= 1 << bit
    try:
        assert decode_manifest(bytes(content)) == MANIFEST
    except RemoteStorageError:
        return


@given(st.integers(0, len(PLAIN_JSON) - 1), st.binary(min_size=1, max_size=3))
def test_changed_bytes_raise_only_documented_errors(position: int, replacement: bytes) -> None:
    content = bytearray(PLAIN_JSON.encode())
    content[position : position + len(replacement)] = replacement
    try:
        decode_manifest(bytes(content))
    except RemoteStorageError:
        return


@given(st.integers(1, 40), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40), st.data())
def test_encoding_round_trips(chunk_size: int, sizes: list[int], data: st.DataObject) -> None:
    file_size = chunk_size * (len(sizes) - 1) + data.draw(st.integers(1, chunk_size))
    crcs = tuple(data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(sizes), max_size=len(sizes))))
    manifest = replace(
        MANIFEST,
        chunks=VariableChunkIndex(chunk_size, file_size, tuple(sizes)),
        compression=True,
        chunk_crcs=crcs,
        segment=replace(segment(file_size), state=SegmentState.COPY_FINISHED),
    )
    assert decode_manifest(encode_manifest(manifest)) == manifest
