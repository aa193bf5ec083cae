"""Remote storage that drops cached indexes of deleted segments, on behalf of all callers."""

from collections.abc import Iterator

from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager, SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment


class IndexInvalidatingStorage:
    """Implements RemoteStorageManager over `storage`; raises what that raises."""

    def __init__(self, storage: RemoteStorageManager, cache: IndexCache) -> None:
        self._storage = storage
        self._cache = cache

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        return self._storage.copy_segment(segment, files)

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        return self._storage.read_segment(segment, first, last)

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        return self._storage.read_index(segment, kind)

    def read_soon(self, segment: RemoteSegment, first: int) -> None:
        self._storage.read_soon(segment, first)

    def discard(self, segment: RemoteSegment) -> None:
        self._storage.discard(segment)

    def location(self, segment: RemoteSegment) -> str:
        return self._storage.location(segment)

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete the indexes from the cache first: they must not outlive a partly deleted segment."""
        self._cache.forget([segment.id.id])
        self._storage.delete_segment(segment)

    def close(self) -> None:
        self._storage.close()
