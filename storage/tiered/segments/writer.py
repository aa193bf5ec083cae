"""Writer of one segment: the log, the indexes, then the manifest.

The log passes through in chunks, one in memory at a time. The caller deletes the objects of a failed copy.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import field, replace
from typing import NamedTuple, Protocol

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Buffer
from protocol.records.batch import HEADER_SIZE, parse_header
from protocol.records.compiled import crc32c
from protocol.records.compression import Codec
from protocol.records.errors import MalformedBatch
from storage.files import File, read_file
from storage.tiered.errors import RemoteStorageError
from storage.tiered.format.chunk_index import chunk_index
from storage.tiered.format.custom_metadata import CustomField, encode_custom_metadata
from storage.tiered.format.manifest import (
    INDEX_NAMES,
    SegmentEncryption,
    SegmentManifest,
    StoredIndex,
    encode_manifest,
)
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix, segment_path
from storage.tiered.format.transforms import ChunkCipher, ChunkTransform
from storage.tiered.object_store import ObjectStore
from storage.tiered.remote_storage import IndexKind, SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.store_errors import file_errors
from storage.tiered.settings import SegmentStoreSettings
from storage.tiered.stores.byte_rate import ByteRate, WaitCancelled


class NewKey(NamedTuple):
    """Cipher of a new segment, and its description in the manifest."""

    cipher: ChunkCipher
    encryption: SegmentEncryption


class KeyRing(Protocol):
    """Creates data keys, and decrypts those in manifests."""

    def new(self) -> NewKey: ...

    def cipher(self, encryption: SegmentEncryption) -> ChunkCipher:
        """Return the cipher. Raises RemoteStorageError, CorruptRemoteData."""
        ...


@lazy_dataclass(slots=True)
class _Noted:
    """Sizes and CRC-32Cs of stored parts."""

    sizes: list[int] = field(default_factory=list)
    crcs: list[int] = field(default_factory=list)

    def of(self, parts: Iterable[Buffer]) -> Iterator[Buffer]:
        for part in parts:
            self.sizes.append(len(part))
            self.crcs.append(crc32c(part))
            yield part


class SegmentWriter:
    """Writes segments; `upload_rate` limits all uploads together, and `is_closed` cancels waiting uploads."""

    def __init__(
        self,
        store: ObjectStore,
        keys: ObjectKeys,
        settings: SegmentStoreSettings,
        *,
        key_ring: KeyRing | None,
        upload_rate: ByteRate | None,
        is_closed: Callable[[], bool],
    ) -> None:
        self._store = store
        self._keys = keys
        self._settings = settings
        self._key_ring = key_ring if settings.encrypts else None
        self._upload_rate = upload_rate
        self._is_closed = is_closed

    def write(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Write a segment; return the custom metadata. Raises ObjectStoreError, RemoteStorageError."""
        new_key = self._key_ring.new() if self._key_ring is not None else None
        cipher = new_key.cipher if new_key is not None else None
        transform = ChunkTransform(self._is_to_be_compressed(files), cipher)
        log = self._put_log(segment, files, transform)
        manifest = SegmentManifest(
            chunks=chunk_index(
                self._settings.chunk_bytes,
                segment.size_bytes,
                log.sizes,
                transform.stored_size(self._settings.chunk_bytes),
            ),
            indexes=self._put_indexes(segment, files, ChunkTransform(cipher=cipher)),
            compression=transform.compresses,
            encryption=new_key.encryption if new_key is not None else None,
            chunk_crcs=tuple(log.crcs),
            segment=segment,
        )
        return self._put_manifest(segment, manifest)

    def _is_to_be_compressed(self, files: SegmentFiles) -> bool:
        """Decide by the first batch: records compressed by their producers hardly shrink."""
        if not self._settings.compresses_only_uncompressed:
            return self._settings.compresses
        with file_errors(f"reading {files.log}"), closing(files.fs.open_existing(files.log)) as file:
            beginning = file.read(0, HEADER_SIZE)
        try:
            return parse_header(beginning).codec == Codec.NONE
        except MalformedBatch:
            return False

    def _put_log(self, segment: RemoteSegment, files: SegmentFiles, transform: ChunkTransform) -> _Noted:
        noted = _Noted()
        with file_errors(f"reading {files.log}"):
            file = files.fs.open_existing(files.log)
        with closing(file):
            if file.size() != segment.size_bytes:
                raise RemoteStorageError(
                    f"{files.log} has {file.size()} bytes instead of {segment.size_bytes} as {segment.id}"
                )
            chunks = _chunks(file, files.log, segment.size_bytes, self._settings.chunk_bytes)
            self._put(segment, ObjectSuffix.LOG, noted.of(map(transform.store, chunks)))
        return noted

    def _put_indexes(
        self, segment: RemoteSegment, files: SegmentFiles, transform: ChunkTransform
    ) -> dict[IndexKind, StoredIndex]:
        contents = _index_contents(files)
        noted = _Noted()
        parts = (transform.store(content) if content else b"" for content in contents.values())
        self._put(segment, ObjectSuffix.INDEXES, noted.of(parts))
        indexes, position = {}, 0
        for kind, size, crc in zip(contents, noted.sizes, noted.crcs, strict=True):
            indexes[kind] = StoredIndex(position, size, crc)
            position += size
        return indexes

    def _put_manifest(self, segment: RemoteSegment, manifest: SegmentManifest) -> bytes | None:
        """Write the manifest; it contains custom metadata with its own size, so both grow until they agree."""
        other_bytes = manifest.chunks.stored_size + manifest.indexes_size
        content, size, custom_metadata = encode_manifest(manifest), 0, None
        while self._settings.custom_metadata_fields and size != other_bytes + len(content):
            size = other_bytes + len(content)
            custom_metadata = encode_custom_metadata(self._custom_fields(segment, size))
            content = encode_manifest(replace(manifest, segment=replace(segment, custom_metadata=custom_metadata)))
        self._put(segment, ObjectSuffix.MANIFEST, [content])
        return custom_metadata

    def _custom_fields(self, segment: RemoteSegment, size: int) -> Mapping[CustomField, int | str]:
        every: dict[CustomField, int | str] = {
            CustomField.REMOTE_SIZE: size,
            CustomField.OBJECT_PREFIX: self._keys.prefix,
            CustomField.OBJECT_KEY: segment_path(segment),
        }
        return {wanted: every[wanted] for wanted in self._settings.custom_metadata_fields}

    def _put(self, segment: RemoteSegment, suffix: ObjectSuffix, parts: Iterable[Buffer]) -> None:
        sent = 0

        def limited() -> Iterator[Buffer]:
            nonlocal sent
            for part in parts:
                self._wait_for_turn(len(part))
                sent += len(part)
                yield part

        key = self._keys.key(segment, suffix)
        stored = self._store.put(key, limited())
        if stored != sent:
            raise RemoteStorageError(f"{self._keys.shown(key)}: {stored} of {sent} bytes were stored")

    def _wait_for_turn(self, size: int) -> None:
        if self._upload_rate is None:
            return
        try:
            self._upload_rate.acquire(size, self._is_closed)
        except WaitCancelled as error:
            raise RemoteStorageError(
                "remote storage was closed while a copy waited for the upload rate limit"
            ) from error


def _chunks(file: File, path: str, size: int, chunk_bytes: int) -> Iterator[bytes]:
    for position in range(0, size, chunk_bytes):
        wanted = min(chunk_bytes, size - position)
        with file_errors(f"reading {path}"):
            chunk = file.read(position, wanted)
        if len(chunk) != wanted:
            raise RemoteStorageError(f"{path} was truncated while it was copied")
        yield chunk


def _index_contents(files: SegmentFiles) -> dict[IndexKind, bytes]:
    """Return the indexes in stored order; an absent producer snapshot is empty."""
    paths = {
        IndexKind.OFFSET: files.offset_index,
        IndexKind.TIME: files.time_index,
        IndexKind.PRODUCER_SNAPSHOT: files.producer_snapshot,
        IndexKind.TRANSACTION: files.transaction_index,
    }
    contents = {IndexKind.PRODUCER_SNAPSHOT: b"", IndexKind.LEADER_EPOCH: files.leader_epochs}
    for kind, path in paths.items():
        if path is not None:
            with file_errors(f"reading {path}"):
                contents[kind] = read_file(files.fs, path)
    return {kind: contents[kind] for kind in INDEX_NAMES if kind in contents}
