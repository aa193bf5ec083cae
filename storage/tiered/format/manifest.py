"""Manifest of a segment: the layout of its other two objects, and its metadata.

JSON, version 1, as written by Aiven's plugin. The manifest is written last and deleted first, so its existence proves a
complete segment. `remoteLogSegmentMetadata` restores the metadata from the bucket alone: the state is COPY_FINISHED,
the size is in the chunk index, and the transaction index exists or not. The plugin never reads that object and ignores
unknown fields, so it also holds fields that the plugin has no place for: custom metadata, `compactedTo`, CRC-32Cs of
the stored chunks and indexes, and a CRC-32C of the manifest itself, at its very end.
"""

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from protocol.ids import BrokerId, LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid, uuid_from_text, uuid_to_text
from protocol.records.compiled import crc32c
from protocol.records.compression import Codec, compress, decompress
from protocol.records.errors import MalformedRecords
from storage.tiered.errors import CorruptRemoteData, RemoteStorageError
from storage.tiered.format.chunk_index import (
    ChunkIndex,
    FixedChunkIndex,
    VariableChunkIndex,
    decode_sizes,
    encode_sizes,
)
from storage.tiered.format.json_fields import JsonFields
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    TopicIdPartition,
)

_VERSION = "1"
_MAX_SIZES_BYTES = 10 * 1024 * 1024
"""Maximum size of the encoded chunk sizes; readers of our manifests have the same limit."""
_CRC = struct.Struct(">I")
_OWN_CRC = b',"manifestCrc32c":"'
"""Always followed by eight hexadecimal digits: the custom metadata contain the size of the manifest, which contains
them.
"""
_END = b"}}"
"""End of the object with the CRC, and of the document."""

INDEX_NAMES: Mapping[IndexKind, str] = MappingProxyType(
    {
        IndexKind.OFFSET: "offset",
        IndexKind.TIME: "timestamp",
        IndexKind.PRODUCER_SNAPSHOT: "producerSnapshot",
        IndexKind.LEADER_EPOCH: "leaderEpoch",
        IndexKind.TRANSACTION: "transaction",
    }
)
"""Index names in the order in which the indexes are stored."""


class StoredIndex(NamedTuple):
    """Position of an index in the indexes object; `size` is 0 for an empty index and for an absent producer snapshot.

    `crc` is the CRC-32C of the stored bytes, None if unknown.
    """

    position: int
    size: int
    crc: int | None = None


class SegmentEncryption(NamedTuple):
    """`data_key` is encrypted and names its key pair; `aad` is the additional data that authenticates every chunk."""

    data_key: str
    aad: bytes


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class SegmentManifest:
    """Contents of a manifest. `chunk_crcs` are CRC-32Cs of the stored chunks, None if unknown.

    `segment` is None if the manifest does not identify its segment.
    """

    chunks: ChunkIndex
    indexes: Mapping[IndexKind, StoredIndex]
    compression: bool
    encryption: SegmentEncryption | None
    chunk_crcs: tuple[int, ...] | None
    segment: RemoteSegment | None

    @property
    def indexes_size(self) -> int:
        """Size of the whole object with the indexes."""
        return max(index.position + index.size for index in self.indexes.values())

    def index(self, kind: IndexKind) -> StoredIndex | None:
        """Return the position of an index, None if the segment has no such index."""
        found = self.indexes.get(kind)
        if found is not None and found.size == 0 and kind is IndexKind.PRODUCER_SNAPSHOT:
            return None
        return found


def encode_manifest(manifest: SegmentManifest) -> bytes:
    document: dict[str, object] = {
        "version": _VERSION,
        "chunkIndex": _chunk_index_json(manifest.chunks),
        "segmentIndexes": {name: _index_json(manifest.indexes.get(kind)) for kind, name in INDEX_NAMES.items()},
        "compression": manifest.compression,
    }
    if manifest.encryption is not None:
        document["encryption"] = {"dataKey": manifest.encryption.data_key, "aad": _base64(manifest.encryption.aad)}
    if manifest.segment is None:
        return _json(document)
    document["remoteLogSegmentMetadata"] = _segment_json(manifest.segment) | _crcs_json(manifest)
    content = _json(document).removesuffix(_END)
    return content + _OWN_CRC + _own_crc(content) + _END


def _own_crc(content: bytes) -> bytes:
    return b'%08x"' % crc32c(content)


def _json(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def decode_manifest(content: bytes) -> SegmentManifest:
    """Decode a manifest. Raises CorruptRemoteData, and RemoteStorageError for an unknown version."""
    try:
        _check_own_crc(content)
        fields = JsonFields.parse(content)
        version = fields.text("version")
        if version == _VERSION:
            return _decode(fields)
    except (ValueError, MalformedRecords) as error:
        raise CorruptRemoteData(f"not the manifest of a segment: {error}") from error
    raise RemoteStorageError(f"the manifest of a segment has the unknown version {version}")


def _check_own_crc(content: bytes) -> None:
    covered, found, crc = content.rpartition(_OWN_CRC)
    if found and crc.removesuffix(_END) != _own_crc(covered):
        raise ValueError("its CRC does not match")


def _decode(fields: JsonFields) -> SegmentManifest:
    chunks = _chunk_index(fields.object("chunkIndex"))
    metadata = fields.object("remoteLogSegmentMetadata") if "remoteLogSegmentMetadata" in fields else JsonFields({})
    indexes = _indexes(fields.object("segmentIndexes"), metadata)
    encryption = fields.object("encryption") if "encryption" in fields else None
    return SegmentManifest(
        chunks=chunks,
        indexes=indexes,
        compression=fields.boolean("compression"),
        encryption=None
        if encryption is None
        else SegmentEncryption(encryption.text("dataKey"), encryption.binary("aad")),
        chunk_crcs=_chunk_crcs(metadata, chunks.count),
        segment=_segment(metadata, chunks, indexes) if "remoteLogSegmentId" in metadata else None,
    )


# -- chunks ------------------------------------------------------------------------------------------------------------


def _chunk_index_json(chunks: ChunkIndex) -> dict[str, object]:
    sizes = {"originalChunkSize": chunks.chunk_size, "originalFileSize": chunks.file_size}
    if isinstance(chunks, VariableChunkIndex):
        encoded = compress(Codec.ZSTD, encode_sizes(chunks.stored_sizes))
        return {"type": "variable", **sizes, "transformedChunks": _base64(encoded)}
    return {
        "type": "fixed",
        **sizes,
        "transformedChunkSize": chunks.stored_chunk_size,
        "finalTransformedChunkSize": chunks.stored_final_chunk_size,
    }


def _chunk_index(fields: JsonFields) -> ChunkIndex:
    chunk_size, file_size = fields.integer("originalChunkSize"), fields.integer("originalFileSize")
    match fields.text("type"):
        case "fixed":
            stored, final = fields.integer("transformedChunkSize"), fields.integer("finalTransformedChunkSize")
            return FixedChunkIndex(chunk_size, file_size, stored, final)
        case "variable":
            encoded = decompress(Codec.ZSTD, fields.binary("transformedChunks"), _MAX_SIZES_BYTES)
            return VariableChunkIndex(chunk_size, file_size, decode_sizes(bytes(encoded)))
        case other:
            raise ValueError(f"chunkIndex.type is {other!r}")


# -- indexes -----------------------------------------------------------------------------------------------------------


def _index_json(index: StoredIndex | None) -> dict[str, int] | None:
    return None if index is None else {"position": index.position, "size": index.size}


def _indexes(fields: JsonFields, metadata: JsonFields) -> dict[IndexKind, StoredIndex]:
    crcs = metadata.object("indexCrc32cs") if "indexCrc32cs" in metadata else JsonFields({})
    indexes = {}
    for kind, name in INDEX_NAMES.items():
        if kind is IndexKind.TRANSACTION and name not in fields:
            continue
        position, size = fields.object(name).integer("position"), fields.object(name).integer("size")
        if position < 0 or size < 0:
            raise ValueError(f"segmentIndexes.{name} is at {position} with {size} bytes")
        indexes[kind] = StoredIndex(position, size, crcs.integer(name) if name in crcs else None)
    return indexes


# -- the segment -------------------------------------------------------------------------------------------------------


def _segment_json(segment: RemoteSegment) -> dict[str, object]:
    partition = segment.id.partition
    document: dict[str, object] = {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": uuid_to_text(partition.topic_id),
                "topicPartition": {"topic": partition.topic, "partition": partition.partition},
            },
            "id": uuid_to_text(segment.id.id),
        },
        "startOffset": segment.start_offset,
        "endOffset": segment.end_offset,
        "maxTimestampMs": segment.max_timestamp_ms,
        "brokerId": segment.broker_id,
        "eventTimestampMs": segment.event_timestamp_ms,
        "segmentLeaderEpochs": {str(epoch): start for epoch, start in segment.leader_epochs},
    }
    if segment.custom_metadata is not None:
        document["customMetadata"] = _base64(segment.custom_metadata)
    if segment.compacted_to is not None:
        document["compactedTo"] = segment.compacted_to
    return document


def _segment(fields: JsonFields, chunks: ChunkIndex, indexes: Mapping[IndexKind, StoredIndex]) -> RemoteSegment:
    transactions = indexes.get(IndexKind.TRANSACTION)
    return RemoteSegment(
        id=_segment_id(fields.object("remoteLogSegmentId")),
        start_offset=fields.integer("startOffset"),
        end_offset=fields.integer("endOffset"),
        max_timestamp_ms=fields.integer("maxTimestampMs"),
        broker_id=BrokerId(fields.integer("brokerId")),
        event_timestamp_ms=fields.integer("eventTimestampMs"),
        size_bytes=chunks.file_size,
        leader_epochs=tuple(_epochs(fields.object("segmentLeaderEpochs"))),
        state=SegmentState.COPY_FINISHED,
        custom_metadata=fields.binary("customMetadata") if "customMetadata" in fields else None,
        txn_index_empty=transactions is None or transactions.size == 0,
        compacted_to=fields.integer("compactedTo") if "compactedTo" in fields else None,
    )


def _segment_id(fields: JsonFields) -> RemoteSegmentId:
    topic_id_partition = fields.object("topicIdPartition")
    topic_partition = topic_id_partition.object("topicPartition")
    topic_id: Uuid = uuid_from_text(topic_id_partition.text("topicId"))
    partition = TopicIdPartition(topic_id, topic_partition.text("topic"), topic_partition.integer("partition"))
    return RemoteSegmentId(partition, uuid_from_text(fields.text("id")))


def _epochs(fields: JsonFields) -> Iterator[SegmentEpoch]:
    """Yield the epochs in ascending order, whatever the order of the keys."""
    for name in sorted(fields.names(), key=int):
        yield SegmentEpoch(LeaderEpoch(int(name)), fields.integer(name))


# -- checksums ---------------------------------------------------------------------------------------------------------


def _crcs_json(manifest: SegmentManifest) -> dict[str, object]:
    document: dict[str, object] = {}
    if manifest.chunk_crcs is not None:
        document["chunkCrc32cs"] = _base64(b"".join(map(_CRC.pack, manifest.chunk_crcs)))
    crcs = {INDEX_NAMES[kind]: index.crc for kind, index in manifest.indexes.items() if index.crc is not None}
    if crcs:
        document["indexCrc32cs"] = crcs
    return document


def _chunk_crcs(metadata: JsonFields, count: int) -> tuple[int, ...] | None:
    if "chunkCrc32cs" not in metadata:
        return None
    data = metadata.binary("chunkCrc32cs")
    if len(data) != count * _CRC.size:
        raise ValueError(f"{len(data)} bytes of CRCs for {count} chunks")
    return tuple(crc for (crc,) in _CRC.iter_unpack(data))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
