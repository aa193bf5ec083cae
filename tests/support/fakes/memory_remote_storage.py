"""Remote storage in memory: copied segments can be read and deleted; calls can be made to fail."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.primitives import Uuid
from storage.files import read_file
from storage.tiered.errors import RemoteResourceNotFound
from storage.tiered.remote_storage import IndexKind, SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment

PIECE_BYTES = 100
"""Piece size, small enough that batches span pieces."""


@dataclass(slots=True)
class StoredSegment:
    """Objects of a segment; `metadata` is the state at the start of the copy."""

    metadata: RemoteSegment
    log: bytes
    indexes: dict[IndexKind, bytes]


@dataclass(slots=True)
class MemoryRemoteStorage:
    """Implements RemoteStorageManager. Each of the `failures` is raised by one call; `calls` records all calls."""

    segments: dict[Uuid, StoredSegment] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    is_closed: bool = False

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        self._note(f"copy {segment.id}")
        paths = {
            IndexKind.OFFSET: files.offset_index,
            IndexKind.TIME: files.time_index,
            IndexKind.TRANSACTION: files.transaction_index,
            IndexKind.PRODUCER_SNAPSHOT: files.producer_snapshot,
        }
        indexes = {kind: read_file(files.fs, path) for kind, path in paths.items() if path is not None}
        indexes[IndexKind.LEADER_EPOCH] = files.leader_epochs
        self.segments[segment.id.id] = StoredSegment(segment, read_file(files.fs, files.log), indexes)
        return None

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        self._note(f"read {segment.id}")
        log = memoryview(self._stored(segment).log)
        wanted = log[first : len(log) if last is None else last + 1]
        return (wanted[at : at + PIECE_BYTES] for at in range(0, len(wanted), PIECE_BYTES))

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        self._note(f"read {kind.value} of {segment.id}")
        found = self._stored(segment).indexes.get(kind)
        if found is None:
            raise RemoteResourceNotFound(f"{segment.id} has no {kind.value}")
        return found

    def read_soon(self, segment: RemoteSegment, first: int) -> None:
        """Do nothing: there is no cache."""

    def discard(self, segment: RemoteSegment) -> None:
        """Do nothing: there is no cache."""

    def location(self, segment: RemoteSegment) -> str:
        return str(segment.id)

    def delete_segment(self, segment: RemoteSegment) -> None:
        self._note(f"delete {segment.id}")
        self.segments.pop(segment.id.id, None)

    def close(self) -> None:
        self.is_closed = True

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.failures:
            raise self.failures.pop(0)

    def _stored(self, segment: RemoteSegment) -> StoredSegment:
        stored = self.segments.get(segment.id.id)
        if stored is None:
            raise RemoteResourceNotFound(str(segment.id))
        return stored
