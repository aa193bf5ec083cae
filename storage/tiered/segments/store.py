"""Segments in an object store: copy, read, delete (KIP-405, "RemoteStorageManager"; object format of Aiven's plugin).

A segment is three objects: log, indexes, manifest. The manifest is written last and deleted first. So a manifest proves
a complete segment, and a failure leaves either a complete segment or objects without manifest, which are ignored and
which `delete_segment` removes.

All data read are checked against the sizes, tags and CRCs in the manifest. Cached data of a segment that turn out wrong
are dropped, so that the next attempt reads from the store.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from protocol.records.compiled import crc32c
from storage.tiered.cache.chunk_cache import ChunkReader
from storage.tiered.cache.loading_cache import LoadingCache
from storage.tiered.errors import (
    CorruptRemoteData,
    ObjectNotFound,
    ObjectStoreError,
    RemoteResourceNotFound,
    RemoteStorageError,
)
from storage.tiered.format.manifest import INDEX_NAMES, SegmentManifest, StoredIndex, decode_manifest
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.format.transforms import ChunkCipher, ChunkTransform
from storage.tiered.object_store import ObjectStore
from storage.tiered.remote_storage import IndexKind, SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
from storage.tiered.segments.store_errors import store_errors
from storage.tiered.segments.stored_log import StoredLog
from storage.tiered.segments.writer import KeyRing, SegmentWriter
from storage.tiered.settings import SegmentStoreSettings
from storage.tiered.stores.byte_rate import ByteRate

_MAX_MANIFEST_BYTES = 32 * 1024 * 1024
"""Read limit far above any manifest; the beginning of a larger object is not a valid manifest."""


class _OpenManifest(NamedTuple):
    """A manifest and the cipher of its segment."""

    manifest: SegmentManifest
    cipher: ChunkCipher | None


class ObjectSegmentStore:
    """Implements RemoteStorageManager. `key_ring` decrypts, and encrypts if the settings say so."""

    def __init__(
        self,
        store: ObjectStore,
        settings: SegmentStoreSettings,
        chunks: ChunkReader,
        *,
        monotonic_ms: Callable[[], float],
        key_ring: KeyRing | None = None,
        upload_rate: ByteRate | None = None,
    ) -> None:
        self._store = store
        self._keys = ObjectKeys(settings.key_prefix, mask_prefix=settings.masks_key_prefix)
        self._chunks = chunks
        self._key_ring = key_ring
        self._upload_rate = upload_rate
        self._closed = threading.Event()
        self._writer = SegmentWriter(
            store, self._keys, settings, key_ring=key_ring, upload_rate=upload_rate, is_closed=self._closed.is_set
        )
        self._manifests: LoadingCache[str, _OpenManifest] = LoadingCache(
            settings.manifest_cache, monotonic_ms, lambda opened: 1
        )
        self._indexes: LoadingCache[str, bytes] = LoadingCache(settings.index_cache, monotonic_ms, len)
        self._max_index_bytes = settings.index_cache.size

    def close(self) -> None:
        """Close the store; copies and reads in progress fail soon."""
        self._closed.set()
        if self._upload_rate is not None:
            self._upload_rate.wake()
        self._chunks.close()
        self._store.close()

    # -- copy --------------------------------------------------------------------------------------------------------

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        segment = replace(segment, state=SegmentState.COPY_FINISHED, custom_metadata=None)
        self._forget(segment)
        try:
            with store_errors(self._keys, f"copying {segment.id}"):
                self._undo_earlier_copy(segment)
                return self._writer.write(segment, files)
        except BaseException as error:
            self._clean_up(segment, error)
            raise

    def _undo_earlier_copy(self, segment: RemoteSegment) -> None:
        """Delete the manifest of a former copy under this id; it may describe objects with another key."""
        key = self._key(segment, ObjectSuffix.MANIFEST)
        try:
            any(self._store.get(key, 0, 0))
        except ObjectNotFound:
            return
        self._store.delete([key])

    def _clean_up(self, segment: RemoteSegment, error: BaseException) -> None:
        """Delete the objects of a failed copy; a failure is noted on the error, and the caller deletes the segment
        again.
        """
        try:
            self._delete_objects(segment)
        except ObjectStoreError as another:
            error.add_note(self._keys.shown(f"objects of {segment.id} may be left over: {another}"))

    # -- delete ------------------------------------------------------------------------------------------------------

    def delete_segment(self, segment: RemoteSegment) -> None:
        self._forget(segment)
        with store_errors(self._keys, f"deleting {segment.id}"):
            self._delete_objects(segment)

    def _delete_objects(self, segment: RemoteSegment) -> None:
        self._store.delete([self._key(segment, ObjectSuffix.MANIFEST)])
        self._store.delete([self._key(segment, suffix) for suffix in (ObjectSuffix.LOG, ObjectSuffix.INDEXES)])

    def _forget(self, segment: RemoteSegment) -> None:
        self._manifests.forget(self._key(segment, ObjectSuffix.MANIFEST))
        self._indexes.forget(self._key(segment, ObjectSuffix.INDEXES))
        self._chunks.forget(self._key(segment, ObjectSuffix.LOG))

    # -- read --------------------------------------------------------------------------------------------------------

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        """Read whole chunks; with `last`, adjacent chunks share one request."""
        log = self._log(segment)
        end = log.index.file_size - 1
        last_byte = end if last is None else min(last, end)
        if first > last_byte:
            return iter(())
        return self._checked(segment, self._chunks.read(log, first, last_byte, is_open_ended=last is None))

    def read_soon(self, segment: RemoteSegment, first: int) -> None:
        """Load the manifest and prefetch chunks."""
        log = self._log(segment)
        if first < log.index.file_size:
            self._chunks.read_soon(log, first)

    def discard(self, segment: RemoteSegment) -> None:
        with contextlib.suppress(RemoteStorageError):  # without a key nothing is cached
            self._forget(segment)

    def location(self, segment: RemoteSegment) -> str:
        try:
            return self._keys.shown(self._key(segment, ObjectSuffix.LOG))
        except RemoteStorageError as error:
            return str(error)

    def _log(self, segment: RemoteSegment) -> StoredLog:
        manifest, cipher = self._open(segment)
        key = self._key(segment, ObjectSuffix.LOG)
        return StoredLog(self._store, self._keys, key, manifest, ChunkTransform(manifest.compression, cipher))

    def _checked(self, segment: RemoteSegment, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        try:
            yield from pieces
        except (CorruptRemoteData, RemoteResourceNotFound):
            self._forget(segment)
            raise

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """Return an index; all indexes are fetched with one request, because readers need several."""
        manifest, cipher = self._open(segment)
        index = manifest.index(kind)
        if index is None:
            raise RemoteResourceNotFound(f"{segment.id} has no {INDEX_NAMES[kind]} index")
        if not index.size:
            return b""
        try:
            stored = self._stored_index(segment, manifest, index)
            if len(stored) != index.size or (index.crc is not None and crc32c(stored) != index.crc):
                raise CorruptRemoteData(f"the {INDEX_NAMES[kind]} index of {segment.id} differs from the stored one")
            return bytes(stored if cipher is None else cipher.open(stored))
        except (CorruptRemoteData, RemoteResourceNotFound):
            self._forget(segment)
            raise

    def _stored_index(self, segment: RemoteSegment, manifest: SegmentManifest, index: StoredIndex) -> memoryview:
        """Return the bytes of an index, fetched alone if all indexes together exceed the cache."""
        key = self._key(segment, ObjectSuffix.INDEXES)
        whole = manifest.indexes_size
        if self._max_index_bytes is not None and whole > self._max_index_bytes:
            return memoryview(self._load(key, index.position, index.size))
        content = memoryview(self._indexes.get(key, lambda: self._load(key, 0, whole)))
        return content[index.position : index.position + index.size]

    def _open(self, segment: RemoteSegment) -> _OpenManifest:
        """Return the manifest. Raises RemoteResourceNotFound if there is none, and thus no segment."""
        key = self._key(segment, ObjectSuffix.MANIFEST)
        opened = self._manifests.get(key, lambda: self._load_manifest(key))
        described = opened.manifest.segment
        if described is not None and described.id.id != segment.id.id:
            self._forget(segment)
            raise CorruptRemoteData(f"the manifest of {segment.id} describes {described.id}")
        return opened

    def _load_manifest(self, key: str) -> _OpenManifest:
        manifest = decode_manifest(self._load(key, 0, _MAX_MANIFEST_BYTES))
        if manifest.encryption is None:
            return _OpenManifest(manifest, None)
        if self._key_ring is None:
            raise RemoteStorageError(f"{self._keys.shown(key)} is encrypted, and no keys are configured")
        return _OpenManifest(manifest, self._key_ring.cipher(manifest.encryption))

    def _load(self, key: str, position: int, size: int) -> bytes:
        """Return the bytes of a range, fewer at the object's end."""
        with store_errors(self._keys, "reading"):
            return b"".join(self._store.get(key, position, position + size - 1))

    def _key(self, segment: RemoteSegment, suffix: ObjectSuffix) -> str:
        try:
            return self._keys.key(segment, suffix)
        except ValueError as error:
            raise RemoteStorageError(f"segment {segment.id} has {error}") from error
