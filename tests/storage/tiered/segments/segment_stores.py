"""Segment stores for tests."""

import functools
from collections.abc import Mapping

from storage.tiered.cache.chunk_cache import ChunkCache, ChunkReader, UncachedChunkReader
from storage.tiered.cache.chunk_storage import MemoryChunkStorage
from storage.tiered.cache.download_pool import DownloadPool
from storage.tiered.object_store import ObjectStore
from storage.tiered.segments.data_keys import DataKeys
from storage.tiered.segments.store import ObjectSegmentStore
from storage.tiered.segments.writer import KeyRing
from storage.tiered.settings import parse_settings
from storage.tiered.stores.byte_rate import ByteRate
from tests.storage.tiered.format.key_pairs import data_keys
from tests.support.fakes.memory_files import MemoryFileSystem

KEYS = {
    "encryption.key.pair.id": "written",
    "encryption.key.pairs": "written",
    "encryption.key.pairs.written.public.key.file": "x",
    "encryption.key.pairs.written.private.key.file": "x",
}
PLAIN: Mapping[str, str] = {"chunk.size": "1000"}
COMPRESSED = {**PLAIN, "compression.enabled": "true"}
ENCRYPTED = {**PLAIN, **KEYS, "encryption.enabled": "true"}
BOTH = {**COMPRESSED, **ENCRYPTED}


def segment_store(
    store: ObjectStore,
    settings: Mapping[str, str] = PLAIN,
    *,
    is_cached: bool = False,
    chunks: ChunkReader | None = None,
    key_ring: KeyRing | None = None,
    upload_rate: ByteRate | None = None,
) -> ObjectSegmentStore:
    """Return a store, with the fixed key pair if it encrypts."""
    parsed = parse_settings(settings).settings
    return ObjectSegmentStore(
        store,
        parsed,
        chunks or (chunk_cache() if is_cached else UncachedChunkReader()),
        monotonic_ms=lambda: 0,
        key_ring=key_ring or (_written_down() if parsed.key_pairs else None),
        upload_rate=upload_rate,
    )


@functools.cache
def _written_down() -> DataKeys:
    """Load the fixed keys once, because loading is slow."""
    return data_keys(MemoryFileSystem(), "written")


def chunk_cache(prefetch_bytes: int = 1500) -> ChunkCache:
    shelf = MemoryChunkStorage(parse_settings({}).settings.chunk_cache.limits, lambda: 0)
    pool = DownloadPool(threads=2, max_waiting=1000, idle_seconds=0.1)
    return ChunkCache(shelf, pool, wait_ms=10_000, prefetch_bytes=prefetch_bytes)
