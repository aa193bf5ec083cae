"""Complete check of one remote segment against its metadata."""

from collections.abc import Iterator

from protocol.records.batch import BatchHeader, crc_is_valid, iter_headers
from protocol.records.errors import MalformedBatch
from storage.errors import CorruptCheckpoint
from storage.producer_state import ProducerState
from storage.tiered.bucket.inventory import BucketReader
from storage.tiered.bucket.listing import StoredSegment
from storage.tiered.catalog.lineage import decode_epochs, epochs_of
from storage.tiered.errors import (
    CorruptRemoteData,
    ObjectNotFound,
    RemoteResourceNotFound,
)
from storage.tiered.format.manifest import SegmentManifest
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment

COMPACT_AT_BYTES = 1 << 20


class SegmentCheck:
    """Checker that describes the faults of one segment at a time. Missing or unreachable objects raise instead.

    Raises ObjectStoreError and RetriableRemoteStorageError.
    """

    def __init__(self, reader: BucketReader, storage: RemoteStorageManager) -> None:
        self._reader = reader
        self._storage = storage

    def faults(self, segment: RemoteSegment, stored: StoredSegment) -> list[str]:
        """Return the faults of `segment`, as recorded in the metadata, and `stored`, as listed."""
        sentences: list[str] = []
        try:
            sentences.extend(self._all(segment, stored))
        except (CorruptRemoteData, RemoteResourceNotFound, ObjectNotFound) as error:
            sentences.append(str(error))
        return sentences

    def _all(self, segment: RemoteSegment, stored: StoredSegment) -> Iterator[str]:
        manifest = self._reader.manifest(stored)
        yield from _sizes(manifest, stored)
        yield from _metadata(manifest, segment)
        yield from self._log(segment)
        yield from self._indexes(segment, manifest)

    def _log(self, segment: RemoteSegment) -> Iterator[str]:
        """Check every batch: its checksum, and ascending offsets within the segment."""
        buffer, size, next_offset = bytearray(), 0, segment.start_offset
        for piece in self._storage.read_segment(segment, 0, None):
            size += len(piece)
            buffer += piece
            if len(buffer) < COMPACT_AT_BYTES:
                continue
            next_offset, sentences = _batches(buffer, next_offset, segment)
            yield from sentences
        _, sentences = _batches(buffer, next_offset, segment)
        yield from sentences
        if buffer:
            yield f"{len(buffer)} bytes at the end are no batch"
        if size != segment.size_bytes:
            yield f"the log has {size} bytes, and metadata say {segment.size_bytes}"

    def _indexes(self, segment: RemoteSegment, manifest: SegmentManifest) -> Iterator[str]:
        for kind in IndexKind:
            if manifest.index(kind) is None:
                continue
            content = self._storage.read_index(segment, kind)
            if kind is IndexKind.LEADER_EPOCH:
                yield from _epochs(content, segment)
            elif kind is IndexKind.PRODUCER_SNAPSHOT:
                yield from _producers(content, segment)


def _sizes(manifest: SegmentManifest, stored: StoredSegment) -> Iterator[str]:
    """Compare object sizes with the chunks and indexes in the manifest."""
    expected = {
        ObjectSuffix.LOG: manifest.chunks.stored_size,
        ObjectSuffix.INDEXES: manifest.indexes_size,
    }
    for suffix, size in expected.items():
        info = stored.objects.get(suffix)
        if info is not None and info.size != size:
            yield f"the {suffix.value} object has {info.size} bytes, and the manifest says {size}"


def _metadata(manifest: SegmentManifest, segment: RemoteSegment) -> Iterator[str]:
    copied = manifest.segment
    if copied is None:
        yield "the manifest does not say of which segment it is"
        return
    for name in ("id", "start_offset", "end_offset", "max_timestamp_ms", "size_bytes", "leader_epochs"):
        if getattr(copied, name) != getattr(segment, name):
            yield f"the manifest has another {name.replace('_', ' ')} than metadata"


def _batches(buffer: bytearray, next_offset: int, segment: RemoteSegment) -> tuple[int, list[str]]:
    """Remove the complete batches from `buffer`; return the lowest offset that may follow, and the faults."""
    sentences: list[str] = []
    end = 0
    try:
        for position, header in iter_headers(buffer):
            end = position + header.size
            if not crc_is_valid(buffer, position, header.size):
                sentences.append(f"the checksum of the batch at offset {header.base_offset} does not hold")
            elif _is_out_of_place(header, next_offset, segment):
                sentences.append(f"offset {header.base_offset} is out of place")
            next_offset = header.next_offset
    except MalformedBatch as error:
        sentences.append(str(error))
        end = len(buffer)
    del buffer[:end]
    return next_offset, sentences


def _is_out_of_place(header: BatchHeader, next_offset: int, segment: RemoteSegment) -> bool:
    return header.base_offset < next_offset or header.last_offset > segment.end_offset


def _epochs(content: bytes, segment: RemoteSegment) -> Iterator[str]:
    try:
        entries = decode_epochs(content)
    except CorruptCheckpoint as error:
        yield str(error)
        return
    if epochs_of(entries, segment.start_offset, segment.end_offset) != segment.leader_epochs:
        yield "the history of leader epochs is not that of the segment"


def _producers(content: bytes, segment: RemoteSegment) -> Iterator[str]:
    try:
        ProducerState.decode("the producer snapshot", content, segment.end_offset + 1)
    except CorruptCheckpoint as error:
        yield str(error)
